// Where the model's pinned host memory comes from, and its stand-in for cudaHostAlloc. The oracle
// gives the real allocator the same addresses, so both can be compared.
//
// Units: bytes; addresses are of the host. Threads: callers lock. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "base/free_ranges.h"

namespace fragscope::model {

// One call to CUDA about host memory.
enum class HostCallKind : uint8_t { kAlloc, kFree, kRegister, kUnregister };
std::string_view host_call_name(HostCallKind kind);  // "cudaHostAlloc", …

struct HostCall {
  HostCallKind kind = HostCallKind::kAlloc;
  uint64_t address = 0;
  std::optional<uint64_t> bytes;  // none: cudaFreeHost, cudaHostUnregister
};

class HostMemory {
 public:
  virtual ~HostMemory() = default;
  // Pinned pages: by cudaHostAlloc, or by malloc and cudaHostRegister. nullopt: CUDA refused.
  virtual std::optional<uint64_t> allocate(uint64_t bytes, bool by_register) = 0;
  // `by_register` as at the allocation.
  virtual void release(uint64_t address, bool by_register) = 0;
};

// The lowest address that fits, in pages of 4 KiB, from kHostWindowBase on.
class HostAddresses {
 public:
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kHostWindowBase = 0x1000'0000'0000;
  static constexpr uint64_t kHostWindowBytes = 0x1000'0000'0000;

  HostAddresses() { holes_[kHostWindowBase] = kHostWindowBytes; }
  std::optional<uint64_t> take(uint64_t bytes);
  // Bytes that `address` had been taken for; nullopt: not one of ours.
  std::optional<uint64_t> give_back(uint64_t address);

 private:
  FreeRanges holes_;
  std::map<uint64_t, uint64_t> taken_;  // address -> bytes asked for
};

// Unlimited host memory that remembers the calls.
class SimulatedHostMemory final : public HostMemory {
 public:
  std::optional<uint64_t> allocate(uint64_t bytes, bool by_register) override;
  void release(uint64_t address, bool by_register) override;
  std::vector<HostCall> take_calls();  // since the last time

 private:
  HostAddresses addresses_;
  std::vector<HostCall> calls_;
};

}  // namespace fragscope::model
