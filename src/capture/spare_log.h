// Keeps a small log ready in the log directory of a run (log/shared_region.h): a process of the
// command whose limit on files lets it make none takes that one.
//
// Ownership: the file, as long as nobody has taken it. Threads: one at a time. Errors: none; where
// there is no room for it there is none.
#pragma once

#include <string>

namespace fragscope::capture {

class SpareLog {
 public:
  explicit SpareLog(std::string directory);
  ~SpareLog();
  SpareLog(const SpareLog&) = delete;
  SpareLog& operator=(const SpareLog&) = delete;

  // Makes one when there is none, or none any more.
  void keep();

 private:
  std::string path_;
};

}  // namespace fragscope::capture
