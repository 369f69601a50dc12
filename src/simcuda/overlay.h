// The few bytes of a simulated device that can be read back. Kernels do nothing, so a stored value
// is only right until the next launch: everything expires then, and what is not stored reads as
// zeros. Large transfers are never stored, so an 80 GiB card costs no host memory.
//
// Addresses are device addresses. Threads: callers lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace fragscope::simcuda {

class Overlay {
 public:
  static constexpr size_t kLargestWrite = 64u << 10;  // larger writes only erase
  static constexpr size_t kCapacity = 16u << 20;      // beyond it everything is dropped

  void write(uint64_t address, const void* from, size_t bytes);
  void fill(uint64_t address, unsigned value, size_t value_bytes, size_t count);
  // False: nothing of it is stored, and then nothing of the copy.
  bool copy(uint64_t to, uint64_t from, size_t bytes);
  // False: nothing of it is stored, all bytes are zeros.
  bool read(uint64_t address, void* to, size_t bytes) const;
  void erase(uint64_t address, uint64_t bytes);
  void expire() {  // a kernel was launched
    if (!ranges_.empty()) clear();
  }

  size_t stored_bytes() const { return stored_; }

 private:
  void clear();
  std::map<uint64_t, std::vector<std::byte>> ranges_;  // disjoint
  size_t stored_ = 0;
};

}  // namespace fragscope::simcuda
