// PyTorch's allocator of pinned host memory, release by release: which block a request gets, when a
// freed block can be had again, what goes to CUDA, and host_memory_stats().
//
// Blocks have power-of-two sizes (from 2.13 not above two limits), are never split or joined, and
// go back to the system only by empty_cache(). A block that streams used waits for an event of
// each.
//
// Units: bytes; addresses are of the host. Threads: none; callers lock; the background thread of
// `pinned_use_background_threads` runs when run_background() says so. Pure.
// Source of facts: ATen/core/CachingHostAllocator.h, ATen/cuda/CachingHostAllocator.cpp, and runs
// of the released libraries.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/allocator_config.h"
#include "model/host_memory.h"
#include "model/host_stats.h"
#include "model/pool_map.h"
#include "model/version_profile.h"

namespace fragscope::model {

// A stream of a device: host memory may be used on any.
struct DeviceStream {
  int device = 0;
  uint64_t stream = 0;
  auto operator<=>(const DeviceStream&) const = default;
};

// How far the work of streams is. An event recorded on a stream is done when completed() has
// reached what submitted() was.
class StreamClock {
 public:
  virtual ~StreamClock() = default;
  virtual uint64_t submitted(DeviceStream stream) = 0;
  virtual uint64_t completed(DeviceStream stream) = 0;
};

struct HostReply {
  enum class Outcome : uint8_t { kAllocated, kNull, kFailed };  // kFailed: CUDA refused
  Outcome outcome = Outcome::kNull;
  uint64_t address = 0;
  uint64_t block_size = 0;  // up to 2.13 it may be less than the request, if sizes are unrounded
};

class HostAllocator {
 public:
  // `profile`, `memory` and `clock` outlive the allocator.
  HostAllocator(const AllocatorConfig& config, const VersionProfile& profile, HostMemory& memory,
                StreamClock& clock);

  // `current` decides about the private pool.
  HostReply allocate(uint64_t bytes, DeviceStream current = {});
  // False: no block in use starts at `address`.
  bool free(uint64_t address);
  // A copy on `stream` uses the block. False: as above.
  bool record_event(uint64_t address, DeviceStream stream);
  // torch._C._host_emptyCache(). False: "Resource deadlock avoided", half done: in 2.13 and
  // 2.14 the flush takes a lock of a private pool twice when a block of it has become free; that
  // block is lost.
  bool empty_cache();
  // One round of the background thread, if it has been started.
  void run_background();

  // Private pools (2.13 on), as graph captures use them: begin_pool makes the pool or adds a user.
  // False: misuse, nothing changed but, if a scope of it is open, the number of users.
  bool begin_pool(PoolId id, std::optional<DeviceStream> stream);
  bool is_recording(PoolId id) const;
  bool has_pool(PoolId id) const { return find_pool(id).has_value(); }
  bool end_pool(PoolId id);
  bool release_pool(PoolId id);

  void set_config(const AllocatorConfig& config) { config_ = config; }
  HostStats stats() const;
  void reset_peak_stats();
  void reset_accumulated_stats();

  // What a request of `bytes` gets from the system if nothing is cached.
  uint64_t round_size(uint64_t bytes) const;

 private:
  struct Block {
    uint64_t address = 0;
    uint64_t size = 0;
    bool in_use = false;
    bool registered = false;  // by cudaHostRegister
    bool reserved = false;    // cut from the reserve segment
    uint32_t pool = 0;
    uint32_t waiting = 0;  // events
    std::vector<DeviceStream> streams;
  };
  struct Event {
    DeviceStream stream;
    uint64_t position{};
    uint32_t block{};
  };
  struct BucketStat {
    Stat requests;
    Stat bytes;
  };
  struct Pool {
    PoolId id;
    int64_t users = 0;
    bool alive = true;
    std::map<uint32_t, std::vector<uint32_t>> free;  // bucket -> blocks, last freed at the end
    std::deque<Event> events;                        // newest first
    std::map<uint32_t, BucketStat> active;           // by bucket
    uint64_t blocks = 0;                             // held
  };
  struct Scope {
    PoolId id;
    std::optional<DeviceStream> stream;
  };

  uint32_t bucket_of(uint64_t size) const;
  uint32_t pool_for(DeviceStream current) const;
  std::optional<uint32_t> find_pool(PoolId id) const;
  std::optional<uint32_t> take_free(Pool& pool, uint64_t size);
  HostReply new_block(uint32_t pool, uint64_t size);
  HostReply hand_out(uint32_t index);
  void count_new_block(const Block& block);
  std::optional<uint64_t> cut_reserve(uint64_t size);
  void start_background();
  bool is_done(const Event& event);
  bool finish_event(const Event& event, std::optional<uint64_t> size);
  void process_events(Pool& pool);
  bool loses_block(Pool& pool);
  void process_events_of(Pool& pool, uint64_t size);
  void cache_or_release(uint32_t index, uint64_t counted);
  void destroy(uint32_t index);
  void release_free(Pool& pool);
  void drop_pool(uint32_t index);
  void decide_reserve();
  BucketStat& active_of(const Block& block);

  AllocatorConfig config_;
  const VersionProfile& profile_;
  HostMemory& memory_;
  StreamClock& clock_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> unused_;             // indices of destroyed blocks
  std::map<uint64_t, uint32_t> by_address_;  // blocks held
  std::vector<Pool> pools_;                  // [0]: the default pool
  std::vector<Scope> scopes_;                // oldest first
  bool reserve_decided_ = false;             // by the first block that is made
  std::optional<uint64_t> reserve_;          // the reserve segment
  uint64_t reserve_size_{};                  // of it
  uint64_t reserve_used_ = 0;
  PoolMap freeable_;  // private pools without users
  bool background_started_ = false;
  HostStats held_;  // what is not kept by bucket
};

}  // namespace fragscope::model
