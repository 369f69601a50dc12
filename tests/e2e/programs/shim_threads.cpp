// shim_threads THREADS ROUNDS: every thread allocates and frees; all start at once.
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <thread>
#include <vector>

#include "shim_fake.h"

int main(int, char** arguments) {
  const int threads = std::atoi(arguments[1]);
  const int rounds = std::atoi(arguments[2]);
  std::latch start(threads);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&start, rounds, i] {
      start.arrive_and_wait();
      for (int round = 0; round < rounds; ++round) {
        void* block = nullptr;
        if (cudaMalloc(&block, static_cast<size_t>(512 * (i + 1))) != 0) std::abort();
        if (cudaFree(block) != 0) std::abort();
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  std::puts("done");
}
