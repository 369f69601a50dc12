// shim_exit MODE: the ways a process ends.
//   static   a static destructor and an exit handler free and allocate after main
//   quick    _exit in the middle
//   kill     prints the number of finished rounds, for ever, until it is killed
//   thread   a thread's TLS destructor frees
//   small    the first call comes from a thread with a stack of 64 KiB
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "shim_fake.h"

namespace {

struct Owner {
  void* block = nullptr;
  ~Owner() {
    if (block != nullptr) cudaFree(block);
  }
};

Owner g_owner;

Owner& thread_owner() {
  thread_local Owner owner;
  return owner;
}

void* allocate_once(void*) {
  void* block = nullptr;
  cudaMalloc(&block, 555);
  return nullptr;
}

void run_on_small_stack() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * 1024);
  pthread_t thread{};
  pthread_create(&thread, &attributes, allocate_once, nullptr);
  pthread_join(thread, nullptr);
}

}  // namespace

int main(int, char** arguments) {
  const char* const mode = arguments[1];
  if (std::strcmp(mode, "small") == 0) run_on_small_stack();
  cudaMalloc(&g_owner.block, 111);
  if (std::strcmp(mode, "static") == 0) {
    std::atexit([] {
      void* late = nullptr;
      cudaMalloc(&late, 222);
    });
  }
  if (std::strcmp(mode, "quick") == 0) _exit(6);
  if (std::strcmp(mode, "thread") == 0) {
    std::thread([] { cudaMalloc(&thread_owner().block, 333); }).join();
  }
  for (long round = 1; std::strcmp(mode, "kill") == 0; ++round) {
    void* block = nullptr;
    cudaMalloc(&block, 444);
    cudaFree(block);
    char text[32];
    const int length = std::snprintf(text, sizeof text, "%ld\n", round);
    if (write(1, text, static_cast<size_t>(length)) != length) return 1;
  }
  return 4;
}
