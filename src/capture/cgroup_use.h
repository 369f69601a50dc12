// Limits on the memory of a control group (a container, a Slurm step, a pod), and how much of one
// is used: what a process may have is the least of them and of what the machine has left.
//
// Threads: any. Errors: none; what cannot be read is absent. Units: bytes.
// Sources: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst; proc(5), mountinfo.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fragscope::capture {

struct CgroupMount {
  int version = 2;    // 1: the memory controller of the old kind
  std::string root;   // the group that lies at `point`, as /proc/PID/cgroup writes it
  std::string point;  // where it is mounted
};

struct CgroupUse {
  std::optional<uint64_t>
      used;  // without page cache that can be dropped, as docker and Kubernetes count
  std::optional<uint64_t> limit;  // absent: it has none
};

// Of the text of /proc/PID/mountinfo: where memory is accounted for.
std::vector<CgroupMount> parse_cgroup_mounts(std::string_view mountinfo);

// Of the group named by `text` (/proc/PID/cgroup) and those above it: the one with least room; of
// none with a limit, the group itself. Nothing where no group accounts for memory.
std::optional<CgroupUse> tightest_cgroup(std::string_view text,
                                         const std::vector<CgroupMount>& mounts);

// The one with less room.
std::optional<CgroupUse> tighter(const std::optional<CgroupUse>& a,
                                 const std::optional<CgroupUse>& b);

}  // namespace fragscope::capture
