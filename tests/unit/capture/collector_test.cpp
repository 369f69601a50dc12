#include "capture/collector.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "capture/recover.h"
#include "tests/unit/capture/capture_fixture.h"

using namespace fragscope;
using namespace fragscope::capture_test;
using capture::Collector;
using trace::ExitKind;
using trace::TraceReader;

TEST_CASE("a process that ends is sealed with how it ended, its log is gone") {
  Run run;
  Child child([&](auto step) {
    const auto pid = static_cast<uint32_t>(::getpid());
    Log log(run.log_of(pid), kSmallRing, pid, own_start_ticks(pid));
    step();
    log.writer.write_blob(log::BlobKind::property, 1, "block_source=api");
    log.writer.write_blob(log::BlobKind::api_name, 3, "cudaMalloc");
    log.writer.write_blob(log::BlobKind::module, 1, "400000-500000 1000 /proc/self/exe x");
    const uint64_t frames[] = {1, 2, 3};
    log.writer.write_blob(log::BlobKind::stack, 8, std::as_bytes(std::span(frames)));
    write_events(log.writer, 0, 1000);
    log.writer.header()->api_calls[3] = 1234;
    step();
    write_events(log.writer, 1000, 500);
    log.writer.header()->finished = 1;
  });
  Collector collector = run.collect();
  child.wait_for_step();
  REQUIRE(collector.poll().ok());
  CHECK_FALSE(fs::exists(run.trace_of(child.pid())));  // no record yet
  CHECK(collector.live_processes() == 1);
  child.go_on();
  child.wait_for_step();
  REQUIRE(collector.poll().ok());
  CHECK(fs::exists(run.trace_of(child.pid())));
  const auto live = trace::read_run_info(run.run);
  REQUIRE(live.ok());
  CHECK_FALSE(live->sealed);
  CHECK(live->log_directory == run.logs);
  REQUIRE(live->processes.size() == 1);
  CHECK(live->processes[0].exit.kind == ExitKind::running);

  child.go_on();
  const uint32_t pid = child.pid();
  collector.note_exit(pid, child.reap());
  CHECK(collector.live_processes() == 0);
  REQUIRE(collector.poll().ok());
  const auto summary = collector.finish({ExitKind::exited, 5});
  REQUIRE(summary.ok());
  CHECK(summary->processes == 1);
  CHECK(summary->events == 1500);
  CHECK(summary->still_running == 0);
  CHECK(summary->warnings.empty());
  CHECK_FALSE(fs::exists(run.logs));

  TraceReader reader = open_trace(run.trace_of(pid));
  CHECK(reader.process().exit.kind == ExitKind::exited);
  CHECK(reader.process().exit.code == 5);
  CHECK(reader.process().event_count == 1500);
  CHECK(reader.process().dropped_events == 0);
  CHECK(reader.process().torn_records == 0);
  CHECK(reader.process().properties.at("block_source") == "api");
  CHECK(reader.process().properties.at("log.finished") == "1");
  check_numbered(reader, 1500);
  CHECK(reader.tables().api_names.at(3) == "cudaMalloc");
  CHECK(reader.tables().api_calls.at("cudaMalloc") == 1234);
  CHECK(reader.tables().stacks.at(8) == std::vector<uint64_t>{1, 2, 3});
  REQUIRE(reader.tables().modules.size() == 1);
  CHECK(reader.tables().modules[0].start == 0x400000);
  CHECK(reader.tables().modules[0].file_offset == 0x1000);
  CHECK(reader.tables().modules[0].path == "/proc/self/exe x");
  CHECK(reader.tables().modules[0].first_seq == 1);
  struct stat info {};
  REQUIRE(::stat(run.trace_of(pid).c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  const auto sealed = trace::read_run_info(run.run);
  REQUIRE(sealed.ok());
  CHECK(sealed->sealed);
  CHECK(sealed->log_directory.empty());
  CHECK(sealed->exit.code == 5);
  CHECK(sealed->processes.at(0).exit.code == 5);
}

TEST_CASE("without a note it vanished, unless the kernel remembers how it ended") {
  Run run;
  Child child([&](auto step) {
    const auto pid = static_cast<uint32_t>(::getpid());
    Log log(run.log_of(pid), kSmallRing, pid, own_start_ticks(pid));
    write_events(log.writer, 0, 10);
    step();
  });
  const uint32_t pid = child.pid();
  Collector collector = run.collect();
  child.wait_for_step();
  child.kill();
  child.reap();
  const auto summary = collector.finish({ExitKind::exited, 0});
  REQUIRE(summary.ok());
  CHECK(summary->events == 10);
  TraceReader reader = open_trace(run.trace_of(pid));
  CHECK(reader.process().sealed);
  const auto exit = reader.process().exit;
  const bool remembered = exit.kind == ExitKind::signaled && exit.code == SIGKILL;
  CHECK((remembered || exit.kind == ExitKind::vanished));
  check_numbered(reader, 10);
}

TEST_CASE("a process that outlives the run stays readable") {
  Run run;
  Child child([&](auto step) {
    const auto pid = static_cast<uint32_t>(::getpid());
    Log log(run.log_of(pid), kSmallRing, pid, own_start_ticks(pid));
    write_events(log.writer, 0, 50);
    step();
    write_events(log.writer, 50, 50);
    step();
  });
  child.wait_for_step();
  Collector collector = run.collect();
  const auto summary = collector.finish({ExitKind::exited, 0});
  REQUIRE(summary.ok());
  CHECK(summary->still_running == 1);
  const auto info = trace::read_run_info(run.run);
  REQUIRE(info.ok());
  CHECK_FALSE(info->sealed);
  CHECK(info->log_directory == run.logs);
  child.go_on();
  child.wait_for_step();
  TraceReader reader =
      open_bytes(capture::recover_process(run.trace_of(child.pid()), run.log_of(child.pid())));
  check_numbered(reader, 100);
}

TEST_CASE("an output that is full: one error, whole chunks stay, the log stays with the rest") {
  Run run;
  const uint64_t count = 40000;
  Child child([&](auto step) {
    const auto pid = static_cast<uint32_t>(::getpid());
    Log log(run.log_of(pid), 4 * kSmallRing, pid, own_start_ticks(pid));
    write_events(log.writer, 0, count / 2);
    step();
    write_events(log.writer, count / 2, count / 2);
    step();
  });
  const uint32_t pid = child.pid();
  Collector collector = run.collect();
  child.wait_for_step();
  REQUIRE(collector.poll().ok());  // a chunk of 16384 records is in the trace
  const uint64_t before = fs::file_size(run.trace_of(pid));
  child.go_on();
  child.wait_for_step();
  child.kill();
  collector.note_exit(pid, child.reap());

  rlimit old_limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  const rlimit small{before + 100, old_limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Status first = collector.poll();
  const Status second = collector.poll();
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  REQUIRE_FALSE(first.ok());
  CHECK(first.error().code == ErrorCode::kNoSpace);
  CHECK(first.error().text.find(run.log_of(pid)) != std::string::npos);
  CHECK(second.ok());
  const auto summary = collector.finish({ExitKind::exited, 0});
  REQUIRE(summary.ok());
  for (const std::string& warning : summary->warnings) UNSCOPED_INFO(warning);
  REQUIRE(summary->warnings.size() == 1);
  CHECK(fs::exists(run.log_of(pid)));
  CHECK(fs::file_size(run.trace_of(pid)) == before);
  CHECK_FALSE(trace::read_run_info(run.run)->sealed);
  TraceReader reader = open_bytes(capture::recover_process(run.trace_of(pid), run.log_of(pid)));
  check_numbered(reader, count);
}

TEST_CASE("an image that called exec leaves a log of its own") {
  Run run;
  Child child([&](auto step) {
    const auto pid = static_cast<uint32_t>(::getpid());
    Log first(run.logs + "/" + std::to_string(pid) + "-1-aa.fslog", kSmallRing, pid,
              own_start_ticks(pid));
    write_events(first.writer, 0, 5);
    Log second(run.log_of(pid), kSmallRing, pid, own_start_ticks(pid));
    write_events(second.writer, 0, 7);
    step();
  });
  const uint32_t pid = child.pid();
  Collector collector = run.collect();
  child.wait_for_step();
  REQUIRE(collector.poll().ok());
  child.go_on();
  collector.note_exit(pid, child.reap());
  const auto summary = collector.finish({ExitKind::exited, 5});
  REQUIRE(summary.ok());
  CHECK(summary->processes == 2);
  CHECK(summary->events == 12);
  const auto info = trace::read_run_info(run.run);
  REQUIRE(info.ok());
  CHECK(info->processes.size() == 2);
  for (const auto& process : info->processes) {
    CHECK(process.exit.kind == ExitKind::exited);
    CHECK(process.exit.code == 5);
  }
}

TEST_CASE("logs without a record leave nothing, foreign files stay and are named") {
  Run run;
  Collector collector = run.collect();
  { Log unused(run.logs + "/4000000-1-aa.fslog", kSmallRing, 4'000'000); }  // no such process
  std::ofstream(run.logs + "/4000000-1-bb.fslog") << std::string(10000, '\0');
  std::ofstream(run.logs + "/4000000-1-cc.fslog");
  REQUIRE(collector.poll().ok());
  CHECK(fs::is_empty(run.logs));
  std::ofstream(run.logs + "/4000000-1-ff.fslog.new") << "x";
  std::ofstream(run.logs + "/4000000-1-dd.fslog") << std::string(10000, 'x');
  fs::create_symlink("/etc/passwd", run.logs + "/4000000-1-ee.fslog");
  const auto summary = collector.finish({ExitKind::exited, 0});
  REQUIRE(summary.ok());
  CHECK(summary->processes == 0);
  CHECK(summary->warnings.size() == 2);
  CHECK(fs::exists(run.logs + "/4000000-1-dd.fslog"));
}

TEST_CASE("what a killed process left unfinished goes with the log directory") {
  Run run;
  Collector collector = run.collect();
  std::ofstream(run.logs + "/4000000-1-ff.fslog.new") << "x";
  REQUIRE(collector.finish({ExitKind::exited, 0}).ok());
  CHECK_FALSE(fs::exists(run.logs));
}
