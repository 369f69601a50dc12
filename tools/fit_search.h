// `fragscope fit`: on which cards, under which settings, up to which value does a command fit?
//
// A cell is a card, a setting and a value. The command runs once for each value and compute
// capability, on the largest of the cards asked for that has this capability; the other cells of
// that capability are replayed from the recording: the same requests, with what those cards leave.
// That is exact as long as the program asks for the same whatever the size of the card (capability
// is the same). Where a recording cannot answer (it ended in a refusal, several processes share the
// card, its source knows too little) the cell is run.
//
// For each card and setting the largest value that fits is found by bisection: the need is taken to
// grow with the value.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "simcuda/sim_config.h"
#include "tools/vary.h"

namespace fragscope::tools {

struct FitQuestion {
  std::vector<std::string> gpus;      // presets or sizes, resolved below
  std::vector<std::string> settings;  // PyTorch's key:value,…; empty text: the program's own
  std::optional<Variable> variable;   // absent: the command as it is
  std::vector<std::string> command;
  std::string directory;  // where the recordings go; exists
};

struct FitCell {
  std::string value;
  bool fits = false;
  bool replayed = false;              // else it was run on this card itself
  int exit_code = 0;                  // of the run, or of the run it was replayed from
  uint64_t ooms = 0;                  // requests that are refused
  std::optional<uint64_t> first_oom;  // event of the first one
  std::optional<uint64_t> peak;       // reserved by the framework's allocator, else of CUDA's calls
  std::optional<uint64_t> capacity;   // what the allocator could get of the card
  std::string recording;
};

struct FitRow {
  std::string gpu;
  uint64_t total_bytes = 0;
  std::string settings;
  std::vector<FitCell> cells;      // that were looked at, by index of the value
  std::optional<FitCell> largest;  // that fits
};

struct FitAnswer {
  std::vector<FitRow> rows;
  size_t runs = 0;  // of the command
  size_t replays = 0;
};

// `told`: a line before each run. Errors: kInvalidArgument (a card, a setting, the command's
// words), kInternal when the command cannot be started.
Result<FitAnswer> search_fit(const FitQuestion& question,
                             const std::function<void(const std::string&)>& told);

}  // namespace fragscope::tools
