// Checks for programs that test the simulated GPU from outside: failures go to stderr with their
// line, the exit code is their number.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>

inline int g_failures = 0;

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      ++g_failures;                                                                  \
    }                                                                                \
  } while (false)

#define CHECK_CODE(expression, expected)                                                        \
  do {                                                                                          \
    const int got = static_cast<int>(expression);                                               \
    if (got != static_cast<int>(expected)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s gave %d (%s), not %d\n", __FILE__, __LINE__, #expression, \
                   got, cudaGetErrorName(static_cast<cudaError_t>(got)), (int)(expected));      \
      ++g_failures;                                                                             \
    }                                                                                           \
  } while (false)

#define OK(expression) CHECK_CODE(expression, cudaSuccess)

// What nvcc writes for a kernel `name`: a fat binary and the registration of a host stub.
extern "C" {
void** __cudaRegisterFatBinary(void* image);
void __cudaRegisterFunction(void** binary, const char* host, char* device, const char* name,
                            int threads, uint3* tid, uint3* bid, dim3* block, dim3* grid,
                            int* warp);
void __cudaRegisterVar(void** binary, char* host, char* device, const char* name, int ext,
                       size_t bytes, int constant, int global);
}

inline const void* register_kernel(const char* name) {
  static int image = 0;
  static char host_stub = 0;
  __cudaRegisterFunction(__cudaRegisterFatBinary(&image), &host_stub, nullptr, name, -1, nullptr,
                         nullptr, nullptr, nullptr, nullptr);
  return &host_stub;
}
