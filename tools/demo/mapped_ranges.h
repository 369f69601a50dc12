// Address ranges that grow by pages of physical memory, for expandable segments: the driver's
// cuMem functions, looked up when the first range is reserved (the demo is not linked with the
// driver, as PyTorch is not).
//
// Device 0. Units: bytes, multiples of 2 MiB. Threads: one. Errors: nullopt or false, with nothing
// left behind; a driver without these functions refuses every range.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace fragscope::demo {

struct DriverFunctions;

class MappedRanges {
 public:
  std::optional<uint64_t> reserve(uint64_t bytes);
  bool map(uint64_t address, uint64_t bytes);
  void unmap(uint64_t address, uint64_t bytes);
  void release(uint64_t address, uint64_t bytes);

 private:
  bool map_page(uint64_t address);

  const DriverFunctions* driver_ = nullptr;  // once a range was reserved
  std::map<uint64_t, uint64_t> handles_;     // mapped page -> its memory
};

}  // namespace fragscope::demo
