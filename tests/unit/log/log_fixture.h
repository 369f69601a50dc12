// A log in a temporary directory, and ways to write to it.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "log/log_reader.h"
#include "log/log_writer.h"
#include "log/shared_region.h"
#include "tests/support/catch.h"

namespace fragscope::log_test {

namespace fs = std::filesystem;

inline constexpr uint64_t kSmallRing = log::kChunkSlots;

struct TemporaryDirectory {
  fs::path path;
  explicit TemporaryDirectory(const std::string& name)
      : path(fs::temp_directory_path() / ("fs-" + name + "-" + std::to_string(::getpid()))) {
    fs::remove_all(path);
    fs::create_directory(path);
  }
  ~TemporaryDirectory() { fs::remove_all(path); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
};

// Creates the log at `path` as the shim does.
struct Log {
  log::SharedRegion region;
  log::LogWriter writer;

  // `ring_first_slot` not 0: a ring from there on.
  Log(const std::string& path, uint64_t capacity, uint32_t pid = 77, uint64_t start_ticks = 12345,
      uint64_t ring_first_slot = 0)
      : region(create(path, capacity)) {
    if (ring_first_slot != 0) {
      REQUIRE(log::reserve_storage(region.fd(),
                                   log::kHeaderBytes + ring_first_slot * log::kSlotBytes,
                                   log::kChunkSlots * log::kSlotBytes) == 0);
    }
    writer =
        log::LogWriter(region.data(), region.fd(), capacity, log::kChunkSlots, ring_first_slot);
    log::LogHeader* header = writer.header();
    header->start_ticks = start_ticks;
    header->realtime_ns = 1'700'000'000'000'000'000;
    header->monotonic_ns = 1'000'000;
    std::strcpy(header->program, "writer");
    std::strcpy(header->shim_version, "0.1.0");
    header->pid = pid;
  }

  static log::SharedRegion create(const std::string& path, uint64_t capacity) {
    auto region =
        log::SharedRegion::create(path, log::kHeaderBytes + log::kChunkSlots * log::kSlotBytes,
                                  log::kHeaderBytes + capacity * log::kSlotBytes);
    INFO((region.ok() ? std::string() : region.error().text));
    REQUIRE(region.ok());
    return std::move(region).value();
  }
};

// Recognisable by `number`.
inline Event numbered_event(uint64_t number, uint32_t tid = 1) {
  Event event;
  event.time_ns = 1'000'000 + number;
  event.tid = tid;
  event.kind = EventKind::device_alloc;
  event.api = 3;
  event.device = 0;
  event.address = 0x7f0000000000 + number * 512;
  event.size = number;
  event.requested = ~number;
  event.aux = number * 3;
  event.aux2 = (number * 0x9e3779b97f4a7c15 ^ number << 40) * (2 * number + 1);  // compresses badly
  event.stack = static_cast<uint32_t>(number);
  return event;
}

struct Collected final : log::LogConsumer {
  struct Blob {
    log::BlobKind kind;
    uint32_t id;
    std::string bytes;
  };
  std::vector<Event> events;
  std::vector<Blob> blobs;

  void on_event(const Event& event) override { events.push_back(event); }
  void on_blob(log::BlobKind kind, uint32_t id, std::span<const std::byte> bytes) override {
    blobs.push_back({kind, id, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
};

inline log::LogReader open_log(const std::string& path,
                               log::LogReader::Access access = log::LogReader::Access::drain) {
  auto reader = log::LogReader::open(path, access);
  INFO((reader.ok() ? std::string() : reader.error().text));
  REQUIRE(reader.ok());
  return std::move(reader).value();
}

inline uint64_t read_all(log::LogReader& reader, log::LogConsumer& consumer, bool alive) {
  const auto passed = reader.read(consumer, alive);
  INFO((passed.ok() ? std::string() : passed.error().text));
  REQUIRE(passed.ok());
  return *passed;
}

}  // namespace fragscope::log_test
