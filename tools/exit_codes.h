// The exit codes of `fragscope`, one table for every command. `fragscope run` passes the code of
// the program on (128 + n for a signal) and uses 125 … 127 only when there was no program to run.
#pragma once

#include "base/result.h"

namespace fragscope::tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitNo = 1;      // the answer is "no": a check failed, not possible here
inline constexpr int kExitUsage = 2;   // an option or argument is wrong
inline constexpr int kExitInput = 3;   // input missing, foreign, damaged beyond use or newer
inline constexpr int kExitOutput = 4;  // output cannot be written
inline constexpr int kExitNothingRecorded = 5;  // there is a run, and no event in it
inline constexpr int kExitRunFailed = 125;      // `run` itself failed
inline constexpr int kExitNotExecutable = 126;  // the command is there and cannot be executed
inline constexpr int kExitNotFound = 127;       // the command is not there

// The code for an error that came up while reading something. Whoever writes passes kExitOutput to
// fail() instead.
constexpr int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return kExitUsage;
    case ErrorCode::kNotFound:
    case ErrorCode::kPermission:
    case ErrorCode::kDamaged:
    case ErrorCode::kForeign:
    case ErrorCode::kNewerVersion:
      return kExitInput;
    case ErrorCode::kNoSpace:
      return kExitOutput;
    case ErrorCode::kUnsupported:
    case ErrorCode::kInternal:
      return kExitNo;
  }
  return kExitNo;
}

}  // namespace fragscope::tools
