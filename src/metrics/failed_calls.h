// Which of CUDA's memory calls failed, how often, and what did the process hold then?
//
// Calls are put together by function and error. Probes stand apart: a program that asks for memory
// with a kind of shareable handle, is refused for another reason than a lack of memory and goes on
// without that handle (XLA, NCCL) has not failed. Units: bytes. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "event/event.h"

namespace fragscope::metrics {

struct FailedCall {
  uint16_t api = kNoApi;
  EventKind kind = EventKind::none;
  int32_t result = 0;
  bool probe = false;
  uint64_t count = 0;
  std::optional<uint64_t> largest_bytes;  // that a failed call asked for
  // Of the first one:
  uint64_t seq = 0;
  uint64_t time_ns = 0;
  int32_t device = kUnknownDevice;
  uint32_t stack = kNoStack;
  uint64_t held_bytes = 0;             // device memory of the process then, by CUDA's calls
  std::optional<uint64_t> free_bytes;  // what cudaMemGetInfo had last told the program
};

class FailedCalls {
 public:
  // `held`: what the process holds of the event's device.
  void feed(const Event& event, uint64_t held);

  uint64_t count() const { return count_; }  // probes too
  uint64_t probes() const { return probes_; }
  std::vector<FailedCall> by_function() const;  // most frequent first; probes last

 private:
  struct Key {
    uint16_t api;
    int32_t result;
    bool probe;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  std::map<Key, FailedCall> calls_;
  std::map<int32_t, uint64_t> last_free_;
  uint64_t count_ = 0;
  uint64_t probes_ = 0;
};

}  // namespace fragscope::metrics
