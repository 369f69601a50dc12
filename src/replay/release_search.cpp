#include "replay/release_search.h"

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "replay/verify_pass.h"

namespace fragscope::replay {
namespace {

// Rules that place blocks alike.
bool place_alike(const model::VersionProfile& a, const model::VersionProfile& b) {
  return a.tie == b.tie && a.one_division_keeps_size == b.one_division_keeps_size &&
         a.expandable_in_private_pools == b.expandable_in_private_pools &&
         a.expandable_split_by_option == b.expandable_split_by_option && a.scope == b.scope &&
         a.scoped_empty_cache == b.scoped_empty_cache && a.fallback == b.fallback;
}

struct Score {
  uint64_t right = 0;
  uint64_t all = 0;

  bool perfect() const { return right == all; }
  // Of the same recording: `all` may differ by calls that were predicted and not recorded.
  bool better_than(const Score& other) const {
    return static_cast<double>(right) * static_cast<double>(other.all) >
           static_cast<double>(other.right) * static_cast<double>(all);
  }
  std::string percent() const {
    char text[32];
    const double share =
        all == 0 ? 100.0 : 100.0 * static_cast<double>(right) / static_cast<double>(all);
    std::snprintf(text, sizeof text, "%.2f %%", share);
    return text;
  }
};

Score score_of(const VerifyPass& pass) {
  Score score;
  for (const auto& [index, device] : pass.devices) {
    const VerifyCounts& counts = device->verifier.counts();
    score.right += counts.address_matches + counts.segment_matches;
    score.all += counts.block_events + counts.segment_calls;
  }
  return score;
}

struct Candidate {
  std::string release;
  std::string conf;
  Score score;
};

using StartChoices = std::map<int32_t, std::vector<SegmentChoice>>;

size_t count_of(const StartChoices& choices) {
  size_t count = 0;
  for (const auto& [device, list] : choices) count += list.size();
  return count;
}

// The ages of segments of the start, from the recorded allocator's own choices: each pass shows
// those that the order assumed so far gets wrong.
void learn_start_order(EventStream& events, ProcessFacts& facts, const Rules& rules,
                       Candidate& best) {
  constexpr int kMostPasses = 16;
  StartChoices known;
  for (int pass = 0; pass < kMostPasses && !best.score.perfect(); ++pass) {
    ProcessFacts trial = facts;
    trial.start_choices = known;
    const VerifyPass verified(events, trial, rules);
    const Score score = score_of(verified);
    if (pass > 0 && score.better_than(best.score)) {
      best.score = score;
      facts.start_choices = known;
    }
    StartChoices learned;
    for (const auto& [index, device] : verified.devices) {
      learned[index] = device->verifier.start_choices();
    }
    if (count_of(learned) == count_of(known)) return;
    known = std::move(learned);
  }
}

// Tries releases and settings, newest release first, until one is right in everything.
class Search {
 public:
  Search(EventStream& events, const ProcessFacts& facts) : events_(events), facts_(facts) {}

  void try_release(const model::VersionProfile& profile, const std::string& conf) {
    if (best_ && best_->score.perfect()) return;
    const auto rules = rules_of(std::string(profile.name), conf, model::SplitRule::kReleased);
    if (!rules) return;
    const Candidate candidate{std::string(profile.name), conf,
                              score_of(VerifyPass(events_, facts_, *rules))};
    ++tried_;
    if (!best_ || candidate.score.better_than(best_->score)) best_ = candidate;
  }

  const std::optional<Candidate>& best() const { return best_; }
  int tried() const { return tried_; }

 private:
  EventStream& events_;
  const ProcessFacts& facts_;
  std::optional<Candidate> best_;
  int tried_ = 0;
};

// Settings to try. A file that holds its settings leaves no choice.
std::vector<std::string> settings_of(const ProcessFacts& facts) {
  if (const auto conf = facts.property("alloc_conf")) return {*conf};
  std::vector<std::string> list = {""};
  for (const char* divisions : {"2", "4", "8", "16"}) {
    list.push_back(std::string("roundup_power2_divisions:") + divisions);
  }
  return list;
}

std::string note(const Candidate& chosen, const std::string& oldest, const std::string& newest,
                 int tried, bool settings_told) {
  std::string text = "the snapshot names no release; its keys are those of " + oldest;
  if (newest != oldest) text += newest.empty() ? " or later" : " to " + newest;
  if (chosen.score.all == 0) return text;
  text += ": the rules of " + chosen.release;
  if (!settings_told) {
    text += chosen.conf.empty() ? " with default settings" : " with " + chosen.conf;
  }
  if (chosen.score.perfect()) return text + " explain all of it";
  return text + " explain it best: " + chosen.score.percent() + " of the predictions (" +
         std::to_string(tried) + " set(s) of rules were tried)";
}

}  // namespace

void settle_release(EventStream& events, ProcessFacts& facts) {
  const auto oldest = facts.property("snapshot.torch_oldest");
  if (!oldest || facts.property("torch_version")) return;
  const std::string newest = facts.property("snapshot.torch_newest").value_or("");
  const int first = model::find_version_profile(*oldest).profile->minor;
  const int last = model::find_version_profile(newest).profile->minor;
  Search search(events, facts);
  for (const std::string& conf : settings_of(facts)) {
    const model::VersionProfile* before = nullptr;
    for (int minor = last; minor >= first; --minor) {
      const model::VersionProfile& profile = model::version_profiles()[static_cast<size_t>(minor)];
      if (before && place_alike(*before, profile)) continue;
      search.try_release(profile, conf);
      before = &profile;
    }
  }
  if (!search.best()) return;
  Candidate best = *search.best();
  const auto rules = rules_of(best.release, best.conf, model::SplitRule::kReleased);
  if (rules && rules->profile.tie != model::TieRule::kAddress) {
    learn_start_order(events, facts, *rules, best);
  }
  const bool settings_told = facts.property("alloc_conf").has_value();
  facts.properties["torch_version"] = best.release;
  facts.properties["alloc_conf"] = best.conf;
  facts.properties[kReleaseNote] = note(best, *oldest, newest, search.tried(), settings_told);
}

}  // namespace fragscope::replay
