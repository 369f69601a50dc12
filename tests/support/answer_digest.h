// Answers to command lists in a form that two allocators can be held to, and its fingerprint.
//
// Normal form: free_completed entries of one command are sorted (the library walks its streams in
// the order of a hash map), and where that order mattered, what depends on it is left out: peak and
// sums of inactive_split, and the stale requested_size of free blocks. Texts of misused pools and
// scopes are left out (they name source lines).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/command_json.h"
#include "model/command_runner.h"

namespace fragscope::test {

// Sorts runs of free_completed; true if there was a run of several.
inline bool sort_completions(std::vector<model::CommandTarget::Entry>& trace) {
  using Entry = model::CommandTarget::Entry;
  bool several = false;
  const auto completed = [](const Entry& e) {
    return e.entry.action == model::TraceAction::kFreeCompleted;
  };
  for (auto at = trace.begin(); at != trace.end();) {
    at = std::find_if(at, trace.end(), completed);
    const auto end = std::find_if_not(at, trace.end(), completed);
    several |= end - at > 1;
    std::sort(at, end,
              [](const Entry& a, const Entry& b) { return a.entry.address < b.entry.address; });
    at = end;
  }
  return several;
}

inline void forget_order(model::PoolStat& stat) {
  for (model::Stat* s : {&stat.all, &stat.kind[0], &stat.kind[1]}) {
    s->peak = s->allocated = s->freed = 0;
  }
}

inline void forget_order(model::DeviceResult& device) {
  forget_order(device.stats.inactive_split);
  forget_order(device.stats.inactive_split_bytes);
  for (model::SegmentSnapshot& segment : device.segments) {
    for (model::BlockSnapshot& block : segment.blocks) {
      if (block.state == model::BlockState::kInactive) block.requested_size = 0;
    }
  }
}

// A misuse of pools and scopes is an error in both; its text is an assertion's source line.
inline bool is_misuse_text(model::CommandKind kind) {
  using Kind = model::CommandKind;
  return kind == Kind::kBeginPool || kind == Kind::kEndPool || kind == Kind::kCreatePool ||
         kind == Kind::kReleasePool || kind == Kind::kEmptyCache;
}

// A checkpoint is put back segment by segment, in the order of a hash of pointers; what happens at
// one address has an order.
inline void sort_restored(model::CommandResult& result) {
  if (result.command.kind != model::CommandKind::kRestore) return;
  std::stable_sort(result.trace.begin(), result.trace.end(),
                   [](const auto& a, const auto& b) { return a.entry.address < b.entry.address; });
}

inline model::ListResult normal_form(model::ListResult result) {
  bool unordered = false;
  for (model::CommandResult& r : result.results) {
    sort_restored(r);
    unordered |= sort_completions(r.trace);
    if (r.outcome == "error" && is_misuse_text(r.command.kind)) r.message.clear();
  }
  for (model::DeviceResult& device : result.devices) {
    auto& pools = device.stats.private_pools;
    std::sort(pools.begin(), pools.end(), [](const auto& a, const auto& b) {
      return std::pair(a.id.first, a.id.second) < std::pair(b.id.first, b.id.second);
    });
    if (unordered) forget_order(device);
  }
  return result;
}

inline std::vector<std::string> normal_lines(const model::ListResult& result,
                                             const model::VersionProfile& profile) {
  const std::string text = list_result_json(normal_form(result), profile, {});
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// Four hexadecimal digits for each line (FNV-1a, folded).
inline std::string line_digests(const std::vector<std::string>& lines) {
  std::string digest;
  for (const std::string& line : lines) {
    uint64_t hash = 0xcbf2'9ce4'8422'2325ull;
    for (const char c : line) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x0000'0100'0000'01b3ull;
    }
    hash ^= hash >> 32;
    hash ^= hash >> 16;
    char text[8];
    std::snprintf(text, sizeof text, "%04x", static_cast<unsigned>(hash & 0xffff));
    digest += text;
  }
  return digest;
}

}  // namespace fragscope::test
