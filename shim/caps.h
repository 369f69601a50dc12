// Caps: device and pinned memory that the program may hold (FRAGSCOPE_MEMORY_LIMIT, …), calls that
// fail on purpose (FRAGSCOPE_OOM_AT, FRAGSCOPE_FAIL_RATE), and the threshold at which a mark is set
// (FRAGSCOPE_WARN_AT). src/enforce/CAPS.md says what counts. Not an observer: it makes calls fail,
// takes a lock and asks the runtime for the current device.
//
// A call that is refused asks the real function for a size that no device has, so that error code,
// last-error state and the effect on a capturing stream are CUDA's own.
//
// Threads: any. A forked child starts with an empty book. Errors: variables that cannot be read
// enforce nothing; describe() says so in the recording.
#pragma once

#include <cstddef>
#include <cstdint>

#include "enforce/limits.h"
#include "event/event.h"
#include "shim/hook_table.h"
#include "shim/session.h"

namespace fragscope::shim::caps {

// Something is limited, counted or made to fail.
bool active() noexcept;

// What the variables ask for, empty when they cannot be read; nullptr: no memory to read them.
const enforce::Limits* limits() noexcept;

// What was settled before an allocation. Trivial: exceptions of host callbacks pass its frames.
struct Ticket {
  enum class Verdict : uint8_t { uncounted, admitted, refused };
  Verdict verdict = Verdict::uncounted;
  int32_t purse = 0;
  uint64_t bytes = 0;       // taken from the account
  bool over_limit = false;  // refused, for want of device memory and not on purpose

  bool refused() const { return verdict == Verdict::refused; }
};

// `event`: as its observer fills it before the call. `real`: the function that the call goes to.
Ticket admit(HookId id, const void* real, const Event& event) noexcept;
// Once more after a ticket that was over_limit, when memory has been given back.
Ticket admit_again(HookId id, const void* real, const Event& event) noexcept;
// `event`: with the call's result.
void settle(const Ticket& ticket, const Event& event) noexcept;

// A free, release or unmapping that is about to be made.
struct FreeTicket {
  EventKind kind = EventKind::none;
  bool found = false;
  int32_t purse = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t context = 0;
};
FreeTicket begin_free(const Event& event) noexcept;
void end_free(const FreeTicket& ticket, int result) noexcept;

// Calls that succeeded and say what belongs to what: mappings, further handles, contexts.
void note(const Event& event) noexcept;

// What the program is told of a device. Overloaded by the arguments of the functions that tell it.
void adjust(size_t* free_bytes, size_t* total_bytes) noexcept;  // of the current device
void adjust(size_t* total_bytes, int device) noexcept;
void adjust(void* properties, int device) noexcept;  // cudaDeviceProp of any release

// Bytes of a device that the program is told of: the card's, or its limit.
uint64_t visible_bytes(uint64_t card_bytes) noexcept;

// Properties of the recording.
void describe(Session& session) noexcept;

}  // namespace fragscope::shim::caps
