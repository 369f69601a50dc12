// Frees that no correct program makes, and requests that fail: what CUDA answers, one line each.
// `exec`: allocates, then runs itself as `free`, which prints the free bytes of the device.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace {

constexpr size_t kMiB = 1 << 20;

void say(const char* what, cudaError_t result) {
  std::printf("%s %d last %d\n", what, result, cudaGetLastError());
}

void misuse() {
  void* a = nullptr;
  void* b = nullptr;
  void* c = nullptr;
  say("malloc", cudaMalloc(&a, 5 * kMiB));
  say("malloc", cudaMalloc(&b, 5 * kMiB));
  say("free inside", cudaFree(static_cast<char*>(b) + 512));
  say("free", cudaFree(a));
  say("free again", cudaFree(a));
  say("malloc", cudaMalloc(&a, 5 * kMiB));
  say("malloc", cudaMalloc(&c, 300 * kMiB));
  const auto* const low = static_cast<char*>(c);
  for (const void* other : {a, b}) {
    const auto* const at = static_cast<const char*>(other);
    std::printf("apart %d\n", at + 5 * kMiB <= low || at >= low + 300 * kMiB);
  }
  void* too_much = &a;
  say("malloc", cudaMalloc(&too_much, size_t{1} << 40));
  std::printf("output null %d\n", too_much == nullptr);
  say("free null", cudaFree(nullptr));
  say("memset", cudaMemset(b, 0, kMiB));
}

}  // namespace

int main(int argc, char** argv) {
  const char* const mode = argc > 1 ? argv[1] : "misuse";
  if (std::strcmp(mode, "misuse") == 0) {
    misuse();
    return 0;
  }
  void* block = nullptr;
  if (std::strcmp(mode, "exec") == 0) {
    if (cudaMalloc(&block, 64 * kMiB) != cudaSuccess) return 1;
    execl("/proc/self/exe", argv[0], "free", static_cast<char*>(nullptr));
    return 1;
  }
  size_t free_bytes = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) return 1;
  std::printf("%zu\n", total - free_bytes);
  return 0;
}
