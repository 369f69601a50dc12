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

#define FRAGSCOPE_STRING "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

using Construct = void (*)(void* self, SourceLocation where, std::string text);

template <typename Function>
Function torch_symbol(const char* name) {
  const Function found = symbol<Function>("libc10.so", name);
  return found != nullptr ? found : symbol<Function>("libc10_cuda.so", name);
}

// A c10::OutOfMemoryError in `memory`. Since torch 2.15 its constructor is exported; before, the
// class only names its base's (from 2.7 on with these strings) and has its own table of virtual
// functions, which PyTorch's allocator brings along.
bool construct_out_of_memory(void* memory, const char* text) {
  constexpr SourceLocation kWhere = {"malloc", "libfragscope_alloc.so", 0};
  const auto own =
      torch_symbol<Construct>("_ZN3c1016OutOfMemoryErrorC1ENS_14SourceLocationE" FRAGSCOPE_STRING);
  if (own != nullptr) {
    own(memory, kWhere, text);
    return true;
  }
  const auto base =
      torch_symbol<Construct>("_ZN3c105ErrorC1ENS_14SourceLocationE" FRAGSCOPE_STRING);
  void** const table = torch_symbol<void**>("_ZTVN3c1016OutOfMemoryErrorE");
  if (base == nullptr || table == nullptr) return false;
  base(memory, kWhere, text);
  *static_cast<void***>(memory) = table + 2;  // behind the offset to the top and the type
  return true;
}

// The destructor is not exported: the first of the virtual functions.
void destroy(void* exception) { (*static_cast<void (***)(void*)>(exception))[0](exception); }

void throw_out_of_memory(const char* text) {
  void* const type = torch_symbol<void*>("_ZTIN3c1016OutOfMemoryErrorE");
  const auto allocate = symbol<void* (*)(size_t)>("libstdc++.so.6", "__cxa_allocate_exception");
  const auto raise =
      symbol<void (*)(void*, void*, void (*)(void*))>("libstdc++.so.6", "__cxa_throw");
  if (type == nullptr || allocate == nullptr || raise == nullptr) return;
  void* const exception = allocate(kExceptionBytes);
  if (construct_out_of_memory(exception, text)) raise(exception, type, destroy);
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
