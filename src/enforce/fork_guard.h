// A pointer that a forked child does not have: CUDA does not work there, and the parent's state may
// be locked or half changed. The child finds nullptr and starts anew.
//
// Threads: any. The kernel clears the pointer's page in the child; kernels that cannot (before
// Linux 4.14, gVisor) cost a getpid() per look.
#pragma once

#include <sys/types.h>

#include <atomic>

namespace fragscope::enforce {

class ForkGuard {
 public:
  constexpr ForkGuard() = default;
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  // nullptr: nothing has been set in this process.
  void* get() const {
    const Page* const page = page_.load(std::memory_order_acquire);
    if (page == nullptr || !is_ours(*page)) return nullptr;
    return page->value.load(std::memory_order_acquire);
  }
  // Sets `value` unless another thread was first; what is set then. nullptr: no memory for it.
  void* set(void* value);

 private:
  struct Page {
    std::atomic<void*> value;
    pid_t owner;  // 0: the kernel clears the page
  };
  static bool is_ours(const Page& page);
  std::atomic<Page*> page_{nullptr};
};

}  // namespace fragscope::enforce
