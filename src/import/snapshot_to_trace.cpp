#include "import/snapshot_to_trace.h"

#include <algorithm>
#include <utility>

#include "event/frame.h"
#include "import/device_history.h"
#include "import/read_snapshot.h"
#include "import/releases.h"
#include "trace/trace_writer.h"

namespace fragscope::imported {
namespace {

class VectorSink final : public trace::ByteSink {
 public:
  Status write(std::span<const std::byte> bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return Done{};
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

EventKind kind_of(Action action) {
  switch (action) {
    case Action::alloc:
      return EventKind::alloc;
    case Action::free_requested:
      return EventKind::free_requested;
    case Action::free_completed:
      return EventKind::free_completed;
    case Action::segment_alloc:
      return EventKind::segment_alloc;
    case Action::segment_free:
      return EventKind::segment_free;
    case Action::segment_map:
      return EventKind::segment_map;
    case Action::segment_unmap:
      return EventKind::segment_unmap;
    case Action::snapshot:
      return EventKind::snapshot;
    case Action::oom:
      return EventKind::oom;
    case Action::annotate:
      return EventKind::annotate;
    case Action::unknown:
      break;
  }
  return EventKind::none;
}

// One device's entries, front to back.
class EntryCursor {
 public:
  EntryCursor(const Snapshot& snapshot, int32_t device)
      : entries_(&snapshot.parts.entries), runs_(&snapshot.traces[static_cast<size_t>(device)]) {
    skip_empty();
  }
  bool done() const { return run_ == runs_->size(); }
  const TraceEntry& entry() const { return (*entries_)[(*runs_)[run_].first + at_]; }
  void advance() {
    ++at_;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (run_ < runs_->size() && at_ >= (*runs_)[run_].count) {
      ++run_;
      at_ = 0;
    }
  }

  const std::deque<TraceEntry>* entries_;
  const std::vector<EntryRun>* runs_;
  size_t run_ = 0;
  uint32_t at_ = 0;
};

class Converter {
 public:
  Converter(Snapshot& snapshot, std::string program) : snapshot_(snapshot) {
    process_.program = std::move(program);
    process_.exit.kind = trace::ExitKind::vanished;
    for (const TraceEntry& entry : snapshot_.parts.entries) {
      if (entry.time_us != kUnknown) first_us_ = std::min(first_us_, entry.time_us);
    }
    if (first_us_ != kUnknown && first_us_ < UINT64_MAX / 1000) {
      process_.realtime_ns = first_us_ * 1000;
    }
    stack_written_.resize(snapshot_.parts.stacks.size() + 1);
  }

  Result<std::vector<std::byte>> convert() {
    rewind();
    describe();
    auto writer = trace::TraceWriter::start(sink_, process_);
    if (!writer) return writer.error();
    writer_.emplace(std::move(writer).value());
    for (const auto& [device, history] : histories_) write_start(device, history);
    write_entries();
    write_rest_of_annotations(kUnknown);
    if (!status_) return status_.error();
    if (Status sealed = writer_->seal(process_, {}); !sealed) return sealed.error();
    return sink_.take();
  }

 private:
  void rewind() {
    std::vector<bool> devices(snapshot_.traces.size(), true);
    for (const SnapshotSegment& segment : snapshot_.parts.segments) {
      const auto index = static_cast<size_t>(std::max(segment.device, 0));
      if (index >= devices.size()) devices.resize(index + 1, false);
      devices[index] = true;
    }
    for (size_t i = 0; i < devices.size(); ++i) {
      if (!devices[i]) continue;
      const auto device = static_cast<int32_t>(i);
      histories_.emplace_back(device, rewind_device(snapshot_, device));
    }
    auto& annotations = snapshot_.parts.annotations;
    std::stable_sort(annotations.begin(), annotations.end(),
                     [](const Annotation& left, const Annotation& right) {
                       return left.time_us < right.time_us;
                     });
  }

  void describe() {
    auto& properties = process_.properties;
    Contradictions sum;
    uint64_t blocks = 0, segments = 0;
    for (const auto& [device, history] : histories_) {
      sum.blocks += history.contradictions.blocks;
      sum.segments += history.contradictions.segments;
      sum.outside_segments += history.contradictions.outside_segments;
      blocks += history.blocks.size();
      segments += history.segments.size();
    }
    properties["block_source"] = "snapshot";
    properties["stacks"] = snapshot_.parts.stacks.size() > 0 ? "snapshot" : "none";
    properties["snapshot.entries"] = std::to_string(snapshot_.entry_count());
    properties["snapshot.start_segments"] = std::to_string(segments);
    properties["snapshot.start_blocks"] = std::to_string(blocks);
    if (sum.outside_segments > 0) {
      properties["snapshot.outside_segments"] = std::to_string(sum.outside_segments);
    }
    if (sum.blocks + sum.segments > 0) {
      properties["snapshot.contradictions"] = std::to_string(sum.blocks + sum.segments);
    }
    const ReleaseRange releases = releases_of(snapshot_);
    properties["snapshot.torch_oldest"] = "2." + std::to_string(releases.oldest);
    if (releases.newest != ReleaseRange{}.newest) {
      properties["snapshot.torch_newest"] = "2." + std::to_string(releases.newest);
    }
    if (const auto settings = settings_text(snapshot_)) properties["alloc_conf"] = *settings;
  }

  // --- events -----------------------------------------------------------------------------------

  void write(Event& event, uint32_t stack) {
    if (!status_) return;
    event.seq = ++seq_;
    event.time_ns = now_ns_;
    event.stack = stack;
    write_stack(stack);
    if (status_.ok()) status_ = writer_->add_event(event);
  }

  void write_stack(uint32_t stack) {
    if (stack == 0 || stack_written_[stack]) return;
    stack_written_[stack] = true;
    const auto [ids, count] = snapshot_.parts.stacks.frames(stack);
    addresses_.clear();
    for (size_t i = 0; i < count; ++i) {
      write_frame(ids[i]);
      addresses_.push_back(kPythonFrame | ids[i]);
    }
    if (status_.ok()) status_ = writer_->add_stack(stack, addresses_);
  }

  void write_frame(uint32_t id) {
    if (id >= frame_written_.size()) frame_written_.resize(snapshot_.parts.frames.size() + 1);
    if (frame_written_[id]) return;
    frame_written_[id] = true;
    const Frame& frame = snapshot_.parts.frames[id];
    if (!status_) return;
    trace::PythonFrame named;
    named.function = snapshot_.parts.texts[frame.function];
    named.file = snapshot_.parts.texts[frame.file];
    named.line = static_cast<int32_t>(std::min<uint32_t>(frame.line, INT32_MAX));
    status_ = writer_->add_python_frame(id, named);
  }

  Event new_event(EventKind kind, int32_t device, uint16_t stream, uint32_t pool) const {
    Event event;
    event.kind = kind;
    event.device = device;
    event.flags = kFlagSourceSnapshot;
    if (stream != 0) event.stream = snapshot_.parts.streams[stream];
    if (pool != 0 && pack_pool(snapshot_.parts.pools[pool], event.text)) event.flags |= kFlagPool;
    return event;
  }

  void write_start(int32_t device, const DeviceHistory& history) {
    auto block = history.blocks.begin();
    const auto end = history.blocks.end();
    for (const StartSegment& segment : history.segments) {
      write_start_segment(device, segment);
      for (; block != end && block->address - segment.address < segment.size; ++block) {
        write_start_block(device, *block, segment.stream, segment.pool);
      }
      // Blocks below the next segment and in none: told all the same.
    }
    for (const StartBlock& homeless : history.blocks) {
      if (!inside(history.segments, homeless.address)) write_start_block(device, homeless, 0, 0);
    }
  }

  static bool inside(const std::vector<StartSegment>& segments, uint64_t address) {
    const auto after = std::upper_bound(
        segments.begin(), segments.end(), address,
        [](uint64_t value, const StartSegment& segment) { return value < segment.address; });
    return after != segments.begin() &&
           address - std::prev(after)->address < std::prev(after)->size;
  }

  void write_start_segment(int32_t device, const StartSegment& segment) {
    Event event = new_event(segment.expandable ? EventKind::segment_map : EventKind::segment_alloc,
                            device, segment.stream, segment.pool);
    event.flags |= kFlagAtStart;
    event.address = segment.address;
    event.size = segment.size;
    if (segment.type != SegmentType::unknown) event.aux = segment.type == SegmentType::small;
    write(event, segment.stack);
  }

  void write_start_block(int32_t device, const StartBlock& block, uint16_t stream, uint32_t pool) {
    Event event = new_event(EventKind::alloc, device, stream, pool);
    event.flags |= kFlagAtStart;
    event.address = block.address;
    event.size = block.size;
    event.requested = block.requested;
    write(event, block.stack);
    if (!block.pending) return;
    event.kind = EventKind::free_requested;
    write(event, 0);
  }

  void write_entries() {
    std::vector<std::pair<int32_t, EntryCursor>> cursors;
    for (size_t i = 0; i < snapshot_.traces.size(); ++i) {
      EntryCursor cursor(snapshot_, static_cast<int32_t>(i));
      if (!cursor.done()) cursors.emplace_back(static_cast<int32_t>(i), cursor);
    }
    while (!cursors.empty() && status_.ok()) {
      auto next =
          std::min_element(cursors.begin(), cursors.end(), [](const auto& l, const auto& r) {
            return l.second.entry().time_us < r.second.entry().time_us;
          });
      write_entry(next->first, next->second.entry());
      next->second.advance();
      if (next->second.done()) cursors.erase(next);
    }
  }

  void set_time(uint64_t time_us) {
    if (time_us == kUnknown || time_us < first_us_) return;
    now_ns_ = std::max(now_ns_, (time_us - first_us_) * 1000);
  }

  void write_entry(int32_t device, const TraceEntry& entry) {
    const EventKind kind = kind_of(entry.action);
    if (kind == EventKind::none) return;
    write_rest_of_annotations(entry.time_us);
    set_time(entry.time_us);
    Event event = new_event(kind, device, entry.stream, entry.pool);
    const bool is_block = kind == EventKind::alloc || kind == EventKind::free_requested ||
                          kind == EventKind::free_completed;
    if (kind == EventKind::oom) {
      event.aux = entry.address;
    } else {
      event.address = entry.address;
    }
    (is_block || kind == EventKind::oom ? event.requested : event.size) = entry.size;
    if (kind == EventKind::annotate) put_text(entry.text, event);
    write(event, entry.stack);
  }

  void put_text(uint32_t text, Event& event) {
    event.flags &= ~kFlagPool;
    event.text = text;
    if (text != 0 && status_.ok()) {
      status_ = writer_->add_text(text, snapshot_.parts.texts[text]);
    }
  }

  void write_rest_of_annotations(uint64_t until_us) {
    const auto& annotations = snapshot_.parts.annotations;
    while (annotation_ < annotations.size() && annotations[annotation_].time_us <= until_us) {
      const Annotation& annotation = annotations[annotation_++];
      set_time(annotation.time_us);
      Event event;
      event.kind = annotation.end ? EventKind::range_pop : EventKind::range_push;
      event.device = annotation.device;
      put_text(annotation.name, event);
      write(event, 0);
    }
  }

  Snapshot& snapshot_;
  trace::ProcessInfo process_;
  std::vector<std::pair<int32_t, DeviceHistory>> histories_;
  VectorSink sink_;
  std::optional<trace::TraceWriter> writer_;
  Status status_ = Done{};
  std::vector<bool> stack_written_;
  std::vector<bool> frame_written_;
  std::vector<uint64_t> addresses_;
  uint64_t first_us_ = kUnknown;
  uint64_t now_ns_ = 0;
  uint64_t seq_ = 0;
  size_t annotation_ = 0;
};

}  // namespace

Result<std::vector<std::byte>> snapshot_to_trace(Snapshot& snapshot, const std::string& program) {
  return Converter(snapshot, program).convert();
}

Result<trace::TraceReader> open_snapshot(const std::string& path) {
  std::vector<std::byte> bytes;
  {
    auto source = trace::ByteSource::open_file(path);
    if (!source) return source.error();
    auto snapshot = read_snapshot(std::move(source).value(), path);
    if (!snapshot) return snapshot.error();
    auto converted = snapshot_to_trace(*snapshot, path.substr(path.rfind('/') + 1));
    if (!converted) return converted.error();
    bytes = std::move(converted).value();
  }
  return trace::TraceReader::open_bytes(std::move(bytes), path);
}

}  // namespace fragscope::imported
