#include "tests/oracle/compare.h"

#include <algorithm>
#include <sstream>

#include "model/command_json.h"

namespace fragscope::oracle {
namespace {

using model::CommandTarget;
using model::ListResult;
using model::TraceAction;

// Sorts runs of free_completed; true if there was a run of several.
bool sort_completions(std::vector<CommandTarget::Entry>& trace) {
  bool several = false;
  const auto completed = [](const CommandTarget::Entry& e) {
    return e.entry.action == TraceAction::kFreeCompleted;
  };
  for (auto at = trace.begin(); at != trace.end();) {
    at = std::find_if(at, trace.end(), completed);
    const auto end = std::find_if_not(at, trace.end(), completed);
    several |= end - at > 1;
    std::sort(at, end, [](const CommandTarget::Entry& a, const CommandTarget::Entry& b) {
      return a.entry.address < b.entry.address;
    });
    at = end;
  }
  return several;
}

void sort_private_pools(ListResult& result) {
  for (model::DeviceResult& device : result.devices) {
    auto& pools = device.stats.private_pools;
    std::sort(pools.begin(), pools.end(), [](const auto& a, const auto& b) {
      return std::pair(a.id.first, a.id.second) < std::pair(b.id.first, b.id.second);
    });
  }
}

void forget_order(model::PoolStat& stat) {
  for (model::Stat* s : {&stat.all, &stat.kind[0], &stat.kind[1]}) {
    s->peak = s->allocated = s->freed = 0;
  }
}

// Which of two joined blocks survives decides what a free block says of its last use.
void forget_last_uses(model::SegmentSnapshot& segment) {
  for (model::BlockSnapshot& block : segment.blocks) {
    if (block.state == model::BlockState::kInactive) block.requested_size = 0;
  }
}

// A misuse of pools and scopes is an error in both; its text is an assertion's source line.
bool is_misuse_text(model::CommandKind kind) {
  return kind == model::CommandKind::kBeginPool || kind == model::CommandKind::kEndPool ||
         kind == model::CommandKind::kCreatePool || kind == model::CommandKind::kReleasePool ||
         kind == model::CommandKind::kEmptyCache;
}

ListResult normal_form(ListResult result) {
  bool unordered = false;
  for (model::CommandResult& r : result.results) {
    unordered |= sort_completions(r.trace);
    if (r.outcome == "error" && is_misuse_text(r.command.kind)) r.message.clear();
  }
  sort_private_pools(result);
  for (model::DeviceResult& device : result.devices) {
    if (!unordered) break;
    forget_order(device.stats.inactive_split);
    forget_order(device.stats.inactive_split_bytes);
    for (model::SegmentSnapshot& segment : device.segments) forget_last_uses(segment);
  }
  return result;
}

}  // namespace

std::string first_difference(const ListResult& from_model, const ListResult& from_library,
                             const model::VersionProfile& profile) {
  std::istringstream model_lines(list_result_json(normal_form(from_model), profile, {}));
  std::istringstream library_lines(list_result_json(normal_form(from_library), profile, {}));
  std::string a;
  std::string b;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(model_lines, a));
    const bool more_b = static_cast<bool>(std::getline(library_lines, b));
    if (!more_a && !more_b) return {};
    if (more_a != more_b || a != b) return "model:   " + a + "\nlibrary: " + b + "\n";
  }
}

}  // namespace fragscope::oracle
