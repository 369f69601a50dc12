// What a run is held to: caps on memory, failures on purpose, a threshold to warn at, and what
// happens when memory runs out. One reader of the variables for the command line, which refuses
// what cannot be read, and for the preloaded library, which then enforces nothing.
//
// | variable                      | value                                                       |
// |-------------------------------|-------------------------------------------------------------|
// | FRAGSCOPE_MEMORY_LIMIT        | device memory, a size: 12GiB                                |
// | FRAGSCOPE_PINNED_LIMIT        | pinned host memory, a size                                  |
// | FRAGSCOPE_MEMORY_LIMIT_SCOPE  | process (default) or run: all processes of a run together   |
// | FRAGSCOPE_MEMORY_ACCOUNT      | file of the run's shared account; needed by scope run       |
// | FRAGSCOPE_OOM_AT              | calls that fail: N, N-M or N+, counted from 1               |
// | FRAGSCOPE_FAIL_RATE           | P or P:SEED, P in [0, 1] or 10%                             |
// | FRAGSCOPE_WARN_AT             | a size, or a share of the device (of its limit): 90%        |
// | FRAGSCOPE_ON_OOM              | dump, signal, signal:NAME, pause or report                  |
//
// Units: bytes. Threads: values. Errors: kInvalidArgument, the text names the variable's value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fragscope::enforce {

enum class LimitScope : uint8_t { process, run };

// Numbers of calls that fail, from 1; both ends belong to it.
struct CallRange {
  uint64_t first = 0;
  uint64_t last = 0;

  bool contains(uint64_t number) const { return number >= first && number <= last; }
};

// Call `number` fails with this probability. Which ones do depends on seed and number alone.
struct FailRate {
  double probability = 0;
  uint64_t seed = 0;

  bool contains(uint64_t number) const;
};

// Exactly one of the two is set.
struct Threshold {
  uint64_t bytes = 0;
  double share = 0;  // of the device's memory, as the program sees it

  uint64_t of(uint64_t device_bytes) const;
};

enum class OomAction : uint8_t { none, dump, signal, pause, report };

struct OnOom {
  OomAction action = OomAction::none;
  int signal = 0;  // with OomAction::signal
};

struct Limits {
  std::optional<uint64_t> device_bytes;  // of each device
  std::optional<uint64_t> pinned_bytes;
  LimitScope scope = LimitScope::process;
  std::string account;  // file; empty: none
  std::optional<CallRange> oom_at;
  std::optional<FailRate> fail_rate;
  std::optional<Threshold> warn_at;
  OnOom on_oom;

  // Something has to be counted or refused.
  bool any() const { return device_bytes || pinned_bytes || oom_at || fail_rate || warn_at; }
};

Result<uint64_t> parse_limit(std::string_view text);  // a size above 0
Result<LimitScope> parse_limit_scope(std::string_view text);
Result<CallRange> parse_oom_at(std::string_view text);
Result<FailRate> parse_fail_rate(std::string_view text);
Result<Threshold> parse_threshold(std::string_view text);
Result<OnOom> parse_on_oom(std::string_view text);

// `get(name)`: the variable's value or nullptr.
using GetVariable = const char* (*)(const char* name);
Result<Limits> read_limits(GetVariable get);

}  // namespace fragscope::enforce
