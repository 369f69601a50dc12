// Statistics of the pinned host allocator under PyTorch's names (torch.cuda.host_memory_stats()).
//
// Units: bytes for …_bytes, counts otherwise. Times are not modelled: how often was measured is
// known, how long it took is not.
// Source of facts: ATen/core/CachingHostAllocator.h, torch/csrc/cuda/Module.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "model/stats.h"

namespace fragscope::model {

struct HostStats {
  Stat allocations;      // blocks held, in use or cached ("segment" up to 2.9)
  Stat allocated_bytes;  // of them ("reserved_bytes" up to 2.9)
  Stat active_requests;  // blocks in use or waiting for events ("allocation" up to 2.9)
  Stat active_bytes;     // of them ("allocated_bytes" up to 2.9)
  int64_t num_host_alloc = 0;
  int64_t num_host_free = 0;
  int64_t timed_allocs = 0;  // host_alloc_time.count
  int64_t timed_frees = 0;   // host_free_time.count
};

// Calls `visit(key, value)` for every key of the profile's host_memory_stats(), in alphabetical
// order; nullopt for what a model cannot know. No call if the release has no such statistics.
void visit_host_stats(const HostStats& stats, const VersionProfile& profile,
                      const std::function<void(const std::string&, std::optional<int64_t>)>& visit);

}  // namespace fragscope::model
