// PYTORCH_CUDA_ALLOC_CONF: PyTorch's `key:value,key:value` settings, read as a given release reads
// them, with its acceptance, its defaults and its error texts.
//
// Units: bytes, whatever the option's name says. Threads: values. Errors: kInvalidArgument with
// PyTorch's own text.
// Source of facts: c10/cuda/CUDAAllocatorConfig.cpp, c10/core/AllocatorConfig.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "model/version_profile.h"

namespace fragscope::model {

inline constexpr size_t kRoundupEntries = 16;
inline constexpr uint64_t kUnlimitedSplit = UINT64_MAX;

struct AllocatorConfig {
  std::string text;  // as given last

  uint64_t max_split_size = kUnlimitedSplit;
  uint64_t max_non_split_rounding = 20 * kMiB;  // unless named: large_segment_size
  bool max_non_split_rounding_named = false;
  uint64_t large_segment_size = 20 * kMiB;
  double garbage_collection_threshold = 0;  // 0: off
  // Divisions per power of two; entry i is for sizes in [2^i, 2^(i+1)) MiB, entry 0 also for less.
  std::array<uint64_t, kRoundupEntries> roundup_power2_divisions{};
  bool expandable_segments = false;
  bool release_lock_on_cudamalloc = false;
  bool throw_on_cudamalloc_oom = false;
  bool graph_capture_record_stream_reuse = false;
  std::optional<double> per_process_memory_fraction;  // named in the settings, 2.10 on
  std::string backend = "native";

  // expandable_segments_reserve: a fraction of the device's memory, or bytes.
  std::optional<double> reserve_fraction;
  std::optional<uint64_t> reserve_bytes;

  bool pinned_use_cuda_host_register = false;
  bool pinned_use_background_threads = false;
  bool pinned_free_catch_all = false;
  uint64_t pinned_num_register_threads = 1;
  uint64_t pinned_reserve_segment_size = 0;
  std::optional<uint64_t> pinned_max_round_threshold;
  std::optional<uint64_t> pinned_max_cached_size;

  std::vector<std::string> warnings;  // of the last parse, PyTorch's words
};

// Where a settings string comes from: the texts of some errors differ.
enum class ConfigOrigin : uint8_t { kEnvironment, kRunTime };

// Reads `text` into a copy of `previous`, as a run-time call does: some options go back to their
// defaults first, the others keep their value unless named.
Result<AllocatorConfig> parse_config(std::string_view text, const VersionProfile& profile,
                                     const AllocatorConfig& previous = {},
                                     ConfigOrigin origin = ConfigOrigin::kEnvironment);

// The same, in place. On an error the options before the failing one stay applied, as in PyTorch.
Status apply_config(std::string_view text, const VersionProfile& profile, ConfigOrigin origin,
                    AllocatorConfig& config);

}  // namespace fragscope::model
