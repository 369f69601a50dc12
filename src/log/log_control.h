// What can be asked of a recorded process through its log: to pause, to go on, to log a mark; and
// of its collector: to write all to disk. Nothing in the process is interrupted and no port is
// opened; whoever may write the file may ask.
//
// Ownership: owns descriptor and mapping. Threads: one at a time; other processes may ask
// meanwhile. Errors: those of SharedRegion::open; kForeign, kNewerVersion, kUnsupported (a log of
// version 1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "log/log_layout.h"
#include "log/shared_region.h"

namespace fragscope::log {

class LogControl {
 public:
  static Result<LogControl> open(const std::string& path);

  // Before: whether it was paused.
  bool set_paused(bool paused);
  bool paused() const;
  // Events that were not recorded while it was paused.
  uint64_t skipped_events() const;

  // The mark appears in the log with the process's next event; longer texts are cut. kUnsupported:
  // the one before has not been taken yet.
  Status request_mark(std::string_view text);

  // Who carries out settings there; `none` also for logs of version 2.
  Enforcement enforcement() const;
  // The number of the request, which settings_answer() waits for. kInvalidArgument: too long;
  // kUnsupported: the one before has not been taken yet, or the log is of version 2.
  Result<uint32_t> request_settings(std::string_view text);
  struct SettingsAnswer {
    bool accepted = false;
    bool replaced = false;  // taken; a later request came before the answer was read
    std::string text;       // why not
  };
  // nullopt: not taken yet.
  std::optional<SettingsAnswer> settings_answer(uint32_t number) const;

  // The number of the request, which the collector repeats in flush_done() when all that was in the
  // log by then is in the trace file.
  uint64_t request_flush();
  uint64_t flush_done() const;

  // Some collector holds the log (it drains it).
  bool has_collector() const;
  int fd() const { return region_.fd(); }

 private:
  explicit LogControl(SharedRegion region) : region_(std::move(region)) {}
  LogHeader& header() const { return *reinterpret_cast<LogHeader*>(region_.data()); }

  SharedRegion region_;
};

// Claims a log for the one collector that may drain it, for as long as `fd` is open: an open file
// description lock on its first byte. False: another one has it. (Marks are under flock(), which is
// another lock.)
bool claim_log(int fd) noexcept;
bool is_claimed(int fd) noexcept;

}  // namespace fragscope::log
