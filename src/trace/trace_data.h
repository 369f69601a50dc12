// What a trace knows beside its events: one ProcessInfo, tables of stacks, modules, texts, names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "event/event.h"

namespace fragscope::trace {

// How a process ended. `vanished`: it is gone and nobody who knows saw how.
enum class ExitKind : uint8_t { running, exited, signaled, vanished };

struct ProcessExit {
  ExitKind kind = ExitKind::running;
  int code = 0;  // exit status or signal number; meaningless for running and vanished
};

// A stretch of address space that a file was mapped to. Addresses are reused after dlclose: an
// entry holds from event `first_seq` on, until a later entry overlaps it.
struct Module {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t file_offset = 0;
  uint64_t first_seq = 0;
  std::string path;
  std::string build_id;  // lower-case hex; empty: the file has none or was gone
};

// A line of Python code, as the interpreter named it when it was met.
struct PythonFrame {
  std::string function;  // qualified name
  std::string file;      // co_filename
  int32_t line = 0;      // 0 or less: unknown
  int32_t first_line = 0;

  friend bool operator==(const PythonFrame&, const PythonFrame&) = default;
};

struct ProcessInfo {
  uint32_t pid = 0;
  uint64_t start_ticks = 0;   // field 22 of /proc/PID/stat; pid + start_ticks name a process
  uint64_t realtime_ns = 0;   // CLOCK_REALTIME and
  uint64_t monotonic_ns = 0;  // CLOCK_MONOTONIC at the same moment
  std::string program;
  std::string shim_version;
  // "key=value" facts of the shim and simulator: block_source, torch_version, coverage.* …; keys
  // are listed in FORMAT.md. Absent key = unknown.
  std::map<std::string, std::string> properties;

  // From the trailer; of an unsealed trace: what could be told without one.
  ProcessExit exit;
  uint64_t event_count = 0;
  uint64_t dropped_events = 0;  // found no room in the log
  uint64_t torn_records = 0;    // their writer died in the middle
  uint64_t log_position = 0;    // unsealed: records of the log that the trace holds already
  bool sealed = false;          // the trailer was there and right
};

// Tables grow while a trace is read; ids that never arrived give empty answers.
struct TraceTables {
  std::unordered_map<uint32_t, std::vector<uint64_t>> stacks;  // frames as in event/frame.h
  std::unordered_map<uint32_t, PythonFrame> python_frames;
  std::unordered_map<uint32_t, std::string> texts;
  std::unordered_map<uint16_t, std::string> api_names;
  std::vector<Module> modules;                // in order of arrival
  std::map<std::string, uint64_t> api_calls;  // calls per entry point, from the trailer
};

}  // namespace fragscope::trace
