#include "log/log_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "event/event_names.h"
#include "log/log_control.h"
#include "log/slot_copies.h"

namespace fragscope::log {
namespace {

constexpr uint64_t kMaxCapacitySlots = uint64_t{1} << 36;  // 6 TiB: more is no header of ours
constexpr uint64_t kMaxHeldSlots = 65536;                  // kept for resume(), see publish()
constexpr size_t kHeaderFields = offsetof(LogHeader, api_calls);

}  // namespace

LogReader::LogReader(SharedRegion region, std::string path, Access access)
    : region_(std::move(region)),
      path_(std::move(path)),
      access_(access),
      header_(kHeaderFields),
      commits_(kBatchSlots * kSlotBytes),
      slots_(kBatchSlots * kSlotBytes) {}

Result<LogReader> LogReader::open(const std::string& path, Access access) {
  auto region = SharedRegion::open(path, access == Access::drain);
  if (!region) return region.error();
  if (region->size() < kHeaderBytes) {
    return Error{ErrorCode::kForeign, path + ": too short for a fragscope log"};
  }
  LogReader reader(std::move(region).value(), path, access);
  if (Status status = reader.load_header(); !status) return status.error();
  if (Status status = reader.check_header(); !status) return status.error();
  reader.capacity_ = reader.header_field<uint64_t>(offsetof(LogHeader, capacity_slots));
  if (Status status = reader.open_ring(); !status) return status.error();
  reader.position_ = reader.published_ = reader.current().read_pos;
  return reader;
}

Status LogReader::load_header() { return pread_zero_filled(region_.fd(), 0, header_, path_); }

Status LogReader::check_header() const {
  if (std::memcmp(header_.data(), kMagic, sizeof kMagic) != 0) {
    return Error{ErrorCode::kForeign, path_ + ": not a fragscope log", 0};
  }
  const auto version = header_field<uint32_t>(offsetof(LogHeader, version));
  if (version > kVersion) {
    return Error{ErrorCode::kNewerVersion,
                 path_ + ": log version " + std::to_string(version) + ", this build reads up to " +
                     std::to_string(kVersion) + "; use the fragscope that recorded it",
                 offsetof(LogHeader, version)};
  }
  const auto capacity = header_field<uint64_t>(offsetof(LogHeader, capacity_slots));
  const bool sizes_right =
      version >= 1 && header_field<uint32_t>(offsetof(LogHeader, header_bytes)) == kHeaderBytes &&
      header_field<uint32_t>(offsetof(LogHeader, slot_bytes)) == kSlotBytes && capacity != 0 &&
      capacity <= kMaxCapacitySlots;
  if (!sizes_right) {
    return Error{ErrorCode::kDamaged, path_ + ": impossible sizes in the header of the log", 8};
  }
  return Done{};
}

template <typename T>
T LogReader::header_field(size_t offset) const {
  T value{};
  std::memcpy(&value, header_.data() + offset, sizeof value);
  return value;
}

std::string LogReader::header_text(size_t offset, size_t size) const {
  const char* text = reinterpret_cast<const char*>(header_.data() + offset);
  return {text, ::strnlen(text, size)};
}

uint64_t LogReader::file_bytes() const {
  struct stat info {};
  return ::fstat(region_.fd(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

LogState LogReader::current() const {
  LogState state;
  state.capacity_slots = capacity_;
  state.write_pos = header_field<uint64_t>(offsetof(LogHeader, write_pos));
  state.read_pos = header_field<uint64_t>(offsetof(LogHeader, read_pos));
  const uint64_t size = file_bytes();
  const uint64_t stored = size < kHeaderBytes ? 0 : (size - kHeaderBytes) / kSlotBytes;
  const auto allocated = header_field<uint64_t>(offsetof(LogHeader, allocated_slots));
  state.readable_slots = std::min({allocated, capacity_, stored});
  state.dropped_events = header_field<uint64_t>(offsetof(LogHeader, dropped_events));
  state.grow_errno = header_field<uint32_t>(offsetof(LogHeader, grow_errno));
  state.finished = header_field<uint32_t>(offsetof(LogHeader, finished)) != 0;
  if (!has_ring()) return state;
  const uint64_t ring_stored = stored - std::min(stored, ring_first_slot_);
  state.ring_first_slot = ring_first_slot_;
  state.ring_write_pos = control_word(offsetof(LogHeader, ring_write_pos));
  state.ring_slots =
      std::min(control_word(offsetof(LogHeader, ring_slots)) & ~kRingSettled, ring_stored);
  return state;
}

Result<LogIdentity> LogReader::identity() {
  if (Status status = load_header(); !status) return status.error();
  LogIdentity identity;
  identity.pid = header_field<uint32_t>(offsetof(LogHeader, pid));
  identity.start_ticks = header_field<uint64_t>(offsetof(LogHeader, start_ticks));
  identity.realtime_ns = header_field<uint64_t>(offsetof(LogHeader, realtime_ns));
  identity.monotonic_ns = header_field<uint64_t>(offsetof(LogHeader, monotonic_ns));
  identity.program = header_text(offsetof(LogHeader, program), sizeof(LogHeader::program));
  identity.shim_version =
      header_text(offsetof(LogHeader, shim_version), sizeof(LogHeader::shim_version));
  return identity;
}

Result<LogState> LogReader::state() {
  if (Status status = load_header(); !status) return status.error();
  return current();
}

Result<std::map<uint16_t, uint64_t>> LogReader::api_calls() {
  std::vector<std::byte> raw(sizeof(uint64_t) * kMaxApis);
  if (Status status = pread_zero_filled(region_.fd(), kHeaderFields, raw, path_); !status) {
    return status.error();
  }
  std::map<uint16_t, uint64_t> calls;
  for (size_t api = 0; api < kMaxApis; ++api) {
    uint64_t count = 0;
    std::memcpy(&count, raw.data() + api * sizeof count, sizeof count);
    if (count != 0) calls[static_cast<uint16_t>(api)] = count;
  }
  return calls;
}

// Blobs of a ring are delivered again: which of them are known is not told by a position of events.
void LogReader::resume(uint64_t position, uint64_t seq, uint64_t time_ns) {
  seq_ = seq;
  last_time_ns_ = time_ns;
  if (has_ring()) {
    ring_position_ = position;
    if (position > seq) lose(position - seq);  // the other reader did, here or before
    return;
  }
  known_before_ = position;
  if (position < position_) torn_ += position_ - position;
}

Result<uint64_t> LogReader::read(LogConsumer& consumer, bool process_alive, uint64_t max_slots) {
  return has_ring() ? read_ring(consumer, process_alive, max_slots)
                    : read_slots(consumer, process_alive, max_slots);
}

Result<uint64_t> LogReader::remaining() {
  const auto now = state();
  if (!now) return now.error();
  const auto behind = [](uint64_t end, uint64_t at) { return end - std::min(end, at); };
  return behind(now->write_pos, position_) + behind(now->ring_write_pos, ring_position_);
}

Result<uint64_t> LogReader::read_slots(LogConsumer& consumer, bool process_alive,
                                       uint64_t max_slots) {
  uint64_t passed = 0;
  while (passed < max_slots) {
    if (Status status = load_header(); !status) return status.error();
    pid_ = header_field<uint32_t>(offsetof(LogHeader, pid));
    const LogState state = current();
    const uint64_t end = end_of_records(state, process_alive);
    if (position_ >= end) break;
    const uint64_t index = position_ % capacity_;
    if (index >= state.readable_slots) {
      if (process_alive) break;
      passed += skip_unstored(state, end);
      continue;
    }
    const uint64_t count =
        std::min({end - position_, state.readable_slots - index, kBatchSlots, max_slots - passed});
    if (Status status = copy_batch(index, count); !status) return status.error();
    if (Status status = check_not_drained(); !status) return status.error();
    const uint64_t delivered = deliver_batch(consumer, count, process_alive);
    passed += delivered;
    if (delivered < count) break;
  }
  return passed;
}

// No writer of ours gets further than one lap beyond what was given back. A dead process writes no
// more: the end is taken once, so that no header can keep a reader busy for ever.
uint64_t LogReader::end_of_records(const LogState& state, bool process_alive) {
  if (final_end_) return *final_end_;
  const uint64_t lap_end =
      published_ > UINT64_MAX - capacity_ ? UINT64_MAX : published_ + capacity_;
  const uint64_t end = std::min(state.write_pos, lap_end);
  if (!process_alive) final_end_ = end;
  return end;
}

// Two looks: a record's fields are copied after its commit word was seen, so they are at least as
// new as the word. The fence pairs with the writer's release store of the word.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"  // TSan does not see what pread() copies, nor needs to
#endif
Status LogReader::copy_batch(uint64_t index, uint64_t count) {
  const uint64_t offset = kHeaderBytes + index * kSlotBytes;
  const size_t bytes = static_cast<size_t>(count * kSlotBytes);
  Status status = pread_zero_filled(region_.fd(), offset, {commits_.data(), bytes}, path_);
  if (!status) return status;
  std::atomic_thread_fence(std::memory_order_acquire);
  return pread_zero_filled(region_.fd(), offset, {slots_.data(), bytes}, path_);
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

// Slots that a collector has given back meanwhile may hold half of a newer record.
Status LogReader::check_not_drained() {
  if (access_ == Access::drain) return Done{};
  if (Status status = load_header(); !status) return status;
  const auto read_pos = header_field<uint64_t>(offsetof(LogHeader, read_pos));
  if (read_pos <= std::max(published_, known_before_)) {
    published_ = std::max(published_, read_pos);
    return Done{};
  }
  return Error{ErrorCode::kUnsupported, path_ + ": was drained while it was read; read it again"};
}

uint64_t LogReader::deliver_batch(LogConsumer& consumer, uint64_t count, bool process_alive) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t commit = slot_at(commits_, i).commit.load(std::memory_order_relaxed);
    const uint64_t wanted = commit_word(position_, SlotType::event, true) >> 8;
    const bool complete = commit >> 8 == wanted;
    const bool known = position_ < known_before_;
    if (process_alive && !known && !(complete && (commit & kCommitFinal) != 0)) return i;
    const bool given_back = position_ < published_;  // by another reader: may be half overwritten
    const bool good = complete && !given_back && deliver(consumer, commit, slot_at(slots_, i));
    if (!good && !known) ++torn_;
    ++position_;
  }
  return count;
}

bool LogReader::deliver(LogConsumer& consumer, uint64_t commit, const Slot& slot) {
  switch (static_cast<SlotType>(commit >> 1 & 0x7f)) {
    case SlotType::event:
      return deliver_event(consumer, slot.event, position_ < known_before_);
    case SlotType::blob:
      return deliver_blob(consumer, slot.blob);
    case SlotType::writing:
      break;
  }
  return false;
}

bool LogReader::deliver_event(LogConsumer& consumer, const LogEvent& in, bool known) {
  const auto kind = kind_from_wire(in.kind);
  if (!kind) return false;
  if (known) return true;
  Event event;
  event.seq = ++seq_;
  event.time_ns = last_time_ns_ = std::max(last_time_ns_, in.time_ns);
  event.pid = pid_;
  event.tid = in.tid;
  event.kind = *kind;
  event.api = in.api;
  event.device = in.device;
  event.result = in.result.load(std::memory_order_relaxed);
  event.stack = in.stack;
  event.stream = in.stream;
  event.address = in.address;
  event.size = in.size;
  event.requested = in.requested;
  event.aux = in.aux;
  event.aux2 = in.aux2;
  event.flags = in.flags;
  event.text = in.text;
  consumer.on_event(event);
  return true;
}

bool LogReader::deliver_blob(LogConsumer& consumer, const BlobPart& part) {
  if (!BlobAssembler::valid(part)) return false;
  const auto whole = blobs_.add(part, position_);
  if (whole && position_ >= known_before_) {
    consumer.on_blob(static_cast<BlobKind>(part.kind), part.id, *whole);
  }
  return true;
}

// Positions whose slots the file does not hold: it was cut, or its header lies.
uint64_t LogReader::skip_unstored(const LogState& state, uint64_t end) {
  const uint64_t to_wrap = state.capacity_slots - position_ % state.capacity_slots;
  const uint64_t skipped = std::min(end - position_, to_wrap);
  position_ += skipped;
  if (position_ > known_before_) torn_ += std::min(skipped, position_ - known_before_);
  return skipped;
}

Status LogReader::publish() {
  if (access_ != Access::drain) {
    return Error{ErrorCode::kInternal, path_ + ": opened to inspect, not to drain"};
  }
  // The mapping of the header is the one place where a cut file would be a SIGBUS; the owner of the
  // file would have to win a race against these lines, and could as well kill this process.
  if (file_bytes() < kHeaderBytes) {
    return Error{ErrorCode::kDamaged, path_ + ": the log was cut while it was read"};
  }
  const uint64_t held = std::min({capacity_ / 4, kMaxHeldSlots, position_});
  const uint64_t target =
      std::max({blobs_.oldest_pending(position_), position_ - held, published_});
  auto& header = *reinterpret_cast<LogHeader*>(region_.data());
  header.read_pos.store(target, std::memory_order_release);
  if (has_ring()) header.ring_read_pos.store(ring_position_, std::memory_order_release);
  published_ = target;
  return Done{};
}

uint64_t LogReader::control_word(size_t offset) const {
  uint64_t word = 0;
  const Status read =
      pread_zero_filled(region_.fd(), offset, std::as_writable_bytes(std::span(&word, 1)), path_);
  return read.ok() ? word : 0;
}

uint64_t LogReader::flush_wanted() const { return control_word(offsetof(LogHeader, flush_wanted)); }

uint64_t LogReader::skipped_events() const {
  return control_word(offsetof(LogHeader, skipped_events));
}

// Counters first: what belongs to one was there before it.
LogNotices LogReader::notices() const {
  LogNotices notices;
  notices.ooms = static_cast<uint32_t>(control_word(offsetof(LogHeader, ooms)));
  notices.warnings = static_cast<uint32_t>(control_word(offsetof(LogHeader, warnings)));
  if (notices.ooms == 0 && notices.warnings == 0) return notices;
  notices.ooms_stopped = static_cast<uint32_t>(control_word(offsetof(LogHeader, ooms_stopped)));
  notices.oom_device = static_cast<int32_t>(control_word(offsetof(LogHeader, oom_device)));
  notices.oom_requested = control_word(offsetof(LogHeader, oom_requested));
  notices.warn_device = static_cast<int32_t>(control_word(offsetof(LogHeader, warn_device)));
  notices.warn_used = control_word(offsetof(LogHeader, warn_used));
  notices.warn_of = control_word(offsetof(LogHeader, warn_of));
  return notices;
}

void LogReader::set_flush_done(uint64_t number) {
  if (access_ != Access::drain || file_bytes() < kHeaderBytes) return;
  reinterpret_cast<LogHeader*>(region_.data())->flush_done.store(number);
}

bool LogReader::claim() { return claim_log(region_.fd()); }

}  // namespace fragscope::log
