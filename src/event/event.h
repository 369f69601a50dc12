// Event: one thing that happened to memory. The only event type; log, trace, text and replay all
// carry it.
//
// Units: bytes, nanoseconds. What is not known is kUnknown (or -1 for the 32-bit fields), never 0
// and never a guess. Addresses and handles are the process's own 64-bit values.
//
// | field     | driver plane                       | block plane                                  |
// |-----------|------------------------------------|----------------------------------------------|
// | device    | ordinal of the current device      | ordinal of the allocator's device            |
// | stream    | stream argument; 0 = default       | the allocation stream of the block           |
// | address   | pointer that came back or goes in  | block or segment address                     |
// | size      | bytes asked of CUDA                | block bytes (alloc), segment bytes           |
// | requested | = size                             | bytes the client asked for; oom: rounded size|
// | result    | CUresult / cudaError_t; 0 success; | 0                                            |
// |           | kResultPending until known         |                                              |
// | aux       | see event_kinds.def; device, host, | alloc, free: allocated bytes afterwards;     |
// |           | managed, array allocations: their  | oom: free bytes of the device                |
// |           | context, once there are several    |                                              |
// | aux2      | flags argument                     | alloc, free: reserved bytes afterwards       |
// | text      | –                                  | the private pool, see PoolName; annotate and |
// |           |                                    | marks: id of a text                          |
#pragma once

#include <cstdint>
#include <type_traits>

namespace fragscope {

enum class EventKind : uint16_t {
  none = 0,
#define EVENT_KIND(name, id, plane) name = id,
#include "event/event_kinds.def"
#undef EVENT_KIND
};

enum class Plane : uint8_t { driver, block, mark };

inline constexpr uint64_t kUnknown = UINT64_MAX;
inline constexpr int32_t kUnknownDevice = -1;
inline constexpr int32_t kResultPending = INT32_MIN;  // the call had not returned (yet)
inline constexpr uint32_t kNoStack = 0;
inline constexpr uint16_t kNoApi = 0;

// Bits of Event::flags.
inline constexpr uint32_t kFlagStackTruncated = 1u << 0;  // deeper than the recording limit
inline constexpr uint32_t kFlagSourceAdaptor = 1u << 1;   // block plane: torch's trace tracker
inline constexpr uint32_t kFlagSourceReport = 1u << 2;    // block plane: c10 memory report
inline constexpr uint32_t kFlagSourceApi = 1u << 3;       // block plane: fragscope_api.h
inline constexpr uint32_t kFlagSourceSnapshot = 1u << 4;  // block plane: imported snapshot
inline constexpr uint32_t kFlagServed = 1u << 5;   // answered by the enforced policy, not by CUDA
inline constexpr uint32_t kFlagPool = 1u << 6;     // block plane: `text` holds the pool
inline constexpr uint32_t kFlagAtStart = 1u << 7;  // no call: it was there when recording began
inline constexpr uint32_t kFlagRefused = 1u << 8;  // a cap refused it, or it failed on purpose
// mark: settings of the allocator, changed by the program or from outside, hold from here on; aux =
// N of the property alloc_conf.change.N, which has them.
inline constexpr uint32_t kFlagSettings = 1u << 9;

// PyTorch's name of a private pool (MempoolId_t): (0, 0) the default pools, (n, 0) made by a graph
// capture, (0, n) by the program. An event with kFlagPool holds it in `text`: n, with the highest
// bit for the second form. Without that flag the pool is not known.
struct PoolName {
  uint64_t first = 0;
  uint64_t second = 0;

  friend bool operator==(const PoolName&, const PoolName&) = default;
};
inline constexpr uint32_t kPoolOfProgram = 1u << 31;
// False: a name that no PyTorch makes; it does not fit.
constexpr bool pack_pool(const PoolName& pool, uint32_t& text) {
  if (pool.first != 0 && pool.second != 0) return false;
  if (pool.first >= kPoolOfProgram || pool.second >= kPoolOfProgram) return false;
  text = static_cast<uint32_t>(pool.first + pool.second);
  if (pool.second != 0) text |= kPoolOfProgram;
  return true;
}
constexpr PoolName unpack_pool(uint32_t text) {
  if (text & kPoolOfProgram) return {0, text & ~kPoolOfProgram};
  return {text, 0};
}

struct Event {
  uint64_t seq = 0;      // dense per process, from 1, in log order; 0 inside the log itself
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC
  uint32_t pid = 0;
  uint32_t tid = 0;
  EventKind kind = EventKind::none;
  uint16_t api = kNoApi;  // id in the trace's API table (names come with the trace)
  int32_t device = kUnknownDevice;
  int32_t result = 0;
  uint32_t stack = kNoStack;  // id in the process's stack table
  uint64_t stream = kUnknown;
  uint64_t address = kUnknown;
  uint64_t size = kUnknown;
  uint64_t requested = kUnknown;
  uint64_t aux = kUnknown;
  uint64_t aux2 = kUnknown;
  uint32_t flags = 0;
  uint32_t text = 0;  // id in the process's text table (marks)

  friend bool operator==(const Event&, const Event&) = default;
};

static_assert(std::is_trivially_copyable_v<Event>);
static_assert(sizeof(Event) == 96);

}  // namespace fragscope
