// Every kind of call once, also the wrong ones; prints what the program sees of CUDA and errno.
#include <cerrno>
#include <cstdio>

#include "shim_fake.h"

int main() {
  void* block = nullptr;
  const auto show = [&block](const char* what, int result) {
    std::printf("%s: %d address %p last error %d errno %d\n", what, result, block,
                cudaGetLastError(), errno);
  };
  errno = 77;
  show("free of nothing", cudaFree(nullptr));
  show("malloc", cudaMalloc(&block, 1000));
  show("free", cudaFree(block));
  show("double free", cudaFree(block));
  show("malloc of nothing", cudaMalloc(&block, 0));
  show("malloc of too much", cudaMalloc(&block, size_t{1} << 50));
  show("malloc to nowhere", cudaMalloc(nullptr, 10));
  show("free of a stranger", cudaFree(&block));
  show("host alloc", cudaHostAlloc(&block, 4096, 2));
  show("host free", cudaFreeHost(block));
  show("malloc host", cudaMallocHost(&block, 8192));
  show("host free", cudaFreeHost(block));
  void* const stream = reinterpret_cast<void*>(0x5000);
  show("malloc async", cudaMallocAsync(&block, 3000, stream));
  show("free async", cudaFreeAsync(block, stream));
  uint64_t address = 0;
  const int allocated = cuMemAlloc_v2(&address, 7000);
  std::printf("driver malloc: %d\n", allocated);
  const int freed = cuMemFree_v2(address);
  std::printf("driver free: %d, forbidden calls: %d\n", freed, fake_forbidden_calls);
  return 3;
}
