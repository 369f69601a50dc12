// Segments of a simulated device: addresses by DeviceMemory, capacity by a CapacityBook.
#pragma once

#include "model/device_memory.h"
#include "model/segment_provider.h"

namespace fragscope::model {

class SimulatedSegments final : public SegmentProvider {
 public:
  // `total` is what cudaMemGetInfo reports; `capacity` is charged for every segment and must be the
  // book that `memory` uses. Both outlive this object.
  SimulatedSegments(DeviceMemory& memory, LocalCapacity& capacity, uint64_t total)
      : memory_(memory), capacity_(capacity), total_(total) {}

  std::optional<uint64_t> device_malloc(uint64_t bytes) override;
  void device_free(uint64_t address, uint64_t bytes) override;
  DeviceMemoryInfo memory_info() override;
  std::optional<uint64_t> reserve(uint64_t bytes) override;
  bool map(uint64_t address, uint64_t bytes) override;
  void unmap(uint64_t address, uint64_t bytes) override;
  void release(uint64_t address, uint64_t bytes) override;

 private:
  DeviceMemory& memory_;
  LocalCapacity& capacity_;
  uint64_t total_;
};

}  // namespace fragscope::model
