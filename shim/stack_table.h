// Interning of call stacks: equal stacks get the same id, a new one is written to the log once.
//
// Lock-free and bounded. Two threads that meet the same new stack at the same moment may both log
// it, under two ids; nobody waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "log/log_writer.h"
#include "shim/intern_map.h"

namespace fragscope::shim {

class StackTable {
 public:
  // False when there is no address space for it; then every stack is kNoStack.
  bool map() noexcept { return ids_.map(size_t{1} << 20); }

  struct Answer {
    uint32_t id;
    bool is_new;
  };
  // `frames`: innermost first, as in BlobKind::stack; `hash`: of all of them. The same addresses
  // mean other functions once something was unloaded: `generation` counts that. kNoStack when the
  // log or the table is full.
  Answer intern(std::span<const uint64_t> frames, uint64_t hash, uint64_t generation,
                log::LogWriter& writer) noexcept;

 private:
  InternMap ids_;
  std::atomic<uint32_t> next_id_{1};
};

}  // namespace fragscope::shim
