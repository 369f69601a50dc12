// CUDA's functions as this process has them: of the runtime that is loaded, and of its driver.
//
// Threads: any. Errors: incomplete functions where there is no CUDA.
#pragma once

#include "enforce/cuda_device.h"

namespace fragscope::alloc {

struct CudaLibrary {
  enforce::CudaFunctions functions;
  int (*primary_context)(void** context, int device) = nullptr;  // cuDevicePrimaryCtxRetain

  bool complete() const { return functions.complete() && primary_context != nullptr; }
};

CudaLibrary find_cuda();

}  // namespace fragscope::alloc
