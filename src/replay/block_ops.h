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

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
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
  bool at_start = false;    // no call: it was there when recording began
  bool pool_known = false;
  uint32_t pool = 0;  // packed PoolName; with pool_known
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
  uint64_t is_small = kUnknown;     // segments at_start: 1 of the small pool, 0 of the large one

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
  // The same, as calls take(op). The quick way: most events are one op that changes nothing here.
  template <typename Take>
  void feed(const Event& event, Take&& take) {
    if (is_plain(event)) {
      take(plain_op(event));
      return;
    }
    feed(event, ops_);
    for (const BlockOp& op : ops_) take(op);
  }
  // All events of `batch`; freed(op) for a free_requested whose completion comes right behind it.
  template <typename Take, typename Freed>
  void feed(std::span<const Event> batch, Take&& take, Freed&& freed) {
    for (size_t i = 0; i < batch.size(); ++i) {
      const Event& event = batch[i];
      if (event.kind == EventKind::free_requested && i + 1 < batch.size() && is_plain(event) &&
          is_completion_of(batch[i + 1], event)) {
        freed(plain_op(event));
        ++i;
      } else {
        feed(event, take);
      }
    }
  }

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
  static constexpr unsigned kPageBits = 20;
  static constexpr size_t kPages = 4096;
  static constexpr uint32_t kSourceFlags =
      kFlagSourceAdaptor | kFlagSourceReport | kFlagSourceApi | kFlagSourceSnapshot;

  // A call, told by the best source, and for an alloc: of a known stream, with no segment to
  // announce and no driver allocation to settle.
  bool is_plain(const Event& event) const {
    if ((event.flags & (kSourceFlags | kFlagAtStart)) != plain_source_) return false;
    switch (event.kind) {
      case EventKind::alloc: {
        const uint64_t page = event.address >> kPageBits;
        return silent_pages_[page % kPages] == page && event.stream != kUnknown && !any_fresh_;
      }
      case EventKind::free_requested:
      case EventKind::free_completed:
        return true;
      default:
        return false;
    }
  }
  static bool is_completion_of(const Event& next, const Event& free) {
    return next.kind == EventKind::free_completed && next.address == free.address &&
           next.device == free.device && ((next.flags ^ free.flags) & kSourceFlags) == 0;
  }
  static BlockOp plain_op(const Event& event) {
    BlockOp op = make_op(BlockOpKind::free_completed, event);
    if (event.kind == EventKind::free_completed) return op;
    op.kind = event.kind == EventKind::alloc ? BlockOpKind::alloc : BlockOpKind::free_requested;
    op.allocated_after = event.aux;
    op.reserved_after = event.aux2;
    return op;
  }
  static BlockOp make_op(BlockOpKind kind, const Event& event) {
    BlockOp op;
    op.kind = kind;
    op.device = event.device;
    op.tid = event.tid;
    op.stack = event.stack;
    op.seq = event.seq;
    op.time_ns = event.time_ns;
    op.address = event.address;
    op.size = event.size;
    op.requested = event.requested;
    op.stream = event.stream;
    if ((event.flags & (kFlagAtStart | kFlagPool)) != 0 && event.kind >= EventKind::alloc &&
        event.kind <= EventKind::annotate) {
      op.at_start = (event.flags & kFlagAtStart) != 0;
      op.pool_known = (event.flags & kFlagPool) != 0;
      op.pool = op.pool_known ? event.text : 0;
    }
    return op;
  }
  friend class DriverRequests;

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
  void note_silent(uint64_t address, uint64_t begin, uint64_t end);
  void forget_pages();

  std::optional<BlockSource> stated_;
  Ranges ranges_;  // live driver allocations and segments
  // Pages of which no block announces a segment, each in the place of its number; see is_plain().
  std::array<uint64_t, kPages> silent_pages_ = no_pages();
  static std::array<uint64_t, kPages> no_pages() {
    std::array<uint64_t, kPages> pages;
    pages.fill(UINT64_MAX);
    return pages;
  }
  bool any_silent_ = false;
  bool any_fresh_ = false;
  uint32_t plain_source_ = UINT32_MAX;  // flag of the best source, once it is a silent one
  std::vector<BlockOp> ops_;
  std::map<int32_t, Outside> outside_;
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
