#include "model/oom_message.h"

#include <cstdio>

#include "base/bytes.h"
#include "model/rounding.h"

namespace fragscope::model {
namespace {

constexpr const char* kOldPage =
    "https://pytorch.org/docs/stable/notes/cuda.html#environment-variables";
constexpr const char* kNewPage =
    "https://docs.pytorch.org/docs/stable/notes/"
    "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf";

// 2.0: the figures in parentheses.
std::string old_message(const OomFacts& f, int device) {
  std::string text = "CUDA out of memory. Tried to allocate " + format_size(f.segment) + " (GPU " +
                     std::to_string(device) + "; " + format_size(f.device_total) +
                     " total capacity; " + format_size(f.allocated) + " already allocated; " +
                     format_size(f.device_free) + " free; ";
  if (f.allowed) text += format_size(*f.allowed) + " allowed; ";
  return text + format_size(f.reserved) +
         " reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
         "max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and "
         "PYTORCH_CUDA_ALLOC_CONF";
}

// `cap`: expandable_segments_reserve. A segment that no device could hold is not the cap's fault.
std::string expandable_advice(const OomFacts& f, std::optional<uint64_t> cap) {
  if (cap && f.segment > *cap && f.segment <= f.device_total) {
    return "This allocation exceeds the expandable-segment reserve of " + format_size(*cap) +
           " for this stream, and a single allocation cannot span expandable segments. Raise "
           "PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve or "
           "expandable_segments_reserve_by_class (or unset it) so that a segment is at least " +
           format_size(f.segment) + ".";
  }
  return "expandable_segments is enabled. If instead the process is running out of virtual address "
         "space (VSZ), expandable segments may be over-reserving VA (each segment reserves ~9/8 of "
         "device memory, times the number of streams); reduce it via PYTORCH_CUDA_ALLOC_CONF "
         "expandable_segments_reserve / expandable_segments_reserve_by_class.";
}

// The last sentence, with the blank before it.
std::string advice(const OomFacts& f, const VersionProfile& profile,
                   const AllocatorConfig& config) {
  const std::string large = " If reserved but unallocated memory is large try setting ";
  if (profile.minor == 1) {
    return large +
           "max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and "
           "PYTORCH_CUDA_ALLOC_CONF";
  }
  if (profile.minor == 14 && config.expandable_segments) return {};
  if (profile.has_expandable_reserve && config.expandable_segments) {
    return " " + expandable_advice(f, expandable_cap(config, f.device_total));
  }
  const std::string variable =
      profile.minor == 10 ? "PYTORCH_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF";
  return large + variable +
         "=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
         "Management  (" +
         (profile.minor >= 11 ? kNewPage : kOldPage) + ")";
}

}  // namespace

std::string oom_message(const OomFacts& f, const VersionProfile& profile,
                        const AllocatorConfig& config, int device) {
  if (profile.minor == 0) return old_message(f, device);
  const bool knows_pools = profile.minor >= 4;
  const uint64_t in_pools = knows_pools ? f.private_free : 0;
  // 2.3 prints the index as a character: GPU 0 is a NUL, where Python cuts the text.
  const std::string gpu =
      profile.minor == 3 ? std::string(1, static_cast<char>(device)) : std::to_string(device);
  std::string text = "CUDA out of memory. Tried to allocate " + format_size(f.segment) + ". GPU " +
                     gpu + " has a total " + (profile.minor == 1 ? "capacty" : "capacity") +
                     " of " + format_size(f.device_total) + " of which " +
                     format_size(f.device_free) + " is free. ";
  if (f.allowed && profile.minor >= 5) text += format_size(*f.allowed) + " allowed; ";
  text += "Of the allocated memory " + format_size(f.allocated + in_pools) +
          " is allocated by PyTorch, ";
  if (in_pools != 0) {
    text += "with " + format_size(in_pools) + " allocated in private pools (e.g., CUDA Graphs), ";
  }
  return text + "and " + format_size(f.reserved - f.allocated - in_pools) +
         " is reserved by PyTorch but unallocated." + advice(f, profile, config);
}

std::string rejection_message(const OomFacts& facts) {
  return "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
         "per_process_memory_fraction limit. Requested size: " +
         format_size(facts.requested);
}

std::string fraction_error(double fraction) {
  char number[BUFSIZ];  // %g is the form in which a C++ stream prints a double
  std::snprintf(number, sizeof number, "%g", fraction);
  return "invalid fraction:" + std::string(number) + ". Please set within [0, 1].";
}

}  // namespace fragscope::model
