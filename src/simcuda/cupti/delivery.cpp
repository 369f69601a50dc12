// From the queue to the client's buffers.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "simcuda/clock.h"
#include "simcuda/cupti/activity.h"
#include "simcuda/cupti/queue.h"
#include "simcuda/cupti/records.h"

namespace fragscope::simcuda::cupti {

namespace {

constexpr size_t kAlignment = 8;

uint64_t realtime_ns() { return clock_ns(CLOCK_REALTIME); }

// Our nanoseconds -> the client's clock, by the line through the moment when the clock was set and
// the last delivery.
class Clock {
 public:
  Clock() { set(nullptr); }
  void set(TimestampFunction function) {
    read_ = function != nullptr ? function : realtime_ns;
    from_ns_ = clock_ns();
    from_ = read_();
    rate_ = 1;
  }
  uint64_t now() const { return read_(); }
  void measure() {
    constexpr uint64_t kShortest = 10'000;  // ns; the reading itself takes some
    const uint64_t ns = clock_ns();
    const uint64_t there = read_();
    if (ns - from_ns_ < kShortest || there <= from_) return;
    rate_ = static_cast<double>(there - from_) / static_cast<double>(ns - from_ns_);
  }
  uint64_t convert(uint64_t ns) const {
    const auto since = static_cast<double>(static_cast<int64_t>(ns - from_ns_));
    return from_ + static_cast<uint64_t>(static_cast<int64_t>(since * rate_));
  }

 private:
  TimestampFunction read_;
  uint64_t from_ns_, from_;
  double rate_;
};

struct Buffer {
  uint8_t* memory = nullptr;
  size_t bytes = 0;
  size_t used = 0;
  size_t most_records = 0;  // 0: as many as fit
  size_t records = 0;
};

// Bytes before the first record.
size_t misalignment(const uint8_t* memory) {
  return (kAlignment - reinterpret_cast<uintptr_t>(memory) % kAlignment) % kAlignment;
}

struct Delivery {
  std::mutex lock;      // held while the client's functions run
  std::mutex settings;  // what the client's functions may ask for meanwhile
  BufferRequested requested = nullptr;
  BufferCompleted completed = nullptr;
  Clock clock;
  Buffer current;
  std::unordered_map<uint64_t, uint64_t> stream_ends;  // by context and stream
};
Delivery& delivery() {
  static auto* instance = new Delivery;  // used until the process ends
  return *instance;
}
thread_local bool t_delivering = false;
std::atomic<bool> g_has_buffer{false};

void hand_over(Delivery& all) {
  const Buffer full = all.current;
  all.current = {};
  g_has_buffer.store(false);
  if (full.memory == nullptr) return;
  all.completed(nullptr, 0, full.memory, full.bytes, full.records == 0 ? 0 : full.used);
}

bool has_room(const Buffer& buffer, size_t bytes) {
  const bool counted_out = buffer.most_records != 0 && buffer.records >= buffer.most_records;
  return buffer.memory != nullptr && !counted_out && bytes <= buffer.bytes &&
         buffer.used <= buffer.bytes - bytes;
}

void request(Delivery& all) {
  Buffer fresh;
  all.requested(&fresh.memory, &fresh.bytes, &fresh.most_records);
  if (fresh.memory == nullptr) return;
  fresh.used = misalignment(fresh.memory);
  all.current = fresh;
  g_has_buffer.store(true);
}

// Null: the client gives no buffer that the record fits into.
uint8_t* place(Delivery& all, size_t bytes) {
  if (!has_room(all.current, bytes)) {
    hand_over(all);
    request(all);
    if (!has_room(all.current, bytes)) {
      hand_over(all);
      return nullptr;
    }
  }
  uint8_t* at = all.current.memory + all.current.used;
  all.current.used += bytes;
  ++all.current.records;
  return at;
}

template <typename Record>
bool write(Delivery& all, const Record& record) {
  uint8_t* at = place(all, sizeof record);
  if (at != nullptr) std::memcpy(at, &record, sizeof record);
  return at != nullptr;
}

struct Span {
  uint64_t start, end;
};
// In the client's clock nothing has no length, and a stream's work follows itself.
Span span_of(Delivery& all, const Entry& entry) {
  Span span{all.clock.convert(entry.start_ns), all.clock.convert(entry.end_ns)};
  const uint64_t stream = uint64_t{entry.work.context} << 32 | entry.work.stream;
  uint64_t& last = all.stream_ends[stream];
  span.start = std::max(span.start, last);
  span.end = std::max(span.end, span.start + 1);
  last = span.end;
  return span;
}

// What all records of device work have.
template <typename Record>
Record device_record(Delivery& all, const Entry& entry) {
  Record record{};
  const Span span = span_of(all, entry);
  record.kind = entry.kind;
  record.start = span.start;
  record.end = span.end;
  record.device = entry.work.device;
  record.context = entry.work.context;
  record.stream = entry.work.stream;
  record.correlation = entry.correlation;
  record.graph_node = entry.work.graph_node;
  record.graph = entry.work.graph;
  return record;
}

bool write_kernel(Delivery& all, const Entry& entry) {
  auto record = device_record<KernelRecord>(all, entry);
  record.completed = record.end;
  for (int i = 0; i < 3; ++i) {
    record.grid[i] = static_cast<int32_t>(entry.work.grid[i]);
    record.block[i] = static_cast<int32_t>(entry.work.block[i]);
  }
  record.dynamic_shared = static_cast<int32_t>(entry.work.dynamic_shared_bytes);
  record.grid_id = entry.correlation;
  record.name = entry.work.name;
  return write(all, record);
}

// What copies within a device and between two have.
template <typename Record>
Record copy_record(Delivery& all, const Entry& entry) {
  auto record = device_record<Record>(all, entry);
  record.copy_kind = entry.work.copy_kind;
  record.source = entry.work.source;
  record.target = entry.work.target;
  record.flags = entry.work.asynchronous ? 1 : 0;
  record.bytes = entry.work.bytes;
  return record;
}

bool write_copy(Delivery& all, const Entry& entry) {
  auto record = copy_record<CopyRecord>(all, entry);
#if FRAGSCOPE_CUPTI_MAJOR >= 13
  record.copies = 1;
#endif
  return write(all, record);
}

bool write_peer_copy(Delivery& all, const Entry& entry) {
  auto record = copy_record<PeerCopyRecord>(all, entry);
  record.source_device = entry.work.source_device;
  record.source_context = entry.work.source_context;
  record.target_device = entry.work.target_device;
  record.target_context = entry.work.target_context;
  return write(all, record);
}

bool write_fill(Delivery& all, const Entry& entry) {
  auto record = device_record<FillRecord>(all, entry);
  record.value = entry.work.value;
  record.bytes = entry.work.bytes;
  record.flags = entry.work.asynchronous ? 1 : 0;
  record.memory_kind = entry.work.target;
  return write(all, record);
}

bool write_call(Delivery& all, const Entry& entry) {
  ApiRecord record{};
  record.kind = entry.kind;
  record.callback_id = entry.callback_id;
  record.start = all.clock.convert(entry.start_ns);
  record.end = all.clock.convert(entry.end_ns);
  record.process = static_cast<uint32_t>(::getpid());
  record.thread = entry.thread;
  record.correlation = entry.correlation;
  record.result = static_cast<uint32_t>(entry.result);
  return write(all, record);
}

bool write_external(Delivery& all, const Entry& entry) {
  ExternalRecord record{};
  record.kind = entry.kind;
  record.external_kind = entry.external_kind;
  record.external = entry.external;
  record.correlation = entry.correlation;
  return write(all, record);
}

bool write_entry(Delivery& all, const Entry& entry) {
  switch (entry.kind) {
    case kKernel:
    case kConcurrentKernel:
      return write_kernel(all, entry);
    case kMemcpy:
      return write_copy(all, entry);
    case kPeerCopy:
      return write_peer_copy(all, entry);
    case kMemset:
      return write_fill(all, entry);
    case kExternalCorrelation:
      return write_external(all, entry);
    default:
      return write_call(all, entry);
  }
}

// Under the delivery's lock.
void deliver(Delivery& all) {
  {
    const std::lock_guard<std::mutex> guard(all.settings);
    if (all.requested == nullptr) return;  // the queue waits for callbacks
    all.clock.measure();
  }
  t_delivering = true;
  uint64_t dropped = 0;
  for (const Entry& entry : take_entries()) {
    if (!write_entry(all, entry)) ++dropped;
  }
  if (dropped != 0) count_dropped(dropped);
  t_delivering = false;
}

}  // namespace

bool set_buffer_functions(BufferRequested requested, BufferCompleted completed) {
  if (t_delivering) return false;
  Delivery& all = delivery();
  const std::lock_guard<std::mutex> guard(all.lock);
  t_delivering = true;
  if (all.requested != nullptr) hand_over(all);  // a buffer goes back to whom it came from
  t_delivering = false;
  const std::lock_guard<std::mutex> settings(all.settings);
  all.requested = requested;
  all.completed = completed;
  return true;
}

bool set_clock(TimestampFunction clock) {
  if (t_delivering) return false;
  Delivery& all = delivery();
  const std::lock_guard<std::mutex> guard(all.lock);
  const std::lock_guard<std::mutex> settings(all.settings);
  all.clock.set(clock);
  return true;
}

uint64_t clock_now() {
  Delivery& all = delivery();
  const std::lock_guard<std::mutex> guard(all.settings);
  return all.clock.now();
}

bool flush() {
  if (t_delivering) return false;
  Delivery& all = delivery();
  const std::lock_guard<std::mutex> guard(all.lock);
  deliver(all);
  t_delivering = true;
  hand_over(all);
  t_delivering = false;
  return true;
}

void deliver_if_free() {
  if (t_delivering) return;
  Delivery& all = delivery();
  if (!all.lock.try_lock()) return;
  const std::lock_guard<std::mutex> guard(all.lock, std::adopt_lock);
  deliver(all);
}

bool has_buffer() { return g_has_buffer.load(std::memory_order_relaxed); }

void request_if_free() {
  if (t_delivering) return;
  Delivery& all = delivery();
  if (!all.lock.try_lock()) return;
  const std::lock_guard<std::mutex> guard(all.lock, std::adopt_lock);
  if (all.requested == nullptr || all.current.memory != nullptr) return;
  t_delivering = true;
  request(all);
  t_delivering = false;
}

const void* next_record(const uint8_t* buffer, size_t valid_bytes, const void* record) {
  size_t at = misalignment(buffer);
  if (record != nullptr) {
    const auto* before = static_cast<const uint8_t*>(record);
    if (before < buffer || before >= buffer + valid_bytes) return nullptr;
    at = static_cast<size_t>(before - buffer);
  }
  const auto kind_at = [&](size_t offset) {
    uint32_t kind = 0;
    if (offset + sizeof kind <= valid_bytes) std::memcpy(&kind, buffer + offset, sizeof kind);
    return kind;
  };
  if (record != nullptr) {
    const size_t bytes = record_bytes(kind_at(at));
    if (bytes == 0) return nullptr;
    at += bytes;
  }
  const size_t bytes = record_bytes(kind_at(at));
  if (bytes == 0 || at > valid_bytes || bytes > valid_bytes - at) return nullptr;
  return buffer + at;
}

}  // namespace fragscope::simcuda::cupti
