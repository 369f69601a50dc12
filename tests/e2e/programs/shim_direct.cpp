// shim_direct SEED COUNT: a single-stream program with direct cudaMalloc and cudaFree calls. Prints
// each call and its answer: "alloc ID SIZE ADDRESS" (0: out of memory), "free ID".
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "shim_fake.h"

namespace {

// Sizes of all magnitudes from 1 byte to 1.5 GiB, small ones more often.
size_t draw_size(std::mt19937_64& random) {
  const unsigned magnitude = static_cast<unsigned>(random() % 31);
  return (size_t{1} << magnitude) + random() % ((size_t{1} << magnitude) / 2 + 1);
}

}  // namespace

int main(int, char** arguments) {
  std::mt19937_64 random(std::strtoull(arguments[1], nullptr, 10));
  const long count = std::atol(arguments[2]);
  std::vector<std::pair<long, void*>> live;
  for (long i = 0; i < count; ++i) {
    if (live.empty() || random() % 100 < 55) {
      const size_t bytes = draw_size(random);
      void* block = nullptr;
      if (cudaMalloc(&block, bytes) != 0) static_cast<void>(cudaGetLastError());
      std::printf("alloc %ld %zu %llu\n", i, bytes, reinterpret_cast<unsigned long long>(block));
      if (block != nullptr) live.emplace_back(i, block);
    } else {
      std::swap(live[random() % live.size()], live.back());
      std::printf("free %ld\n", live.back().first);
      if (cudaFree(live.back().second) != 0) return 1;
      live.pop_back();
    }
  }
}
