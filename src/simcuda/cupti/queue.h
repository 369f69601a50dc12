// What the threads of a process append and the delivery takes.
#pragma once

#include <cstdint>
#include <vector>

#include "simcuda/activity.h"

namespace fragscope::simcuda::cupti {

// Times in ns of CLOCK_MONOTONIC.
struct Entry {
  uint32_t kind = 0;  // Kind; of a call also its API
  uint32_t correlation = 0;
  uint64_t start_ns = 0, end_ns = 0;
  DeviceWork work;           // its name lives as long as the process
  uint32_t callback_id = 0;  // of a call
  uint32_t thread = 0;
  int result = 0;
  uint32_t external_kind = 0;  // of an external correlation
  uint64_t external = 0;
};

inline constexpr size_t kDeliverAt = 4096;     // entries
inline constexpr size_t kMostQueued = 262144;  // beyond: dropped

std::vector<Entry> take_entries();
void count_dropped(uint64_t records);
size_t queued();
void deliver_if_free();  // unless another thread is at it
// Asked for with the first record: clients flush nothing when they were asked for no buffer.
void request_if_free();
bool has_buffer();

}  // namespace fragscope::simcuda::cupti
