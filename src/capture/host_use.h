// What /proc tells of the memory of processes, from outside: nothing is asked of them.
//
// Threads: any. Errors: none; what cannot be read is absent or empty. Units: bytes.
// Sources: proc(5); Documentation/filesystems/proc.rst.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fragscope::capture {

// A file of a shared memory file system that a process maps.
struct MappedFile {
  std::string id;  // device and inode: two names of one file are one
  std::string path;
  bool unlinked = false;    // it has no name any more: its memory goes with its last user
  uint64_t mapped_end = 0;  // how far into the file mappings of the process reach
};

// Of the text of /proc/PID/smaps_rollup.
std::optional<uint64_t> parse_pss(std::string_view text);
// Of /proc/meminfo.
std::optional<uint64_t> parse_available(std::string_view text);
// Of /proc/PID/maps: files below `directory`, one entry per file.
std::vector<MappedFile> parse_mapped_files(std::string_view text, std::string_view directory);

// The whole of a file of /proc; nothing when it cannot be read.
std::optional<std::string> read_proc(const std::string& path);

// Resident bytes of a process; nothing when it is gone or has no memory (a zombie).
std::optional<uint64_t> resident_bytes(uint32_t pid);

// `root` and all its descendants, each once, parents first, without `left_out` and what descends
// from these alone. Processes that start or end meanwhile may be missed.
std::vector<uint32_t> process_tree(uint32_t root, const std::set<uint32_t>& left_out = {});

}  // namespace fragscope::capture
