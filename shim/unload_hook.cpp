// dlclose(): afterwards the same addresses may mean other functions. Nothing else is changed.

#include <dlfcn.h>
#include <link.h>

#include "shim/call_stack.h"
#include "shim/export.h"
#include "shim/module_table.h"
#include "shim/real_dlsym.h"

namespace fragscope::shim {
namespace {

constinit std::atomic<uint64_t> g_unloads{0};

// The loader's own count: most calls of dlclose() only give up a reference.
void note_unloads() {
  uint64_t unloads = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        *static_cast<uint64_t*>(data) = info->dlpi_subs;
        return 1;
      },
      &unloads);
  if (g_unloads.exchange(unloads, std::memory_order_release) != unloads) flush_unwinder();
}

}  // namespace

uint64_t unload_generation() noexcept { return g_unloads.load(std::memory_order_acquire); }

}  // namespace fragscope::shim

extern "C" FRAGSCOPE_EXPORT int dlclose(void* handle) noexcept {
  using namespace fragscope::shim;
  const DlsymFunction find = real_dlsym();
  const auto real =
      find != nullptr ? reinterpret_cast<int (*)(void*)>(find(RTLD_NEXT, "dlclose")) : nullptr;
  if (real == nullptr) return -1;
  const int result = real(handle);
  const ErrnoKeeper keep;
  note_unloads();
  return result;
}
