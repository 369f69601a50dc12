#include "enforce/fork_guard.h"

#include <sys/mman.h>
#include <unistd.h>

namespace fragscope::enforce {

bool ForkGuard::is_ours(const Page& page) { return page.owner == 0 || page.owner == getpid(); }

void* ForkGuard::set(void* value) {
  constexpr size_t kBytes = 4096;
  Page* page = page_.load(std::memory_order_acquire);
  while (page == nullptr || !is_ours(*page)) {
    void* const memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto* const mine = static_cast<Page*>(memory);  // zero bytes are a valid, empty Page
    if (madvise(memory, kBytes, MADV_WIPEONFORK) != 0) mine->owner = getpid();
    if (page_.compare_exchange_strong(page, mine)) {
      page = mine;
    } else {
      munmap(memory, kBytes);
    }
  }
  void* found = nullptr;
  return page->value.compare_exchange_strong(found, value) ? value : found;
}

}  // namespace fragscope::enforce
