// Many allocations and frees of src/enforce over simulated CUDA, from many threads and on a few
// streams, each checked:
// - no two live blocks overlap, and each lies in memory that CUDA gave (a bit per 512 bytes)
// - no block is handed out while work of another stream on it is under way (events are late)
// - at the end all is free again, and the device has back what it had
//
//   cuda_soak PAIRS THREADS STREAMS [cuda-free] [hasty]
//
// cuda-free: blocks are given back as with cudaFree, which waits for the device; streams that use
// them are not named. hasty: the allocator's device claims that every event is done and never
// waits. Then the second check must fail. Exit code: 0 all held, 1 something did not (one line says
// what), 2 wrong arguments.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "enforce/cuda_device.h"
#include "enforce/served_allocator.h"

namespace {

using fragscope::enforce::CudaDevice;
using fragscope::enforce::Served;
using fragscope::enforce::ServedAllocator;
namespace enforce = fragscope::enforce;
namespace model = fragscope::model;

// One bit per 512 bytes of the device's window of addresses.
class AddressBits {
 public:
  AddressBits() : words_(kBytes / kGranule / 64) {}

  // False: some of the bits were set already, or the range is outside of the window.
  bool take(uint64_t address, uint64_t bytes) {
    return change(address, bytes, [](std::atomic<uint64_t>& word, uint64_t mask) {
      return (word.fetch_or(mask, std::memory_order_acq_rel) & mask) == 0;
    });
  }
  // False: some of the bits were not set.
  bool give(uint64_t address, uint64_t bytes) {
    return change(address, bytes, [](std::atomic<uint64_t>& word, uint64_t mask) {
      return (word.fetch_and(~mask, std::memory_order_acq_rel) & mask) == mask;
    });
  }
  bool none(uint64_t address, uint64_t bytes) {
    return change(address, bytes, [](std::atomic<uint64_t>& word, uint64_t mask) {
      return (word.load(std::memory_order_acquire) & mask) == 0;
    });
  }
  void set_base(uint64_t base) { base_ = base; }

 private:
  static constexpr uint64_t kGranule = 512;
  static constexpr uint64_t kBytes = uint64_t{16} << 30;

  template <typename Change>
  bool change(uint64_t address, uint64_t bytes, Change apply) {
    if (address < base_ || address - base_ + bytes > kBytes) return false;
    uint64_t at = (address - base_) / kGranule;
    const uint64_t end = (address - base_ + bytes + kGranule - 1) / kGranule;
    bool right = true;
    while (at < end) {
      const uint64_t count = std::min<uint64_t>(64 - at % 64, end - at);
      const uint64_t mask = (count == 64 ? ~uint64_t{0} : ((uint64_t{1} << count) - 1)) << at % 64;
      right &= apply(words_[at / 64], mask);
      at += count;
    }
    return right;
  }

  uint64_t base_ = 0;
  std::vector<std::atomic<uint64_t>> words_;
};

class SoakDevice final : public CudaDevice {
 public:
  using CudaDevice::CudaDevice;
  enforce::EventState query_event(enforce::Event event) override {
    const enforce::EventState state = CudaDevice::query_event(event);
    return hasty ? enforce::EventState::kDone : state;
  }
  enforce::CudaResult synchronize() override {
    return hasty ? enforce::kSuccess : CudaDevice::synchronize();
  }
  bool hasty = false;
};

// Blocks that work of another stream touches, with an event behind that work.
class SharedWork {
 public:
  void begin(uint64_t address, uint64_t bytes, CUstream stream) {
    const std::lock_guard lock(mutex_);
    CUevent event = nullptr;
    if (idle_.empty()) {
      cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    } else {
      event = idle_.back();
      idle_.pop_back();
    }
    cuEventRecord(event, stream);
    busy_[address] = {address + bytes, event};
    bits_.take(address, bytes);
    ++begun;
  }
  // The bytes have been handed out: the work on them has to be done.
  void check(uint64_t address, uint64_t bytes) {
    if (bits_.none(address, bytes)) return;
    const std::lock_guard lock(mutex_);
    auto at = busy_.lower_bound(address);
    while (at != busy_.begin() && std::prev(at)->second.end > address) --at;
    while (at != busy_.end() && at->first < address + bytes) {
      early += cuEventQuery(at->second.event) != CUDA_SUCCESS;
      bits_.give(at->first, at->second.end - at->first);
      idle_.push_back(at->second.event);
      at = busy_.erase(at);
    }
  }
  void set_base(uint64_t base) { bits_.set_base(base); }

  uint64_t begun = 0;
  uint64_t early = 0;

 private:
  struct Work {
    uint64_t end = 0;
    CUevent event = nullptr;
  };
  std::mutex mutex_;
  std::map<uint64_t, Work> busy_;
  std::vector<CUevent> idle_;
  AddressBits bits_;
};

struct Soak {
  ServedAllocator& allocator;
  CUcontext context;
  std::vector<CUstream> streams;
  AddressBits live;
  SharedWork shared;
  bool as_cuda_free = false;
  std::atomic<uint64_t> overlaps{0}, lost{0}, refused{0}, wrong_frees{0};
};

uint64_t some_size(std::mt19937& random) {
  const unsigned kind = random() % 64;
  if (kind == 0) return 1 + random() % (8u << 20);
  if (kind < 8) return 1 + random() % (256u << 10);
  return 1 + random() % 8192;
}

struct Mine {
  Served block;
  size_t stream;
};

void allocate_one(Soak& soak, std::mt19937& random, std::vector<Mine>& mine) {
  const size_t stream = random() % soak.streams.size();
  const Served got =
      soak.allocator.allocate(some_size(random), reinterpret_cast<uint64_t>(soak.streams[stream]));
  if (got.result != enforce::kSuccess) {
    ++soak.refused;
    return;
  }
  if (!soak.live.take(got.address, got.size)) ++soak.overlaps;
  soak.shared.check(got.address, got.size);
  mine.push_back({got, stream});
}

void free_one(Soak& soak, std::mt19937& random, std::vector<Mine>& mine) {
  std::swap(mine[random() % mine.size()], mine.back());
  const Mine gone = mine.back();
  mine.pop_back();
  const bool shared = random() % 64 == 0;
  if (shared) {
    CUstream const other = soak.streams[(gone.stream + 1) % soak.streams.size()];
    if (!soak.as_cuda_free) {
      soak.allocator.record_stream(gone.block.address, reinterpret_cast<uint64_t>(other));
    }
    soak.shared.begin(gone.block.address, gone.block.size, other);
  }
  if (!soak.live.give(gone.block.address, gone.block.size)) ++soak.lost;
  int result = 0;
  const bool waits = soak.as_cuda_free || (!shared && random() % 4096 == 0);
  const enforce::Freed freed = waits
                                   ? soak.allocator.release_after_device(gone.block.address, result)
                                   : soak.allocator.release(gone.block.address);
  if (freed != enforce::Freed::kFreed && freed != enforce::Freed::kPending) ++soak.wrong_frees;
}

void run_thread(Soak& soak, unsigned seed, uint64_t pairs) {
  cuCtxSetCurrent(soak.context);
  std::mt19937 random(seed);
  std::vector<Mine> mine;
  for (uint64_t pair = 0; pair < pairs; ++pair) {
    allocate_one(soak, random, mine);
    if (mine.size() > random() % 64) free_one(soak, random, mine);
  }
  while (!mine.empty()) free_one(soak, random, mine);
}

enforce::CudaFunctions functions() {
  enforce::CudaFunctions cuda;
  cuda.malloc = [](uint64_t* out, size_t bytes) -> int {
    return cudaMalloc(reinterpret_cast<void**>(out), bytes);
  };
  cuda.free = [](uint64_t address) -> int { return cudaFree(reinterpret_cast<void*>(address)); };
  cuda.synchronize = [] { return static_cast<int>(cudaDeviceSynchronize()); };
  cuda.memory_info = [](size_t* free_bytes, size_t* total) -> int {
    return cudaMemGetInfo(free_bytes, total);
  };
  cuda.take_last_error = [] { return static_cast<int>(cudaGetLastError()); };
  cuda.event_create = [](enforce::Event* out, unsigned flags) -> int {
    return cuEventCreate(reinterpret_cast<CUevent*>(out), flags);
  };
  cuda.event_record = [](enforce::Event event, void* stream) -> int {
    return cuEventRecord(static_cast<CUevent>(event), static_cast<CUstream>(stream));
  };
  cuda.event_query = [](enforce::Event event) -> int {
    return cuEventQuery(static_cast<CUevent>(event));
  };
  cuda.event_synchronize = [](enforce::Event event) -> int {
    return cuEventSynchronize(static_cast<CUevent>(event));
  };
  cuda.context_push = [](void* context) -> int {
    return cuCtxPushCurrent(static_cast<CUcontext>(context));
  };
  cuda.context_pop = [](void** context) -> int {
    return cuCtxPopCurrent(reinterpret_cast<CUcontext*>(context));
  };
  cuda.context_current = [](void** context) -> int {
    return cuCtxGetCurrent(reinterpret_cast<CUcontext*>(context));
  };
  return cuda;
}

size_t free_memory() {
  size_t free_bytes = 0;
  size_t total = 0;
  cudaMemGetInfo(&free_bytes, &total);
  return free_bytes;
}

// Where the device's addresses begin: the simulated device takes the lowest first.
uint64_t first_address() {
  void* block = nullptr;
  cudaMalloc(&block, 1);
  cudaFree(block);
  return reinterpret_cast<uint64_t>(block) & ~((uint64_t{1} << 30) - 1);
}

int judge(Soak& soak, size_t free_before) {
  soak.allocator.empty_cache();
  const enforce::ServedStats stats = soak.allocator.stats();
  const size_t missing = free_before - free_memory();
  std::printf("overlaps %llu lost %llu early %llu wrong frees %llu refused %llu; shared %llu; ",
              static_cast<unsigned long long>(soak.overlaps),
              static_cast<unsigned long long>(soak.lost),
              static_cast<unsigned long long>(soak.shared.early),
              static_cast<unsigned long long>(soak.wrong_frees),
              static_cast<unsigned long long>(soak.refused),
              static_cast<unsigned long long>(soak.shared.begun));
  std::printf("left: %llu allocated, %llu reserved, %zu bytes of the device\n",
              static_cast<unsigned long long>(stats.allocated),
              static_cast<unsigned long long>(stats.reserved), missing);
  const bool clean = soak.overlaps == 0 && soak.lost == 0 && soak.shared.early == 0 &&
                     soak.wrong_frees == 0 && stats.allocated == 0 && stats.active == 0 &&
                     stats.reserved == 0 && missing == 0;
  return clean ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const uint64_t pairs = std::strtoull(argv[1], nullptr, 10);
  const unsigned threads = static_cast<unsigned>(std::atoi(argv[2]));
  const int streams = std::atoi(argv[3]);
  if (pairs == 0 || threads == 0 || streams < 2) return 2;
  cudaFree(nullptr);
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  const size_t free_before = free_memory();
  SoakDevice device(functions(), context);
  const auto asked = [&](const char* word) {
    return std::any_of(argv + 4, argv + argc,
                       [word](const char* given) { return std::strcmp(given, word) == 0; });
  };
  device.hasty = asked("hasty");
  ServedAllocator allocator(model::AllocatorConfig{}, model::version_profiles().back(), device,
                            nullptr);
  Soak soak{allocator, context, {nullptr}, {}, {}, asked("cuda-free"), {}, {}, {}, {}};
  const uint64_t base = first_address();
  soak.live.set_base(base);
  soak.shared.set_base(base);
  while (static_cast<int>(soak.streams.size()) < streams) {
    soak.streams.push_back(nullptr);
    cuStreamCreate(&soak.streams.back(), CU_STREAM_NON_BLOCKING);
  }
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> running;
  for (unsigned number = 0; number < threads; ++number) {
    running.emplace_back(run_thread, std::ref(soak), number + 1, pairs / threads);
  }
  for (std::thread& thread : running) thread.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%llu pairs, %u threads, %d streams, %.0f s: ",
              static_cast<unsigned long long>(pairs / threads * threads), threads, streams,
              seconds);
  return judge(soak, free_before);
}
