// Keeps runtime functions in a table that the loader fills, and calls them through it.
#include "sim_check.h"

namespace {
struct Api {
  cudaError_t (*allocate)(void**, size_t);
  cudaError_t (*release)(void*);
};
Api g_api = {&cudaMalloc, &cudaFree};
}  // namespace

int main() {
  void* address = nullptr;
  OK(g_api.allocate(&address, 1234));
  OK(g_api.release(address));
  return g_failures;
}
