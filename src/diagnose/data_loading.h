// What loading data cost a run, against what is said about it: popular rules with their numbers,
// and a number of workers from what was measured.
//
// A rule is `holds`, `fails`, or undecidable where the run does not show what it speaks of. Sources
// of the facts behind the sentences: PyTorch pins in one thread of the process that trains, each
// tensor in a power-of-two block that it keeps; workers do not pin. Pinned memory is host memory.
//
// Units: bytes, seconds. Threads: pure functions. What was not seen is absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fragscope::diagnose {

struct LoadingFacts {
  bool simulated = false;  // the card's times are not those of a card
  // The trainer: the process that made CUDA calls and held most of the device.
  std::optional<uint64_t> card_bytes;      // of its device
  std::optional<uint64_t> pinned_peak;     // by CUDA's calls
  std::optional<uint64_t> pinned_torch;    // of it PyTorch's host allocator
  std::optional<uint64_t> pinned_padding;  // of that rounding, at most
  std::optional<uint64_t> batch_bytes;     // inputs of one step on the device
  std::optional<double> step_seconds;      // median
  std::optional<double> wait_seconds;      // for data, in a step: ranges named so; mean
  bool device_refused = false;             // an allocation on the device failed
  bool host_refused = false;               // page-locked memory was refused
  // Workers: processes that the trainer started and that load data; absent: nobody looked.
  std::optional<uint64_t> workers;              // most at one time
  bool looked_too_seldom = false;               // why `workers` is absent: none seen in few looks
  std::optional<uint64_t> workers_with_device;  // of them: made CUDA calls of their own
  std::optional<uint64_t> worker_bytes;         // PSS (else RSS) of the largest, beside /dev/shm
  std::optional<uint64_t> shm_peak;             // /dev/shm of the command
  std::optional<uint64_t> shm_total;
  std::optional<uint64_t> available_least;  // memory that the machine had left
  uint64_t cores = 0;                       // of the machine that is asked about; 0: unknown
};

enum class RuleVerdict : uint8_t { holds, fails, undecidable };
std::string_view rule_verdict_name(RuleVerdict verdict);  // "true", "false", "undecidable"

struct LoadingRule {
  std::string name;  // "256_mb_per_worker", "halve_workers", "no_pinning_up_to_8gb"
  std::string says;  // the rule
  RuleVerdict verdict = RuleVerdict::undecidable;
  std::optional<uint64_t> bytes;  // the number it is held against
  std::string why;
};

// A source of a number of workers: from … to.
struct WorkerCount {
  std::string name;
  std::optional<uint64_t> least;
  std::optional<uint64_t> most;  // absent with `least`: it does not say for this run
  std::optional<bool> pinning;
};

struct LoadingAdvice {
  // What workers x prefetch_factor (PyTorch's default) x inputs of a step come to.
  std::optional<uint64_t> in_flight_bytes;
  std::vector<LoadingRule> rules;
  std::vector<WorkerCount> counts;  // get_optimal_workers, by cores, by card, by host memory …
  std::optional<uint64_t> recommended;
  std::vector<std::string> reasons;
};

// get_optimal_workers of the tutorial: up to 4 cores one less, else half of them, at most 8.
uint64_t tutorial_workers(uint64_t cores);

LoadingAdvice advise_loading(const LoadingFacts& facts);
std::string loading_text(const LoadingFacts& facts, const LoadingAdvice& advice);

}  // namespace fragscope::diagnose
