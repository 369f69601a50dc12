// What an allocation that reuses a cached block costs, and the free behind it:
// libfragscope_alloc.so beside PyTorch's own allocator, in one process, on the same requests.
// Compiled by served_speed.py against the headers of the installed torch.
//
//   served_speed LIBRARY THREADS PAIRS
//
// Each thread keeps eight blocks and replaces one per step, so that every request finds a block of
// its own size. Nothing waits for the device: freed blocks are reused on the stream they came from.
#include <c10/cuda/CUDACachingAllocator.h>
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

struct Allocator {
  const char* name;
  void* (*malloc)(size_t bytes);
  void (*free)(void* block, size_t bytes);
};

void* (*g_malloc)(size_t, int, void*) = nullptr;
void (*g_free)(void*, size_t, int, void*) = nullptr;

uint64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000 + static_cast<uint64_t>(time.tv_nsec);
}

struct Samples {
  std::vector<uint32_t> alloc;
  std::vector<uint32_t> free;
};

// Nobody starts before all are there.
std::atomic<int> g_missing{0};

void run_thread(const Allocator& allocator, int number, int pairs, Samples& samples) {
  constexpr size_t kLive = 8;
  const size_t bytes = 1000 + 512 * static_cast<size_t>(number % 16);
  void* live[kLive];
  for (void*& block : live) block = allocator.malloc(bytes);
  samples.alloc.reserve(static_cast<size_t>(pairs));
  samples.free.reserve(static_cast<size_t>(pairs));
  --g_missing;
  while (g_missing.load() > 0) std::this_thread::yield();
  for (int pair = 0; pair < pairs; ++pair) {
    void*& block = live[static_cast<size_t>(pair) % kLive];
    const uint64_t start = now_ns();
    allocator.free(block, bytes);
    const uint64_t middle = now_ns();
    block = allocator.malloc(bytes);
    const uint64_t end = now_ns();
    samples.free.push_back(static_cast<uint32_t>(std::min<uint64_t>(middle - start, UINT32_MAX)));
    samples.alloc.push_back(static_cast<uint32_t>(std::min<uint64_t>(end - middle, UINT32_MAX)));
  }
  for (void* block : live) allocator.free(block, bytes);
}

uint32_t quantile(std::vector<uint32_t>& all, double part) {
  const auto at = all.begin() + static_cast<long>(part * static_cast<double>(all.size() - 1));
  std::nth_element(all.begin(), at, all.end());
  return *at;
}

void report(const Allocator& allocator, int threads, int pairs) {
  std::vector<Samples> samples(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  g_missing = threads;
  const uint64_t start = now_ns();
  for (int number = 0; number < threads; ++number) {
    running.emplace_back(run_thread, std::cref(allocator), number, pairs,
                         std::ref(samples[static_cast<size_t>(number)]));
  }
  for (std::thread& thread : running) thread.join();
  const double total = static_cast<double>(now_ns() - start);
  Samples all;
  for (const Samples& one : samples) {
    all.alloc.insert(all.alloc.end(), one.alloc.begin(), one.alloc.end());
    all.free.insert(all.free.end(), one.free.begin(), one.free.end());
  }
  std::printf(
      "%-10s %3d threads: allocate %5u ns median, %7u ns 99%%; free %5u ns median; one pair per "
      "%5.0f ns in all\n",
      allocator.name, threads, quantile(all.alloc, 0.5), quantile(all.alloc, 0.99),
      quantile(all.free, 0.5), total / threads / pairs);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  g_malloc = reinterpret_cast<decltype(g_malloc)>(dlsym(library, "fragscope_alloc_malloc"));
  g_free = reinterpret_cast<decltype(g_free)>(dlsym(library, "fragscope_alloc_free"));
  c10::cuda::CUDACachingAllocator::init(1);
  const Allocator allocators[] = {
      {"PyTorch",
       [](size_t bytes) {
         return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, nullptr);
       },
       [](void* block, size_t) { c10::cuda::CUDACachingAllocator::raw_delete(block); }},
      {"FragScope", [](size_t bytes) { return g_malloc(bytes, 0, nullptr); },
       [](void* block, size_t bytes) { g_free(block, bytes, 0, nullptr); }},
  };
  const int threads = std::atoi(argv[2]);
  const int pairs = std::atoi(argv[3]);
  for (int round = 0; round < 3; ++round) {
    for (const Allocator& allocator : allocators) report(allocator, threads, pairs);
  }
}
