// The caching allocator's segments, taken from a device; and which addresses lie in them.
//
// Threads: callers hold the allocator's lock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "enforce/device_api.h"
#include "enforce/stream_events.h"
#include "model/segment_provider.h"

namespace fragscope::enforce {

class CachedSegments final : public model::SegmentProvider {
 public:
  explicit CachedSegments(DeviceApi& api) : api_(api), events_(api) {}

  std::optional<uint64_t> device_malloc(uint64_t bytes) override;
  void device_free(uint64_t address, uint64_t bytes) override;
  model::DeviceMemoryInfo memory_info() override;
  bool record_event(uint64_t stream) override;
  void wait_for_events() override { events_.wait(); }

  StreamEvents& events() { return events_; }
  // CudaResult of the newest device_malloc(), and what CUDA left in its output.
  CudaResult last_result() const { return last_result_; }
  uint64_t last_address() const { return last_address_; }
  // Requests that CUDA has refused so far.
  uint64_t failures() const { return failures_; }
  void forget_last_result() { last_result_ = kSuccess; }
  bool contains(uint64_t address) const;
  // First byte and size of the segment that the address lies in.
  std::optional<std::pair<uint64_t, uint64_t>> segment_of(uint64_t address) const;

 private:
  DeviceApi& api_;
  StreamEvents events_;
  std::map<uint64_t, uint64_t> sizes_;  // by address
  CudaResult last_result_ = kSuccess;
  uint64_t last_address_ = 0;
  uint64_t failures_ = 0;
};

}  // namespace fragscope::enforce
