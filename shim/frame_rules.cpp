#include "shim/frame_rules.h"

#include <algorithm>
#include <cstddef>

#include "shim/eh_frame.h"
#include "shim/intern_map.h"

namespace fragscope::shim {
namespace {

constexpr uint32_t kMostFrames = 1u << 15;
constinit KnownFrame g_frames[kMostFrames]{};  // [0] is none
constinit std::atomic<uint32_t> g_count{1};

// Places in g_frames by address, open addressing; 0: free.
constexpr size_t kPlaces = size_t{2} * kMostFrames;
constexpr size_t kProbes = 32;
constinit std::atomic<uint16_t> g_places[kPlaces]{};
static_assert(kMostFrames <= size_t{1} << 16);

// Two threads that meet the same address together may both keep it.
KnownFrame* add_frame(uintptr_t return_address, std::atomic<uint16_t>& place) {
  if (g_count.load(std::memory_order_relaxed) >= kMostFrames) return nullptr;
  const uint32_t index = g_count.fetch_add(1, std::memory_order_relaxed);
  if (index >= kMostFrames) return nullptr;
  KnownFrame& frame = g_frames[index];
  frame.rule = PackedRule(read_frame_rule(return_address));
  frame.ip.store(return_address, std::memory_order_release);
  place.store(static_cast<uint16_t>(index), std::memory_order_release);
  return &frame;
}

KnownFrame* look_up(uintptr_t return_address) {
  const uint64_t hash = mix_hash(0, return_address);
  for (size_t probe = 0; probe < kProbes; ++probe) {
    std::atomic<uint16_t>& place = g_places[(hash + probe) % kPlaces];
    const uint16_t index = place.load(std::memory_order_acquire);
    if (index == 0) return add_frame(return_address, place);
    KnownFrame& frame = g_frames[index];
    if (frame.ip.load(std::memory_order_acquire) == return_address) return &frame;
  }
  return nullptr;
}

}  // namespace

KnownFrame* look_up_frame(uintptr_t return_address, KnownFrame& inside) noexcept {
  KnownFrame* const found = look_up(return_address);
  if (found == nullptr) return nullptr;
  KnownFrame* moved = found;
  for (auto& caller : inside.callers) moved = caller.exchange(moved, std::memory_order_relaxed);
  return found;
}

// What was filled is not used again for another address: a thread may be looking at it.
void forget_frame_rules() noexcept {
  const uint32_t count = std::min(g_count.load(std::memory_order_acquire), kMostFrames);
  for (uint32_t i = 1; i < count; ++i) g_frames[i].ip.store(0, std::memory_order_relaxed);
  for (auto& place : g_places) place.store(0, std::memory_order_relaxed);
}

}  // namespace fragscope::shim
