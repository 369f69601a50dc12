// What `fragscope info` tells of a run, as data: gathered once, printed as text or JSON.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/report_data.h"
#include "tools/open_run.h"
#include "trace/trace_data.h"

namespace fragscope::tools {

struct DeviceFact {
  int index = 0;
  std::optional<std::string> name;
  std::optional<uint64_t> total_bytes;  // as the program saw it
  std::optional<uint64_t> card_bytes;   // where a cap hid some of them
  std::optional<bool> simulated;
};

struct ProcessFacts {
  trace::ProcessInfo process;
  trace::ProcessExit exit;  // run.json's word where the trace has none
  uint64_t events = 0;      // counted, not believed
  std::map<std::string, uint64_t> kinds;
  std::vector<DeviceFact> devices;
  std::vector<std::string> cuda_runtimes;
  std::map<std::string, uint64_t> unhooked;  // resolver requests that passed through, by symbol
  std::optional<report::DamageData> damage;
  uint64_t refused = 0;                     // by a cap, or on purpose
  std::map<uint64_t, uint64_t> changed_at;  // change of settings (kFlagSettings), by number -> seq
};

struct RunFacts {
  std::string path;
  std::optional<trace::RunInfo> info;
  bool live = false;  // unsealed, and one of its processes is alive
  std::vector<ProcessFacts> processes;
  std::optional<report::HostMemoryData> host_memory;  // absent: nobody looked at it
  std::vector<std::string> warnings;
};

// Reads every event of the run once.
RunFacts gather_facts(OpenRun& run);

// "exited 0", "signaled 9 (SIGKILL)", "vanished", "running".
std::string exit_text(trace::ProcessExit exit);

}  // namespace fragscope::tools
