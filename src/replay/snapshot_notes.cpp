#include "replay/snapshot_notes.h"

#include "replay/release_search.h"

namespace fragscope::replay {

std::vector<std::string> snapshot_notes(const ProcessFacts& facts) {
  std::vector<std::string> notes;
  if (facts.block_source != BlockSource::snapshot) return notes;
  if (const auto chosen = facts.property(kReleaseNote)) notes.push_back(*chosen);
  const std::string segments = facts.property("snapshot.start_segments").value_or("0");
  const std::string blocks = facts.property("snapshot.start_blocks").value_or("0");
  const bool has_trace = facts.property("snapshot.entries").value_or("0") != "0";
  if (has_trace && (segments != "0" || blocks != "0")) {
    notes.push_back(segments + " segment(s) and " + blocks +
                    " block(s) were there before the trace begins; they follow from the snapshot "
                    "and the trace, undone; which segment is older and where an expandable segment "
                    "begins is not known");
    size_t choices = 0;
    for (const auto& [device, list] : facts.start_choices) choices += list.size();
    if (choices > 0) {
      notes.back() += ", but for " + std::to_string(choices) +
                      " pair(s) of segments whose order a choice in the trace shows";
    }
  }
  if (const auto outside = facts.property("snapshot.outside_segments")) {
    notes.push_back(*outside +
                    " allocation(s) lie in no segment of the snapshot: segment events were left "
                    "out of the recording (skip_actions) or by another tool, so what is allocated "
                    "can exceed what is reserved");
  }
  if (const auto contradictions = facts.property("snapshot.contradictions")) {
    notes.push_back(*contradictions +
                    " entries of the trace contradict each other or the segments");
  }
  return notes;
}

}  // namespace fragscope::replay
