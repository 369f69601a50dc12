#include "capture/recover.h"

#include <atomic>
#include <thread>

#include "event/frame.h"
#include "tests/unit/capture/capture_fixture.h"
#include "trace/trace_writer.h"

using namespace fragscope;
using namespace fragscope::capture_test;
using capture::Collector;
using trace::ExitKind;
using trace::TraceReader;

TEST_CASE("a collector that is gone in the middle: trace and log together hold everything") {
  Run run;
  // More than the ring holds, so that slots were given back and used again.
  const uint64_t count = 3 * kSmallRing;
  Child child([&](auto step) {
    const auto pid = static_cast<uint32_t>(::getpid());
    Log log(run.log_of(pid), kSmallRing, pid, own_start_ticks(pid));
    log.writer.write_blob(log::BlobKind::property, 1, "block_source=api");
    log.writer.write_blob(log::BlobKind::api_name, 3, "cudaMalloc");
    log.writer.header()->api_calls[3] = 9;
    for (uint64_t done = 0; done < count; done += kSmallRing / 4) {
      write_events(log.writer, done, kSmallRing / 4);
      step();
    }
  });
  const uint32_t pid = child.pid();
  {
    Collector collector = run.collect();
    for (int i = 0; i < 11; ++i) {
      child.wait_for_step();
      REQUIRE(collector.poll().ok());
      child.go_on();
    }
    child.wait_for_step();
  }
  CHECK(fs::exists(run.log_of(pid)));
  {
    TraceReader alone = open_trace(run.trace_of(pid));
    CHECK_FALSE(alone.process().sealed);
    CHECK_FALSE(alone.damage());
    Event event;
    uint64_t events = 0;
    while (alone.next(event)) ++events;
    CHECK(events > 0);
    CHECK(events < count);
  }
  CHECK(capture::find_log(run.trace_of(pid), {"", run.run, run.logs}) == run.log_of(pid));
  CHECK(capture::find_log(run.trace_of(pid), {run.run}).empty());
  TraceReader live = open_bytes(capture::recover_process(run.trace_of(pid), run.log_of(pid)));
  CHECK(live.process().exit.kind == ExitKind::running);
  check_numbered(live, count);
  child.kill();
  child.reap();
  TraceReader whole = open_bytes(capture::recover_process(run.trace_of(pid), run.log_of(pid)));
  CHECK(whole.process().exit.kind == ExitKind::vanished);
  CHECK(whole.process().dropped_events == 0);
  CHECK(whole.process().torn_records == 0);
  CHECK(whole.process().properties.at("block_source") == "api");
  check_numbered(whole, count);
  CHECK(whole.tables().api_calls.at("cudaMalloc") == 9);

  // The end of the trace is cut: the log no longer holds it all, and that is said.
  fs::resize_file(run.trace_of(pid), fs::file_size(run.trace_of(pid)) - 5);
  TraceReader cut = open_bytes(capture::recover_process(run.trace_of(pid), run.log_of(pid)));
  CHECK(cut.process().event_count < count);
  CHECK(cut.process().torn_records > 0);
  CHECK(cut.process().event_count + cut.process().torn_records >= count);

  // Without a header nothing of it counts; what the log gave back is counted as lost.
  for (const uint64_t size : {7u, 0u}) {
    fs::resize_file(run.trace_of(pid), size);
    TraceReader log = open_bytes(capture::recover_process(run.trace_of(pid), run.log_of(pid)));
    CHECK(log.process().event_count > 0);
    CHECK(log.process().event_count < count);
    CHECK(log.process().event_count + log.process().torn_records >= count);
  }
}

TEST_CASE("what events refer to is all there when trace and log are put together") {
  Run run;
  Child child([&](auto step) {
    const auto pid = static_cast<uint32_t>(::getpid());
    Log log(run.log_of(pid), kSmallRing, pid, own_start_ticks(pid));
    const uint64_t frames[] = {kPythonFrame | 5, 0x1234};
    log.writer.write_blob(log::BlobKind::python_frame, 5,
                          std::string_view("7\0"
                                           "3\0"
                                           "outer.step\0"
                                           "train.py",
                                           23));
    log.writer.write_blob(log::BlobKind::stack, 1, std::as_bytes(std::span(frames)));
    log.writer.write_blob(log::BlobKind::text, 2, "a mark");
    log.writer.write_blob(log::BlobKind::module, 1, "1000-2000 0 =abcd /lib/x.so");
    write_events(log.writer, 0, 1);
    step();
  });
  const uint32_t pid = child.pid();
  {
    Collector collector = run.collect();
    child.wait_for_step();
    REQUIRE(collector.poll().ok());
  }  // gone without a word: from here on the trace is put together with the log
  TraceReader whole = open_bytes(capture::recover_process(run.trace_of(pid), run.log_of(pid)));
  whole.load_tables();
  const trace::TraceTables& tables = whole.tables();
  CHECK(tables.python_frames.at(5) == trace::PythonFrame{"outer.step", "train.py", 7, 3});
  CHECK(tables.stacks.at(1) == std::vector<uint64_t>{kPythonFrame | 5, 0x1234});
  CHECK(tables.texts.at(2) == "a mark");
  REQUIRE(tables.modules.size() == 1);
  CHECK(tables.modules[0].build_id == "abcd");
  child.kill();
  child.reap();
}

TEST_CASE("a log without collector is read as it lies") {
  Run run;
  Child child([&](auto step) {
    const auto pid = static_cast<uint32_t>(::getpid());
    Log log(run.log_of(pid), kSmallRing, pid, own_start_ticks(pid));
    write_events(log.writer, 0, 100);
    Event pending = numbered_event(100);
    log.writer.commit(log.writer.reserve(), pending, false);
    static_cast<void>(log.writer.reserve());  // its writer is killed before it commits
    write_events(log.writer, 101, 1);
    step();
  });
  child.wait_for_step();
  const std::string path = run.log_of(child.pid());
  {
    TraceReader live = open_bytes(capture::convert_log(path));
    CHECK(live.process().exit.kind == ExitKind::running);
    check_numbered(live, 100);
  }
  child.kill();
  child.reap();
  TraceReader dead = open_bytes(capture::convert_log(path));
  CHECK(dead.process().exit.kind == ExitKind::vanished);
  CHECK(dead.process().event_count == 102);
  CHECK(dead.process().torn_records == 1);
  std::vector<Event> events;
  Event event;
  while (dead.next(event)) events.push_back(event);
  REQUIRE(events.size() == 102);
  CHECK(events[100].result == kResultPending);
  CHECK(events[101].size == 101);
  CHECK(fs::exists(path));
}

TEST_CASE("reading a run while its collector works: always a true beginning") {
  Run run;
  const uint64_t count = 300'000;
  Child child([&](auto step) {
    const auto pid = static_cast<uint32_t>(::getpid());
    Log log(run.log_of(pid), 4 * kSmallRing, pid, own_start_ticks(pid));
    step();
    for (uint64_t i = 0; i < count;) {
      const uint64_t dropped = log.writer.header()->dropped_events;
      log.writer.write(numbered_event(i));
      if (log.writer.header()->dropped_events == dropped) ++i;
    }
  });
  const uint32_t pid = child.pid();
  Collector collector = run.collect();
  child.wait_for_step();
  child.go_on();
  std::atomic<bool> done{false};
  std::thread collecting([&] {
    collector.note_exit(1, {});  // of a process without a log: nothing happens
    while (capture::process_is_alive(pid, 0)) static_cast<void>(collector.poll());
    collector.note_exit(pid, {ExitKind::exited, 5});
    static_cast<void>(collector.poll());
    done = true;
  });
  while (!done) {
    auto bytes = capture::recover_process(run.trace_of(pid), run.log_of(pid));
    if (!bytes) continue;  // the trace is not there yet, the log not any more, or it changed
    TraceReader reader = open_bytes(std::move(bytes));
    check_numbered(reader, reader.process().event_count);
  }
  collecting.join();
  child.reap();
  REQUIRE(collector.finish({ExitKind::exited, 0}).ok());
  TraceReader reader = open_trace(run.trace_of(pid));
  check_numbered(reader, count);
}

TEST_CASE("recovery refuses a log of another process") {
  Run run;
  Log log(run.logs + "/1-5-a.fslog", kSmallRing, 1000, 5);
  trace::ProcessInfo process;
  process.pid = 1000;
  for (const uint64_t start_ticks : {5u, 6u}) {
    process.start_ticks = start_ticks;
    trace::MemorySink sink;
    auto writer = trace::TraceWriter::start(sink, process);
    REQUIRE(writer.ok());
    const std::string path = run.run + "/1-5-a.fst";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(sink.bytes().data()),
               static_cast<std::streamsize>(sink.bytes().size()));
    const auto recovered = capture::recover_process(path, run.logs + "/1-5-a.fslog");
    REQUIRE(recovered.ok() == (start_ticks == 5));
    if (!recovered.ok()) CHECK(recovered.error().code == ErrorCode::kDamaged);
  }
}
