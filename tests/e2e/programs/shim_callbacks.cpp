// shim_callbacks MODE: host code that runs in the middle of a hooked call.
//   throw    it throws through cudaMalloc; other exceptions are thrown around it
//   signal   a signal handler calls cudaMalloc and cudaFree, also while cudaMalloc runs
//   nested   it calls the driver itself
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "shim_fake.h"

namespace {

void throw_it() { throw std::runtime_error("from inside"); }

void on_signal(int) {
  void* block = nullptr;
  fake_during_alloc = nullptr;
  cudaMalloc(&block, 222);
  cudaFree(block);
}

// A call further down the stack than the ones that were left by an exception.
int deeper(int levels) {
  volatile char frame[256] = {};
  if (levels > 0) return deeper(levels - 1) + frame[0];
  void* block = nullptr;
  return cudaMalloc(&block, 333);
}

void test_throw() {
  void* block = nullptr;
  fake_during_alloc = throw_it;
  for (int i = 0; i < 3; ++i) {
    try {
      cudaMalloc(&block, 111);
      std::puts("not thrown");
    } catch (const std::exception& error) {
      std::printf("caught %s\n", error.what());
    }
  }
  fake_during_alloc = nullptr;
  std::printf("after: %d\n", deeper(20));
}

void test_signal() {
  std::signal(SIGUSR1, on_signal);
  void* block = nullptr;
  cudaMalloc(&block, 111);
  std::raise(SIGUSR1);
  fake_during_alloc = [] { std::raise(SIGUSR1); };
  std::printf("interrupted: %d\n", cudaMalloc(&block, 333));
}

}  // namespace

int main(int, char** arguments) {
  const char* const mode = arguments[1];
  if (std::strcmp(mode, "throw") == 0) test_throw();
  if (std::strcmp(mode, "signal") == 0) test_signal();
  if (std::strcmp(mode, "nested") == 0) {
    fake_during_alloc = [] {
      fake_during_alloc = nullptr;
      uint64_t address = 0;
      cuMemAlloc_v2(&address, 222);
    };
    void* block = nullptr;
    std::printf("nested: %d\n", cudaMalloc(&block, 111));
  }
}
