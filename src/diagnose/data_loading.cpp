#include "diagnose/data_loading.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/bytes.h"

namespace fragscope::diagnose {
namespace {

constexpr uint64_t kRulePinned = 256 * kMiB;
constexpr double kAbout = 0.25;           // "about 256 MB": within a quarter
constexpr uint64_t kPrefetch = 2;         // PyTorch's default prefetch_factor
constexpr double kMemoryShare = 0.5;      // of the memory that is left may go to workers
constexpr double kNoticeableWait = 0.05;  // of a step
constexpr double kPinningShare = 0.1;     // of the memory that is left: pinning hurts
// Cards are sold by names that are a little above what CUDA reports.
constexpr uint64_t kSmallCard = 9 * kGiB;
constexpr uint64_t kMiddleCard = 17 * kGiB;

constexpr const char* kTooSeldom =
    "no worker was seen, but the processes were looked at too seldom to say that there was none: "
    "record a longer run";

std::string size(uint64_t bytes) { return format_size(bytes); }

LoadingRule pinned_per_worker(const LoadingFacts& facts) {
  LoadingRule rule;
  rule.name = "256_mb_per_worker";
  rule.says = "each worker takes 256 MB of pinned memory";
  if (!facts.pinned_peak || !facts.workers) {
    rule.why = facts.looked_too_seldom
                   ? kTooSeldom
                   : "the recording does not tell pinned memory and the number of workers";
    return rule;
  }
  const uint64_t pinned = facts.pinned_torch.value_or(*facts.pinned_peak);
  rule.bytes = pinned;
  if (*facts.workers == 0) {
    rule.why = "there were no workers; " + size(pinned) + " were pinned";
    return rule;
  }
  const double each = static_cast<double>(pinned) / static_cast<double>(*facts.workers);
  const bool about = std::abs(each - static_cast<double>(kRulePinned)) <=
                     kAbout * static_cast<double>(kRulePinned);
  rule.verdict = about ? RuleVerdict::holds : RuleVerdict::fails;
  rule.why = size(pinned) + " were pinned at most with " + std::to_string(*facts.workers) +
             " workers, " + size(static_cast<uint64_t>(each)) + " for each; the rule says " +
             size(kRulePinned * *facts.workers) +
             ". The process that trains pins, not its workers: what counts are bytes of a batch, "
             "rounded up to powers of two, times batches in flight";
  if (facts.pinned_padding)
    rule.why += " (of it rounding at most " + size(*facts.pinned_padding) + ")";
  return rule;
}

LoadingRule halve_workers(const LoadingFacts& facts) {
  LoadingRule rule;
  rule.name = "halve_workers";
  rule.says = "when memory runs out, halve the workers first";
  if (!facts.workers) {
    rule.why = facts.looked_too_seldom ? kTooSeldom : "nobody looked at the processes of this run";
    return rule;
  }
  const uint64_t halved = *facts.workers - *facts.workers / 2;
  if (*facts.workers == 0) {
    rule.verdict = RuleVerdict::fails;
    rule.bytes = 0;
    rule.why = "there are no workers to halve";
    return rule;
  }
  const uint64_t shm = facts.shm_peak.value_or(0);
  const uint64_t host = halved * facts.worker_bytes.value_or(0) + shm * halved / *facts.workers;
  const uint64_t on_device = facts.workers_with_device.value_or(0);
  rule.bytes = host;
  const std::string frees = "ending " + std::to_string(halved) + " of " +
                            std::to_string(*facts.workers) + " workers frees about " + size(host) +
                            " of the host's memory";
  if (on_device > 0) {
    rule.verdict = facts.device_refused ? RuleVerdict::holds : RuleVerdict::undecidable;
    rule.why = std::to_string(on_device) +
               " workers made CUDA calls of their own: each has a context and an allocator on the "
               "device, which it should not; " +
               frees;
  } else if (facts.device_refused) {
    rule.verdict = RuleVerdict::fails;
    rule.why = frees +
               " and nothing of the device's: no worker made a CUDA call, and what was "
               "refused here was device memory";
  } else if (facts.host_refused) {
    rule.verdict = RuleVerdict::holds;
    rule.why = frees + ", and it was host memory that was refused here";
  } else {
    rule.why = "nothing was refused in this run; " + frees + ", and nothing of the device's";
  }
  return rule;
}

LoadingRule no_pinning(const LoadingFacts& facts) {
  LoadingRule rule;
  rule.name = "no_pinning_up_to_8gb";
  rule.says = "no pinning on cards up to 8 GB";
  if (!facts.card_bytes || !facts.pinned_peak) {
    rule.why = "the recording does not tell the card or the pinned memory";
    return rule;
  }
  rule.bytes = *facts.pinned_peak;
  if (*facts.card_bytes > kSmallCard) {
    rule.why = "this card has " + size(*facts.card_bytes) + ": the rule does not speak of it";
    return rule;
  }
  if (*facts.pinned_peak == 0) {
    rule.why = "nothing was pinned in this run";
    return rule;
  }
  const std::string cost = size(*facts.pinned_peak) +
                           " were pinned: memory of the host. On the device it takes nothing, "
                           "whatever the size of the card";
  const bool dear =
      facts.available_least && static_cast<double>(*facts.pinned_peak) >
                                   kPinningShare * static_cast<double>(*facts.available_least);
  rule.verdict = facts.host_refused || dear ? RuleVerdict::holds : RuleVerdict::fails;
  rule.why = cost;
  if (facts.host_refused) {
    rule.why += "; but page-locked memory was refused here";
  } else if (dear) {
    rule.why += "; but the host had only " + size(*facts.available_least) + " left";
  } else if (facts.available_least) {
    rule.why += "; the host had " + size(*facts.available_least) + " left at the least";
  }
  return rule;
}

WorkerCount by_cores(uint64_t cores) {
  WorkerCount count{"ranges by CPU and disk", std::nullopt, std::nullopt, std::nullopt};
  if (cores == 0) return count;
  if (cores <= 4) {
    count.least = 2, count.most = 4;
  } else if (cores <= 16) {
    count.least = 4, count.most = 8;
  } else {
    count.least = 8, count.most = 16;
  }
  return count;
}

WorkerCount by_card(const std::optional<uint64_t>& bytes) {
  WorkerCount count{"table by card", std::nullopt, std::nullopt, std::nullopt};
  if (!bytes) return count;
  count.pinning = *bytes > kSmallCard;
  if (*bytes <= kSmallCard) {
    count.least = 2, count.most = 4;
  } else if (*bytes <= kMiddleCard) {
    count.least = 4, count.most = 6;
  } else {
    count.least = 8, count.most = 16;
  }
  return count;
}

// Workers that fit into what the machine had left, with those that it had.
std::optional<uint64_t> by_memory(const LoadingFacts& facts) {
  if (!facts.available_least || !facts.worker_bytes || !facts.workers) return std::nullopt;
  const uint64_t each = *facts.worker_bytes + kPrefetch * facts.batch_bytes.value_or(0);
  if (each == 0) return std::nullopt;
  const double room = static_cast<double>(*facts.available_least) * kMemoryShare;
  return *facts.workers + static_cast<uint64_t>(room / static_cast<double>(each));
}

std::optional<uint64_t> by_shm(const LoadingFacts& facts) {
  if (!facts.shm_total || !facts.batch_bytes || *facts.batch_bytes == 0) return std::nullopt;
  return *facts.shm_total / (kPrefetch * *facts.batch_bytes);
}

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", 1000 * value);
  return text;
}

// What the loop needs so that it does not wait, by the waiting that was measured.
std::optional<uint64_t> by_waiting(const LoadingFacts& facts, LoadingAdvice& advice) {
  if (facts.simulated) {
    advice.reasons.push_back(
        "steps on a simulated card take no time: how long the loop waits for data is not known; "
        "record a run on the card itself");
    return std::nullopt;
  }
  if (!facts.step_seconds || !facts.wait_seconds || !facts.workers) {
    advice.reasons.push_back(
        "how long the loop waits for data was not measured: put an NVTX range named \"data\" "
        "around the call that gets a batch");
    return std::nullopt;
  }
  const double step = *facts.step_seconds;
  const double wait = std::min(*facts.wait_seconds, step);
  const uint64_t now = *facts.workers;
  if (wait <= kNoticeableWait * step) {
    advice.reasons.push_back("a step takes " + seconds(step) + ", of it " + seconds(wait) +
                             " waiting for data: " + std::to_string(now) + " workers are enough");
    return now;
  }
  const double busy = std::max(step - wait, 0.01 * step);
  const auto needed = static_cast<uint64_t>(
      std::ceil(static_cast<double>(std::max<uint64_t>(now, 1)) * step / busy));
  advice.reasons.push_back("a step takes " + seconds(step) + ", of it " + seconds(wait) +
                           " waiting for data: " + std::to_string(now) +
                           " workers deliver a batch in " + seconds(step) + ", " +
                           std::to_string(needed) + " would in " + seconds(busy));
  return needed;
}

void recommend(const LoadingFacts& facts, LoadingAdvice& advice) {
  std::optional<uint64_t> wanted = by_waiting(facts, advice);
  if (!wanted && facts.cores > 0) {
    wanted = tutorial_workers(facts.cores);
    advice.reasons.push_back("without that, get_optimal_workers is where to start: " +
                             std::to_string(*wanted));
  }
  if (!wanted) return;
  const auto limit = [&](const std::optional<uint64_t>& most, const std::string& what) {
    if (!most || *wanted <= *most) return;
    wanted = *most;
    advice.reasons.push_back("not more than " + std::to_string(*most) + ": " + what);
  };
  if (facts.cores > 0) {
    limit(std::max<uint64_t>(facts.cores - 1, 1),
          "a core each, and one for the process that trains");
  }
  limit(by_memory(facts), "half of the memory that the host had left");
  limit(by_shm(facts), "/dev/shm holds " + std::to_string(kPrefetch) + " batches for each");
  advice.recommended = wanted;
}

void row(std::string& out, const char* what, const std::optional<uint64_t>& bytes) {
  if (!bytes) return;
  char figure[24];
  std::snprintf(figure, sizeof figure, "  %14s  ", size(*bytes).c_str());
  out += figure + std::string(what) + "\n";
}

}  // namespace

std::string_view rule_verdict_name(RuleVerdict verdict) {
  constexpr std::array<std::string_view, 3> kNames = {"true", "false", "undecidable"};
  return kNames[static_cast<size_t>(verdict)];
}

uint64_t tutorial_workers(uint64_t cores) {
  if (cores <= 4) return cores > 1 ? cores - 1 : 0;
  return std::min<uint64_t>(cores / 2, 8);
}

LoadingAdvice advise_loading(const LoadingFacts& facts) {
  LoadingAdvice advice;
  if (facts.workers && facts.batch_bytes) {
    advice.in_flight_bytes = *facts.workers * kPrefetch * *facts.batch_bytes;
  }
  advice.rules = {pinned_per_worker(facts), halve_workers(facts), no_pinning(facts)};
  WorkerCount tutorial{"get_optimal_workers", std::nullopt, std::nullopt, std::nullopt};
  if (facts.cores > 0) tutorial.least = tutorial.most = tutorial_workers(facts.cores);
  advice.counts = {tutorial, by_cores(facts.cores), by_card(facts.card_bytes)};
  advice.counts.push_back({"host memory", std::nullopt, by_memory(facts), std::nullopt});
  advice.counts.push_back({"/dev/shm", std::nullopt, by_shm(facts), std::nullopt});
  advice.counts.push_back(
      {"this run", facts.workers, facts.workers,
       facts.pinned_peak ? std::optional<bool>(*facts.pinned_peak > 0) : std::nullopt});
  recommend(facts, advice);
  return advice;
}

std::string loading_text(const LoadingFacts& facts, const LoadingAdvice& advice) {
  std::string out = "what loading data cost\n";
  row(out, "pinned at most (host memory)", facts.pinned_peak);
  row(out, "of it PyTorch's host allocator", facts.pinned_torch);
  row(out, "of that rounding to powers of two, at most", facts.pinned_padding);
  row(out, "inputs of a step on the device", facts.batch_bytes);
  if (facts.workers) out += "  " + std::to_string(*facts.workers) + " workers at one time\n";
  row(out, "memory of the largest worker", facts.worker_bytes);
  row(out, "of /dev/shm at most", facts.shm_peak);
  row(out, "batches in flight: workers x prefetch_factor (2, if it is PyTorch's default) x inputs",
      advice.in_flight_bytes);
  row(out, "left on the host at the least", facts.available_least);
  out += "\nwhat is said\n";
  for (const LoadingRule& rule : advice.rules) {
    out += "  \"" + rule.says + "\": " + std::string(rule_verdict_name(rule.verdict)) + "\n    " +
           rule.why + "\n";
  }
  out += "\nworkers\n";
  for (const WorkerCount& count : advice.counts) {
    std::string range = "does not say";
    if (count.least && count.most && *count.least == *count.most) {
      range = std::to_string(*count.least);
    } else if (count.least && count.most) {
      range = std::to_string(*count.least) + " to " + std::to_string(*count.most);
    } else if (count.most) {
      range = "at most " + std::to_string(*count.most);
    }
    if (count.pinning) range += *count.pinning ? ", pinning" : ", no pinning";
    out += "  " + count.name + ": " + range + "\n";
  }
  if (advice.recommended) {
    out += "  recommended: " + std::to_string(*advice.recommended) + "\n";
  } else {
    out += "  recommended: nothing, the recording tells too little\n";
  }
  for (const std::string& reason : advice.reasons) out += "    " + reason + "\n";
  return out;
}

}  // namespace fragscope::diagnose
