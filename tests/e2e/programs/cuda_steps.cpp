// A CUDA program whose steps are its arguments, so that each test says what it does:
//
//   alloc BYTES   cudaMalloc; prints "alloc BYTES -> error E"
//   free          frees the newest allocation
//   pairs N       N times cudaMalloc(4096) and cudaFree, silently
//   pinned BYTES  cudaMallocHost
//   say TEXT      prints TEXT
//   wait          prints "waiting" and reads one line from standard input
//   fork          the rest is done by a child; the parent waits and exits with its code
//   orphan        the rest is done by a grandchild that nobody here waits for
//   exec          the rest is done by this program executed anew, in this process
//   exit N, kill N (a signal to itself)
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

std::vector<void*> live;

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void allocate(const std::string& bytes, bool pinned) {
  void* address = nullptr;
  const size_t size = std::stoull(bytes);
  const int error = pinned ? cudaMallocHost(&address, size) : cudaMalloc(&address, size);
  say((pinned ? "pinned " : "alloc ") + bytes + " -> error " + std::to_string(error));
  if (error == 0 && !pinned) live.push_back(address);
}

void free_newest() {
  const int error = cudaFree(live.back());
  live.pop_back();
  say("free -> error " + std::to_string(error));
}

void pairs(const std::string& count) {
  for (long left = std::stol(count); left > 0; --left) {
    void* address = nullptr;
    if (cudaMalloc(&address, 4096) != cudaSuccess || cudaFree(address) != cudaSuccess) _exit(99);
  }
}

void wait_for_line() {
  say("waiting");
  while (true) {
    const int c = std::getchar();
    if (c == '\n' || c == EOF) return;
  }
}

// In the parent this does not return.
void become_child() {
  const pid_t child = fork();
  if (child == 0) return;
  int status = 0;
  waitpid(child, &status, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
}

void become_orphan() {
  if (fork() != 0) _exit(0);
}

[[noreturn]] void execute_rest(char** argv, int at) {
  std::vector<char*> arguments = {argv[0]};
  for (char** word = argv + at; *word != nullptr; ++word) arguments.push_back(*word);
  arguments.push_back(nullptr);
  execv("/proc/self/exe", arguments.data());
  _exit(97);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string step = argv[i];
    const bool has_value = step == "alloc" || step == "pairs" || step == "pinned" ||
                           step == "say" || step == "exit" || step == "kill";
    const std::string value = has_value && i + 1 < argc ? argv[++i] : "";
    if (step == "alloc" || step == "pinned") allocate(value, step == "pinned");
    if (step == "free") free_newest();
    if (step == "pairs") pairs(value);
    if (step == "say") say(value);
    if (step == "wait") wait_for_line();
    if (step == "fork") become_child();
    if (step == "orphan") become_orphan();
    if (step == "exec") execute_rest(argv, i + 1);
    if (step == "exit") return std::stoi(value);
    if (step == "kill") raise(std::stoi(value));
  }
  return 0;
}
