// Writing to a process's shared log (layout and protocol: log_layout.h). Header-only, noexcept,
// allocates nothing, takes no lock; the only system call is growth, once per chunk.
//
// Ownership: LogWriter borrows the mapping and the descriptor; both must outlive it. Threads: every
// function may be called from any number of threads at once, and from signal handlers.
#pragma once

#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <string_view>

#include "log/log_growth.h"
#include "log/log_layout.h"

namespace fragscope::log {

class LogWriter {
 public:
  // A reserved slot. Default-constructed: nothing was reserved (the event has been counted as
  // dropped); every operation on it does nothing.
  struct Ticket {
    Slot* slot = nullptr;
    uint64_t position = 0;
  };

  LogWriter() = default;

  // Initialises an all-zero mapping; `allocated` slots have storage already. `ring_first_slot` not
  // 0: with a ring from there on, whose first kChunkSlots slots have storage too.
  LogWriter(std::byte* base, int fd, uint64_t capacity_slots, uint64_t allocated,
            uint64_t ring_first_slot = 0) noexcept
      : header_(new (base) LogHeader{}),
        slots_(reinterpret_cast<Slot*>(base + kHeaderBytes)),
        limit_(ring_first_slot != 0 ? ring_first_slot : capacity_slots),
        ring_first_(ring_first_slot),
        fd_(fd),
        file_(identity_of(fd)) {
    std::memcpy(header_->magic, kMagic, sizeof kMagic);
    header_->version = kVersion;
    header_->header_bytes = static_cast<uint32_t>(kHeaderBytes);
    header_->slot_bytes = static_cast<uint32_t>(kSlotBytes);
    header_->capacity_slots = capacity_slots;
    header_->chunk_slots = kChunkSlots;
    header_->ring_first_slot = ring_first_slot;
    header_->ring_slots.store(ring_first_slot != 0 ? kChunkSlots : 0, std::memory_order_release);
    header_->allocated_slots.store(allocated, std::memory_order_release);
  }

  LogHeader* header() const noexcept { return header_; }

  // Order of events in the log = order of reserve() calls.
  Ticket reserve() noexcept {
    if (header_ == nullptr) return {};
    return ring_first_ == 0 ? reserve_slot() : reserve_in_ring();
  }

  // `final` false: the result is still to come by finish().
  void commit(Ticket ticket, const Event& event, bool final) noexcept {
    if (ticket.slot == nullptr) return;
    LogEvent& out = ticket.slot->event;
    out.time_ns = event.time_ns;
    out.tid = event.tid;
    out.kind = static_cast<uint16_t>(event.kind);
    out.api = event.api;
    out.device = event.device;
    out.result.store(final ? event.result : kResultPending, std::memory_order_relaxed);
    out.stream = event.stream;
    out.address = event.address;
    out.size = event.size;
    out.requested = event.requested;
    out.aux = event.aux;
    out.aux2 = event.aux2;
    out.stack = event.stack;
    out.flags = event.flags;
    out.text = event.text;
    ticket.slot->commit.store(commit_word(ticket.position, SlotType::event, final),
                              std::memory_order_release);
  }

  // Second half of a commit with final = false. Without a ring the slot cannot have been reused:
  // readers do not pass a slot that is not final while its process lives.
  void finish(Ticket ticket, int32_t result) noexcept {
    if (ticket.slot == nullptr) return;
    if (ring_first_ != 0) {
      uint64_t pending = commit_word(ticket.position, SlotType::event, false);
      if (!ticket.slot->commit.compare_exchange_strong(
              pending, commit_word(ticket.position, SlotType::writing, false),
              std::memory_order_acquire, std::memory_order_relaxed)) {
        return;  // a newer event is there
      }
    }
    ticket.slot->event.result.store(result, std::memory_order_relaxed);
    ticket.slot->commit.store(commit_word(ticket.position, SlotType::event, true),
                              std::memory_order_release);
  }

  void write(const Event& event) noexcept { commit(reserve(), event, true); }

  // Longer than kMaxBlobBytes is cut. False when (part of) it was dropped.
  bool write_blob(BlobKind kind, uint32_t id, std::span<const std::byte> bytes) noexcept {
    const size_t length = bytes.size() < kMaxBlobBytes ? bytes.size() : kMaxBlobBytes;
    const size_t parts = length == 0 ? 1 : (length + kBlobPartBytes - 1) / kBlobPartBytes;
    for (size_t part = 0; part < parts; ++part) {
      const size_t start = part * kBlobPartBytes;
      const size_t count = length - start < kBlobPartBytes ? length - start : kBlobPartBytes;
      if (!write_part(kind, id, part, parts, bytes.subspan(start, count))) return false;
    }
    return true;
  }

  bool write_blob(BlobKind kind, uint32_t id, std::string_view text) noexcept {
    return write_blob(kind, id, {reinterpret_cast<const std::byte*>(text.data()), text.size()});
  }

 private:
  Ticket dropped() noexcept {
    header_->dropped_events.fetch_add(1, std::memory_order_relaxed);
    return {};
  }

  Ticket reserve_slot() noexcept {
    if (!has_room()) return dropped();
    const uint64_t position = header_->write_pos.fetch_add(1, std::memory_order_relaxed);
    return {slots_ + position % limit_, position};
  }

  bool has_room() noexcept {
    const uint64_t written = header_->write_pos.load(std::memory_order_relaxed);
    uint64_t allocated = header_->allocated_slots.load(std::memory_order_acquire);
    while (allocated < limit_ && written + kReserveSlack >= allocated) {
      if (!grow(allocated)) return false;
      allocated = header_->allocated_slots.load(std::memory_order_acquire);
    }
    if (allocated < limit_) return true;
    const uint64_t read = header_->read_pos.load(std::memory_order_acquire);
    return written + kReserveSlack < read + limit_;
  }

  bool grow(uint64_t allocated) noexcept {
    if (!has_storage_from(allocated)) return false;
    header_->allocated_slots.compare_exchange_strong(
        allocated, allocated + kChunkSlots, std::memory_order_release, std::memory_order_relaxed);
    return true;
  }

  // Several threads may reserve the same chunk: posix_fallocate is idempotent, one exchange wins.
  bool has_storage_from(uint64_t slot) noexcept {
    if (header_->grow_errno.load(std::memory_order_relaxed) != 0) return false;
    const int error =
        identity_of(fd_) != file_
            ? EBADF
            : reserve_storage(fd_, kHeaderBytes + slot * kSlotBytes, kChunkSlots * kSlotBytes);
    if (error == 0) return true;
    header_->grow_errno.store(static_cast<uint32_t>(error), std::memory_order_relaxed);
    return false;
  }

  Ticket reserve_in_ring() noexcept {
    const uint64_t position = header_->ring_write_pos.fetch_add(1, std::memory_order_relaxed);
    Slot* const slot = slots_ + ring_first_ + position % ring_size_for(position);
    uint64_t found = slot->commit.load(std::memory_order_relaxed);
    const bool is_written_now = found != 0 && (found >> 1 & 0x7f) == 0;
    if (is_written_now || found >> 8 > position ||
        !slot->commit.compare_exchange_strong(
            found, commit_word(position, SlotType::writing, false), std::memory_order_acquire)) {
      return dropped();
    }
    return {slot, position};
  }

  // Grown so far that `position` has a slot, or as large as it will ever be.
  uint64_t ring_size_for(uint64_t position) noexcept {
    const uint64_t most = header_->capacity_slots - ring_first_;
    uint64_t slots = header_->ring_slots.load(std::memory_order_acquire);
    while ((slots & kRingSettled) == 0 && position + kReserveSlack >= slots) {
      const bool grown = slots < most && has_storage_from(ring_first_ + slots);
      const uint64_t next = grown ? slots + kChunkSlots : slots | kRingSettled;
      if (header_->ring_slots.compare_exchange_strong(slots, next, std::memory_order_acq_rel)) {
        slots = next;
      }
    }
    return slots & ~kRingSettled;
  }

  bool write_part(BlobKind kind, uint32_t id, size_t part, size_t parts,
                  std::span<const std::byte> bytes) noexcept {
    const Ticket ticket = header_ != nullptr ? reserve_slot() : Ticket{};
    if (ticket.slot == nullptr) return false;
    BlobPart& out = ticket.slot->blob;
    out.kind = static_cast<uint8_t>(kind);
    out.part = static_cast<uint16_t>(part);
    out.parts = static_cast<uint16_t>(parts);
    out.bytes = static_cast<uint16_t>(bytes.size());
    out.id = id;
    std::memcpy(out.data, bytes.data(), bytes.size());
    ticket.slot->commit.store(commit_word(ticket.position, SlotType::blob, true),
                              std::memory_order_release);
    return true;
  }

  LogHeader* header_ = nullptr;
  Slot* slots_ = nullptr;
  uint64_t limit_ = 0;  // slots that follow the protocol of a log that stops
  uint64_t ring_first_ = 0;
  int fd_ = -1;
  FileIdentity file_;
};

}  // namespace fragscope::log
