// What the stand-ins of cuBLAS and cuBLASLt share: numbers of the public API. They hold no device
// memory; workspaces come from the caller.
#pragma once

#include "simcuda/library_common.h"

#define BLAS_EXPORT LIBRARY_EXPORT

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

// Device work of this name was issued to the stream.
inline BlasStatus device_work(const char* name, void* stream) {
  if (note_device_work(name, stream)) return kBlasSuccess;
  return driver_function("fragscope_sim_note_launch") == nullptr ? kBlasNotInitialized
                                                                 : kBlasExecutionFailed;
}

inline BlasStatus unsupported_blas(const char* name) {
  note_unsupported_call(name);
  return kBlasNotSupported;
}

}  // namespace fragscope::simcuda
