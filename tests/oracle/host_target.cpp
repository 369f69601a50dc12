#include "tests/oracle/host_target.h"

#ifdef ORACLE_HOST
#include <ATen/cuda/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#if __has_include(<c10/cuda/CUDAAllocatorConfig.h>)
#include <c10/cuda/CUDAAllocatorConfig.h>
#endif
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <set>

#include "tests/oracle/host_calls.h"
#include "tests/oracle/plain_text.h"
#include "tests/oracle/scripted_events.h"
#endif

namespace fragscope::oracle {
namespace {

using model::AllocReply;
using model::HostCall;
using model::HostStats;
using model::HostTarget;
using model::PoolId;

#ifdef ORACLE_HOST

#if ORACLE_MINOR >= 8
auto* allocator() { return at::getHostAllocator(at::kCUDA); }
bool record(void* pointer, void* context, c10::cuda::CUDAStream stream) {
  return allocator()->record_event(pointer, context, stream.unwrap());
}
void empty() { allocator()->empty_cache(); }
#else
auto* allocator() { return at::cuda::getCachingHostAllocator(); }
bool record(void* pointer, void* context, c10::cuda::CUDAStream stream) {
  return at::cuda::CachingHostAllocator_recordEvent(pointer, context, stream);
}
void empty() { at::cuda::CachingHostAllocator_emptyCache(); }
#endif

bool uses_background() {
#if ORACLE_MINOR >= 6
  return c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::pinned_use_background_threads();
#else
  return false;
#endif
}

c10::cuda::CUDAStream torch_stream(int device, uint64_t stream) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  if (stream == 0) return c10::cuda::getDefaultCUDAStream(index);
  return c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream_handle(stream)), index);
}

template <typename From>
model::Stat stat_of(const From& s) {
  return {s.current, s.peak, s.allocated, s.freed};
}

template <typename From>
HostStats stats_of(const From& s) {
  HostStats to;
  if constexpr (requires { s.active_requests; }) {
    to.allocations = stat_of(s.allocations);
    to.allocated_bytes = stat_of(s.allocated_bytes);
    to.active_requests = stat_of(s.active_requests);
    to.active_bytes = stat_of(s.active_bytes);
  } else {
    to.allocations = stat_of(s.segment);
    to.allocated_bytes = stat_of(s.reserved_bytes);
    to.active_requests = stat_of(s.allocation);
    to.active_bytes = stat_of(s.allocated_bytes);
  }
  to.num_host_alloc = s.num_host_alloc;
  to.num_host_free = s.num_host_free;
  to.timed_allocs = s.host_alloc_time.count;
  to.timed_frees = s.host_free_time.count;
  return to;
}

// The allocator's interface differs; a release that lacks a call answers like the model.
template <typename Allocator>
auto read_stats(Allocator* a, int) -> decltype(stats_of(a->get_stats())) {
  return stats_of(a->get_stats());
}
template <typename Allocator>
HostStats read_stats(Allocator*, long) {
  return {};
}

template <typename Allocator>
auto reset_stats(Allocator* a, bool peaks, int) -> decltype(a->reset_peak_stats(), std::string()) {
  peaks ? a->reset_peak_stats() : a->reset_accumulated_stats();
  return {};
}
template <typename Allocator>
std::string reset_stats(Allocator*, bool, long) {
  return "torch " ORACLE_TORCH " has no statistics of host memory";
}

template <typename Allocator, typename Call>
auto with_pools(Allocator* a, Call&& call, int)
    -> decltype(a->end_allocate_to_pool({}), std::string()) {
  return guarded([&] { call(a); });
}
template <typename Allocator, typename Call>
std::string with_pools(Allocator*, Call&&, long) {
  return "torch " ORACLE_TORCH " has no private pools of host memory";
}

class LibraryHost final : public HostTarget {
 public:
  ~LibraryHost() override { release_background(); }

  AllocReply alloc(int device, uint64_t size, uint64_t stream) override {
    AllocReply reply;
    at::DataPtr data;
    const std::optional<int64_t> made_before = made();
    reply.message = guarded([&] {
      c10::cuda::setCurrentCUDAStream(torch_stream(device, stream));
      data = allocator()->allocate(size);
    });
    if (!reply.message.empty()) return {"error", 0, {}, reply.message};
    if (data.get() == nullptr) return {"null", 0, {}, {}};
    const auto pointer = reinterpret_cast<uint64_t>(data.get());
    note_calls();
    reply.outcome = "ok";
    reply.address = shown_host_address(pointer);
    const bool fresh = sizes_.try_emplace(reply.address, new_size(made_before)).second;
    if (fresh && uses_background() && !std::exchange(background_, true)) await_background();
    reply.block_size = sizes_[reply.address];
    live_[reply.address] = std::move(data);
    return reply;
  }

  std::string free(uint64_t address) override {
    return guarded([&] { live_.erase(address); });
  }
  std::string record(int device, uint64_t address, uint64_t stream) override {
    return guarded([&] {
      at::DataPtr& data = live_.at(address);
      oracle::record(data.get(), data.get_context(), torch_stream(device, stream));
    });
  }
  std::string empty_cache() override {
    return guarded([] { empty(); });
  }
  std::string background() override {
    run_background();
    return {};
  }

  std::string begin_pool(int device, PoolId id, std::optional<uint64_t> stream) override {
    return with_pools(
        allocator(),
        [&](auto* a) {
          std::optional<c10::Stream> only;
          if (stream) only = torch_stream(device, *stream).unwrap();
          a->begin_allocate_to_pool({id.first, id.second}, [only](c10::Stream current) {
            return !only || *only == current;
          });
        },
        0);
  }
  std::string end_pool(PoolId id) override {
    return with_pools(
        allocator(),
        [&](auto* a) {
          a->end_allocate_to_pool({id.first, id.second});
        },
        0);
  }
  std::string release_pool(PoolId id) override {
    return with_pools(
        allocator(),
        [&](auto* a) {
          a->release_pool({id.first, id.second});
        },
        0);
  }

  std::string reset_peak_stats() override { return reset_stats(allocator(), true, 0); }
  std::string reset_accumulated_stats() override { return reset_stats(allocator(), false, 0); }
  std::vector<HostCall> take_calls() override {
    note_calls();
    return std::exchange(calls_, {});
  }
  HostStats stats() override { return read_stats(allocator(), 0); }

 private:
  // Bytes of all blocks that were ever made; nothing where there are no statistics.
  std::optional<int64_t> made() {
#if ORACLE_MINOR >= 8
    return read_stats(allocator(), 0).allocated_bytes.allocated;
#else
    return std::nullopt;
#endif
  }
  // Of a new block: what it added to the statistics (it may be cut from the reserve segment), else
  // what was asked of CUDA.
  std::optional<uint64_t> new_size(std::optional<int64_t> made_before) {
    if (made_before) return static_cast<uint64_t>(*made() - *made_before);
    return calls_.empty() ? std::nullopt : calls_.back().bytes;
  }
  void note_calls() {
    for (const HostCall& call : take_host_calls()) {
      if (!call.bytes) sizes_.erase(call.address);
      calls_.push_back(call);
    }
  }

  std::map<uint64_t, at::DataPtr> live_;
  std::map<uint64_t, std::optional<uint64_t>> sizes_;  // of the blocks held
  std::vector<HostCall> calls_;
  bool background_ = false;
};

#else

class NoHost final : public HostTarget {
 public:
  AllocReply alloc(int, uint64_t, uint64_t) override { return {"error", 0, {}, kText}; }
  std::string free(uint64_t) override { return kText; }
  std::string record(int, uint64_t, uint64_t) override { return kText; }
  std::string empty_cache() override { return kText; }
  std::string background() override { return kText; }
  std::string begin_pool(int, PoolId, std::optional<uint64_t>) override { return kText; }
  std::string end_pool(PoolId) override { return kText; }
  std::string release_pool(PoolId) override { return kText; }
  std::string reset_peak_stats() override { return kText; }
  std::string reset_accumulated_stats() override { return kText; }
  std::vector<HostCall> take_calls() override { return {}; }
  HostStats stats() override { return {}; }

 private:
  static constexpr const char* kText = "this oracle has no libtorch_cuda";
};

#endif

}  // namespace

std::unique_ptr<HostTarget> make_host_target() {
#ifdef ORACLE_HOST
  return std::make_unique<LibraryHost>();
#else
  return std::make_unique<NoHost>();
#endif
}

}  // namespace fragscope::oracle
