// A second preload, of somebody else: doubles every cudaMalloc and passes it on by RTLD_NEXT.
#include <dlfcn.h>

#include <cstddef>

extern "C" __attribute__((visibility("default"))) int cudaMalloc(void** out, size_t bytes) {
  using Malloc = int (*)(void**, size_t);
  static const auto next = reinterpret_cast<Malloc>(dlsym(RTLD_NEXT, "cudaMalloc"));
  return next == nullptr ? 999 : next(out, bytes * 2);
}
