// The recording of this process: its log, its tables, its settings. Created by the first memory
// call, never at load, never destroyed. A forked child starts without one and gets its own.
//
// Threads: any. Creation waits for nobody: threads that arrive together all build one, one wins,
// the others take theirs away again. Errors: none reach the host; a session that cannot be had is
// given up for this process.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "event/event.h"
#include "log/log_writer.h"
#include "shim/hook_table.h"
#include "shim/module_table.h"
#include "shim/python_frames.h"
#include "shim/stack_table.h"

namespace fragscope::shim {

struct Settings {
  uint64_t log_bytes = log::kDefaultCapacityBytes;
  uint32_t stack_depth = 128;    // frames of each kind at most
  uint64_t min_stack_bytes = 0;  // memory that is smaller gets no stack
  bool ring = false;             // a full log keeps the newest events
  bool native_stacks = true;
  bool python_stacks = true;
  bool enforce = false;
};

struct Session {
  log::LogWriter writer;
  Settings settings;
  StackTable stacks;
  PythonFrames python;
  InternMap texts;  // of marks
  ModuleTable modules;
  uint64_t id = 0;  // random, not 0
  std::atomic<uint32_t> next_property{0};
  std::atomic<uint32_t> next_text{0};
  std::atomic<uint64_t> described_devices{0};  // bit n: properties of device n are logged
  std::atomic<uint64_t> reported_coverage{0};  // coverage_total() that the log knows
  std::atomic<uint32_t> reported_python{0};    // python_status() that the log knows
  std::atomic<uint32_t> runtime_copies{0};     // that the log knows

  void write_property(std::string_view key, std::string_view value) noexcept;
  void write_property(std::string_view key, uint64_t value) noexcept;
};

// The session, if there is one already.
Session* current_session() noexcept;
// The session, created if need be; nullptr when this process is not recorded.
Session* get_or_create_session() noexcept;
// Whether this process is (or would be) recorded.
bool recording_wanted() noexcept;
// Logs the counters of coverage.h if they changed since the last time.
void report_coverage(Session& session) noexcept;
// Logs why there are Python frames or none, if that changed.
void report_python(Session& session) noexcept;

}  // namespace fragscope::shim
