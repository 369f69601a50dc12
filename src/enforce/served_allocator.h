// One device's memory, served by PyTorch's caching allocator (src/model) over real segments: what
// the shim's policy and libfragscope_alloc.so hand out.
//
// Two ways to give memory back, see README.md:
// - release(): as PyTorch's allocator. The block is reused at once by requests of its own stream;
//   other streams that used it are named with record_stream() first, and events are recorded and
//   asked.
// - release_after_device(): as cudaFree. Waits until the device has done everything, then the block
//   is anybody's.
//
// Units: bytes; addresses and stream handles are integers, stream 0 is the default stream.
// Ownership: DeviceApi and BlockSink outlive it. Threads: any; one lock, which is not held while
// the device is waited for in release_after_device(). Errors: CUDA's numbers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "enforce/block_sink.h"
#include "enforce/cached_segments.h"
#include "enforce/device_api.h"
#include "enforce/mutex.h"
#include "enforce/placement.h"
#include "model/caching_allocator.h"
#include "model/rounding.h"

namespace fragscope::enforce {

// PyTorch refuses larger requests in advance; the shim leaves them to CUDA.
inline constexpr uint64_t kMaxRequest = model::kMaxRequest;

struct Served {
  CudaResult result = kSuccess;
  uint64_t address = 0;  // after a failure: what CUDA left in the output of its cudaMalloc
  uint64_t size = 0;
};

enum class Ownership : uint8_t {
  kForeign,  // not in memory that is served
  kBlock,    // the start of a block that is handed out
  kInside,   // elsewhere in served memory: inside a block, or free
};

enum class Freed : uint8_t { kFreed, kPending, kForeign, kInside, kFailed };

// What PyTorch calls allocated, active and reserved; placed blocks included.
struct ServedStats {
  uint64_t allocated = 0, peak_allocated = 0;
  uint64_t reserved = 0, peak_reserved = 0;
  uint64_t active = 0, inactive_split = 0, requested = 0;
  uint64_t allocations = 0;  // so far
  uint64_t retries = 0, ooms = 0, segments = 0;
  uint64_t placed = 0;  // requests that the placement served
};

// Requests that a placement was asked for, and those of them that it served.
struct PlacementCounts {
  uint64_t offered = 0;
  uint64_t placed = 0;
};

class ServedAllocator {
 public:
  ServedAllocator(const model::AllocatorConfig& config, const model::VersionProfile& profile,
                  DeviceApi& api, BlockSink* sink);
  ~ServedAllocator();

  // --- requests -------------------------------------------------------------------------------
  // More than kMaxRequest is refused without asking the device, and changes nothing.
  Served allocate(uint64_t bytes, uint64_t stream);
  Freed release(uint64_t address);
  // kFailed: the wait failed with `result`, the block is still handed out. kPending: this thread
  // may not wait now; the block comes back when the device is waited for the next time.
  Freed release_after_device(uint64_t address, CudaResult& result);
  // As cudaFreeAsync: the block comes back, for anybody, when the work of `stream` so far is done.
  Freed release_after_stream(uint64_t address, uint64_t stream);
  // The block is used by work on `stream` too. False: no block starts at the address.
  bool record_stream(uint64_t address, uint64_t stream);
  void empty_cache();
  // As empty_cache(), but what was freed under a capture is left, as is a cache that serves a
  // capture: nothing waits for the device. False: no memory came free.
  bool give_back_idle();

  // --- private pools, for graph captures --------------------------------------------------------
  // `filter` says which streams' requests go to the pool; it is asked under the lock.
  bool begin_pool(model::PoolId id, std::function<bool(uint64_t stream)> filter);
  bool end_pool(model::PoolId id);
  bool release_pool(model::PoolId id);

  // --- settings -------------------------------------------------------------------------------
  // In force from the next request on.
  void set_config(const model::AllocatorConfig& config);
  model::AllocatorConfig config();
  bool set_memory_fraction(double fraction);
  // Asked before the cache from the next request on. nullptr takes it away, with what it serves: no
  // block of it may be handed out. False: some are.
  bool set_placement(std::unique_ptr<Placement> placement);

  // --- answers --------------------------------------------------------------------------------
  Ownership ownership(uint64_t address);
  // The memory that CUDA knows the address as part of: base and size of the segment.
  std::optional<std::pair<uint64_t, uint64_t>> base_of(uint64_t address);
  ServedStats stats();
  // Without the lock, for a process that ends while another thread may hold it.
  PlacementCounts placement_counts() const {
    return {offered_count_.load(std::memory_order_relaxed),
            placed_count_.load(std::memory_order_relaxed)};
  }
  // PyTorch's own statistics, key by key ("allocated_bytes.all.current"), as the profile's release
  // names them, placed blocks and the placement's memory included (as of the large pool). `visit`
  // is called without the lock.
  void visit_stats(const std::function<void(const std::string&, int64_t)>& visit);
  void reset_peak_stats();
  void reset_accumulated_stats();
  // PyTorch's sentence about the newest request that could not be served.
  std::string oom_text(int device);

 private:
  struct Placed {
    PlacedBlock block;
    uint64_t requested = 0;
    uint64_t stream = 0;
    std::vector<uint64_t> uses;  // other streams
  };
  struct Waiting {  // a placed block that was freed while other streams use it
    Placed placed;
    std::vector<std::pair<uint64_t, uint64_t>> events;  // stream, number
  };
  struct Held {  // a cached block that was freed on a stream
    model::BlockIndex block = model::kNone;
    uint32_t generation = 0;
    uint64_t stream = 0;
    uint64_t number = 0;
  };
  struct Scope {
    model::PoolId pool;
    std::function<bool(uint64_t)> filter;
  };
  class Trace;

  void poll_events();
  std::optional<Served> offer(uint64_t bytes, uint64_t stream);
  model::MallocResult request(uint64_t bytes, uint64_t stream);
  model::MallocResult request_again(const model::MallocResult& failed, uint64_t bytes,
                                    uint64_t stream);
  Served serve_cached(uint64_t bytes, uint64_t stream);
  Freed finish_release(uint64_t address);
  bool finish_parked();
  Freed release_placed(Placed placed, const std::vector<uint64_t>& streams);
  void complete_placed(const Placed& placed);
  void complete_waiting();
  void wait_for_placed();
  void count_placement();
  void release_placement_cache();
  Ownership find(uint64_t address) const;
  bool is_leaving(uint64_t address) const;
  void tell_alloc(const BlockAlloc& block);
  uint64_t allocated() const;
  uint64_t reserved() const;

  Mutex mutex_;
  DeviceApi& api_;
  BlockSink* sink_;
  std::unique_ptr<Trace> trace_;
  CachedSegments segments_;
  model::CachingAllocator allocator_;
  std::unique_ptr<Placement> placement_;
  std::unordered_map<uint64_t, Placed> placed_;
  std::vector<Waiting> waiting_;
  std::vector<Held> held_;
  std::vector<Scope> scopes_;
  std::vector<uint64_t> leaving_;           // blocks whose release waits for the device
  std::vector<uint64_t> parked_;            // of these: for the next one who may wait
  std::atomic<uint64_t> offered_count_{0};  // written under the lock
  std::atomic<uint64_t> placed_count_{0};
};

}  // namespace fragscope::enforce
