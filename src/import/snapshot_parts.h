// What a snapshot consists of, compact: trace entries, segments with their blocks, stacks of named
// frames, annotations. Shapes and names are PyTorch's (torch/cuda/memory.py, memory_snapshot.cpp).
//
// Units: bytes, microseconds, handles. Absent fields are kUnknown (numbers) or 0 (ids). Ids of
// texts, streams, pools, frames and stacks count from 1 in the order of their appearance.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "event/event.h"
#include "import/plain_value.h"

namespace fragscope::imported {

enum class Action : uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  snapshot,
  oom,
  annotate,
  unknown,  // of a newer PyTorch, or of another tool
};

struct TraceEntry {
  uint64_t address = kUnknown;  // oom: free bytes of the device
  uint64_t size = kUnknown;
  uint64_t time_us = kUnknown;
  uint32_t stack = 0;
  uint32_t pool = 0;  // 0: not told
  uint32_t text = 0;  // user_metadata
  uint16_t stream = 0;
  Action action = Action::unknown;
};
static_assert(sizeof(TraceEntry) == 40);

enum class BlockState : uint8_t { allocated, pending_free, inactive };

struct SnapshotBlock {
  uint64_t address = kUnknown;
  uint64_t size = kUnknown;
  uint64_t requested = kUnknown;
  uint32_t stack = 0;
  BlockState state = BlockState::inactive;
};

enum class SegmentType : uint8_t { unknown, small, large };

struct SnapshotSegment {
  uint64_t address = kUnknown;
  uint64_t size = kUnknown;
  int32_t device = 0;
  uint32_t first_block = 0;
  uint32_t block_count = 0;
  uint32_t stack = 0;
  uint32_t pool = 0;
  uint16_t stream = 0;
  SegmentType type = SegmentType::unknown;
  bool expandable = false;
  bool broken = false;  // its blocks are not what blocks are
};

struct Frame {
  uint32_t function = 0;
  uint32_t file = 0;
  uint32_t line = 0;

  friend bool operator==(const Frame&, const Frame&) = default;
};

struct Annotation {
  uint64_t time_us = kUnknown;
  int32_t device = kUnknownDevice;
  uint32_t name = 0;
  bool end = false;
};

// Keys that tell which releases can have written the file.
enum class Evidence : uint8_t {
  time_us,          // 2.2
  block_address,    // 2.1
  compile_context,  // 2.8
  user_metadata,    // 2.10
  entry_pool,       // 2.11
  block_history,    // up to 2.0
  count
};

// Values by id, each once.
template <typename T, typename Hash>
class Interner {
 public:
  uint32_t intern(const T& value, Budget& budget) {
    const auto known = ids_.find(value);
    if (known != ids_.end()) return known->second;
    if (!budget.spend(sizeof(T) * 2 + 32)) return 0;
    values_.push_back(value);
    ids_.emplace(value, static_cast<uint32_t>(values_.size()));
    return static_cast<uint32_t>(values_.size());
  }
  const T& operator[](uint32_t id) const { return values_[id - 1]; }
  size_t size() const { return values_.size(); }

 private:
  std::deque<T> values_;
  std::unordered_map<T, uint32_t, Hash> ids_;
};

struct FrameHash {
  size_t operator()(const Frame& frame) const {
    uint64_t hash = frame.function * 0x9e37'79b9'7f4a'7c15ull;
    hash = (hash ^ frame.file) * 0x9e37'79b9'7f4a'7c15ull;
    return (hash ^ frame.line) * 0x9e37'79b9'7f4a'7c15ull >> 16;
  }
};
struct PoolHash {
  size_t operator()(const PoolName& pool) const { return pool.first * 31 + pool.second; }
};

// Stacks: sequences of frame ids, innermost first, each once.
class StackTable {
 public:
  uint32_t intern(const std::vector<uint32_t>& frames, Budget& budget);
  size_t size() const { return starts_.size() - 1; }
  // Frame ids of stack `id`.
  std::pair<const uint32_t*, size_t> frames(uint32_t id) const {
    return {frames_.data() + starts_[id - 1], starts_[id] - starts_[id - 1]};
  }

 private:
  std::vector<uint32_t> frames_;
  std::vector<size_t> starts_ = {0};
  std::unordered_multimap<uint64_t, uint32_t> ids_;  // by hash
};

struct SnapshotParts {
  SnapshotParts() = default;
  SnapshotParts(SnapshotParts&&) = default;  // no copies: texts are found by their place
  SnapshotParts& operator=(SnapshotParts&&) = default;

  TextStore texts;
  Interner<Frame, FrameHash> frames;
  StackTable stacks;
  Interner<uint64_t, std::hash<uint64_t>> streams;
  Interner<PoolName, PoolHash> pools;
  std::deque<TraceEntry> entries;
  std::deque<SnapshotBlock> blocks;
  std::deque<SnapshotSegment> segments;
  std::deque<Annotation> annotations;
  bool evidence[static_cast<size_t>(Evidence::count)] = {};

  bool has(Evidence key) const { return evidence[static_cast<size_t>(key)]; }
};

// Which ids of SnapshotParts::entries belong together, in order.
struct EntryRun {
  uint32_t first = 0;
  uint32_t count = 0;
};

// Settings of the allocator, as the file has them.
struct SnapshotSettings {
  std::string text;  // PYTORCH_CUDA_ALLOC_CONF
  std::map<std::string, double> numbers;
  std::map<std::string, bool> flags;
  std::map<uint64_t, uint64_t> roundup;  // MiB -> divisions
};

struct Snapshot {
  SnapshotParts parts;
  std::vector<std::vector<EntryRun>> traces;  // by device
  bool has_traces = false;                    // the key was there
  bool has_host_parts = false;                // host_segments, host_traces: 2.14
  bool has_annotations = false;
  bool has_settings = false;
  SnapshotSettings settings;

  uint64_t entry_count() const {
    uint64_t count = 0;
    for (const auto& runs : traces) {
      for (const EntryRun& run : runs) count += run.count;
    }
    return count;
  }
};

}  // namespace fragscope::imported
