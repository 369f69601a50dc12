// Stack ids -> lines for people: Python frames first, then native ones. The innermost native frames
// that are the recorder's, CUDA's or the caching allocator's own are left out: they are the same
// everywhere. Of a stack with Python frames the native ones end where the interpreter begins.
//
// Ownership: borrows the symbolizer. Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolize/symbolizer.h"

namespace fragscope::report {

struct StackStyle {
  size_t frames = 8;  // lines of a stack, from the innermost that is not left out
  bool fold = true;   // a run of one framework's frames becomes one line
};

class StackLines {
 public:
  // `symbols`: nullptr leaves every stack empty.
  StackLines(symbolize::Symbolizer* symbols, const StackStyle& style)
      : symbols_(symbols), style_(style) {}

  std::vector<std::string> lines(uint32_t stack, uint64_t seq) const;

 private:
  symbolize::Symbolizer* symbols_;
  StackStyle style_;
};

}  // namespace fragscope::report
