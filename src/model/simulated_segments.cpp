#include "model/simulated_segments.h"

namespace fragscope::model {

std::optional<uint64_t> SimulatedSegments::device_malloc(uint64_t bytes) {
  return memory_.allocate(bytes);
}

void SimulatedSegments::device_free(uint64_t address, uint64_t /*bytes*/) {
  memory_.release(address);
}

DeviceMemoryInfo SimulatedSegments::memory_info() {
  return {capacity_.capacity() - capacity_.used(), total_};
}

std::optional<uint64_t> SimulatedSegments::reserve(uint64_t bytes) {
  return memory_.reserve_range(bytes);
}

bool SimulatedSegments::map(uint64_t /*address*/, uint64_t bytes) {
  return capacity_.charge(bytes);
}

void SimulatedSegments::unmap(uint64_t /*address*/, uint64_t bytes) { capacity_.refund(bytes); }

void SimulatedSegments::release(uint64_t address, uint64_t /*bytes*/) {
  memory_.release_range(address);
}

}  // namespace fragscope::model
