// Interning of call stacks: equal stacks get the same id, a new one is written to the log once.
//
// Lock-free and bounded: open addressing over 64-bit hashes in pages that the kernel hands out as
// they are touched. Two threads that meet the same new stack at the same moment may both log it,
// under two ids; nobody waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "log/log_writer.h"

namespace fragscope::shim {

class StackTable {
 public:
  // False when there is no address space for it; then every stack is kNoStack.
  bool map() noexcept;

  struct Answer {
    uint32_t id;
    bool is_new;
  };
  // `frames`: return addresses, innermost first. kNoStack when the log or the table is full.
  Answer intern(std::span<const uint64_t> frames, log::LogWriter& writer) noexcept;

 private:
  struct Entry {
    std::atomic<uint64_t> hash;  // 0 = free
    std::atomic<uint32_t> id;    // 0 = not logged yet
    uint32_t unused;
  };
  static constexpr size_t kEntries = size_t{1} << 20;
  Entry* entries_ = nullptr;
  std::atomic<uint32_t> next_id_{1};
};

}  // namespace fragscope::shim
