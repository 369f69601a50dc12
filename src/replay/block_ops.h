// Recorded events -> what happened to the segments and blocks of each device, whatever the source.
//
// The sources differ (replay/process_facts.h): torch's tracker reports segments itself, the c10
// report does not, and one process may have both (the tracker misses the very first block). Here
// they become one stream:
// - A segment that no segment event announced is told from the driver plane: it is the device
//   allocation that contains a new block; its segment_alloc comes just before that block's alloc.
//   The driver's free of a segment is its segment_free unless the block plane said so before.
// - Reports of blocks that the tracker reports too only add their block size (block_size).
// - A report knows no completion: the free is followed by its free_completed at once.
//
// Threads: one at a time. Errors: none; hostile orders give odd ops, never a crash.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "event/event.h"
#include "replay/process_facts.h"

namespace fragscope::replay {

enum class BlockOpKind : uint8_t {
  segment_alloc,    // a segment, or with `expandable` a mapped range, begins
  segment_free,     // a segment ends, or a mapped range does
  segment_refused,  // a device allocation of `size` bytes failed (whoever asked for it)
  alloc,
  block_size,  // `size` of the live block at `address`, known only now
  free_requested,
  free_completed,
  oom,  // the allocator gave up on a request of `requested` bytes
};

struct BlockOp {
  BlockOpKind kind = BlockOpKind::alloc;
  bool expandable = false;  // segment_alloc, segment_free: pages of an expandable segment
  bool assumed = false;     // free_completed: not recorded, the source cannot know
  bool by_segment = false;  // oom: `requested` is what was asked of CUDA, not the rounded request
  int32_t device = 0;
  uint32_t tid = 0;
  uint32_t stack = kNoStack;
  uint64_t seq = 0;
  uint64_t time_ns = 0;
  uint64_t address = kUnknown;
  uint64_t size = kUnknown;       // alloc: the block's; oom: kUnknown
  uint64_t requested = kUnknown;  // alloc, free…: the client's; oom: rounded
  uint64_t stream = kUnknown;
  uint64_t allocated_after = kUnknown;  // totals that came with the event
  uint64_t reserved_after = kUnknown;
  uint64_t device_free = kUnknown;  // oom

  // Bytes to ask an allocator for so that it does what the recorded one did; kUnknown: cannot be
  // told. A request that became a small segment of 2 MiB had at most 1 MiB.
  uint64_t request() const {
    if (requested == kUnknown) return size;
    return by_segment && requested == 2 * kMiB ? kMiB : requested;
  }
};

class BlockPlane {
 public:
  // `stated`: the source that the trace names; used for events that do not say theirs.
  explicit BlockPlane(std::optional<BlockSource> stated = std::nullopt) : stated_(stated) {}

  // Puts the ops of `event` into `ops` (cleared first), in order.
  void feed(const Event& event, std::vector<BlockOp>& ops);

  BlockSource source() const { return source_; }  // best one seen so far
  // A stream beside the default one was created.
  bool saw_streams() const { return saw_streams_; }
  // Blocks whose stream the source did not tell.
  uint64_t blocks_without_stream() const { return blocks_without_stream_; }
  bool saw_served_calls() const { return saw_served_calls_; }
  // Device memory beside the segments (libraries, the program's own calls): peak of its bytes.
  uint64_t outside_peak(int32_t device) const;

 private:
  enum class Owner : uint8_t { fresh, outside, segment };
  struct Range {
    uint64_t size = 0;
    int32_t device = 0;
    Owner owner = Owner::fresh;
  };
  struct Outside {
    uint64_t current = 0;
    uint64_t peak = 0;
    std::vector<uint64_t> fresh;  // addresses of allocations that no block lies in yet
  };
  using Ranges = std::map<uint64_t, Range>;

  BlockSource source_of(const Event& event) const;
  void feed_driver(const Event& event, std::vector<BlockOp>& ops);
  void feed_block(const Event& event, std::vector<BlockOp>& ops);
  void feed_alloc(const Event& event, BlockSource source, std::vector<BlockOp>& ops);
  void add_range(const Event& event);
  void end_range(const Event& event, std::vector<BlockOp>& ops);
  void end_device(int32_t device);
  void announce_segment(const Event& event, std::vector<BlockOp>& ops);
  void add_segment(const Event& event);
  void settle_fresh(int32_t device);
  void forget(Ranges::iterator range);

  std::optional<BlockSource> stated_;
  Ranges ranges_;  // live driver allocations and segments
  std::map<int32_t, Outside> outside_;
  uint64_t last_segment_ = 0;  // the segment of the block before, 0 bytes: none
  uint64_t last_segment_bytes_ = 0;
  BlockSource source_ = BlockSource::none;
  bool saw_streams_ = false;
  bool saw_served_calls_ = false;
  uint64_t blocks_without_stream_ = 0;
};

// Programs without a block plane: their driver-plane calls taken as requests to a caching
// allocator. With an enforced policy these are the served calls, not the policy's own.
class DriverRequests {
 public:
  // `served_only`: the process ran under the policy, see kFlagServed.
  explicit DriverRequests(bool served_only) : served_only_(served_only) {}
  void feed(const Event& event, std::vector<BlockOp>& ops);

 private:
  bool served_only_;
  std::map<uint64_t, BlockOp> live_;
};

}  // namespace fragscope::replay
