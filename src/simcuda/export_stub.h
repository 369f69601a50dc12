// Exported functions made from a prototype alone. C++ cannot define a function from its type, so
// the exported symbol is a jump through a hidden pointer to an instance of a template that was
// deduced from the vendor's header:
//
//   FS_STUB(cuFoo, on_call)             calls on_call("cuFoo") and zeroes everything it could have
//                                       written, so that no caller continues with stale values
//   FS_TWIN(cuFoo_ptsz, cuFoo, Stream, legacy, per_thread)
//                                       cuFoo with the per-thread stream where the default was
//                                       named
//
// Pointers are resolved by relative relocations: no constructor, no cost before the first call.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#define FS_JUMP_THROUGH(pointer) "endbr64\n\tjmp *" pointer "(%rip)\n"
#elif defined(__aarch64__)
#define FS_JUMP_THROUGH(pointer) \
  "adrp x16, " pointer "\n\tldr x16, [x16, :lo12:" pointer "]\n\tbr x16\n"
#else
#error "The simulated GPU runs on x86-64 and aarch64"
#endif

#define FS_EXPORT_THROUGH(symbol, target)                                                 \
  extern "C" {                                                                            \
  [[gnu::visibility("hidden")]] extern decltype(&::symbol) const fs_target_##symbol;      \
  [[gnu::used]] decltype(&::symbol) const fs_target_##symbol = target;                    \
  }                                                                                       \
  __asm__(".pushsection .text\n\t.globl " #symbol "\n\t.type " #symbol                    \
          ", %function\n\t.p2align 4\n" #symbol                                           \
          ":\n\t" FS_JUMP_THROUGH("fs_target_" #symbol) "\t.size " #symbol ", .-" #symbol \
                                                        "\n\t.popsection");

namespace fragscope::simcuda {

template <size_t N>
struct FixedName {
  char text[N]{};
  constexpr FixedName(const char (&from)[N]) {
    for (size_t i = 0; i < N; ++i) text[i] = from[i];
  }
};

// An output is a pointer to something that is neither const, void, opaque nor a function.
template <typename T, typename = void>
struct IsOutput : std::false_type {};
template <typename T>
struct IsOutput<T*, std::void_t<decltype(sizeof(T))>>
    : std::bool_constant<!std::is_const_v<T> && !std::is_void_v<T> && !std::is_function_v<T>> {};

template <typename T>
void zero_output([[maybe_unused]] T argument) {
  if constexpr (IsOutput<T>::value) {
    if (argument != nullptr) std::memset(static_cast<void*>(argument), 0, sizeof *argument);
  }
}

template <FixedName Name, auto OnCall, typename Function>
struct Stub;
template <FixedName Name, auto OnCall, typename R, typename... A>
struct Stub<Name, OnCall, R (*)(A...)> {
  static R call(A... arguments) {
    (zero_output(arguments), ...);
    return OnCall(Name.text);
  }
};

template <auto Base, typename Stream, auto PerThread, typename Function>
struct PerThreadTwin;
template <auto Base, typename Stream, auto PerThread, typename R, typename... A>
struct PerThreadTwin<Base, Stream, PerThread, R (*)(A...)> {
  template <typename T>
  static T translate(T argument) {
    if constexpr (std::is_same_v<T, Stream>) {
      if (argument == nullptr) return PerThread();
    }
    return argument;
  }
  static R call(A... arguments) { return Base(translate(arguments)...); }
};

}  // namespace fragscope::simcuda

#define FS_STUB(symbol, on_call) \
  FS_EXPORT_THROUGH(symbol,      \
                    (&::fragscope::simcuda::Stub<#symbol, on_call, decltype(&::symbol)>::call))
#define FS_TWIN(symbol, base, stream_type, per_thread)                                      \
  FS_EXPORT_THROUGH(symbol,                                                                 \
                    (&::fragscope::simcuda::PerThreadTwin<&::base, stream_type, per_thread, \
                                                          decltype(&::symbol)>::call))
