// run.fsr/host.jsonl: memory of the host while a run lived, as its collector saw it from outside in
// /proc: of every process of the command, also of those that never touch CUDA and have no trace
// (workers that load data), and of /dev/shm. FORMAT.md describes the file.
//
// Units: bytes, nanoseconds of CLOCK_MONOTONIC. Threads: values. Absent = could not be seen
// (another user's process, no such file system), never 0.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fragscope::trace {

// Name of the n-th such file of a run directory, from 1: each collector writes one of its own.
std::string host_memory_file(unsigned number);

// One process of the command's tree.
struct HostProcess {
  uint32_t pid = 0;
  uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat: as in a trace
  uint32_t parent = 0;
  std::string name;  // /proc/PID/comm, as it was last
};

struct HostUse {
  uint64_t rss = 0;             // resident, shared pages too
  std::optional<uint64_t> pss;  // shared pages by share; sums of it count each page once
  std::optional<uint64_t> shm;  // files of /dev/shm that it maps, without the recorder's own
};

// What the looks since the sample before saw at most (available, cgroup_limit: at least).
struct HostSample {
  uint64_t time_ns = 0;  // of the last of the looks
  uint32_t looks = 0;
  uint64_t processes = 0;
  HostUse tree;                       // sums over the command's processes; files of shm once
  uint64_t shm_unlinked = 0;          // of tree.shm: files without a name, gone with their users
  std::optional<uint64_t> shm_used;   // of the whole file system, whoever uses it
  std::optional<uint64_t> shm_total;  // its size
  uint64_t recorder = 0;              // of shm_used: logs of this run and the simulated GPU's
  std::optional<uint64_t> available;  // MemAvailable of the machine
  // Of the control group with least room: a container's limit, absent where there is none.
  std::optional<uint64_t> cgroup_used;
  std::optional<uint64_t> cgroup_limit;
  std::map<uint32_t, HostUse> by_process;  // key: index into HostMemory::processes
};

struct HostMemory {
  uint64_t interval_ns = 0;  // between looks, at least
  std::vector<HostProcess> processes;
  std::vector<HostSample> samples;
  std::string problem;  // where reading ended before the end of a damaged file; empty: nowhere
};

// The most (available, cgroup_limit: the least) of everything in `samples`.
HostSample peak_of(const std::vector<HostSample>& samples);
// Folds `more` into `sample`: the higher figures, the later time, the sum of the looks.
void fold(const HostSample& more, HostSample& sample);

// Lines of the file.
std::string host_header_line(uint64_t interval_ns);
std::string host_process_line(uint32_t index, const HostProcess& process);
std::string host_sample_line(const HostSample& sample);

// What a run directory holds of it, of all its collectors one after the other; no samples when
// there is no such file. A last line that is cut is left out. Errors: kForeign, kNewerVersion,
// kPermission.
Result<HostMemory> read_host_memory(const std::string& directory);

}  // namespace fragscope::trace
