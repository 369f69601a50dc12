// The bytes of a process's shared log: one header, then a ring of equal slots. The one owner of
// this layout; writer (inside the target), collector and readers of unsealed runs all include it.
//
//   0                    kHeaderBytes                        kHeaderBytes + capacity * kSlotBytes
//   | LogHeader          | slot 0 | slot 1 | … | slot capacity-1 |
//
// Positions count slots from 0 and never wrap; slot index = position % capacity.
//
// Protocol
// - A writer reserves a position by one fetch_add on write_pos, fills the slot, then stores the
//   slot's commit word with release order. The commit word contains the position, so a reader that
//   loads it with acquire order knows that this slot, in this lap, is complete.
// - A call whose result is not known yet (a free is logged before the real call) is committed
//   without kCommitFinal; the writer stores `result` and then the final commit word afterwards.
// - A reader consumes positions in order and publishes read_pos with release order; a writer loads
//   it with acquire order and never reuses a slot that has not been read. Readers wait at a slot
//   that is not final for as long as its process lives. Once the process is gone they take
//   committed-but-pending slots as they are and skip and count uncommitted ones ("torn").
// - Slots at or above allocated_slots have no storage behind them yet: touching them would be a
//   SIGBUS. Only the writer's growth raises allocated_slots (after posix_fallocate succeeded).
// - The other end may be hostile: readers copy a slot, then check the commit word again.
//
// With a ring (ring_first_slot not 0) the log keeps the newest events instead of stopping:
//
//   | LogHeader | slots of blobs, as above | slots of events: the ring |
//
// - The slots before ring_first_slot hold blobs alone and follow the protocol above, with
//   ring_first_slot for the capacity. What events refer to is so never overwritten.
// - Events have positions of their own, from ring_write_pos; the slot is ring_first_slot + position
//   % size of the ring. Nobody waits for a reader: a writer takes a slot of an earlier lap, whether
//   it was read or not, by one exchange of its commit word for commit_word(position, writing). If
//   another writer is in the slot at that moment or a later lap has it already, the event is
//   dropped and counted. finish() takes the slot in the same way, so that it never touches an event
//   that has taken its place.
// - Readers look at the commit word a third time, after the copy: if it changed, the copy is not
//   used. Positions that were overwritten before they were read are skipped and counted.
// - The ring grows by chunks until it is as large as it may be or storage is refused; then
//   kRingSettled is set in ring_slots and its size stands. Before that no position has wrapped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "event/event.h"

namespace fragscope::log {

inline constexpr char kMagic[8] = {'F', 'S', 'L', 'O', 'G', '\r', '\n', '\0'};
inline constexpr uint32_t kVersion = 3;
inline constexpr uint64_t kHeaderBytes = 8192;
inline constexpr uint64_t kSlotBytes = 96;
inline constexpr uint64_t kChunkSlots = 16384;  // growth unit: 1.5 MiB
// A writer that finds fewer free slots than this drops its record instead of reserving. It bounds
// how many threads may stand between the check and the fetch_add at one time.
inline constexpr uint64_t kReserveSlack = 4096;
inline constexpr uint64_t kDefaultCapacityBytes = 1ull << 30;
inline constexpr size_t kMaxApis = 512;
// A mark that is set from outside travels in the header.
inline constexpr size_t kMaxRequestBytes = 1000;
// In ring_slots; sizes are multiples of kChunkSlots.
inline constexpr uint64_t kRingSettled = 1;

// writing: of a slot in the ring that its writer has taken and not filled yet.
enum class SlotType : uint8_t { writing = 0, event = 1, blob = 2 };

// commit word = (position + 1) << 8 | type << 1 | final
inline constexpr uint64_t kCommitFinal = 1;
constexpr uint64_t commit_word(uint64_t position, SlotType type, bool final) {
  return (position + 1) << 8 | static_cast<uint64_t>(type) << 1 | (final ? kCommitFinal : 0);
}

// Event without what the reader adds (seq, pid). `result` is the field that is filled in late.
struct LogEvent {
  uint64_t time_ns;
  uint32_t tid;
  uint16_t kind;
  uint16_t api;
  int32_t device;
  std::atomic<int32_t> result;
  uint64_t stream;
  uint64_t address;
  uint64_t size;
  uint64_t requested;
  uint64_t aux;
  uint64_t aux2;
  uint32_t stack;
  uint32_t flags;
  uint32_t text;
  uint32_t unused;
};

// Things longer than a slot travel as parts; a part is useful only when all parts of its
// (kind, id) have arrived. Blobs are logged before the first event that names them.
enum class BlobKind : uint8_t {
  stack = 1,     // id = stack id; 8-byte frames (event/frame.h)
  module = 2,    // id = running number; one line of text, see shim/modules.h
  text = 3,      // id = text id; UTF-8 of a mark
  api_name = 4,  // id = api id; symbol name
  property = 5,  // id = running number; "key=value": coverage and session facts
  // id = Python frame id; line, first line of the function, qualified name, file name, parted by
  // NUL
  python_frame = 6,
};

inline constexpr size_t kBlobPartBytes = 72;
struct BlobPart {
  uint8_t kind;
  uint8_t unused;
  uint16_t part;  // 0 … parts-1
  uint16_t parts;
  uint16_t bytes;  // used bytes of `data`
  uint32_t id;
  uint32_t unused2;
  std::byte data[kBlobPartBytes];
};
inline constexpr size_t kMaxBlobBytes = kBlobPartBytes * 1024;

struct Slot {
  std::atomic<uint64_t> commit;
  union {
    LogEvent event;
    BlobPart blob;
  };
};

struct LogHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint32_t slot_bytes;
  uint32_t pid;
  uint64_t capacity_slots;  // multiple of kChunkSlots
  uint64_t chunk_slots;
  uint64_t start_ticks;   // field 22 of /proc/PID/stat: with pid it names the process
  uint64_t realtime_ns;   // CLOCK_REALTIME and
  uint64_t monotonic_ns;  // CLOCK_MONOTONIC at the same moment
  char program[64];       // file name of /proc/self/exe, cut, NUL-terminated
  char shim_version[32];

  alignas(64) std::atomic<uint64_t> write_pos;        // pairs with: nothing (positions only)
  alignas(64) std::atomic<uint64_t> read_pos;         // release by the reader, acquire by writers
  alignas(64) std::atomic<uint64_t> allocated_slots;  // release by growth, acquire by both sides
  std::atomic<uint64_t> dropped_events;               // events that found no slot
  std::atomic<uint32_t> grow_errno;                   // why the log stopped growing; 0 = it has not
  std::atomic<uint32_t> finished;                     // 1 once the process ran its exit handlers

  alignas(64) std::atomic<uint64_t> api_calls[kMaxApis];  // calls per api id, reported or not

  // Since version 2 (before: zero). What others ask of the process (log_control.h): it looks with
  // its next event, nobody waits for it. A mark is asked for by filling mark_text and then raising
  // mark_wanted by one, under an exclusive flock() of the file and only when mark_done has caught
  // up.
  alignas(64) std::atomic<uint32_t> paused;  // not 0: events are not recorded, only counted
  std::atomic<uint32_t> mark_wanted;
  std::atomic<uint32_t> mark_claimed;  // by the thread that logs it
  std::atomic<uint32_t> mark_done;
  std::atomic<uint64_t> skipped_events;  // while paused
  std::atomic<uint64_t> flush_wanted;    // number of the newest request to write all to disk
  std::atomic<uint64_t> flush_done;      // … that the collector has carried out
  char mark_text[kMaxRequestBytes + 1];  // NUL-terminated

  // Since version 3 (before: zero). A ring of the newest events.
  alignas(64) uint64_t ring_first_slot;  // multiple of kChunkSlots; 0: no ring
  std::atomic<uint64_t> ring_slots;      // with storage, and kRingSettled; release by growth
  std::atomic<uint64_t> ring_read_pos;   // how far the reader is; writers do not care
  alignas(64) std::atomic<uint64_t> ring_write_pos;
};

static_assert(sizeof(Slot) == kSlotBytes);
static_assert(sizeof(LogEvent) == 88 && sizeof(BlobPart) == 88);
static_assert(sizeof(LogHeader) <= kHeaderBytes);
static_assert(std::is_standard_layout_v<LogHeader> && std::is_standard_layout_v<LogEvent>);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(kReserveSlack * 2 <= kChunkSlots);

}  // namespace fragscope::log
