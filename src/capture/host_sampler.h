// Looks at the memory of a run's processes from outside, again and again, and writes what it saw to
// host.jsonl (trace/host_memory.h): the whole tree of the command, so also workers that load data
// and never touch CUDA, and /dev/shm, through which they hand it over.
//
// Looking costs the collector's time alone, at most a fiftieth of one core: a look that took long
// makes the next one wait. Short runs are looked at more often, and long ones are written down less
// often (a line per thousandth of the time passed, with the most that was seen since the line
// before), so that a file stays below a few MB.
//
// The file is made when a process of the run records; a run that records nothing leaves none.
//
// Ownership: the file. Threads: one at a time. Errors: poll() and finish() report a refusing disk
// once; from then on nothing is written.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "capture/cgroup_use.h"
#include "capture/trace_file.h"
#include "trace/host_memory.h"

namespace fragscope::capture {

struct HostSamplerOptions {
  std::string run_directory;
  std::string log_directory;  // its files are the recorder's own, not the command's
  std::string shm_directory = "/dev/shm";
  uint64_t interval_ns = 0;  // between looks
  // Whose descendants belong to the command. This process itself is left out.
  uint32_t root = 0;
};

class HostSampler {
 public:
  explicit HostSampler(HostSamplerOptions options);

  // Looks if it is time to. `now_ns`: CLOCK_MONOTONIC; `recording`: write, do not only remember.
  Status poll(uint64_t now_ns, bool recording);
  // A child of the root that belongs to the recorder, not to the command.
  void leave_out(uint32_t pid) { left_out_.insert(pid); }
  // Its number may be another process's from now on.
  void forget(uint32_t pid) { left_out_.erase(pid); }
  // Writes what has not been written yet.
  Status finish(bool recording);

 private:
  using Identity = std::pair<uint32_t, uint64_t>;  // pid, start_ticks
  struct ShmFiles {
    std::map<std::string, uint64_t> bytes;  // by device and inode
    uint64_t unlinked = 0;
  };

  trace::HostSample look(uint64_t now_ns);
  void look_at(uint32_t pid, trace::HostSample& sample, ShmFiles& all);
  uint32_t index_of(uint32_t pid, const Identity& identity, uint32_t parent,
                    const std::string& name);
  std::optional<uint64_t> mapped_shm(uint32_t pid, ShmFiles& all) const;
  void add_named_files(const std::vector<uint32_t>& tree, ShmFiles& all) const;
  void look_at_file_system(trace::HostSample& sample) const;
  void look_at_cgroups(const std::vector<uint32_t>& tree, trace::HostSample& sample) const;
  void end_line();
  Status open_file();
  Status write_lines();

  HostSamplerOptions options_;
  std::unique_ptr<TraceFile> file_;
  bool refused_ = false;
  uint64_t first_ns_ = 0;
  uint64_t next_look_ns_ = 0;
  uint64_t last_line_ns_ = 0;
  trace::HostSample pending_;  // looks == 0: nothing
  std::string lines_;          // not written yet
  std::vector<trace::HostProcess> processes_;
  std::vector<bool> written_;  // processes_[i] as it is now is in a line
  std::map<Identity, uint32_t> indices_;
  std::set<uint32_t> left_out_;
  std::vector<CgroupMount> cgroup_mounts_;
};

}  // namespace fragscope::capture
