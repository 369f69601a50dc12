#include "tools/demo/cached_tensors.h"

#include <cuda_runtime_api.h>

#include "base/bytes.h"
#include "model/oom_message.h"
#include "shim/fragscope_api.h"

namespace fragscope::demo {
namespace {

constexpr int32_t kDevice = 0;

}  // namespace

std::optional<uint64_t> CudaSegments::device_malloc(uint64_t bytes) {
  void* address = nullptr;
  if (cudaMalloc(&address, bytes) != cudaSuccess) {
    cudaGetLastError();  // PyTorch clears it too: the retry after a flush starts afresh
    return std::nullopt;
  }
  return reinterpret_cast<uint64_t>(address);
}

void CudaSegments::device_free(uint64_t address, uint64_t /*bytes*/) {
  cudaFree(reinterpret_cast<void*>(address));
}

model::DeviceMemoryInfo CudaSegments::memory_info() {
  size_t free = 0;
  size_t total = 0;
  cudaMemGetInfo(&free, &total);
  return {free, total};
}

std::optional<uint64_t> CudaSegments::reserve(uint64_t bytes) { return ranges_.reserve(bytes); }
bool CudaSegments::map(uint64_t address, uint64_t bytes) { return ranges_.map(address, bytes); }
void CudaSegments::unmap(uint64_t address, uint64_t bytes) { ranges_.unmap(address, bytes); }
void CudaSegments::release(uint64_t address, uint64_t bytes) { ranges_.release(address, bytes); }

CachedTensors::CachedTensors(const model::AllocatorConfig& config)
    : allocator_(config, *model::find_version_profile("").profile, segments_) {
  allocator_.set_observer(this);
  fragscope_enforces_settings();
}

std::optional<uint64_t> CachedTensors::allocate(uint64_t bytes) {
  const model::MallocResult result = allocator_.malloc(bytes);
  if (!result.ok()) return std::nullopt;
  const model::DeviceStats& stats = allocator_.stats();
  fragscope_block_alloc(kDevice, 0, result.address, result.block_size, bytes,
                        static_cast<uint64_t>(stats.allocated_bytes.all.current),
                        static_cast<uint64_t>(stats.reserved_bytes.all.current));
  return result.address;
}

void CachedTensors::release(uint64_t address) { allocator_.free(address); }

std::string CachedTensors::end_step() {
  cudaDeviceSynchronize();
  const model::DeviceStats& stats = allocator_.stats();
  const auto reserved = static_cast<uint64_t>(stats.reserved_bytes.all.current);
  const auto peak = static_cast<uint64_t>(stats.allocated_bytes.all.peak);
  const auto segments = stats.segment.all.current;
  allocator_.reset_peak_stats();
  return "needed at most " + format_size(peak) + ", reserved " + format_size(reserved) + " in " +
         std::to_string(segments) + " segments";
}

std::string CachedTensors::failure() const {
  return model::oom_message(allocator_.last_oom(), allocator_.profile(), allocator_.config(),
                            kDevice);
}

// The order of the entries is PyTorch's. `alloc` is published by allocate(), which knows the block.
void CachedTensors::on_entry(const model::TraceEntry& entry) {
  switch (entry.action) {
    case model::TraceAction::kFreeRequested:
      fragscope_block_free_requested(kDevice, entry.stream, entry.address);
      break;
    case model::TraceAction::kFreeCompleted:
      fragscope_block_free_completed(kDevice, entry.stream, entry.address);
      break;
    case model::TraceAction::kSegmentAlloc:
      fragscope_segment_alloc(kDevice, entry.stream, entry.address, entry.size);
      break;
    case model::TraceAction::kSegmentFree:
      fragscope_segment_free(kDevice, entry.stream, entry.address, entry.size);
      break;
    case model::TraceAction::kSegmentMap:
      fragscope_segment_map(kDevice, entry.stream, entry.address, entry.size);
      break;
    case model::TraceAction::kSegmentUnmap:
      fragscope_segment_unmap(kDevice, entry.stream, entry.address, entry.size);
      break;
    case model::TraceAction::kOom:
      fragscope_oom(kDevice, entry.stream, entry.size, entry.address);
      break;
    case model::TraceAction::kAlloc:
    case model::TraceAction::kSnapshot:
      break;
  }
}

}  // namespace fragscope::demo
