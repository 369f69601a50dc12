// Reading a log that is a ring: writers go on whether their events were read or not.
#include <algorithm>
#include <atomic>

#include "log/log_reader.h"
#include "log/slot_copies.h"

namespace fragscope::log {

// What three looks at a slot gave.
struct LogReader::RingSlot {
  uint64_t before = 0;  // commit word
  uint64_t after = 0;   // commit word, once the content had been copied
  const LogEvent* event = nullptr;
  bool writers_live = false;
  bool may_wait = false;  // soon the ring comes round again
};

Status LogReader::open_ring() {
  const uint64_t first = control_word(offsetof(LogHeader, ring_first_slot));
  if (first == 0) return Done{};  // as in all logs before version 3
  if (first >= capacity_) {
    return Error{ErrorCode::kDamaged, path_ + ": impossible sizes in the header of the log",
                 offsetof(LogHeader, ring_first_slot)};
  }
  ring_first_slot_ = first;
  capacity_ = first;  // of blobs
  ring_position_ = control_word(offsetof(LogHeader, ring_read_pos));
  again_.resize(kBatchSlots * kSlotBytes);
  return Done{};
}

// First the end of the events, then all blobs that were there after it: what those events refer to
// was logged before them.
Result<uint64_t> LogReader::read_ring(LogConsumer& consumer, bool process_alive,
                                      uint64_t max_slots) {
  auto at_first = state();
  if (!at_first) return at_first.error();
  if (!process_alive && !final_ring_end_) final_ring_end_ = at_first->ring_write_pos;
  const uint64_t end = final_ring_end_.value_or(at_first->ring_write_pos);
  const auto now = state();
  if (!now) return now.error();
  auto blobs = read_slots(consumer, process_alive, UINT64_MAX);
  if (!blobs) return blobs;
  if (process_alive && position_ < now->write_pos) return blobs;  // one is being written
  const auto events = read_events(consumer, process_alive, end, max_slots);
  if (!events) return events;
  return *blobs + *events;
}

Result<uint64_t> LogReader::read_events(LogConsumer& consumer, bool process_alive, uint64_t end,
                                        uint64_t max_slots) {
  uint64_t passed = 0;
  while (passed < max_slots && ring_position_ < end) {
    const auto now = state();
    if (!now) return now.error();
    const uint64_t size = now->ring_slots;
    if (size == 0) break;
    const uint64_t newest = process_alive ? now->ring_write_pos : end;
    const uint64_t oldest = newest > size ? newest - size : 0;
    if (ring_position_ < oldest) {
      const uint64_t lost = std::min(oldest, end) - ring_position_;
      lose(lost);
      ring_position_ += lost;
      passed += lost;
      continue;
    }
    const uint64_t index = ring_position_ % size;
    const uint64_t count =
        std::min({end - ring_position_, size - index, kBatchSlots, max_slots - passed});
    if (Status status = copy_batch(ring_first_slot_ + index, count); !status) return status.error();
    if (Status status = look_again(ring_first_slot_ + index, count); !status) {
      return status.error();
    }
    const bool may_wait = process_alive && newest - ring_position_ < size / 2;
    const uint64_t before = passed;
    for (uint64_t i = 0; i < count; ++i) {
      const RingSlot slot{slot_at(commits_, i).commit.load(std::memory_order_relaxed),
                          slot_at(again_, i).commit.load(std::memory_order_relaxed),
                          &slot_at(slots_, i).event, process_alive, may_wait};
      if (!pass_ring_slot(consumer, slot)) break;
      ++passed;
    }
    if (passed - before < count) break;
  }
  return passed;
}

void LogReader::lose(uint64_t events) {
  overwritten_ += events;
  if (!gaps_.empty() && gaps_.back().after_seq == seq_) {
    gaps_.back().events += events;
  } else if (gaps_.size() < kMostGaps) {
    gaps_.push_back({seq_, events});
  }
}

Status LogReader::look_again(uint64_t index, uint64_t count) {
  std::atomic_thread_fence(std::memory_order_acquire);
  return pread_zero_filled(region_.fd(), kHeaderBytes + index * kSlotBytes,
                           {again_.data(), static_cast<size_t>(count * kSlotBytes)}, path_);
}

// False: what is in the slot may still become this position's event.
bool LogReader::pass_ring_slot(LogConsumer& consumer, const RingSlot& slot) {
  const uint64_t wanted = ring_position_ + 1;  // in the commit word
  const auto is_event = [wanted](uint64_t commit) {
    return commit >> 8 == wanted && static_cast<SlotType>(commit >> 1 & 0x7f) == SlotType::event;
  };
  const bool final = (slot.before & kCommitFinal) != 0;
  if (is_event(slot.before) && slot.before == slot.after && (final || !slot.may_wait)) {
    if (!deliver_event(consumer, *slot.event, false)) ++torn_;
  } else if (slot.after >> 8 > wanted) {
    lose(1);
  } else if (slot.may_wait || (slot.writers_live && is_event(slot.after))) {
    return false;
  } else if (slot.writers_live) {
    lose(1);
  } else {
    ++torn_;
  }
  ++ring_position_;
  return true;
}

}  // namespace fragscope::log
