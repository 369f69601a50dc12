// A loop as training has it, with cudaMalloc alone: parameters, then steps that keep activations in
// a forward pass and free them in a backward pass, with workspaces in between that fragment a
// cache.
//   cuda_train STEPS [SHIFT]   SHIFT: other sizes, step by step, from step SHIFT on
// Prints what it got of what it asked for, so that runs can be compared.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr size_t kMiB = 1 << 20;
constexpr int kLayers = 24;

int g_failed = 0;

void* take(size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) ++g_failed;
  return memory;
}

void step(size_t extra) {
  std::vector<void*> kept;
  for (int layer = 0; layer < kLayers; ++layer) {
    void* const workspace = take((24 + 7 * static_cast<size_t>(layer % 5)) * kMiB + extra);
    kept.push_back(take((3 + static_cast<size_t>(layer % 7)) * kMiB + extra));
    void* const scratch = take((40 + 3 * static_cast<size_t>(layer)) * kMiB / 2);
    kept.push_back(take(1536 * 1024 + 4096 * static_cast<size_t>(layer)));
    cudaFree(workspace);
    cudaFree(scratch);
  }
  while (!kept.empty()) {
    void* const gradient = take((11 + kept.size() % 9) * kMiB + extra);
    cudaFree(kept.back());
    kept.pop_back();
    cudaFree(gradient);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 6;
  const int shift = argc > 2 ? std::atoi(argv[2]) : steps;
  std::vector<void*> parameters;
  for (int i = 0; i < 40; ++i) {
    parameters.push_back(take((1 + static_cast<size_t>(i % 6)) * kMiB + 512));
  }
  for (int i = 0; i < steps; ++i) {
    step(i < shift ? 0 : static_cast<size_t>(i - shift + 1) * kMiB);
  }
  for (void* memory : parameters) cudaFree(memory);
  std::printf("failed %d\n", g_failed);
  return 0;
}
