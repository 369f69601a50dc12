// A module linked with one libcudart, loaded by shim_majors into a process that has another.
#include "shim_fake.h"

extern "C" __attribute__((visibility("default"))) int plugin_run(size_t bytes) {
  void* block = nullptr;
  if (cudaMalloc(&block, bytes) != 0) return -1;
  cudaFree(block);
  return fake_runtime_major() * 1000 + fake_runtime_mallocs();
}
