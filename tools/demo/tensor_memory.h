// Where the demo's tensors come from: a caching allocator, or cudaMalloc for each of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fragscope::demo {

class TensorMemory {
 public:
  virtual ~TensorMemory() = default;
  // Device address of `bytes` > 0; nullopt: out of memory, failure() says how.
  virtual std::optional<uint64_t> allocate(uint64_t bytes) = 0;
  virtual void release(uint64_t address) = 0;
  // A training step has ended: waits for the device and describes what is held now.
  virtual std::string end_step() = 0;
  // The message of the last failed allocate().
  virtual std::string failure() const = 0;
};

}  // namespace fragscope::demo
