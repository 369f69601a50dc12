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

  // Initialises an all-zero mapping; `allocated` slots have storage already.
  LogWriter(std::byte* base, int fd, uint64_t capacity_slots, uint64_t allocated) noexcept
      : header_(new (base) LogHeader{}),
        slots_(reinterpret_cast<Slot*>(base + kHeaderBytes)),
        fd_(fd),
        file_(identity_of(fd)) {
    std::memcpy(header_->magic, kMagic, sizeof kMagic);
    header_->version = kVersion;
    header_->header_bytes = static_cast<uint32_t>(kHeaderBytes);
    header_->slot_bytes = static_cast<uint32_t>(kSlotBytes);
    header_->capacity_slots = capacity_slots;
    header_->chunk_slots = kChunkSlots;
    header_->allocated_slots.store(allocated, std::memory_order_release);
  }

  LogHeader* header() const noexcept { return header_; }

  // Order of events in the log = order of reserve() calls.
  Ticket reserve() noexcept {
    if (header_ == nullptr || !has_room()) {
      if (header_ != nullptr) header_->dropped_events.fetch_add(1, std::memory_order_relaxed);
      return {};
    }
    const uint64_t position = header_->write_pos.fetch_add(1, std::memory_order_relaxed);
    return {slots_ + position % header_->capacity_slots, position};
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

  // Second half of a commit with final = false. The slot cannot have been reused: readers do not
  // pass a slot that is not final while its process lives.
  void finish(Ticket ticket, int32_t result) noexcept {
    if (ticket.slot == nullptr) return;
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
  bool has_room() noexcept {
    const uint64_t written = header_->write_pos.load(std::memory_order_relaxed);
    uint64_t allocated = header_->allocated_slots.load(std::memory_order_acquire);
    while (allocated < header_->capacity_slots && written + kReserveSlack >= allocated) {
      if (!grow(allocated)) return false;
      allocated = header_->allocated_slots.load(std::memory_order_acquire);
    }
    if (allocated < header_->capacity_slots) return true;
    const uint64_t read = header_->read_pos.load(std::memory_order_acquire);
    return written + kReserveSlack < read + header_->capacity_slots;
  }

  // Several threads may reserve the same chunk: posix_fallocate is idempotent, one exchange wins.
  bool grow(uint64_t allocated) noexcept {
    if (header_->grow_errno.load(std::memory_order_relaxed) != 0) return false;
    const int error =
        identity_of(fd_) != file_
            ? EBADF
            : reserve_storage(fd_, kHeaderBytes + allocated * kSlotBytes, kChunkSlots * kSlotBytes);
    if (error != 0) {
      header_->grow_errno.store(static_cast<uint32_t>(error), std::memory_order_relaxed);
      return false;
    }
    header_->allocated_slots.compare_exchange_strong(
        allocated, allocated + kChunkSlots, std::memory_order_release, std::memory_order_relaxed);
    return true;
  }

  bool write_part(BlobKind kind, uint32_t id, size_t part, size_t parts,
                  std::span<const std::byte> bytes) noexcept {
    const Ticket ticket = reserve();
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
  int fd_ = -1;
  FileIdentity file_;
};

}  // namespace fragscope::log
