// Facts -> verdict: why the allocation failed, with the arithmetic, and what to do about it.
//
// Figures are compared as PyTorch's own rules compare them; README.md states every rule. A verdict
// never hides a contradiction between printed figures: it is said in `why`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/oom_message.h"

namespace fragscope::diagnose {

enum class Verdict : uint8_t {
  kTrueExhaustion,     // live data plus the request do not fit
  kFragmentation,      // enough memory is free or idle, but not in one piece
  kNonPytorchMemory,   // this process holds the missing memory outside PyTorch's allocator
  kOtherProcess,       // another process holds it
  kMemoryFractionCap,  // a configured limit refused, not the device
  kLeakSuspected,      // live data that should have been released
  kHostPinned,         // page-locked host memory, not device memory
  kShm,                // /dev/shm
  kUnknown,
};
std::string_view verdict_name(Verdict verdict);

enum class Confidence : uint8_t { kLow, kMedium, kHigh };
std::string_view confidence_name(Confidence confidence);

// Bytes computed from the figures as printed; may be negative where figures contradict each other.
// Empty where a figure is missing.
struct Derived {
  std::optional<int64_t> reserved;         // by PyTorch: printed, or allocated + idle
  std::optional<int64_t> idle_reserved;    // reserved − allocated
  std::optional<int64_t> obtainable;       // free + idle
  std::optional<int64_t> outside_pytorch;  // total − free − reserved
  std::optional<int64_t> other_processes;  // held by other processes on the card
  std::optional<int64_t> cap;              // what a limit lets PyTorch reserve
  std::optional<int64_t> reserved_at_least;
  std::optional<int64_t> idle_reserved_at_least;
};

struct Explanation {
  Verdict verdict = Verdict::kUnknown;
  std::vector<Verdict> alternatives;  // likeliest first, without the verdict itself
  Confidence confidence = Confidence::kLow;
  Derived derived;
  std::vector<std::string> why;      // sentences
  std::vector<std::string> actions;  // in the order to try them
};

// Explains the deciding message; `scan.message` must be set.
Explanation explain(const MessageScan& scan);

}  // namespace fragscope::diagnose
