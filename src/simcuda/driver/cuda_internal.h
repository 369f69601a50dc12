// cuda.h with every ABI declared under its real symbol name (cuMemAlloc is the 32-bit one of CUDA
// 2.0, cuMemAlloc_v2 the current one), exported by default.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <cuda.h>
#pragma GCC diagnostic pop
#pragma GCC visibility pop
