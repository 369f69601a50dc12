#include "import/read_snapshot.h"

#include <charconv>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "import/pickle_machine.h"
#include "import/snapshot_collector.h"

namespace fragscope::imported {
namespace {

constexpr uint64_t kBudgetBase = 64 * kMiB;
constexpr int64_t kOldestProtocol = 2;

// Takes the snapshot out of the value that the pickle stands for.
class TopLevel {
 public:
  TopLevel(ValueStore& values, const SnapshotCollector& keys, Snapshot& snapshot)
      : values_(values), keys_(keys), snapshot_(snapshot) {}

  // Empty: it is a snapshot. Else what is wrong.
  std::string take(Value top) {
    if (top.tag() == Tag::list) return take_segments(top);  // torch.cuda.memory_snapshot()
    const std::vector<Value>* items = values_.items(top);
    if (top.tag() != Tag::dict || !items) return kNoSnapshot;
    for (size_t i = 0; i + 1 < items->size(); i += 2) {
      std::string problem = take_key(keys_.key_of((*items)[i]), (*items)[i + 1]);
      if (!problem.empty()) return problem;
    }
    return has_segments_ || snapshot_.has_traces ? std::string() : kNoSnapshot;
  }

 private:
  static constexpr const char* kNoSnapshot =
      "plain data, but no snapshot of PyTorch (neither segments nor device_traces)";

  std::string take_key(Key key, Value value) {
    switch (key) {
      case Key::segments:
        return take_segments(value);
      case Key::device_traces:
        return take_traces(value);
      case Key::allocator_settings:
        take_settings(value);
        return {};
      case Key::external_annotations:
        snapshot_.has_annotations = true;
        return {};
      case Key::host_segments:
      case Key::host_traces:
        snapshot_.has_host_parts = true;
        return {};
      default:
        return {};
    }
  }

  std::string take_segments(Value value) {
    const std::vector<Value>* items = values_.items(value);
    if (value.tag() != Tag::list || !items) return "segments is no list";
    for (const Value item : *items) {
      if (item.tag() != Tag::segment) return "an entry of segments is no segment";
    }
    for (const SnapshotSegment& segment : snapshot_.parts.segments) {
      if (segment.broken || segment.address == kUnknown || segment.size == kUnknown ||
          segment.size > UINT64_MAX - segment.address) {
        return "a segment lacks its address, its size or its blocks";
      }
    }
    has_segments_ = true;
    return {};
  }

  std::string take_traces(Value value) {
    const std::vector<Value>* devices = values_.items(value);
    if (value.tag() != Tag::list || !devices) return "device_traces is no list";
    if (devices->size() > kMostDevices) return "device_traces has too many devices";
    snapshot_.has_traces = true;
    snapshot_.traces.assign(devices->size(), {});
    for (size_t device = 0; device < devices->size(); ++device) {
      const std::vector<Value>* runs = values_.items((*devices)[device]);
      if (!runs) return "a list of device_traces is missing";
      for (const Value run : *runs) {
        if (run.tag() != Tag::entry) return "an entry of device_traces is no trace entry";
        snapshot_.traces[device].push_back({run.id(), run.count()});
      }
    }
    return {};
  }

  void take_settings(Value value) {
    const std::vector<Value>* items = values_.items(value);
    if (value.tag() != Tag::dict || !items) return;
    snapshot_.has_settings = true;
    SnapshotSettings& settings = snapshot_.settings;
    for (size_t i = 0; i + 1 < items->size(); i += 2) {
      const std::string key(text((*items)[i]));
      const Value setting = (*items)[i + 1];
      if (key == "PYTORCH_CUDA_ALLOC_CONF") settings.text = text(setting);
      if (key == "roundup_power2_divisions") take_roundup(setting);
      if (setting.tag() == Tag::boolean) settings.flags[key] = setting.payload() != 0;
      if (const auto number = values_.real_of(setting)) settings.numbers[key] = *number;
    }
  }

  void take_roundup(Value value) {
    const std::vector<Value>* items = values_.items(value);
    if (value.tag() != Tag::dict || !items) return;
    for (size_t i = 0; i + 1 < items->size(); i += 2) {
      const std::string_view key = text((*items)[i]);
      uint64_t megabytes = 0;
      const auto parsed = std::from_chars(key.data(), key.data() + key.size(), megabytes);
      const auto divisions = values_.number((*items)[i + 1]);
      if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || !divisions) continue;
      snapshot_.settings.roundup[megabytes] = *divisions;
    }
  }

  std::string_view text(Value value) const {
    if (value.tag() != Tag::text) return {};
    return snapshot_.parts.texts[static_cast<uint32_t>(value.payload())];
  }

  ValueStore& values_;
  const SnapshotCollector& keys_;
  Snapshot& snapshot_;
  bool has_segments_ = false;
};

}  // namespace

bool looks_like_pickle(std::span<const std::byte> start) {
  return start.size() >= 2 && start[0] == std::byte{0x80} &&
         std::to_integer<int64_t>(start[1]) >= kOldestProtocol &&
         std::to_integer<int64_t>(start[1]) < 0x20;
}

Result<Snapshot> read_snapshot(trace::ByteSource source, const std::string& name) {
  PickleInput input(std::move(source));
  Budget budget(kBudgetBase + 2 * input.size());
  Snapshot snapshot;
  ValueStore values(budget);
  SnapshotCollector collector(snapshot.parts, values, budget);
  PickleMachine machine(input, name, budget, values, snapshot.parts.texts, collector);
  const auto top = machine.run();
  if (!top) return top.error();
  TopLevel level(values, collector, snapshot);
  const std::string problem = level.take(*top);
  if (!problem.empty()) return Error{ErrorCode::kForeign, name + ": " + problem};
  return snapshot;
}

}  // namespace fragscope::imported
