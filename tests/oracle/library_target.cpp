#include "tests/oracle/library_target.h"

#include <c10/cuda/CUDACachingAllocator.h>
#if __has_include(<c10/cuda/CUDAAllocatorConfig.h>)
#include <c10/cuda/CUDAAllocatorConfig.h>
#endif
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#if __has_include(<c10/cuda/PeerToPeerAccess.h>)
#include <c10/cuda/PeerToPeerAccess.h>
#define FRAGSCOPE_HAS_PEER_CACHE 1
#endif

#include <algorithm>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include "tests/oracle/host_target.h"
#include "tests/oracle/plain_text.h"
#include "tests/oracle/scripted_events.h"

// Defined by libc10_cuda in every release, declared by no header.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*answer)(c10::DeviceIndex));
}

namespace fragscope::oracle {
namespace {

namespace torch = c10::cuda::CUDACachingAllocator;
using model::AllocReply;
using model::CommandTarget;
using model::PoolId;
using model::TraceAction;
using model::TraceEntry;

template <typename Entry>
TraceEntry entry_of(const Entry& e) {
  return {static_cast<TraceAction>(e.action_), model::PoolKind::kSmall,
          static_cast<uint64_t>(e.addr_), static_cast<uint64_t>(e.size_), stream_number(e.stream_)};
}

template <typename From>
model::Stat stat_of(const From& s) {
  return {s.current, s.peak, s.allocated, s.freed};
}

template <typename Array>
model::PoolStat pool_stat_of(const Array& a) {
  return {stat_of(a[0]), {stat_of(a[1]), stat_of(a[2])}};
}

template <typename From>
model::DeviceStats stats_of(const From& s) {
  model::DeviceStats to;
  to.allocation = pool_stat_of(s.allocation);
  to.segment = pool_stat_of(s.segment);
  to.active = pool_stat_of(s.active);
  to.inactive_split = pool_stat_of(s.inactive_split);
  to.allocated_bytes = pool_stat_of(s.allocated_bytes);
  to.reserved_bytes = pool_stat_of(s.reserved_bytes);
  to.active_bytes = pool_stat_of(s.active_bytes);
  to.inactive_split_bytes = pool_stat_of(s.inactive_split_bytes);
  to.requested_bytes = pool_stat_of(s.requested_bytes);
  to.oversize_allocations = stat_of(s.oversize_allocations);
  to.oversize_segments = stat_of(s.oversize_segments);
  to.max_split_size = s.max_split_size;
  to.num_alloc_retries = s.num_alloc_retries;
  to.num_ooms = s.num_ooms;
  if constexpr (requires { s.num_sync_all_streams; }) {
    to.num_sync_all_streams = s.num_sync_all_streams;
    to.num_device_alloc = s.num_device_alloc;
    to.num_device_free = s.num_device_free;
  }
  if constexpr (requires { s.num_oom_rejections; }) to.num_oom_rejections = s.num_oom_rejections;
  if constexpr (requires { s.reserved_bytes_by_private_pools; }) {
    for (const auto& [id, bytes] : s.reserved_bytes_by_private_pools) {
      to.private_pools.push_back({{id.first, id.second}, pool_stat_of(bytes)});
    }
  }
  return to;
}

template <typename From>
model::SegmentSnapshot segment_of(const From& s) {
  model::SegmentSnapshot to;
  to.address = static_cast<uint64_t>(s.address);
  to.total_size = static_cast<uint64_t>(s.total_size);
  to.allocated_size = static_cast<uint64_t>(s.allocated_size);
  to.active_size = static_cast<uint64_t>(s.active_size);
  to.requested_size = static_cast<uint64_t>(s.requested_size);
  to.stream = stream_number(s.stream);
  to.kind = s.is_large ? model::PoolKind::kLarge : model::PoolKind::kSmall;
  to.pool = {s.owner_private_pool_id.first, s.owner_private_pool_id.second};
  to.is_expandable = s.is_expandable;
  uint64_t address = to.address;
  for (const auto& block : s.blocks) {
    const auto state = block.allocated ? model::BlockState::kAllocated
                       : block.active  ? model::BlockState::kPendingFree
                                       : model::BlockState::kInactive;
    const auto size = static_cast<uint64_t>(block.size);
    to.blocks.push_back({address, size, static_cast<uint64_t>(block.requested_size), state});
    address += size;
  }
  return to;
}

// Differences of the libraries' interfaces: the second overload is taken where the first does not
// compile.
template <typename Allocator>
auto attach(Allocator* allocator, std::vector<CommandTarget::Entry>& trace, int)
    -> decltype(allocator->attachAllocatorTraceTracker(nullptr), true) {
  allocator->attachAllocatorTraceTracker([&trace](const auto& e) {
    if (static_cast<TraceAction>(e.action_) == TraceAction::kSnapshot) return;
    trace.push_back({static_cast<int>(e.device_), entry_of(e)});
  });
  return true;
}
template <typename Allocator>
bool attach(Allocator*, std::vector<CommandTarget::Entry>&, long) {
  return false;
}

template <typename Allocator>
auto start_history(Allocator* allocator, int)
    -> decltype(allocator->recordHistory(true, nullptr, 1u, torch::RecordContext::NEVER)) {
  allocator->recordHistory(true, nullptr, 1u << 24, torch::RecordContext::NEVER);
}
template <typename Allocator>
void start_history(Allocator*, long) {}

template <typename Allocator>
auto open_pool(Allocator* allocator, c10::DeviceIndex device, PoolId id,
               std::optional<uint64_t> stream, int)
    -> decltype(allocator->beginAllocateToPool(device, {id.first, id.second}, nullptr)) {
  allocator->beginAllocateToPool(device, {id.first, id.second}, [stream](cudaStream_t handle) {
    return !stream || stream_number(handle) == *stream;
  });
}
template <typename Allocator>
void open_pool(Allocator* allocator, c10::DeviceIndex device, PoolId id,
               std::optional<uint64_t> stream, long) {
  const auto handle = static_cast<cudaStream_t>(stream_handle(stream.value_or(0)));
  allocator->beginAllocateStreamToPool(device, handle, {id.first, id.second});
}

template <typename Allocator>
auto close_pool(Allocator* allocator, c10::DeviceIndex device, PoolId id, std::optional<uint64_t>,
                int) -> decltype(allocator->endAllocateToPool(device, {id.first, id.second})) {
  allocator->endAllocateToPool(device, {id.first, id.second});
}
template <typename Allocator>
void close_pool(Allocator* allocator, c10::DeviceIndex device, PoolId,
                std::optional<uint64_t> stream, long) {
  allocator->endAllocateStreamToPool(device,
                                     static_cast<cudaStream_t>(stream_handle(stream.value_or(0))));
}

template <typename Allocator>
auto add_pool(Allocator* allocator, c10::DeviceIndex device, PoolId id, int)
    -> decltype(allocator->createOrIncrefPool(device, {id.first, id.second}, nullptr)) {
  allocator->createOrIncrefPool(device, {id.first, id.second}, nullptr);
}
template <typename Allocator>
void add_pool(Allocator*, c10::DeviceIndex, PoolId, long) {
  throw std::runtime_error("this release creates no pools");
}

template <typename Allocator>
auto mark_on_oom(Allocator* allocator, c10::DeviceIndex device, PoolId id, int)
    -> decltype(allocator->setUseOnOOM(device, {id.first, id.second}, true)) {
  allocator->setUseOnOOM(device, {id.first, id.second}, true);
}
template <typename Allocator>
auto mark_on_oom(Allocator* allocator, c10::DeviceIndex device, PoolId id, long)
    -> decltype(allocator->setUseOnOOM(device, {id.first, id.second})) {
  allocator->setUseOnOOM(device, {id.first, id.second});
}
inline void mark_on_oom(...) { throw std::runtime_error("this release has no use_on_oom pools"); }

template <typename Allocator>
auto mark_no_split(Allocator* allocator, c10::DeviceIndex device, PoolId id, int)
    -> decltype(allocator->setNoSplit(device, {id.first, id.second})) {
  allocator->setNoSplit(device, {id.first, id.second});
}
inline void mark_no_split(...) { throw std::runtime_error("this release has no no_split pools"); }

template <typename Allocator>
auto mark_capture(Allocator* allocator, c10::DeviceIndex device, bool begins, int)
    -> decltype(allocator->markCaptureBegin(device)) {
  begins ? allocator->markCaptureBegin(device) : allocator->markCaptureEnd(device);
}
inline void mark_capture(...) {}  // up to 2.12 an open scope is taken for a capture

// Texts with addresses and source lines in them, as the model says it.
std::string pool_error(const std::string& text, const char* unknown_pool) {
  if (text.empty()) return {};
  if (text.find(unknown_pool) != text.npos) return "Could not find the private pool";
  if (text.find("freeable graph") != text.npos) return "Not expected to checkpoint freeable graph";
  constexpr const char* kWaits = "Events should have synchronized when checkpointing block";
  if (text.find(kWaits) != text.npos) return kWaits;
  return "The pool cannot be put back";
}

class LibraryTarget final : public CommandTarget {
 public:
  explicit LibraryTarget(int devices) {
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
    torch::get()->init(devices);
#ifdef FRAGSCOPE_HAS_PEER_CACHE
    c10::cuda::detail::init_p2p_access_cache(devices);
#endif
    tracked_ = attach(torch::get(), trace_, 0);
    if (!tracked_) start_history(torch::get(), 0);
    allocated_.resize(static_cast<size_t>(devices));
  }

  AllocReply alloc(int device, uint64_t size, uint64_t stream) override {
    AllocReply reply;
    void* address = nullptr;
    bool out_of_memory = false;
    reply.message = guarded([&] {
      c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
      try {
        address =
            torch::raw_alloc_with_stream(size, static_cast<cudaStream_t>(stream_handle(stream)));
      } catch (const c10::OutOfMemoryError&) {
        out_of_memory = true;
        throw;
      }
    });
    if (reply.message.empty()) {
      reply.outcome = address == nullptr ? "null" : "ok";
    } else if (out_of_memory) {
      const bool rejected = reply.message.find("preemptively rejected") != std::string::npos;
      reply.outcome = rejected ? "rejected" : "oom";
    } else {
      reply.outcome = "error";
    }
    if (address == nullptr) return reply;
    reply.address = reinterpret_cast<uint64_t>(address);
    const int64_t now = allocated_now(device);
    reply.block_size = static_cast<uint64_t>(now - allocated_[static_cast<size_t>(device)]);
    allocated_[static_cast<size_t>(device)] = now;
    return reply;
  }

  std::string free(int device, uint64_t address) override {
    std::string text = guarded([&] { torch::raw_delete(reinterpret_cast<void*>(address)); });
    allocated_[static_cast<size_t>(device)] = allocated_now(device);
    return text;
  }

  std::string record_stream(int device, uint64_t address, uint64_t stream) override {
    return guarded([&] {
      void* pointer = reinterpret_cast<void*>(address);
      const auto index = static_cast<c10::DeviceIndex>(device);
      c10::DataPtr data(pointer, pointer, torch::get()->raw_deleter(),
                        c10::Device(c10::DeviceType::CUDA, index));
      const auto handle = static_cast<cudaStream_t>(stream_handle(stream));
      const c10::cuda::CUDAStream cuda_stream =
          stream == 0 ? c10::cuda::getDefaultCUDAStream(index)
                      : c10::cuda::getStreamFromExternal(handle, index);
      torch::recordStream(data, cuda_stream);
      data.release_context();
    });
  }

  void work(int device, uint64_t stream) override { submit_work(device, stream); }
  void complete(int device, uint64_t stream) override { complete_work(device, stream); }
  std::string empty_cache() override {
    return guarded([] { torch::emptyCache(); });
  }
  std::string settings(const std::string& text) override {
    return guarded([&] { torch::setAllocatorSettings(text); });
  }
  std::string fraction(int device, double fraction) override {
    return guarded([&] {
      c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
      torch::setMemoryFraction(fraction, static_cast<c10::DeviceIndex>(device));
    });
  }

  std::string begin_pool(int device, PoolId id, std::optional<uint64_t> stream) override {
    std::string text = guarded(
        [&] { open_pool(torch::get(), static_cast<c10::DeviceIndex>(device), id, stream, 0); });
    if (text.empty()) scopes_.push_back({device, id, stream});
    return text;
  }
  std::string end_pool(int device, PoolId id) override {
    return guarded([&] {
      std::optional<uint64_t> stream;
      for (size_t i = scopes_.size(); i-- > 0;) {
        if (scopes_[i].device != device || !(scopes_[i].id == id)) continue;
        stream = scopes_[i].stream;
        scopes_.erase(scopes_.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
      close_pool(torch::get(), static_cast<c10::DeviceIndex>(device), id, stream, 0);
    });
  }
  std::string create_pool(int device, PoolId id, bool use_on_oom, bool no_split) override {
    return guarded([&] {
      const auto index = static_cast<c10::DeviceIndex>(device);
      add_pool(torch::get(), index, id, 0);
      if (use_on_oom) mark_on_oom(torch::get(), index, id, 0);
      if (no_split) mark_no_split(torch::get(), index, id, 0);
    });
  }
  std::string release_pool(int device, PoolId id) override {
    return guarded([&] {
      torch::releasePool(static_cast<c10::DeviceIndex>(device), {id.first, id.second});
    });
  }
  std::string begin_capture(int device) override {
    if (!capturing_.insert(device).second) return "a capture is under way";
    set_capturing(device, true);
    return guarded(
        [&] { mark_capture(torch::get(), static_cast<c10::DeviceIndex>(device), true, 0); });
  }
  std::string end_capture(int device) override {
    if (capturing_.erase(device) == 0) return "no capture is under way";
    set_capturing(device, false);
    return guarded(
        [&] { mark_capture(torch::get(), static_cast<c10::DeviceIndex>(device), false, 0); });
  }
  std::string checkpoint(int device, PoolId id, uint32_t checkpoint) override {
    checkpoints_.resize(std::max<size_t>(checkpoints_.size(), checkpoint + 1));
    const std::string text = guarded([&] {
      checkpoints_[checkpoint] = torch::get()->getCheckpointState(
          static_cast<c10::DeviceIndex>(device), {id.first, id.second});
    });
    return pool_error(text, "Could not find pool");
  }
  std::string restore(int device, uint32_t checkpoint, model::CheckpointDelta& delta) override {
    if (checkpoints_[checkpoint] == nullptr) return "there is no such checkpoint";
    const std::string text = guarded([&] {
      torch::CheckpointDelta changes = torch::get()->setCheckpointPoolState(
          static_cast<c10::DeviceIndex>(device), checkpoints_[checkpoint]);
      for (void* freed : changes.ptrs_freed) {
        delta.freed.push_back(reinterpret_cast<uint64_t>(freed));
      }
      for (c10::DataPtr& data : changes.dataptrs_allocd) {
        delta.allocated.push_back(reinterpret_cast<uint64_t>(data.release_context()));
      }
    });
    allocated_[static_cast<size_t>(device)] = allocated_now(device);
    return pool_error(text, "Could not find private pool");
  }
  void reset_peak_stats(int device) override {
    torch::resetPeakStats(static_cast<c10::DeviceIndex>(device));
  }
  void reset_accumulated_stats(int device) override {
    torch::resetAccumulatedStats(static_cast<c10::DeviceIndex>(device));
  }

  std::vector<Entry> take_trace() override {
    if (!tracked_) {
      const auto shot = torch::snapshot();
      for (size_t device = 0; device < shot.device_traces.size(); ++device) {
        for (const auto& e : shot.device_traces[device]) {
          if (static_cast<TraceAction>(e.action_) == TraceAction::kSnapshot) continue;
          trace_.push_back({static_cast<int>(device), entry_of(e)});
        }
      }
      start_history(torch::get(), 0);  // clears what was read
    }
    return std::exchange(trace_, {});
  }

  std::vector<model::SegmentSnapshot> segments(int device) override {
    std::vector<model::SegmentSnapshot> result;
    for (const auto& segment : torch::snapshot().segments) {
      if (segment.device == device) result.push_back(segment_of(segment));
    }
    return result;
  }
  model::DeviceStats stats(int device) override {
    return stats_of(torch::getDeviceStats(static_cast<c10::DeviceIndex>(device)));
  }
  bool undefined_in_library() override { return false; }
  model::HostTarget& host() override { return *host_; }

 private:
  int64_t allocated_now(int device) {
    const auto stats = torch::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    return stats.allocated_bytes[0].current;
  }

  struct OpenScope {
    int device;
    PoolId id;
    std::optional<uint64_t> stream;
  };
  std::vector<Entry> trace_;
  std::vector<int64_t> allocated_;  // bytes, before the request
  std::vector<OpenScope> scopes_;
  std::vector<std::shared_ptr<torch::AllocatorState>> checkpoints_;
  std::set<int> capturing_;  // devices
  bool tracked_ = false;
  std::unique_ptr<model::HostTarget> host_ = make_host_target();
};

}  // namespace

std::unique_ptr<model::CommandTarget> make_library_target(int devices) {
  return std::make_unique<LibraryTarget>(devices);
}

}  // namespace fragscope::oracle
