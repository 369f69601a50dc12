// Addresses of a recorded process -> functions and lines, offline, from the files that were mapped
// into it. The one owner of elfutils.
//
// A frame is a return address: the instruction before it is looked up. Which file lies at an
// address is told by the trace's module list (an entry holds from its first_seq until a later one
// overlaps it). A file whose build-id is not the recorded one is not asked for names: its frames
// read `module+0xoffset`, and warnings() says so. Without DWARF there are function names only,
// without symbols `module+0xoffset`. Nothing is fetched from anywhere, unless debuginfod is asked
// for. Python frames are named by the trace itself.
//
// Ownership: borrows the tables, which must outlive it; may be used while they grow. Threads: one
// at a time. Errors: none; what cannot be told stays empty.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trace/trace_data.h"

namespace fragscope::symbolize {

// Where files of the recorded machine are found on this one.
struct Places {
  std::string sysroot;                   // put before the recorded paths; empty: none
  std::vector<std::string> debug_paths;  // with .build-id/xx/… below, beside /usr/lib/debug
  bool debuginfod = false;               // ask the servers of DEBUGINFOD_URLS too
};

struct Frame {
  bool python = false;   // a line of Python code: function, file, line; no address
  bool inlined = false;  // into the frame that follows, with which it shares the address
  uint64_t address = 0;  // as recorded: the return address
  std::string module;    // path of the file; empty: unknown
  uint64_t offset = 0;   // in the file's own addresses (as nm and addr2line take them)
  std::string function;  // demangled; empty: unknown
  std::string file;      // source; empty: unknown
  int line = 0;          // 0: unknown
};

// "at::empty_cuda (Empty.cpp:31)", "at::empty_cuda [libtorch_cuda.so]", "libfoo.so+0x1234",
// "0x7f0012345678": one line, without the function's parameters.
std::string frame_text(const Frame& frame);

// Of a framework, an interpreter or a runtime rather than of the program: what a summary may fold.
// Python: the standard library and installed packages; native: the interpreter itself, PyTorch,
// CUDA, the C and C++ libraries, the recorder.
bool is_framework(const Frame& frame);

// "PyTorch", "the interpreter", "the C library" or nothing: whose a native function is that is
// known by its name alone, as snapshots know them.
std::string_view framework_of_function(const std::string& function);

class Symbolizer {
 public:
  explicit Symbolizer(const trace::TraceTables& tables, Places places = {});
  Symbolizer(Symbolizer&&) noexcept;
  Symbolizer& operator=(Symbolizer&&) noexcept;
  ~Symbolizer();

  // `seq`: of the event that the addresses belong to. Inlined functions are frames of their own.
  std::vector<Frame> resolve(std::span<const uint64_t> frames, uint64_t seq);
  // A stack of the tables, innermost frame first; empty for kNoStack and unknown ids.
  std::vector<Frame> resolve_stack(uint32_t stack, uint64_t seq);

  // One line for each file that could not be used: gone, another build, not ELF.
  const std::vector<std::string>& warnings() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fragscope::symbolize
