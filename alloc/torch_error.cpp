#include "alloc/torch_error.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace fragscope::alloc {
namespace {

struct SourceLocation {  // c10::SourceLocation
  const char* function;
  const char* file;
  uint32_t line;
};

// sizeof(c10::OutOfMemoryError) is some 200 bytes in all releases.
constexpr size_t kExceptionBytes = 1024;

template <typename Function>
Function symbol(const char* library, const char* name) {
  void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  return handle == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(handle, name));
}

// Since torch 2.15 the class's constructor is exported.
void throw_out_of_memory(const char* text) {
  const auto construct = symbol<void (*)(void*, SourceLocation, std::string)>(
      "libc10.so",
      "_ZN3c1016OutOfMemoryErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_"
      "traitsIcESaIcEEE");
  const auto destroy = symbol<void (*)(void*)>("libc10.so", "_ZN3c105ErrorD1Ev");
  void* const type = symbol<void*>("libc10.so", "_ZTIN3c1016OutOfMemoryErrorE");
  const auto allocate = symbol<void* (*)(size_t)>("libstdc++.so.6", "__cxa_allocate_exception");
  const auto raise =
      symbol<void (*)(void*, void*, void (*)(void*))>("libstdc++.so.6", "__cxa_throw");
  if (construct == nullptr || type == nullptr || allocate == nullptr || raise == nullptr) return;
  void* const exception = allocate(kExceptionBytes);
  construct(exception, {"malloc", "libfragscope_alloc.so", 0}, text);
  raise(exception, type, destroy);
}

}  // namespace

void raise_error(const char* text) {
  const auto fail = symbol<void (*)(const char*, const char*, uint32_t, const char*)>(
      "libc10.so", "_ZN3c106detail14torchCheckFailEPKcS2_jS2_");
  if (fail != nullptr) fail("malloc", "libfragscope_alloc.so", 0, text);
}

void raise_out_of_memory(const char* text) {
  throw_out_of_memory(text);
  raise_error(text);
}

}  // namespace fragscope::alloc
