// A run directory with its logs, and processes that write to them step by step.
#pragma once

#include <csignal>
#include <fstream>

#include "capture/collector.h"
#include "capture/process_state.h"
#include "tests/unit/log/log_fixture.h"
#include "trace/trace_reader.h"

namespace fragscope::capture_test {

using namespace fragscope::log_test;

inline uint64_t own_start_ticks(uint32_t pid) {
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
    if (WIFEXITED(status)) return {trace::ExitKind::exited, WEXITSTATUS(status)};
    return {trace::ExitKind::signaled, WTERMSIG(status)};
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
  capture::Collector collect() {
    capture::CollectorOptions options;
    options.run_directory = run;
    options.log_directory = logs;
    options.info.command = {"demo"};
    auto collector = capture::Collector::open(options);
    REQUIRE(collector.ok());
    return std::move(collector).value();
  }
  std::string log_of(uint32_t pid) const {
    return logs + "/" + std::to_string(pid) + "-1-ab.fslog";
  }
  std::string trace_of(uint32_t pid) const { return run + "/" + std::to_string(pid) + "-1-ab.fst"; }
};

inline void write_events(log::LogWriter& writer, uint64_t first, uint64_t count) {
  for (uint64_t i = first; i < first + count; ++i) writer.write(numbered_event(i));
}

inline void check_numbered(trace::TraceReader& reader, uint64_t count) {
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

inline trace::TraceReader open_trace(const std::string& path) {
  auto reader = trace::TraceReader::open_file(path);
  INFO((reader.ok() ? std::string() : reader.error().text));
  REQUIRE(reader.ok());
  return std::move(reader).value();
}

inline trace::TraceReader open_bytes(Result<std::vector<std::byte>> bytes) {
  INFO((bytes.ok() ? std::string() : bytes.error().text));
  REQUIRE(bytes.ok());
  auto reader = trace::TraceReader::open_bytes(std::move(bytes).value(), "bytes");
  REQUIRE(reader.ok());
  return std::move(reader).value();
}

}  // namespace fragscope::capture_test
