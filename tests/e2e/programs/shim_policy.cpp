// A single-stream program with direct cudaMalloc calls; prints where its blocks lie, relative to
// the first, and every error.
#include <cstdio>

#include "shim_fake.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;
char* g_first = nullptr;

void* allocate(const char* name, size_t bytes) {
  void* block = nullptr;
  const int result = cudaMalloc(&block, bytes);
  if (g_first == nullptr) g_first = static_cast<char*>(block);
  const long long place = block == nullptr ? -1 : static_cast<char*>(block) - g_first;
  std::printf("%s: %d at %lld, last error %d\n", name, result, place, cudaGetLastError());
  return block;
}

void release(const char* name, void* block) {
  const int result = cudaFree(block);
  std::printf("free %s: %d, last error %d, waits %d\n", name, result, cudaGetLastError(),
              fake_runtime_synchronizations());
}

}  // namespace

int main() {
  void* const a = allocate("a", 1000);
  void* const b = allocate("b", 3 * kMiB);
  allocate("c", 11 * kMiB);
  release("a", a);
  release("b", b);
  void* const d = allocate("d", 2 * kMiB);
  allocate("nothing", 0);
  allocate("too much", size_t{2} << 30);
  void* const most = allocate("most", 985 * kMiB);
  release("d", d);
  release("most", most);
  // Needs the memory of `most` and of the empty segments back first.
  allocate("retry", 1000 * kMiB);
  void* host = nullptr;
  cudaMallocHost(&host, 100);
  release("stranger", &host);
  std::printf("host: %d\n", cudaFreeHost(host));
  release("nothing", nullptr);
  std::printf("reset: %d\n", cudaDeviceReset());
  allocate("after", 11 * kMiB);
  std::printf("real calls: %d\n", fake_runtime_mallocs());
}
