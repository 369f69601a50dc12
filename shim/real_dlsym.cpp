#include "shim/real_dlsym.h"

#include "shim/elf_lookup.h"

// Read by the assembly of lookup_entry.cpp.
extern "C" {
__attribute__((visibility("hidden"))) void* fragscope_real_dlsym = nullptr;
__attribute__((visibility("hidden"))) void* fragscope_real_dlvsym = nullptr;
}

namespace fragscope::shim {
namespace {

void* find_in_c_library(const char* name) {
  void* found = find_symbol(find_object("libc.so.6"), name);
  // Before glibc 2.34 they were in a library of their own.
  return found != nullptr ? found : find_symbol(find_object("libdl.so.2"), name);
}

// Writing the same value twice does no harm; no lock, no guard variable.
void* find_once(void** cell, const char* name) {
  void* found = __atomic_load_n(cell, __ATOMIC_ACQUIRE);
  if (found != nullptr) return found;
  found = find_in_c_library(name);
  __atomic_store_n(cell, found, __ATOMIC_RELEASE);
  return found;
}

void* g_dlerror = nullptr;

}  // namespace

DlsymFunction real_dlsym() noexcept {
  return reinterpret_cast<DlsymFunction>(find_once(&fragscope_real_dlsym, "dlsym"));
}

DlvsymFunction real_dlvsym() noexcept {
  return reinterpret_cast<DlvsymFunction>(find_once(&fragscope_real_dlvsym, "dlvsym"));
}

DlerrorFunction real_dlerror() noexcept {
  return reinterpret_cast<DlerrorFunction>(find_once(&g_dlerror, "dlerror"));
}

}  // namespace fragscope::shim
