// Traces that several tests take apart.
#pragma once

#include <random>
#include <vector>

#include "event/event_names.h"
#include "event/frame.h"
#include "tests/support/catch.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"

namespace fragscope::trace_test {

inline void require_ok(const Status& status) {
  INFO((status.ok() ? std::string() : status.error().text));
  REQUIRE(status.ok());
}

inline trace::ProcessInfo sample_process() {
  trace::ProcessInfo process;
  process.pid = 4321;
  process.start_ticks = 987654;
  process.realtime_ns = 1'700'000'000'000'000'000;
  process.monotonic_ns = 5'000'000'000;
  process.program = "demo";
  process.shim_version = "0.1.0";
  return process;
}

inline std::vector<EventKind> all_kinds() {
  std::vector<EventKind> kinds;
  for (uint64_t wire = 0; wire < 200; ++wire) {
    if (const auto kind = kind_from_wire(wire)) kinds.push_back(*kind);
  }
  return kinds;
}

// Any value of any field, extremes often.
inline Event random_event(std::mt19937_64& random, uint64_t seq) {
  static const std::vector<EventKind> kinds = all_kinds();
  const auto pick = [&random]() -> uint64_t {
    switch (random() % 5) {
      case 0:
        return 0;
      case 1:
        return kUnknown;
      case 2:
        return random() % 1000 * 512;
      case 3:
        return 0x7f0000000000 + random() % 64 * 0x200000;
      default:
        return random();
    }
  };
  Event event;
  event.seq = seq;
  event.time_ns = pick();
  event.pid = sample_process().pid;
  event.tid = static_cast<uint32_t>(pick());
  event.kind = kinds[random() % kinds.size()];
  event.api = static_cast<uint16_t>(pick());
  event.device = static_cast<int32_t>(pick());
  event.result = random() % 8 == 0 ? kResultPending : static_cast<int32_t>(pick());
  event.stack = static_cast<uint32_t>(pick());
  event.stream = pick();
  event.address = pick();
  event.size = pick();
  event.requested = pick();
  event.aux = pick();
  event.aux2 = pick();
  event.flags = static_cast<uint32_t>(pick());
  event.text = static_cast<uint32_t>(pick());
  return event;
}

inline std::vector<Event> random_events(uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  std::vector<Event> events;
  for (size_t i = 0; i < count; ++i) events.push_back(random_event(random, i + 1));
  return events;
}

// One event of each kind, with chunks of tables and events in turn.
inline std::vector<std::byte> sample_trace(bool sealed = true) {
  trace::MemorySink sink;
  auto writer = trace::TraceWriter::start(sink, sample_process());
  REQUIRE(writer.ok());
  require_ok(writer->add_property("block_source", "adaptor"));
  require_ok(writer->add_api_name(1, "cudaMalloc"));
  require_ok(writer->add_stack(1, std::vector<uint64_t>{0x7f0000001000, 0x7f0000002000, 0x400123}));
  require_ok(writer->add_stack(2, std::vector<uint64_t>{0x7f0000001800, 0x7f0000002000, 0x400123}));
  require_ok(writer->add_python_frame(1, {"Trainer.step", "/data/run/train.py", 31, 28}));
  require_ok(writer->add_python_frame(2, {"<module>", "/data/run/train.py", 90, 1}));
  require_ok(writer->add_stack(
      3, std::vector<uint64_t>{kPythonFrame | 1, kPythonFrame | 2, 0x7f0000001000, 0x400123}));
  require_ok(writer->add_module({0x400000, 0x500000, 0, 1, "/usr/bin/demo", "abcdef0123"}));
  std::mt19937_64 random(1);
  uint64_t seq = 0;
  for (const EventKind kind : all_kinds()) {
    Event event = random_event(random, ++seq);
    event.kind = kind;
    require_ok(writer->add_event(event));
    if (seq % 16 == 0) {
      require_ok(writer->add_text(static_cast<uint32_t>(seq), "step " + std::to_string(seq)));
      require_ok(writer->flush());
    }
  }
  if (sealed) {
    trace::ProcessInfo end = sample_process();
    end.exit = {trace::ExitKind::signaled, 9};
    end.dropped_events = 7;
    end.torn_records = 2;
    require_ok(writer->seal(end, {{"cudaMalloc", 12}, {"cudaFree", 3}}));
  } else {
    require_ok(writer->flush());
  }
  return sink.bytes();
}

inline std::vector<Event> read_events(trace::TraceReader& reader) {
  std::vector<Event> events;
  Event event;
  while (reader.next(event)) events.push_back(event);
  return events;
}

}  // namespace fragscope::trace_test
