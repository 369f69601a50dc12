// Is the process that a log names still there? pid alone does not name a process: pids are reused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fragscope::capture {

// The fields of /proc/PID/stat that matter here. `state` is a letter as in proc(5).
struct ProcStat {
  std::string name;  // field 2, without the parentheses
  char state = '?';
  uint64_t parent = 0;       // field 4
  uint64_t threads = 0;      // field 20
  uint64_t start_ticks = 0;  // field 22
};
std::optional<ProcStat> parse_proc_stat(std::string_view text);
// Nothing when there is no such process.
std::optional<ProcStat> read_proc_stat(uint32_t pid);

// The numbers that a process has in the pid namespaces from this one inwards ("NSpid:" of
// /proc/PID/status), this one's first.
std::vector<uint32_t> parse_pids(std::string_view status);
std::vector<uint32_t> pids_of(uint32_t pid);

// A process may call itself otherwise than it is called here: in a container it is process 1. The
// pid here of the one that calls itself `pid` and started then; nothing: it is gone.
std::optional<uint32_t> pid_here(uint32_t pid, uint64_t start_ticks);

// `pid`: as the process calls itself. False for zombies (but not for a process whose main thread
// alone has ended) and for another process that got the same pid. `start_ticks` 0: unknown, the pid
// decides, which is this namespace's.
bool process_is_alive(uint32_t pid, uint64_t start_ticks);

// Dead, and nobody has waited for it yet.
bool is_zombie(uint32_t pid, uint64_t start_ticks);

// A dead child of this process that it has not waited for yet.
bool is_unreaped_child(uint32_t pid);

}  // namespace fragscope::capture
