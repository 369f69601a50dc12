// What `fragscope run` says while the command runs, because it was asked to: a threshold crossed,
// memory that ran out.
//
// Threads: one at a time. Errors: none; what cannot be said or started is warned of.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>

#include "capture/collector.h"
#include "enforce/limits.h"

namespace fragscope::tools {

class RunNews {
 public:
  // `directory`: of the run, as the user wrote it.
  RunNews(std::string directory, const enforce::Limits& limits)
      : directory_(std::move(directory)), on_oom_(limits.on_oom), scope_(limits.scope) {}

  // What it starts is no part of the run that `collector` records.
  void tell(const capture::Collector::News& news, capture::Collector& collector);

  // Explanations are printed by processes of their own, so that logs go on being drained.
  void note_exit(uint32_t pid) { explainers_.erase(static_cast<pid_t>(pid)); }
  bool explaining() const { return !explainers_.empty(); }

 private:
  void tell_oom(uint32_t pid, const log::LogNotices& notices, uint32_t more, uint32_t stops);
  void explain(uint32_t pid, capture::Collector& collector);

  std::string directory_;
  enforce::OnOom on_oom_;
  enforce::LimitScope scope_;
  std::map<uint32_t, log::LogNotices> told_;  // by pid
  std::map<uint32_t, int> lines_;             // about failures, by pid
  std::set<pid_t> explainers_;
};

}  // namespace fragscope::tools
