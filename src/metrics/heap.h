// What did the framework's allocator hold on one device, by its recorded blocks and segments?
//
// Levels are PyTorch's (memory_stats): reserved_bytes, allocated_bytes (block sizes), active_bytes,
// requested_bytes (of active blocks), inactive_split_bytes (free bytes in segments that cannot be
// given back; not those of expandable segments), segment. What the source cannot tell is absent:
// see figures(). Units: bytes. Threads: one at a time. Errors: none; events that cannot be right
// (frees of nothing, blocks that overlap in time) are counted as anomalies.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "metrics/gauge.h"
#include "metrics/layout.h"
#include "replay/block_ops.h"
#include "replay/figures.h"

namespace fragscope::metrics {

struct HeapFigures {
  KnownLevel reserved;
  KnownLevel allocated;
  KnownLevel active;
  KnownLevel requested;
  KnownLevel inactive_split;
  KnownLevel segments;
};

class DeviceHeap {
 public:
  void apply(const replay::BlockOp& op);

  // `one_stream`: the process cannot have used a second stream. Without that, a source that records
  // no completions leaves active and inactive_split unknown.
  HeapFigures figures(bool one_stream) const;
  Layout layout() const;
  uint64_t allocated() const { return allocated_.current(); }
  uint64_t allocated_peak_seq() const { return allocated_.peak_seq(); }
  const std::vector<replay::OomFact>& ooms() const { return ooms_; }
  uint64_t anomalies() const { return anomalies_; }
  uint64_t blocks_seen() const { return blocks_seen_; }

 private:
  struct Segment {
    uint64_t size = 0;
    uint64_t stream = kUnknown;
    uint64_t active = 0;
    std::optional<uint32_t> pool = std::nullopt;
  };
  struct Mapped {
    uint64_t size = 0;
    uint64_t stream = kUnknown;
    std::optional<uint32_t> pool = std::nullopt;
  };
  struct Live {
    uint64_t size = kUnknown;
    uint64_t requested = kUnknown;
    uint64_t seq = 0;
    uint32_t stack = kNoStack;
    bool pending = false;
  };
  using Segments = std::map<uint64_t, Segment>;

  void begin_block(const replay::BlockOp& op);
  void size_block(const replay::BlockOp& op);
  void request_free(const replay::BlockOp& op);
  void complete_free(const replay::BlockOp& op);
  void release(uint64_t address, Live& block);
  void begin_segment(const replay::BlockOp& op);
  void end_segment(const replay::BlockOp& op);
  void map_range(const replay::BlockOp& op);
  void unmap_range(const replay::BlockOp& op);
  void take_totals(const replay::BlockOp& op);
  void change_active(uint64_t address, uint64_t added, uint64_t removed, uint64_t seq);
  void count_reserved(uint64_t seq);
  Segments::iterator segment_of(uint64_t address);
  bool is_mapped(uint64_t address) const;
  void add_blocks(Layout& layout) const;

  Segments segments_;
  std::map<uint64_t, Mapped> mapped_;  // ranges of expandable segments, merged
  std::unordered_map<uint64_t, Live> live_;
  Gauge reserved_;
  Gauge allocated_;
  Gauge active_;
  Gauge requested_;
  Gauge inactive_split_;
  Gauge segment_count_;
  Gauge reported_reserved_;  // totals that came with the events
  uint64_t segment_bytes_ = 0;
  uint64_t mapped_bytes_ = 0;
  uint64_t unsized_ = 0;      // live blocks whose size is not known
  uint64_t unrequested_ = 0;  // live blocks whose requested size is not known
  uint64_t homeless_ = 0;     // blocks outside every known segment
  uint64_t blocks_seen_ = 0;
  uint64_t anomalies_ = 0;
  bool sizes_missing_ = false;
  bool requests_missing_ = false;
  bool completions_assumed_ = false;
  bool totals_missing_ = false;
  std::vector<replay::OomFact> ooms_;
};

}  // namespace fragscope::metrics
