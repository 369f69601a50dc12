#include "diagnose/finding_text.h"

#include <algorithm>
#include <cstdio>

#include "base/bytes.h"
#include "base/text.h"

namespace fragscope::diagnose {
namespace {

using metrics::SceneKind;

constexpr size_t kFrames = 6;
constexpr size_t kShownPins = 4;

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string headline(const metrics::Scene& scene) {
  const std::string at = " at event " + std::to_string(scene.seq);
  switch (scene.kind) {
    case SceneKind::oom:
      return "out of memory" + at;
    case SceneKind::refused:
      return "CUDA refused device memory" + at;
    case SceneKind::pinned_refused:
      return "CUDA refused page-locked memory" + at;
    case SceneKind::peak:
      return "peak" + at;
  }
  return at;
}

void row(std::string& out, const char* what, const std::optional<uint64_t>& bytes,
         bool or_unknown = false) {
  if (!bytes && !or_unknown) return;
  char line[96];
  std::snprintf(line, sizeof line, "  %14s  %s\n", bytes ? format_size(*bytes).c_str() : "unknown",
                what);
  out += line;
}

void frames(std::string& out, const std::string& indent, const std::vector<std::string>& lines) {
  for (size_t i = 0; i < std::min(lines.size(), kFrames); ++i) {
    out += indent + printable(lines[i]) + "\n";
  }
}

void split(std::string& out, const MemorySplit& bytes) {
  const auto some = [](uint64_t value) {
    return value > 0 ? std::optional<uint64_t>(value) : std::nullopt;
  };
  out += "\nwhere the device's memory was\n";
  row(out, "live blocks", bytes.live);
  row(out, "freed, but other streams may still use it", some(bytes.pending));
  row(out, "free between live blocks, usable by this stream and pool", some(bytes.split_rests));
  row(out, "free, but of another stream", some(bytes.other_stream));
  row(out, "free, but of the other pool (small or large)", some(bytes.other_pool));
  row(out, "free, but of a private pool (CUDA graph, MemPool)", some(bytes.private_pool));
  row(out, "free within mapped pages of expandable segments", some(bytes.expandable));
  row(out, "segments in which nothing lives", some(bytes.idle));
  row(out, "this process's other device memory", bytes.outside);
  row(out, "this process's context", bytes.context);
  row(out, "other processes, and what the driver keeps", bytes.elsewhere);
  row(out, "left on the device", bytes.device_free, true);
  row(out, "in total", bytes.total, true);
}

void replay_line(std::string& out, const char* how, const std::optional<BlockReplay>& replayed) {
  if (!replayed) return;
  out += std::string("    replayed, ") + how + ": " +
         (replayed->ooms == 0 ? "no request" : std::to_string(replayed->ooms)) +
         " refused, peak reserved " + format_size(replayed->reserved_peak) + "\n";
}

void pins(std::string& out, const TraceFinding& finding, const StackLines& stack_lines) {
  if (finding.pins.empty()) return;
  out +=
      "\nblocks that keep the most from being used: what would come back without each or "
      "elsewhere\n";
  for (size_t i = 0; i < std::min(finding.pins.size(), kShownPins); ++i) {
    const PinGain& pin = finding.pins[i];
    out += "  block of " + format_size(pin.block.size) + " at " + hex(pin.block.address) +
           ": a free stretch of " + format_size(pin.gap);
    if (pin.releasable > 0) out += ", and its segment could be given back";
    out += "\n";
    replay_line(out, "without it", pin.without);
    replay_line(out, "requested before everything else", pin.moved_first);
    replay_line(out, "in segments of its own", pin.moved_apart);
    frames(out, "    ", stack_lines(pin.block.stack, pin.block.seq));
  }
}

void leaks(std::string& out, const TraceFinding& finding, const StackLines& stack_lines) {
  if (finding.leaks.empty()) return;
  out += "\nplaces that left blocks behind all along the run\n";
  for (const LeakSuspect& leak : finding.leaks) {
    out +=
        "  " + format_size(leak.bytes) + " in " + std::to_string(leak.blocks) + " blocks, " +
        (leak.steps > 0 ? "made in " + std::to_string(leak.steps) + " steps\n"
                        : "from " + std::to_string(leak.windows) + " of " +
                              std::to_string(metrics::Survivors::kWindows) + " parts of the run\n");
    frames(out, "    ", stack_lines(leak.stack, finding.scene.seq));
  }
  out += "  (fragscope attribute: how the run grew from step to step)\n";
}

// The setting that lets every request succeed at the lowest peak, or that none does.
std::string trial_advice(const std::vector<Trial>& trials) {
  const Trial* best = nullptr;
  for (const Trial& trial : trials) {
    if (trial.ooms == 0 && (!best || trial.reserved_peak < best->reserved_peak)) best = &trial;
  }
  if (best) {
    return "Set PYTORCH_CUDA_ALLOC_CONF=" + best->settings +
           ": replayed with it, every request of this recording succeeds, with at most " +
           format_size(best->reserved_peak) +
           " reserved. (What the program would have asked for "
           "after the refusal is not known.)";
  }
  return "No setting helps: with each of the " + std::to_string(trials.size()) +
         " that were replayed, requests of this recording are refused (fragscope advise searches "
         "more).";
}

// Another place for one block, where that alone lets every request succeed.
std::optional<std::string> moving_advice(const std::vector<PinGain>& pins) {
  const auto cures = [](const std::optional<BlockReplay>& replayed) {
    return replayed && replayed->ooms == 0;
  };
  for (const PinGain& pin : pins) {
    if (!cures(pin.moved_first) && !cures(pin.moved_apart)) continue;
    const bool first = cures(pin.moved_first);
    const BlockReplay& replayed = first ? *pin.moved_first : *pin.moved_apart;
    return "Move the block of " + format_size(pin.block.size) + " at " + hex(pin.block.address) +
           " (above): " +
           (first ? "allocate it before the loop, ahead of everything else"
                  : "allocate it from a pool of its own (torch.cuda.MemPool)") +
           ". Replayed so, every request of this recording succeeds, with at most " +
           format_size(replayed.reserved_peak) + " reserved.";
  }
  return std::nullopt;
}

}  // namespace

void adapt_actions(const std::vector<Trial>& trials, TraceFinding& finding) {
  Explanation& explanation = finding.explanation;
  auto& actions = explanation.actions;
  const auto drop = [&](const char* words) {
    actions.erase(
        std::remove_if(actions.begin(), actions.end(),
                       [&](const auto& action) { return action.find(words) != action.npos; }),
        actions.end());
  };
  drop("(fragscope run)");
  if (explanation.verdict != Verdict::kFragmentation || trials.empty()) return;
  drop("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");  // the trials know better
  drop("max_split_size_mb often does not help");
  if (const auto moving = moving_advice(finding.pins)) actions.insert(actions.begin(), *moving);
  actions.insert(actions.begin(), trial_advice(trials));
}

std::string finding_text(const TraceFinding& finding, const std::vector<Trial>& trials,
                         const StackLines& stack_lines) {
  const Explanation& explanation = finding.explanation;
  std::string out =
      "device " + std::to_string(finding.scene.device) + ": " + headline(finding.scene) + "\n";
  if (finding.cause != Cause::none) {
    out += "verdict: " + std::string(verdict_name(explanation.verdict)) +
           ", cause: " + std::string(cause_name(finding.cause)) +
           (finding.stranded_in ? " in " + std::string(stranded_name(*finding.stranded_in)) : "") +
           " (confidence: " + std::string(confidence_name(explanation.confidence)) + ")\n";
  }
  for (const Verdict verdict : explanation.alternatives) {
    out += "or:      " + std::string(verdict_name(verdict)) + "\n";
  }
  frames(out, "  ", stack_lines(finding.scene.stack, finding.scene.seq));
  out += "\nwhy\n";
  for (const std::string& sentence : explanation.why) out += "  " + sentence + "\n";
  if (finding.scene.kind != SceneKind::pinned_refused) split(out, finding.split);
  if (finding.cause != Cause::capacity) pins(out, finding, stack_lines);
  leaks(out, finding, stack_lines);
  if (!trials.empty()) out += "\nother settings, replayed over this recording\n";
  for (const Trial& trial : trials) {
    out += "  " + trial.settings + ": " +
           (trial.ooms == 0 ? "no request refused" : std::to_string(trial.ooms) + " refused") +
           ", peak reserved " + format_size(trial.reserved_peak) + ", " +
           std::to_string(trial.segment_calls) + " segment calls\n";
  }
  if (!explanation.actions.empty()) out += "\nwhat to do\n";
  int number = 0;
  for (const std::string& action : explanation.actions) {
    out += "  " + std::to_string(++number) + ". " + action + "\n";
  }
  return out;
}

}  // namespace fragscope::diagnose
