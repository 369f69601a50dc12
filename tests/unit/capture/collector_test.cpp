#include "capture/collector.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "capture/process_state.h"
#include "capture/recover.h"
#include "tests/unit/log/log_fixture.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"

using namespace fragscope;
using namespace fragscope::log_test;
using capture::Collector;
using trace::ExitKind;
using trace::TraceReader;

namespace {

uint64_t own_start_ticks(uint32_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return capture::parse_proc_stat(text)->start_ticks;
}

// A child that waits until it is told to go on, by one byte for each step.
class Child {
 public:
  // `steps`: what it does before step i; then it exits with 5.
  template <typename Body>
  explicit Child(Body&& body) {
    REQUIRE(::pipe(to_child_) == 0);
    REQUIRE(::pipe(from_child_) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ != 0) return;
    body([this] {
      char byte = 'r';
      if (::write(from_child_[1], &byte, 1) != 1 || ::read(to_child_[0], &byte, 1) != 1) ::_exit(9);
    });
    ::_exit(5);
  }
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    for (const int fd : {to_child_[0], to_child_[1], from_child_[0], from_child_[1]}) ::close(fd);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  uint32_t pid() const { return static_cast<uint32_t>(pid_); }
  void wait_for_step() {
    char byte = 0;
    REQUIRE(::read(from_child_[0], &byte, 1) == 1);
  }
  void go_on() { REQUIRE(::write(to_child_[1], "g", 1) == 1); }
  trace::ProcessExit reap() {
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    if (WIFEXITED(status)) return {ExitKind::exited, WEXITSTATUS(status)};
    return {ExitKind::signaled, WTERMSIG(status)};
  }
  void kill() { ::kill(pid_, SIGKILL); }

 private:
  pid_t pid_ = -1;
  int to_child_[2]{};
  int from_child_[2]{};
};

struct Run {
  TemporaryDirectory temporary{"collector"};
  std::string run = temporary.path / "run.fsr";
  std::string logs = temporary.path / "logs";

  Run() {
    REQUIRE(trace::create_run_directory(run).ok());
    fs::create_directory(logs);
  }
  Collector collect() {
    capture::CollectorOptions options;
    options.run_directory = run;
    options.log_directory = logs;
    options.info.command = {"demo"};
    auto collector = Collector::open(options);
    REQUIRE(collector.ok());
    return std::move(collector).value();
  }
  std::string log_of(uint32_t pid) const {
    return logs + "/" + std::to_string(pid) + "-1-ab.fslog";
  }
  std::string trace_of(uint32_t pid) const { return run + "/" + std::to_string(pid) + "-1-ab.fst"; }
};

void write_events(log::LogWriter& writer, uint64_t first, uint64_t count) {
  for (uint64_t i = first; i < first + count; ++i) writer.write(numbered_event(i));
}

void check_numbered(TraceReader& reader, uint64_t count) {
  Event event;
  uint64_t number = 0;
  while (reader.next(event)) {
    Event expected = numbered_event(number);
    expected.seq = ++number;
    expected.pid = reader.process().pid;
    if (!(event == expected)) FAIL("event " << number << " is not what was written");
  }
  CHECK(number == count);
}

TraceReader open_trace(const std::string& path) {
  auto reader = TraceReader::open_file(path);
  INFO((reader.ok() ? std::string() : reader.error().text));
  REQUIRE(reader.ok());
  return std::move(reader).value();
}

TraceReader open_bytes(Result<std::vector<std::byte>> bytes) {
  INFO((bytes.ok() ? std::string() : bytes.error().text));
  REQUIRE(bytes.ok());
  auto reader = TraceReader::open_bytes(std::move(bytes).value(), "bytes");
  REQUIRE(reader.ok());
  return std::move(reader).value();
}

}  // namespace

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

TEST_CASE("a process that nobody waited for is sealed as vanished") {
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
  CHECK(reader.process().exit.kind == ExitKind::vanished);
  check_numbered(reader, 10);
}

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
    while (collector.live_processes() != 0 || !fs::exists(run.trace_of(pid))) {
      static_cast<void>(collector.poll());
    }
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
