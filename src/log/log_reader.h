// Reads a process's log, of a live or a dead process, by the protocol of log_layout.h.
//
// Every record is copied by pread() before it is looked at: a file that its owner cuts short is a
// short read here and not a SIGBUS, and what was checked cannot change afterwards. Header values
// are used only as far as the file's present size bears them out.
//
// Ownership: owns descriptor and mapping (of the header alone it stores read_pos into). Threads:
// one at a time; the writers run meanwhile. Errors: kForeign, kNewerVersion, kNotFound,
// kPermission.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "event/event.h"
#include "log/blob_assembler.h"
#include "log/log_layout.h"
#include "log/shared_region.h"

namespace fragscope::log {

// Who writes the log. Right once the first record is there.
struct LogIdentity {
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
  uint64_t realtime_ns = 0;
  uint64_t monotonic_ns = 0;
  std::string program;
  std::string shim_version;
};

struct LogState {
  uint64_t capacity_slots = 0;
  uint64_t write_pos = 0;
  uint64_t read_pos = 0;
  uint64_t readable_slots = 0;  // min(allocated_slots, capacity, what the file holds)
  uint64_t dropped_events = 0;
  uint32_t grow_errno = 0;  // 0: the log could always grow
  // A ring of the newest events; all of the above but dropped_events is of the blobs then.
  uint64_t ring_first_slot = 0;  // 0: there is none
  uint64_t ring_write_pos = 0;
  uint64_t ring_slots = 0;  // with storage, as far as the file holds them
  bool finished = false;    // the process ran its exit handlers
};

// What the process tells whoever watches it. Counters; the rest belongs to the newest.
struct LogNotices {
  uint32_t ooms = 0;          // requests that ran out of memory
  uint32_t ooms_stopped = 0;  // of those, at which the process stopped itself
  uint32_t warnings = 0;      // devices whose use has crossed the threshold
  int32_t oom_device = 0;
  uint64_t oom_requested = 0;
  int32_t warn_device = 0;
  uint64_t warn_used = 0;
  uint64_t warn_of = 0;
};

class LogConsumer {
 public:
  virtual ~LogConsumer() = default;
  // In log order; seq dense, pid set, time_ns never less than before.
  virtual void on_event(const Event& event) = 0;
  // Whole blobs, before the first event that names them.
  virtual void on_blob(BlobKind kind, uint32_t id, std::span<const std::byte> bytes) = 0;
};

class LogReader {
 public:
  enum class Access {
    inspect,  // leaves the file as it is; another reader may be draining it
    drain,    // the one reader that publishes read_pos
  };

  static Result<LogReader> open(const std::string& path, Access access);

  Result<LogIdentity> identity();
  Result<LogState> state();
  // Calls per api id, those above 0.
  Result<std::map<uint16_t, uint64_t>> api_calls();

  // Goes on where another reader stopped: records before `position` are known to the caller, the
  // next event is number `seq` + 1. Call before the first read().
  void resume(uint64_t position, uint64_t seq, uint64_t time_ns);

  // Delivers what is complete, at most `max_slots` records; returns how many positions it passed, 0
  // = nothing more now. `process_alive` false: takes pending records, skips and counts torn ones.
  Result<uint64_t> read(LogConsumer& consumer, bool process_alive, uint64_t max_slots = UINT64_MAX);

  // Of events, if the log is a ring; else of events and blobs alike. Everything before it has been
  // delivered (or skipped as torn or overwritten).
  uint64_t position() const { return has_ring() ? ring_position_ : position_; }
  // Whether newer events take the place of older ones, read or not.
  bool has_ring() const { return ring_first_slot_ != 0; }
  // Positions that were not passed yet when it was asked.
  Result<uint64_t> remaining();
  uint64_t events() const { return seq_; }
  // Records whose writer died in the middle, that are impossible, or whose storage is gone.
  uint64_t torn_records() const { return torn_; }
  // Events of a ring that newer ones took the place of before they were read.
  uint64_t overwritten_events() const { return overwritten_; }
  // Where they are missing: the first kMostGaps places, in order. The one after event 0 is the
  // beginning.
  struct Gap {
    uint64_t after_seq = 0;
    uint64_t events = 0;
  };
  static constexpr size_t kMostGaps = 16;
  const std::vector<Gap>& gaps() const { return gaps_; }

  // Slots read but not given back to the writers yet.
  uint64_t unpublished() const { return position_ - published_; }
  // Gives the slots before position() back (Access::drain). Unfinished blobs hold back a bounded
  // part, so that a later resume() still finds their first parts.
  Status publish();

  // What is asked of the one who drains (log_control.h): to write all to disk.
  uint64_t flush_wanted() const;
  void set_flush_done(uint64_t number);
  uint64_t skipped_events() const;
  LogNotices notices() const;
  // Makes this the one reader that drains, as long as it lives; false: another one does.
  bool claim();

 private:
  uint64_t control_word(size_t offset) const;
  LogReader(SharedRegion region, std::string path, Access access);

  Status load_header();
  Status check_header() const;
  Status open_ring();
  template <typename T>
  T header_field(size_t offset) const;
  std::string header_text(size_t offset, size_t size) const;
  uint64_t file_bytes() const;
  LogState current() const;

  Result<uint64_t> read_slots(LogConsumer& consumer, bool process_alive, uint64_t max_slots);
  Result<uint64_t> read_ring(LogConsumer& consumer, bool process_alive, uint64_t max_slots);
  Result<uint64_t> read_events(LogConsumer& consumer, bool process_alive, uint64_t end,
                               uint64_t max_slots);
  void lose(uint64_t events);
  struct RingSlot;
  bool pass_ring_slot(LogConsumer& consumer, const RingSlot& slot);
  Status look_again(uint64_t index, uint64_t count);
  uint64_t end_of_records(const LogState& state, bool process_alive);
  Status copy_batch(uint64_t index, uint64_t count);
  Status check_not_drained();
  uint64_t deliver_batch(LogConsumer& consumer, uint64_t count, bool process_alive);
  bool deliver(LogConsumer& consumer, uint64_t commit, const Slot& slot);
  bool deliver_event(LogConsumer& consumer, const LogEvent& in, bool known);
  bool deliver_blob(LogConsumer& consumer, const BlobPart& part);
  uint64_t skip_unstored(const LogState& state, uint64_t end);

  SharedRegion region_;
  std::string path_;
  Access access_;
  std::vector<std::byte> header_;   // private copies: of the header, up to api_calls;
  std::vector<std::byte> commits_;  // of a batch of slots, first look;
  std::vector<std::byte> slots_;    // of the same slots, content;
  std::vector<std::byte> again_;    // of the same slots, last look (ring)
  BlobAssembler blobs_;
  uint64_t capacity_ = 0;
  std::optional<uint64_t> final_end_;  // of a dead process's records
  uint32_t pid_ = 0;
  uint64_t position_ = 0;
  uint64_t published_ = 0;
  uint64_t known_before_ = 0;  // records before this position are not delivered
  uint64_t seq_ = 0;
  uint64_t last_time_ns_ = 0;
  uint64_t torn_ = 0;
  uint64_t ring_first_slot_ = 0;
  uint64_t ring_position_ = 0;
  std::optional<uint64_t> final_ring_end_;  // of a dead process's events
  uint64_t overwritten_ = 0;
  std::vector<Gap> gaps_;
};

}  // namespace fragscope::log
