// What a simulated device answers when a program reads values that kernels would have computed
// (answers.def; the user's own rows come first).
//
// A user's file has one row a line, blank lines and '#' comments aside:
//
//   KERNEL BYTES ANSWER [ARGUMENT]     and_kernel_cuda 1 int:0
//                                      DeviceReduce*NonZeroOp 4 items:0.125 2
//
// ANSWER: int:N, real:X, falling, halving, rising, items:FRACTION, count:FRACTION and spread (these
// three need ARGUMENT: its number, or number+offset for a field of it), zero. Pure but for
// add_answers_of_file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fragscope::simcuda {

enum class AnswerKind {
  kInteger,
  kReal,
  kFalling,
  kHalving,
  kRising,
  kItems,
  kCount,
  kLongest,
  kSpread,
  kMask,
  kSelf,
  kCopied,
  kLengths,
  kFill,
  kRows,
  kFlag,
  kArm,
  kConvert,
  kKeep
};

struct AnswerRule {
  std::string id;
  std::string kernel;
  size_t bytes = 0;
  AnswerKind kind = AnswerKind::kInteger;
  double number = 0;
  int argument = 0;
  size_t offset = 0;  // of the number in the argument, in bytes
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

  // A result of this many bytes was copied to elsewhere on the device.
  void copied(size_t bytes) { copied_ = bytes; }
  // The host wrote to the device, or filled some of it.
  void written() { written_ = true; }

  // Writes what a read of this many bytes gets and returns its rule; null: nothing written, zeros.
  const AnswerRule* read(void* to, size_t bytes);

 private:
  static constexpr uint64_t kArmedLaunches = 32;
  static constexpr int kMostHalvings = 100;  // a float still holds it

  uint64_t scalar(size_t bytes);
  bool fits(size_t bytes) const;
  void select(const AnswerRule& rule, void** arguments);
  void remember(const AnswerRule& rule, void** arguments);
  bool lengthens(const AnswerRule& rule, void** arguments);
  void select_self(const AnswerRule& rule, void** arguments);
  double share(const AnswerRule& count) const;
  uint64_t value(size_t at, size_t values, size_t bytes);

  const AnswerRule* rule_ = nullptr;
  uint64_t launches_ = 0;
  uint64_t armed_ = 0;  // launch that armed the flag; 0: none
  uint64_t items_ = 0;
  uint64_t outputs_ = 0;  // of a count: as many values lie side by side
  double share_ = 0;      // of the items, or the truth of a comparison
  uint64_t lengths_ = 0;  // how many rows a mask had when its lengths were last computed
  uint64_t length_ = 0;
  int64_t filled_ = 0;      // the last integer that something was filled with
  uint64_t mask_ = 0;       // launch that made a mask's bools integers; 0: none
  bool converted_ = false;  // what the rule's kernel computed, to another type
  bool written_ = false;    // since the last launch
  size_t copied_ = 0;       // bytes of the last copy since the last launch
  uint64_t falling_ = 0;
  int halvings_ = 0;
  uint64_t rising_ = 0;
};

}  // namespace fragscope::simcuda
