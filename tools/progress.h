// A progress line on stderr for work that takes longer than a second; only on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fragscope::tools {

class Progress {
 public:
  // `total` 0: unknown; then only the count is shown.
  Progress(std::string what, uint64_t total);
  ~Progress();  // wipes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap: looks at the clock once every some thousand calls.
  void advance(uint64_t done) {
    if (enabled_ && (done & kCheckMask) == 0) show(done);
  }
  // The same for few, long steps: looks at the clock each time.
  void step(uint64_t done) {
    if (enabled_) show(done);
  }

 private:
  static constexpr uint64_t kCheckMask = 0xfff;
  void show(uint64_t done);

  std::string what_;
  uint64_t total_;
  bool enabled_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace fragscope::tools
