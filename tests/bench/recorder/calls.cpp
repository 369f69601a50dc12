// Loops of cudaMalloc and cudaFree, timed: for the program hook_cost and, through ctypes, for
// Python.
//
// Time is CPU time of the threads: other programs on the machine lengthen it little.
#include <ctime>
#include <thread>
#include <vector>

extern "C" int cudaMalloc(void** out, size_t bytes);
extern "C" int cudaFree(void* address);

namespace {

double cpu_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

__attribute__((noinline)) double loop(long pairs) {
  const double start = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
  for (long i = 0; i < pairs; ++i) {
    void* address = nullptr;
    cudaMalloc(&address, 512);
    cudaFree(address);
  }
  return (cpu_ns(CLOCK_THREAD_CPUTIME_ID) - start) / static_cast<double>(2 * pairs);
}

// At least `depth` frames above the loop.
__attribute__((noinline)) double below(int depth, long pairs) {
  if (depth == 0) return loop(pairs);
  const double answer = below(depth - 1, pairs);
  asm volatile("" ::: "memory");  // no tail call
  return answer;
}

}  // namespace

// Nanoseconds per call, in the calling thread.
extern "C" __attribute__((visibility("default"))) double bench_calls(int depth, long pairs) {
  return below(depth, pairs);
}

// CPU time per call when `threads` of them run at once: it stays what it is for one thread when
// nobody waits for a lock.
extern "C" __attribute__((visibility("default"))) double bench_threads(int threads, long pairs) {
  const double start = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) workers.emplace_back([pairs] { below(10, pairs); });
  for (std::thread& worker : workers) worker.join();
  return (cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / (2.0 * static_cast<double>(pairs) * threads);
}
