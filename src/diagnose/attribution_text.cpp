#include "diagnose/attribution_text.h"

#include <algorithm>
#include <cstdio>

#include "base/bytes.h"
#include "base/text.h"

namespace fragscope::diagnose {
namespace {

constexpr size_t kFrames = 4;
constexpr size_t kLongestFrame = 120;

// What each name stands for, in a few words.
constexpr std::array<const char*, kTensorRoles> kRoleWords = {
    "parameters and buffers", "gradients", "optimizer state", "activations", "inputs",
    "library workspaces",     "temporary", "unknown"};
constexpr std::array<const char*, kLoopPhases> kPhaseWords = {
    "setup, before the first forward", "between steps", "forward", "backward", "optimizer"};
constexpr std::array<const char*, kLifetimes> kLifetimeWords = {
    "gone by the end of the next step", "kept for several steps", "never freed in the recording"};

class Writer {
 public:
  Writer(const Attribution& data, const StackLines& stack_lines, size_t rows)
      : data_(data), stack_lines_(stack_lines), rows_(rows) {}

  std::string write() {
    out_ = "device " + std::to_string(data_.device) + ": " + format_size(data_.live_bytes) +
           " live at " + data_.moment + ", event " + std::to_string(data_.seq) + "\n";
    fixed("by role", data_.roles, kRoleWords);
    fixed("by phase of their allocation", data_.phases, kPhaseWords);
    fixed("by lifetime", data_.lifetimes, kLifetimeWords);
    named("by module (frames of forward, instances of a class together)", data_.modules,
          "no module: weights, gradients, optimizer");
    const bool ranges =
        data_.ranges.size() > 1 || (!data_.ranges.empty() && !data_.ranges.front().name.empty());
    if (ranges) named("by NVTX range that was open, innermost", data_.ranges, "none");
    if (ranges && nested()) named("by NVTX range, outermost", data_.outer_ranges, "none");
    stacks();
    around();
    growth();
    churn();
    return std::move(out_);
  }

 private:
  // The outermost ranges are others than the innermost.
  bool nested() const {
    return !std::equal(data_.ranges.begin(), data_.ranges.end(), data_.outer_ranges.begin(),
                       data_.outer_ranges.end(),
                       [](const auto& left, const auto& right) { return left.name == right.name; });
  }

  void row(uint64_t bytes, uint64_t whole, const std::string& text) {
    char line[64];
    const double share =
        whole == 0 ? 0 : 100.0 * static_cast<double>(bytes) / static_cast<double>(whole);
    std::snprintf(line, sizeof line, "  %12s %5.1f %%  ", format_size(bytes).c_str(), share);
    out_ += line + text + "\n";
  }

  template <size_t N>
  void fixed(const char* title, const std::array<Share, N>& shares,
             const std::array<const char*, N>& words) {
    out_ += std::string("\n") + title + "\n";
    for (size_t i = 0; i < N; ++i) {
      if (shares[i].bytes > 0) row(shares[i].bytes, data_.live_bytes, words[i]);
    }
  }

  void named(const char* title, const std::vector<NamedShare>& shares, const char* nameless) {
    out_ += std::string("\n") + title + "\n";
    uint64_t rest = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (i >= rows_) {
        rest += shares[i].bytes;
        continue;
      }
      std::string text = shares[i].name.empty() ? nameless : printable(shares[i].name);
      if (!shares[i].file.empty()) {
        text += " (" + printable(shares[i].file.substr(shares[i].file.rfind('/') + 1)) + ":" +
                std::to_string(shares[i].line) + ")";
      }
      row(shares[i].bytes, data_.live_bytes, text);
    }
    if (rest > 0) row(rest, data_.live_bytes, std::to_string(shares.size() - rows_) + " more");
  }

  void frames(uint32_t stack, uint64_t seq) {
    const auto lines = stack_lines_(stack, seq);
    for (size_t i = 0; i < std::min(lines.size(), kFrames); ++i) {
      const bool fits = lines[i].size() <= kLongestFrame;  // templates have no end
      out_ += "                        " +
              (fits ? printable(lines[i]) : printable(lines[i].substr(0, kLongestFrame)) + "…") +
              "\n";
    }
  }

  void stacks() {
    out_ += "\nby call stack\n";
    uint64_t rest = 0;
    for (size_t i = 0; i < data_.stacks.size(); ++i) {
      const StackShare& share = data_.stacks[i];
      if (i >= rows_) {
        rest += share.bytes;
        continue;
      }
      row(share.bytes, data_.live_bytes,
          std::to_string(share.blocks) + " blocks, " + kRoleWords[static_cast<size_t>(share.role)]);
      frames(share.stack, share.seq);
    }
    if (rest > 0) {
      row(rest, data_.live_bytes, std::to_string(data_.stacks.size() - rows_) + " more");
    }
  }

  void around() {
    out_ += "\naround them, of all that this process has of the device\n";
    const uint64_t whole = data_.driver_bytes.value_or(data_.reserved_bytes.value_or(0)) +
                           data_.context_bytes.value_or(0);
    if (data_.reserved_bytes) {
      row(*data_.reserved_bytes - std::min(*data_.reserved_bytes, data_.live_bytes), whole,
          "free or pending in the allocator's segments");
    }
    for (const OutsideShare& share : data_.outside) {
      row(share.bytes, whole, "outside PyTorch: " + printable(share.library));
    }
    if (data_.context_bytes) row(*data_.context_bytes, whole, "the process's CUDA context");
    if (!data_.requests_known) return;
    row(data_.live_bytes - std::min(data_.live_bytes, data_.requested_bytes), data_.live_bytes,
        "of the live bytes are rounding: nobody asked for them");
  }

  void growth() {
    const Growth& growth = data_.growth;
    if (growth.steps < 2 && growth.suspects.empty()) return;
    if (growth.steps < 2 && growth.trained) {
      out_ += "\nfrom step to step\n";
      suspects();
      return;
    }
    if (growth.steps < 2) {
      out_ += "\nfrom call to call of the model\n";
      suspects();
      return;
    }
    const auto change = static_cast<uint64_t>(std::abs(growth.median_change));
    out_ += "\nfrom step to step (" + std::to_string(growth.steps) + " steps after the warm-up)\n";
    out_ += "  " + format_size(growth.first_bytes) + " live after the first, " +
            format_size(growth.last_bytes) + " after the last, median change " +
            (growth.median_change < 0 ? "-" : "+") + format_size(change) + " a step\n";
    suspects();
  }

  void suspects() {
    if (!data_.growth.sure) {
      out_ += "  grows in each of the " + std::to_string(data_.growth.suspects.front().steps) +
              " steps that ended: a leak, if it goes on; so few steps are no proof\n";
    }
    for (const GrowthSuspect& suspect : data_.growth.suspects) {
      out_ += "  left behind: " + format_size(suspect.bytes) + " in " +
              std::to_string(suspect.blocks) + " blocks, made in " + std::to_string(suspect.steps) +
              (data_.growth.trained ? " steps\n" : " calls\n");
      frames(suspect.stack, suspect.seq);
    }
  }

  void churn() {
    out_ += "\nallocation churn of the whole run\n";
    out_ += "  " + std::to_string(data_.allocations) + " blocks, " +
            format_size(data_.allocated_bytes) + " in all";
    if (data_.steps > 0) {
      out_ += ", about " + std::to_string(data_.allocations / (data_.steps + 1)) + " blocks a step";
    }
    out_ += "\n";
    for (size_t i = 0; i < std::min(rows_, data_.churn.size()); ++i) {
      row(data_.churn[i].bytes, data_.allocated_bytes,
          std::to_string(data_.churn[i].blocks) + " blocks");
      frames(data_.churn[i].stack, data_.churn[i].seq);
    }
  }

  const Attribution& data_;
  const StackLines& stack_lines_;
  size_t rows_;
  std::string out_;
};

}  // namespace

std::string attribution_text(const Attribution& attribution, const StackLines& stack_lines,
                             size_t rows) {
  return Writer(attribution, stack_lines, rows).write();
}

}  // namespace fragscope::diagnose
