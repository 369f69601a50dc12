// Interning of Python frames: (function, line) gets an id; a new one is written to the log once, by
// value, since code objects come and go while the process runs.
//
// A frame is known by what it says: the hashes that CPython keeps of its file name, its qualified
// name and its line table, its first line and the instruction. An address that is used again for
// other code is therefore no trap.
//
// Threads: any. Takes no lock, allocates nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "log/log_writer.h"
#include "shim/intern_map.h"

namespace fragscope::shim {

struct PythonRuntime;

class PythonFrames {
 public:
  bool map() noexcept { return ids_.map(size_t{1} << 18); }

  struct Answer {
    size_t count = 0;
    bool truncated = false;  // there are more than `out` holds
    uint64_t hash = 0;       // of the frames
  };
  // The Python frames of the calling thread, innermost first, as kPythonFrame | id; none when it
  // has none or the interpreter is refused (python_runtime.h). `is_main`: the process's first.
  Answer capture(std::span<uint64_t> out, bool is_main, log::LogWriter& writer) noexcept;

 private:
  template <typename Reader>
  void walk(const PythonRuntime& python, uintptr_t thread, std::span<uint64_t> out, Answer& answer,
            log::LogWriter& writer) noexcept;
  template <typename Reader>
  uint32_t id_of(const PythonRuntime& python, uintptr_t code, int instruction,
                 log::LogWriter& writer) noexcept;
  uint32_t intern_line(const PythonRuntime& python, uintptr_t code, int instruction,
                       uint64_t function, log::LogWriter& writer) noexcept;

  InternMap ids_;  // of (function, instruction) and of (function, line)
  std::atomic<uint32_t> next_id_{1};
};

}  // namespace fragscope::shim
