// sim_interrupted MODE: allocates 20000 times while
//   profiler   SIGPROF arrives every 100 µs of processor time, on an alternate stack of 8 KiB
//   vfork      vforked children exec /bin/true in between
//   daemon     nothing: but it does so in the grandchild of a double fork, in a session of its own
#include <cuda_runtime_api.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

namespace {

std::atomic<long> g_signals{0};

void start_profiler() {
  static char place[8192];
  stack_t alternate{};
  alternate.ss_sp = place;
  alternate.ss_size = sizeof place;
  sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_handler = [](int) { ++g_signals; };
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  sigaction(SIGPROF, &action, nullptr);
  const itimerval often{{0, 100}, {0, 100}};
  setitimer(ITIMER_PROF, &often, nullptr);
}

void spawn() {
  char path[] = "/bin/true";
  char* const arguments[] = {path, nullptr};
  const pid_t child = vfork();
  if (child == 0) {
    execv(path, arguments);
    _exit(9);
  }
  int status = 0;
  waitpid(child, &status, 0);
}

int allocate(bool vforks) {
  int failures = 0;
  for (int i = 0; i < 20000; ++i) {
    void* block = nullptr;
    failures += cudaMalloc(&block, 512) != cudaSuccess;
    if (vforks && i % 4000 == 0) spawn();
    failures += cudaFree(block) != cudaSuccess;
  }
  return failures;
}

}  // namespace

int main(int, char** words) {
  if (std::strcmp(words[1], "profiler") == 0) start_profiler();
  if (std::strcmp(words[1], "daemon") == 0) {
    if (fork() != 0) {
      int status = 0;
      wait(&status);
      return status;
    }
    setsid();
    const pid_t grandchild = fork();
    if (grandchild != 0) {  // a daemon's parent would leave at once; the test waits for the end
      int status = 0;
      waitpid(grandchild, &status, 0);
      _exit(status != 0);
    }
    return allocate(false) != 0;
  }
  const int failures = allocate(std::strcmp(words[1], "vfork") == 0);
  const bool disturbed = std::strcmp(words[1], "profiler") != 0 || g_signals > 0;
  std::printf("%d failures%s\n", failures, disturbed ? "" : ", but no signal came");
  return failures != 0;
}
