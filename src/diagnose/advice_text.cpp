#include "diagnose/advice_text.h"

#include <algorithm>
#include <cstdio>

#include "base/bytes.h"

namespace fragscope::diagnose {
namespace {

constexpr size_t kFrontRows = 8;
constexpr size_t kWorseRows = 3;

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100.0 * share);
  return text;
}

// How much of `whole` lies above `part`.
double excess(uint64_t whole, uint64_t part) {
  if (whole == 0 || part > whole) return 0;
  return static_cast<double>(whole - part) / static_cast<double>(whole);
}

std::string name_of(const TriedSettings& tried) {
  return tried.settings.empty() ? "(default)" : tried.settings;
}

void row(std::string& out, const TriedSettings& tried, const char* mark) {
  char line[96];
  std::snprintf(line, sizeof line, "  %12s %10llu %6llu  ",
                format_size(tried.reserved_peak).c_str(),
                static_cast<unsigned long long>(tried.segment_calls),
                static_cast<unsigned long long>(tried.ooms));
  out += line + name_of(tried) + mark + "\n";
}

// The front, the default and the recorded settings, and the worst.
void table(std::string& out, const Advice& advice) {
  out +=
      "  peak reserved      calls   OOMs  settings  (calls: cudaMalloc + cudaFree, or pages "
      "mapped + unmapped)\n";
  size_t shown = 0;
  for (const TriedSettings& tried : advice.tried) {
    if (!tried.on_pareto_front || shown == kFrontRows) continue;
    ++shown;
    const bool best = advice.best && advice.best->settings == tried.settings;
    row(out, tried, best ? "   <- advised" : "");
  }
  if (advice.best && !advice.best->on_pareto_front) row(out, *advice.best, "   <- advised");
  if (!advice.default_settings.on_pareto_front) row(out, advice.default_settings, "");
  const TriedSettings& recorded = advice.recorded_settings;
  if (!recorded.settings.empty()) row(out, recorded, "   (as recorded)");
}

void worse(std::string& out, const Advice& advice) {
  size_t shown = 0;
  for (auto tried = advice.tried.rbegin(); tried != advice.tried.rend(); ++tried) {
    if (tried->options > 1 || !better(advice.default_settings, *tried, Objective::peak)) continue;
    if (shown++ == 0) out += "\nworse than the default here\n";
    row(out, *tried, "");
    if (shown == kWorseRows) return;
  }
}

void remedies(std::string& out, const Advice& advice) {
  const uint64_t live = advice.shares.kept + advice.shares.returned;
  out += "\nwhat no setting can give: " + format_size(advice.live_peak) + " are live at the peak\n";
  const auto part = [&](uint64_t bytes) {
    return format_size(bytes) + " (" +
           percent(live == 0 ? 0.0 : static_cast<double>(bytes) / static_cast<double>(live)) + ")";
  };
  const std::string returned =
      "  " + part(advice.shares.returned) +
      " are given back later in the recording (activations, gradients, workspaces): smaller batch "
      "with accumulation, activation checkpointing, mixed precision\n";
  const std::string kept = "  " + part(advice.shares.kept) +
                           " stay to its end (weights, optimizer state, or a leak): 8-bit or "
                           "sharded optimizer, offload, "
                           "smaller model; fragscope explain tells leaks\n";
  out += advice.shares.returned >= advice.shares.kept ? returned + kept : kept + returned;
}

}  // namespace

std::string advice_text(const Advice& advice, const std::string& variable) {
  std::string out;
  const TriedSettings& otherwise = advice.default_settings;
  if (advice.best) {
    out += "  export " + variable + "=" + advice.best->settings + "\n\n";
    out += "replayed: " + format_size(advice.best->reserved_peak) +
           " reserved at the peak instead of " + format_size(otherwise.reserved_peak) + ", " +
           std::to_string(advice.best->segment_calls) + " segment calls instead of " +
           std::to_string(otherwise.segment_calls) + ", " + std::to_string(advice.best->ooms) +
           " refused requests instead of " + std::to_string(otherwise.ooms) + "\n";
  } else {
    out += "keep the default: none of " + std::to_string(advice.searched) +
           " settings is better by more than 0.5 % on the whole run and no worse on parts of it\n";
  }
  if (advice.ends_at_refusal) {
    const uint64_t ooms = advice.best ? advice.best->ooms : otherwise.ooms;
    out += ooms == 0 ? "the recording ends at a refused request, which passes so: what the program "
                       "would have asked for next is in no replay\n"
                     : "the recording ends at a refused request, which no setting lets pass: the "
                       "settings are compared up to there (fragscope explain says why it was "
                       "refused)\n";
  }
  const uint64_t least = advice.best ? advice.best->reserved_peak : otherwise.reserved_peak;
  out += "bounds: live bytes " + format_size(advice.live_peak) + ", an offline plan " +
         format_size(advice.plan_peak) +
         "; left to gain above the plan: " + percent(excess(least, advice.plan_peak)) + "\n\n";
  table(out, advice);
  worse(out, advice);
  remedies(out, advice);
  out += "\n" + std::to_string(advice.searched) + " settings tried" +
         (advice.exhaustive ? ", each on the whole run" : " by successive halving") + "\n";
  return out;
}

}  // namespace fragscope::diagnose
