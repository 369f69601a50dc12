// Hand-made pickles: opcodes as Python's picklers (protocols 2 to 5) and TorchScript's (2) write
// them.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "import/read_snapshot.h"
#include "tests/support/catch.h"

namespace fragscope::import_test {

class PickleMaker {
 public:
  explicit PickleMaker(int protocol = 4) : protocol_(protocol) {
    op(0x80).byte(static_cast<uint8_t>(protocol));
    if (protocol >= 4) {
      op(0x95);
      frame_at_ = bytes_.size();
      raw<uint64_t>(0);
    }
  }

  PickleMaker& op(int code) { return byte(static_cast<uint8_t>(code)); }
  PickleMaker& byte(uint8_t value) {
    bytes_ += static_cast<char>(value);
    return *this;
  }
  template <typename T>
  PickleMaker& raw(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }

  PickleMaker& memoize() {
    if (protocol_ >= 4) {
      ++memos_;
      return op(0x94);
    }
    if (memos_ < 256) return op('q').byte(static_cast<uint8_t>(memos_++));
    return op('r').raw<uint32_t>(memos_++);
  }
  PickleMaker& get(uint32_t index) {
    if (index < 256) return op('h').byte(static_cast<uint8_t>(index));
    return op('j').raw<uint32_t>(index);
  }

  // A text; from its second use on by the memo, as picklers do.
  PickleMaker& text(const std::string& value) {
    const auto known = texts_.find(value);
    if (known != texts_.end()) return get(known->second);
    if (protocol_ >= 4 && value.size() < 256) {
      op(0x8c).byte(static_cast<uint8_t>(value.size()));
    } else {
      op('X').raw(static_cast<uint32_t>(value.size()));
    }
    bytes_ += value;
    texts_[value] = memos_;
    return memoize();
  }
  PickleMaker& number(int64_t value) {
    if (value >= 0 && value < 256) return op('K').byte(static_cast<uint8_t>(value));
    if (value >= 0 && value < 65536) return op('M').raw(static_cast<uint16_t>(value));
    if (value >= INT32_MIN && value <= INT32_MAX) return op('J').raw(static_cast<int32_t>(value));
    return op(0x8a).byte(8).raw(value);
  }
  PickleMaker& boolean(bool value) { return op(value ? 0x88 : 0x89); }
  PickleMaker& real(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return op('G').raw(__builtin_bswap64(bits));
  }
  PickleMaker& none() { return op('N'); }
  PickleMaker& list() { return op(']').memoize(); }
  PickleMaker& dict() { return op('}').memoize(); }
  PickleMaker& mark() { return op('('); }
  PickleMaker& appends() { return op('e'); }
  PickleMaker& setitems() { return op('u'); }
  PickleMaker& pair(int64_t first, int64_t second) {
    return number(first).number(second).op(0x86).memoize();
  }
  uint32_t memos() const { return memos_; }

  std::string finish() {
    op('.');
    if (frame_at_ != 0) {
      const uint64_t length = bytes_.size() - frame_at_ - sizeof length;
      std::memcpy(bytes_.data() + frame_at_, &length, sizeof length);
    }
    return bytes_;
  }

 private:
  int protocol_;
  std::string bytes_;
  size_t frame_at_ = 0;
  uint32_t memos_ = 0;
  std::map<std::string, uint32_t> texts_;
};

// --- a small snapshot ---------------------------------------------------------------------------

struct EntrySpec {
  std::string action;
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t stream = 0;
  int frame_line = 0;  // 0: no frames
};

struct BlockSpec {
  uint64_t size = 0;
  uint64_t requested = 0;
  std::string state = "inactive";
};

struct SegmentSpec {
  uint64_t address = 0;
  std::vector<BlockSpec> blocks;
  std::string type = "large";
  int device = 0;
  uint64_t stream = 0;
  int64_t pool_first = 0;
  int64_t pool_second = 0;
  bool expandable = false;
};

struct SnapshotSpec {
  int protocol = 4;
  bool old_schema = false;  // 2.0: blocks without addresses, history instead of frames, no settings
  bool settings = true;
  bool segments_only = false;  // the key device_traces is not there
  std::vector<SegmentSpec> segments;
  std::vector<std::vector<EntrySpec>> traces;  // by device
};

inline void put_frames(PickleMaker& p, int line) {
  p.list();
  if (line == 0) return;
  p.mark();
  for (int depth = 0; depth < 3; ++depth) {
    p.dict().mark().text("name").text("f" + std::to_string(depth)).text("filename");
    p.text("project/model.py").text("line").number(line + depth).setitems();
  }
  p.appends();
}

inline void put_block(PickleMaker& p, const SnapshotSpec& spec, uint64_t address,
                      const BlockSpec& block) {
  p.dict().mark();
  if (!spec.old_schema) p.text("address").number(static_cast<int64_t>(address));
  p.text("size").number(static_cast<int64_t>(block.size));
  p.text("requested_size").number(static_cast<int64_t>(block.requested));
  p.text("state").text(block.state);
  if (spec.old_schema) {
    p.text("history").list().mark().dict().mark().text("addr").number(
        static_cast<int64_t>(address));
    p.text("real_size").number(static_cast<int64_t>(block.requested)).text("frames");
    put_frames(p, 7);
    p.setitems().appends();
  } else {
    p.text("frames");
    put_frames(p, block.state == "inactive" ? 0 : 7);
  }
  p.setitems();
}

inline void put_segment(PickleMaker& p, const SnapshotSpec& spec, const SegmentSpec& segment) {
  uint64_t total = 0;
  for (const BlockSpec& block : segment.blocks) total += block.size;
  p.dict().mark().text("device").number(segment.device);
  p.text("address").number(static_cast<int64_t>(segment.address));
  p.text("total_size").number(static_cast<int64_t>(total));
  p.text("stream").number(static_cast<int64_t>(segment.stream));
  p.text("segment_type").text(segment.type);
  if (!spec.old_schema) {
    p.text("segment_pool_id").pair(segment.pool_first, segment.pool_second);
    p.text("is_expandable").boolean(segment.expandable);
  }
  p.text("blocks").list().mark();
  uint64_t address = segment.address;
  for (const BlockSpec& block : segment.blocks) {
    put_block(p, spec, address, block);
    address += block.size;
  }
  p.appends().setitems();
}

inline void put_entry(PickleMaker& p, const EntrySpec& entry, uint64_t time_us) {
  p.dict().mark().text("action").text(entry.action);
  p.text(entry.action == "oom" ? "device_free" : "addr");
  p.number(static_cast<int64_t>(entry.address));
  p.text("size").number(static_cast<int64_t>(entry.size));
  p.text("stream").number(static_cast<int64_t>(entry.stream));
  p.text("time_us").number(static_cast<int64_t>(time_us));
  if (entry.frame_line != 0) {
    p.text("frames");
    put_frames(p, entry.frame_line);
  }
  p.setitems();
}

inline void put_settings(PickleMaker& p) {
  p.dict().mark().text("PYTORCH_CUDA_ALLOC_CONF").text("").text("max_split_size").number(-1);
  p.text("garbage_collection_threshold").real(0.0);
  p.text("expandable_segments").boolean(false);
  p.text("roundup_power2_divisions").dict().mark().text("1").number(0).text("2").number(0);
  p.setitems().setitems();
}

inline std::string make_pickle(const SnapshotSpec& spec) {
  PickleMaker p(spec.protocol);
  p.dict().mark().text("segments").list().mark();
  for (const SegmentSpec& segment : spec.segments) put_segment(p, spec, segment);
  p.appends();
  if (!spec.segments_only) {
    p.text("device_traces").list().mark();
    uint64_t time_us = 1'700'000'000'000'000;
    for (const auto& trace : spec.traces) {
      p.list().mark();
      for (const EntrySpec& entry : trace) put_entry(p, entry, time_us += 10);
      p.appends();
    }
    p.appends();
  }
  if (spec.settings && !spec.old_schema) {
    p.text("allocator_settings");
    put_settings(p);
    p.text("external_annotations").list();
  }
  return p.setitems().finish();
}

inline Result<imported::Snapshot> read_bytes(const std::string& bytes) {
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  return imported::read_snapshot(
      trace::ByteSource::of_bytes(std::vector<std::byte>(data, data + bytes.size())),
      "test.pickle");
}

}  // namespace fragscope::import_test
