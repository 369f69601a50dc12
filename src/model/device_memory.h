// The address and capacity policy of one simulated device, as one process sees it. The one owner of
// that policy: the simulated GPU (src/simcuda), the allocator model, the what-if replay and the
// oracle tests all place memory with this class, so their addresses are the same.
//
// Policy
// - Capacity is charged in pages of kDevicePage (2 MiB). Requests of at most kSmallDeviceAllocation
//   share a page, at multiples of kDeviceAlignment; larger ones get whole pages of their own.
// - The lowest address that fits is taken. Freed space is reused, so addresses repeat from run to
//   run for the same calls.
// - Address ranges without memory (cuMemAddressReserve) come from the upper half of the device's
//   window; physical memory (cuMemCreate) is charged without an address.
//
// Pure: no system calls, clocks or randomness. Threads: callers lock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace fragscope::model {

inline constexpr uint64_t kDevicePage = 2ull << 20;
inline constexpr uint64_t kSmallDeviceAllocation = 1ull << 20;
inline constexpr uint64_t kDeviceAlignment = 512;

// Address window of device `ordinal` (0 … kMaxDevices-1): below PIE and mmap areas of x86-64 and
// aarch64 Linux processes, above the shadow memory of the sanitizers.
inline constexpr uint64_t kDeviceWindowBase = 0x2000'0000'0000;   // 32 TiB
inline constexpr uint64_t kDeviceWindowBytes = 0x0600'0000'0000;  // 6 TiB each
inline constexpr int kMaxDevices = 8;
constexpr uint64_t device_window(int ordinal) {
  return kDeviceWindowBase + static_cast<uint64_t>(ordinal) * kDeviceWindowBytes;
}

// Who counts the bytes of a device: a number (model, replay) or a ledger in shared memory that all
// processes of a run use (simulated GPU).
class CapacityBook {
 public:
  virtual ~CapacityBook() = default;
  // False when the device has less than `bytes` left; then nothing is charged.
  virtual bool charge(uint64_t bytes) = 0;
  virtual void refund(uint64_t bytes) = 0;
};

// Capacity of one process alone. `capacity` bytes may be kUnlimited.
class LocalCapacity final : public CapacityBook {
 public:
  static constexpr uint64_t kUnlimited = UINT64_MAX;
  explicit LocalCapacity(uint64_t capacity) : capacity_(capacity) {}
  bool charge(uint64_t bytes) override;
  void refund(uint64_t bytes) override;
  uint64_t used() const { return used_; }
  uint64_t capacity() const { return capacity_; }

 private:
  uint64_t capacity_;
  uint64_t used_ = 0;
};

class DeviceMemory {
 public:
  DeviceMemory(int ordinal, CapacityBook& book);

  // Device memory (cudaMalloc). nullopt: out of memory, nothing changed. bytes = 0 is the caller's
  // business and never comes here.
  std::optional<uint64_t> allocate(uint64_t bytes);
  // Bytes that the allocation at exactly `address` had been asked for; nullopt: not one of ours.
  std::optional<uint64_t> release(uint64_t address);

  // The allocation that contains `address`.
  struct Allocation {
    uint64_t address;
    uint64_t bytes;  // as asked for
  };
  std::optional<Allocation> find(uint64_t address) const;

  // Address space without memory; `bytes` and `alignment` are multiples of kDevicePage.
  std::optional<uint64_t> reserve_range(uint64_t bytes, uint64_t alignment = kDevicePage);
  bool release_range(uint64_t address);

  uint64_t charged_bytes() const { return charged_; }

 private:
  struct SmallPage {
    std::map<uint64_t, uint64_t> free;  // address -> bytes
    uint64_t live = 0;                  // allocations in it
  };
  std::optional<uint64_t> take_pages(uint64_t bytes);
  void return_pages(uint64_t address, uint64_t bytes);
  std::optional<uint64_t> allocate_small(uint64_t bytes);

  CapacityBook& book_;
  std::map<uint64_t, uint64_t> page_holes_;   // free page runs: address -> bytes
  std::map<uint64_t, uint64_t> range_holes_;  // free address ranges: address -> bytes
  std::map<uint64_t, uint64_t> allocations_;  // address -> bytes asked for
  std::map<uint64_t, uint64_t> ranges_;       // address -> bytes
  std::map<uint64_t, SmallPage> small_pages_;
  uint64_t charged_ = 0;
};

}  // namespace fragscope::model
