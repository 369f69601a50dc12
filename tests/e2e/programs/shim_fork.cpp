// shim_fork MODE: what a child does after a fork without exec.
//   quiet      the child makes no CUDA call
//   frees      the child frees the parent's block and makes one of its own
//   before     the parent makes no CUDA call, the child does
//   spawn      posix_spawn of /bin/true, then vfork + exec of it
//   exec       the program replaces itself by `shim_fork leaf`
//   leaf       one block
//   unwinding  forks while another thread is inside libunwind (shim_fake_unwind.cpp)
//   threads    forks while other threads allocate; the child allocates
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "shim_fake.h"

// Calls what it is given. Code without call frame information: stacks through it are libunwind's.
#if defined(__x86_64__)
asm(".pushsection .text\n"
    "without_frame_information:\n"
    "sub $8, %rsp\n"
    "call *%rdi\n"
    "add $8, %rsp\n"
    "ret\n"
    ".popsection");
extern "C" void without_frame_information(void (*body)());
#else
static void without_frame_information(void (*body)()) { body(); }
#endif

namespace {

void* allocate(size_t bytes) {
  void* block = nullptr;
  if (cudaMalloc(&block, bytes) != 0) std::abort();
  return block;
}

void wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("child: %d\n", status);
}

template <typename Body>
void in_child(Body body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::exit(5);
  }
  wait_for(child);
}

void spawn() {
  char path[] = "/bin/true";
  char* const arguments[] = {path, nullptr};
  char* const environment[] = {nullptr};
  pid_t child = 0;
  posix_spawn(&child, path, nullptr, nullptr, arguments, environment);
  wait_for(child);
  child = vfork();
  if (child == 0) {
    execve(path, arguments, environment);
    _exit(9);
  }
  wait_for(child);
}

void fork_beside_threads() {
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&stop] {
      while (!stop) cudaFree(allocate(100));
    });
  }
  in_child([] { _exit(allocate(333) == nullptr); });
  stop = true;
  for (std::thread& worker : workers) worker.join();
}

// The stand-in stays in its lock for as long as the thread's name is "inside".
void fork_beside_unwinder() {
  auto* const entered = static_cast<std::atomic<int>*>(dlsym(RTLD_DEFAULT, "fake_unwind_entered"));
  auto* const leave = static_cast<std::atomic<int>*>(dlsym(RTLD_DEFAULT, "fake_unwind_leave"));
  if (entered == nullptr || leave == nullptr) std::exit(7);
  std::thread inside([] {
    pthread_setname_np(pthread_self(), "inside");
    without_frame_information([] { cudaFree(allocate(444)); });
  });
  while (*entered == 0) std::this_thread::yield();
  in_child([] { _exit(allocate(333) == nullptr); });
  *leave = 1;
  inside.join();
}

}  // namespace

int main(int, char** arguments) {
  const char* const mode = arguments[1];
  if (std::strcmp(mode, "leaf") == 0) return allocate(222) == nullptr;
  if (std::strcmp(mode, "before") == 0) {
    in_child([] { allocate(333); });
    return 0;
  }
  void* const block = allocate(111);
  if (std::strcmp(mode, "quiet") == 0) in_child([] {});
  if (std::strcmp(mode, "frees") == 0) {
    in_child([block] {
      cudaFree(block);
      allocate(333);
    });
  }
  if (std::strcmp(mode, "spawn") == 0) spawn();
  if (std::strcmp(mode, "unwinding") == 0) fork_beside_unwinder();
  if (std::strcmp(mode, "threads") == 0) fork_beside_threads();
  if (std::strcmp(mode, "exec") == 0) {
    char leaf[] = "leaf";
    char* const again[] = {arguments[0], leaf, nullptr};
    execv("/proc/self/exe", again);
  }
  cudaFree(block);
}
