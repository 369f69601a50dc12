// What a simulated device answers when a program reads values that kernels would have computed
// (answers.def; the user's own rows come first).
//
// A user's file has one row a line, blank lines and '#' comments aside:
//
//   KERNEL BYTES ANSWER [ARGUMENT]     and_kernel_cuda 1 int:0
//                                      DeviceReduce*NonZeroOp 4 items:0.125 2
//
// ANSWER: int:N, real:X, falling, items:FRACTION (needs ARGUMENT), zero. Pure but for read_answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fragscope::simcuda {

enum class AnswerKind { kInteger, kReal, kFalling, kItems, kFlag, kArm, kKeep };

struct AnswerRule {
  std::string id;
  std::string kernel;
  size_t bytes = 0;
  AnswerKind kind = AnswerKind::kInteger;
  double number = 0;
  int argument = 0;
};

class AnswerTable {
 public:
  AnswerTable();  // answers.def

  // Puts the rows of a file before all others. kInvalidArgument names the line.
  Status add(std::string_view text, const std::string& source);

  // The rule of a kernel; null: none. The pointer lives as long as the table.
  const AnswerRule* find(std::string_view kernel) const;

 private:
  std::vector<AnswerRule> rules_;
};

Status add_answers_of_file(AnswerTable& table, const std::string& path);

// The answers of one device. Threads: callers lock.
class Answers {
 public:
  // `arguments` as cuLaunchKernel takes them, or null.
  void launched(const AnswerRule* rule, void** arguments);

  struct Answer {
    const AnswerRule* rule;
    uint64_t bits;  // in the low bytes
  };
  // What a read of this many bytes gets; none: zeros.
  std::optional<Answer> read(size_t bytes);

 private:
  static constexpr uint64_t kArmedLaunches = 32;

  const AnswerRule* rule_ = nullptr;
  uint64_t launches_ = 0;
  uint64_t armed_ = 0;  // launch that armed the flag; 0: none
  uint64_t items_ = 0;
  uint64_t falling_ = 0;
};

}  // namespace fragscope::simcuda
