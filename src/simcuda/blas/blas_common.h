// What the stand-ins of cuBLAS and cuBLASLt share: numbers of the public API and the way to the
// driver. They hold no device memory; workspaces come from the caller.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#define BLAS_EXPORT extern "C" __attribute__((visibility("default")))

namespace fragscope::simcuda {

// cublasStatus_t
enum BlasStatus : int {
  kBlasSuccess = 0,
  kBlasNotInitialized = 1,
  kBlasAllocFailed = 3,
  kBlasInvalidValue = 7,
  kBlasExecutionFailed = 13,
  kBlasNotSupported = 15,
};

// A function of our own libcuda, which a program that uses cuBLAS has loaded.
inline void* driver_function(const char* name) {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : ::dlsym(library, name);
}

// Device work of this name was issued to the stream.
inline BlasStatus device_work(const char* name, void* stream) {
  using NoteLaunch = int (*)(const char*, void*);
  static const auto note =
      reinterpret_cast<NoteLaunch>(driver_function("fragscope_sim_note_launch"));
  if (note == nullptr) return kBlasNotInitialized;
  return note(name, stream) == 0 ? kBlasSuccess : kBlasExecutionFailed;
}

inline BlasStatus unsupported_blas(const char* name) {
  using Note = void (*)(const char*);
  const auto note = reinterpret_cast<Note>(driver_function("fragscope_sim_note_unsupported"));
  if (note != nullptr) note(name);
  return kBlasNotSupported;
}

}  // namespace fragscope::simcuda
