// Turns what people paste into text that survives their damage: lower case ASCII without white
// space, colours, quoting, box drawing and log prefixes.
//
// Terminals break messages inside words ("Includ\ning"), loggers escape newlines, mails quote them;
// all of that is white space or decoration. With it gone, "Tried to allocate 2.81 GiB" is
// "triedtoallocate2.81gib" however it was damaged, and a phrase is a plain substring.
#pragma once

#include <string>
#include <string_view>

namespace fragscope::diagnose {

class TextSqueezer {
 public:
  // Appends the squeezed form of the next raw bytes to `out`. Any bytes, any piece sizes; memory
  // is bounded by the longest prefix that is examined (one line, at most 4 KiB).
  void feed(std::string_view raw, std::string& out);
  // The rest of an unfinished last line.
  void finish(std::string& out);

 private:
  void squeeze_line(std::string_view line, bool at_line_start, std::string& out);

  std::string pending_;
  bool pending_is_line_start_ = true;
};

// The part of a line that a log prefix takes: time stamps, levels, [rank0]:, (Worker pid=7),
// 3: (srun), vllm-1 | (compose), quoting. 0 when there is none.
size_t log_prefix_length(std::string_view line);

}  // namespace fragscope::diagnose
