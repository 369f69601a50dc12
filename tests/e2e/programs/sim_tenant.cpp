// One of several users of a card. `hold MIB`: allocates, says "held" or the error's name, and waits
// for the end of stdin. `addresses SEED`: random calls, one line each. `fork`: CUDA in a forked
// child. `free`: prints the free bytes. `cards`: prints the visible cards.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "sim_check.h"

namespace {

int hold(size_t mib) {
  void* block = nullptr;
  const cudaError_t error = cudaMalloc(&block, mib << 20);
  std::printf("%s\n", error == cudaSuccess ? "held" : cudaGetErrorName(error));
  std::fflush(stdout);
  char byte = 0;
  while (::read(0, &byte, 1) > 0) continue;
  return 0;
}

int addresses(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<void*> blocks;
  for (int i = 0; i < 500; ++i) {
    if (!blocks.empty() && random() % 3 == 0) {
      const size_t victim = random() % blocks.size();
      OK(cudaFree(blocks[victim]));
      blocks.erase(blocks.begin() + static_cast<long>(victim));
      continue;
    }
    void* block = nullptr;
    if (cudaMalloc(&block, 1 + random() % (20u << 20)) == cudaSuccess) blocks.push_back(block);
    std::printf("%p\n", block);
  }
  return g_failures;
}

int fork_child() {
  OK(cudaFree(nullptr));
  const pid_t child = ::fork();
  if (child == 0) {
    void* block = nullptr;
    CHECK_CODE(cudaMalloc(&block, 100), cudaErrorInitializationError);
    ::_exit(g_failures);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  void* block = nullptr;
  OK(cudaMalloc(&block, 100));
  return g_failures;
}

// The visible cards: their PCI bus numbers.
int print_cards() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) std::printf("none");
  for (int device = 0; device < count; ++device) {
    int bus = 0;
    OK(cudaDeviceGetAttribute(&bus, cudaDevAttrPciBusId, device));
    std::printf("%d ", bus - 0x17);
  }
  return g_failures;
}

int print_free() {
  size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  std::printf("%zu %zu\n", free, total);
  return g_failures;
}

}  // namespace

int main(int count, char** arguments) {
  const char* what = arguments[1];
  const unsigned number = count > 2 ? static_cast<unsigned>(std::atoi(arguments[2])) : 0;
  if (std::strcmp(what, "hold") == 0) return hold(number);
  if (std::strcmp(what, "addresses") == 0) return addresses(number);
  if (std::strcmp(what, "cards") == 0) return print_cards();
  return std::strcmp(what, "fork") == 0 ? fork_child() : print_free();
}
