// Reading memory of the own process that may not be there: an error instead of a SIGSEGV.
//
// Threads: any. Allocates nothing; one system call per read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fragscope::shim {

// False when not all `bytes` could be read; `out` is then unspecified.
bool read_checked(uintptr_t address, void* out, size_t bytes) noexcept;

inline constexpr uintptr_t kPageBytes = 4096;  // or a part of a page

// The memory from `from` on, a page's start, that can be read: up to which address, at most to the
// page's end of `to`; `from` itself when nothing can. One system call per 64 pages.
uintptr_t readable_until(uintptr_t from, uintptr_t to) noexcept;

// Two ways to read for code that walks structures: the first tells what is not there, the second is
// for structures that have been proved.
struct CheckedReader {
  template <typename T>
  static bool load(uintptr_t address, T& out) noexcept {
    return read_checked(address, &out, sizeof out);
  }
};
struct DirectReader {
  template <typename T>
  static bool load(uintptr_t address, T& out) noexcept {
    __builtin_memcpy(&out, reinterpret_cast<const void*>(address), sizeof out);
    return true;
  }
};

}  // namespace fragscope::shim
