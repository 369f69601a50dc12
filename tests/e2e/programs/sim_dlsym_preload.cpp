// A preload that overrides dlsym too, and says how often it was asked for a CUDA name.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" __attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) {
  using Function = void* (*)(void*, const char*);
#if defined(__x86_64__)
  static const auto real = reinterpret_cast<Function>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
#else
  static const auto real = reinterpret_cast<Function>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17"));
#endif
  // The next dlsym may be another preload's: that one has no version, and dlvsym does not find it.
  static const auto next = reinterpret_cast<Function>(real(RTLD_NEXT, "dlsym"));
  if (std::strncmp(name, "cu", 2) == 0 && std::getenv("COUNT_DLSYM") != nullptr) {
    std::fprintf(stderr, "asked for %s\n", name);
  }
  return next != nullptr ? next(handle, name) : real(handle, name);
}
