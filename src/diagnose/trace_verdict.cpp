#include "diagnose/trace_verdict.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.h"
#include "diagnose/remedies.h"
#include "model/rounding.h"

namespace fragscope::diagnose {
namespace {

using metrics::BlockState;
using metrics::LayoutBlock;
using metrics::LayoutSegment;
using metrics::Scene;
using metrics::SceneKind;
using metrics::Survivors;

constexpr size_t kGaps = 5;
constexpr size_t kPins = 8;
// A leak leaves blocks in most windows, evenly, while the level falls again and again.
constexpr uint64_t kLeakWindows = 6;
constexpr uint64_t kLeakEvenness = 3;  // the fullest window holds at most this times the mean
constexpr uint32_t kLeakDescents = 3;
constexpr uint64_t kLeakShare = 20;     // at least 1/20 of the live bytes
constexpr uint64_t kCallLeakShare = 2;  // … where nothing is trained: caches are kept on purpose
// A device is as good as full: rests of that size are everywhere.
constexpr uint64_t kFullPercent = 94;
// What the driver and this process's context may take where that is not recorded.
constexpr uint64_t kContextAllowance = kGiB;
constexpr uint64_t kContextShare = 20;  // … at most 1/20 of the card

struct Request {
  uint64_t rounded = 0;  // s
  uint64_t segment = 0;  // a
  RequestKind kind;
};

model::AllocatorConfig config_of(const replay::ProcessFacts& facts) {
  const auto match = model::find_version_profile(facts.property("torch_version").value_or(""));
  const auto config =
      model::parse_config(facts.property("alloc_conf").value_or(""), *match.profile);
  return config.ok() ? config.value() : model::AllocatorConfig{};
}

Request request_of(const Scene& scene, const model::AllocatorConfig& config) {
  Request request;
  request.rounded = scene.requested.value_or(0);
  request.segment = scene.by_segment || request.rounded == 0
                        ? request.rounded
                        : model::segment_bytes(request.rounded, config);
  request.kind.small =
      scene.requested && (request.rounded <= model::kSmallSize ||
                          (scene.by_segment && request.rounded == model::kSmallBuffer));
  request.kind.stream = scene.stream;
  request.kind.pool = scene.pool;
  return request;
}

// A free piece that the allocator's own rules would have given to the request.
bool fitting_piece_exists(const Scene& scene, const Request& request,
                          const model::AllocatorConfig& config) {
  const bool limited = config.max_split_size != model::kUnlimitedSplit;
  for (const LayoutSegment& segment : scene.layout) {
    if (segment.expandable || is_small_pool(segment) != request.kind.small) continue;
    if (is_foreign_pool(segment, request.kind)) continue;
    if (request.kind.stream && segment.stream != *request.kind.stream) continue;
    for (const LayoutBlock& block : segment.blocks) {
      if (block.state != BlockState::inactive || block.size < request.rounded) continue;
      if (!limited || block.size < config.max_split_size) return true;
    }
  }
  return false;
}

std::vector<LeakSuspect> leaks_of(const Scene& scene, uint64_t live) {
  std::vector<LeakSuspect> suspects;
  if (scene.descents < kLeakDescents) return suspects;
  for (const Survivors& survivors : scene.survivors) {
    uint64_t fullest = 0;
    uint64_t windows = 0;
    for (const uint64_t bytes : survivors.window_bytes) {
      fullest = std::max(fullest, bytes);
      windows += bytes > 0 ? 1 : 0;
    }
    const bool even = fullest * Survivors::kWindows <= kLeakEvenness * survivors.bytes;
    if (windows < kLeakWindows || !even || survivors.bytes < live / kLeakShare) continue;
    suspects.push_back({survivors.stack, survivors.bytes, survivors.blocks, windows});
  }
  return suspects;
}

std::vector<PinGain> pins_of(const Scene& scene) {
  std::vector<PinGain> pins;
  for (const LayoutSegment& segment : scene.layout) {
    const auto& blocks = segment.blocks;
    const auto lives = [](const LayoutBlock& block) { return block.state != BlockState::inactive; };
    const bool alone = std::count_if(blocks.begin(), blocks.end(), lives) == 1;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (!lives(blocks[i])) continue;
      PinGain gain{blocks[i], blocks[i].size, alone ? segment.size : 0};
      if (i > 0 && !lives(blocks[i - 1])) gain.gap += blocks[i - 1].size;
      if (i + 1 < blocks.size() && !lives(blocks[i + 1])) gain.gap += blocks[i + 1].size;
      if (gain.gap > gain.block.size) pins.push_back(gain);
    }
  }
  // What comes back beyond the block itself.
  std::stable_sort(pins.begin(), pins.end(), [](const PinGain& left, const PinGain& right) {
    return left.gap - left.block.size > right.gap - right.block.size;
  });
  if (pins.size() > kPins) pins.resize(kPins);
  return pins;
}

void set(OomFacts& facts, Field field, const std::optional<uint64_t>& bytes) {
  if (bytes) facts.figures[static_cast<size_t>(field)] = Quantity::exact(*bytes);
}

MessageScan figures_of(const Scene& scene, const Request& request, const MemorySplit& split) {
  OomFacts facts;
  facts.family = scene.kind == SceneKind::pinned_refused ? Family::kHostPinned : Family::kNative;
  if (scene.kind != SceneKind::peak) set(facts, Field::kTried, request.segment);
  if (scene.kind != SceneKind::pinned_refused) {
    set(facts, Field::kTotal, split.total);
    set(facts, Field::kFree, split.device_free);
    if (!scene.layout.empty()) {
      set(facts, Field::kAllocated, split.live);
      set(facts, Field::kReserved, split.reserved());
      set(facts, Field::kUnallocated, split.reserved() - split.live);
    }
    if (scene.device >= 0) facts.device_index = static_cast<uint64_t>(scene.device);
  }
  MessageScan scan;
  scan.message = facts;
  return scan;
}

Derived derived_of(const MemorySplit& split) {
  const auto plain = [](uint64_t bytes) { return static_cast<int64_t>(bytes); };
  Derived derived;
  derived.reserved = plain(split.reserved());
  derived.idle_reserved = plain(split.reserved() - split.live);
  if (split.device_free) {
    derived.obtainable = plain(*split.device_free + split.reserved() - split.live);
  }
  if (split.total && split.device_free) {
    derived.outside_pytorch =
        plain(*split.total) - plain(*split.device_free) - plain(split.reserved());
  }
  if (split.elsewhere) derived.other_processes = plain(*split.elsewhere);
  return derived;
}

// One finding in the making.
class Judge {
 public:
  Judge(const Scene& scene, const replay::ProcessFacts& facts, replay::BlockSource source,
        const Growth* growth)
      : config_(config_of(facts)), request_(request_of(scene, config_)), source_(source) {
    fails_on_purpose_ = facts.property("limit.oom_at") || facts.property("limit.fail_rate");
    finding_.scene = scene;
    finding_.split = split_memory(scene, request_.kind, facts.device(scene.device));
    finding_.figures = figures_of(scene, request_, finding_.split);
    finding_.explanation.derived = derived_of(finding_.split);
    finding_.leaks = leaks_of(scene, finding_.split.live);
    if (growth) take_growth(*growth);
    finding_.gaps = metrics::largest_gaps(scene.layout, kGaps);
    finding_.pins = pins_of(scene);
  }

  TraceFinding run() {
    switch (finding_.scene.kind) {
      case SceneKind::peak:
        peak();
        name_faint_growth();
        return std::move(finding_);
      case SceneKind::pinned_refused:
        pinned();
        break;
      case SceneKind::oom:
      case SceneKind::refused:
        refused();
        break;
    }
    if (finding_.cause != Cause::on_purpose) name_faint_growth();
    add_alternatives();
    finding_.explanation.actions = remedies(*finding_.figures.message, finding_.explanation);
    if (finding_.stranded_in == Stranded::private_pool) {
      finding_.explanation.actions = private_pool_remedies();
    }
    if (finding_.cause == Cause::on_purpose) {
      finding_.explanation.actions = {
          "Nothing is wrong with the memory. See how the program took it; leave --oom-at and "
          "--fail-rate out to run undisturbed."};
    }
    return std::move(finding_);
  }

 private:
  // Of a run too short to decide anything by it.
  void name_faint_growth() {
    if (!faint_ || !finding_.leaks.empty() || finding_.scene.kind == SceneKind::pinned_refused) {
      return;
    }
    take_suspects(*faint_);
    why("Live memory grew in each of the " + std::to_string(faint_->suspects.front().steps) +
        " steps that ended: the same places left " + text(faint_->suspect_bytes) +
        " behind. So few steps are no proof (low confidence); a longer recording tells.");
    auto& others = finding_.explanation.alternatives;
    const bool named =
        std::find(others.begin(), others.end(), Verdict::kLeakSuspected) != others.end();
    if (!named) others.push_back(Verdict::kLeakSuspected);
  }

  void take_suspects(const Growth& growth) {
    finding_.leaks.clear();
    for (const GrowthSuspect& suspect : growth.suspects) {
      finding_.leaks.push_back({suspect.stack, suspect.bytes, suspect.blocks, 0, suspect.steps});
    }
  }

  void take_growth(const Growth& growth) {
    if (!growth.sure && !growth.suspects.empty()) {
      faint_ = growth;
      return;
    }
    const uint64_t share = growth.trained ? kLeakShare : kCallLeakShare;
    if (growth.suspect_bytes == 0 || growth.suspect_bytes < finding_.split.live / share) return;
    uint64_t by_windows = 0;
    for (const LeakSuspect& suspect : finding_.leaks) by_windows += suspect.bytes;
    if (growth.suspect_bytes <= by_windows) return;
    grown_ = growth.suspect_bytes;
    take_suspects(growth);
  }

  void decide(Verdict verdict, Cause cause, Confidence confidence) {
    finding_.explanation.verdict = verdict;
    finding_.explanation.confidence = confidence;
    finding_.cause = cause;
  }
  void strand(Stranded kind, Confidence confidence) {
    decide(Verdict::kFragmentation, Cause::stranded, confidence);
    finding_.stranded_in = kind;
  }
  void why(std::string sentence) { finding_.explanation.why.push_back(std::move(sentence)); }
  static std::string text(uint64_t bytes) { return format_size(bytes); }

  void peak() {
    decide(Verdict::kUnknown, Cause::none, Confidence::kHigh);
    const MemorySplit& split = finding_.split;
    why("Nothing was refused here: this is where most was in use. Of " + text(split.reserved()) +
        " in segments " + text(split.live) + " were live.");
    if (grown_ > 0) {
      why("But the run grew: " + text(grown_) +
          " were left behind step by step by the same places. If it goes on, memory runs out.");
      finding_.explanation.alternatives.push_back(Verdict::kLeakSuspected);
    }
  }

  void pinned() {
    decide(Verdict::kHostPinned, Cause::pinned, Confidence::kHigh);
    why("CUDA refused " + text(request_.rounded) +
        " of page-locked host memory; this process held " + text(finding_.scene.pinned_bytes) +
        " of it. That is host memory, not the device's.");
  }

  void refused() {
    const MemorySplit& split = finding_.split;
    if (!finding_.scene.requested) {
      decide(Verdict::kUnknown, Cause::unknown, Confidence::kLow);
      why("The recording does not tell how much was asked for.");
      return;
    }
    if (split.device_free) free_ = *split.device_free;
    if (!split.device_free && !assume_free()) {
      decide(Verdict::kUnknown, Cause::unknown, Confidence::kLow);
      why("The recording tells neither what the device had left nor its size.");
      return;
    }
    const uint64_t obtainable = split.reserved() + free_;
    const uint64_t active = split.live + split.pending;
    why(text(request_.rounded) + " were asked for, which needs a segment of " +
        text(request_.segment) + "; the device had " + text(free_) + " left.");
    if (active + request_.rounded > obtainable && split.pending > 0 &&
        split.live + request_.rounded <= obtainable) {
      strand(Stranded::pending, confidence());
      why(text(split.pending) +
          " were freed already, but other streams used them and their events were not done (during "
          "a graph capture they cannot be waited for). With them the request would have fitted.");
    } else if (nearly_full(active, obtainable)) {
      full();
    } else if (active + request_.rounded > obtainable) {
      does_not_fit(active + request_.rounded - obtainable);
    } else if (free_ >= request_.segment) {
      limited();
    } else if (fitting_piece_exists(finding_.scene, request_, config_)) {
      decide(Verdict::kFragmentation, Cause::missed_retry, Confidence::kHigh);
      why("A free piece that is large enough lies in a segment of the right stream and pool: it "
          "came "
          "free when the allocator synchronised, and the allocator does not look again. The same "
          "request would succeed if it were repeated.");
    } else if (leaked() >= split.stranded()) {
      // However well it were packed, a few steps later it would be full.
      decide(Verdict::kLeakSuspected, Cause::leak, Confidence::kMedium);
      finding_.explanation.alternatives.push_back(Verdict::kFragmentation);
      say_leaked();
    } else {
      strand(largest_stranded(split), confidence());
      why("Live blocks and the request need " + text(active + request_.rounded) +
          ", the allocator held or could get " + text(obtainable) + ": " + text(split.stranded()) +
          " of its segments are free but stranded, most of it in " +
          std::string(stranded_sentence(*finding_.stranded_in)) + ".");
    }
  }

  bool nearly_full(uint64_t active, uint64_t obtainable) const {
    const bool fits = active + request_.rounded <= obtainable;
    return fits && free_ < request_.segment &&
           static_cast<double>(active + request_.rounded) * 100.0 >=
               static_cast<double>(kFullPercent) * static_cast<double>(obtainable) &&
           !fitting_piece_exists(finding_.scene, request_, config_);
  }

  // The request would fit into the last rests, if they were one piece.
  void full() {
    const MemorySplit& split = finding_.split;
    const uint64_t large = split.total.value_or(0) / 5 * 2;
    const bool others = others_hold() > 0 && others_hold() >= large;
    const bool outside = split.outside.value_or(0) > 0 && split.outside.value_or(0) >= large;
    if (leaked() > 0) {
      decide(Verdict::kLeakSuspected, Cause::leak, Confidence::kMedium);
      say_leaked();
    } else if (others) {
      decide(Verdict::kOtherProcess, Cause::other_process, Confidence::kMedium);
      why(text(others_hold()) + " of the device are held by other processes (or by the driver).");
    } else if (outside) {
      decide(Verdict::kNonPytorchMemory, Cause::outside_pytorch, Confidence::kMedium);
      why(text(*split.outside) + " are held by this process's own calls to CUDA.");
    } else {
      decide(Verdict::kTrueExhaustion, Cause::capacity, Confidence::kMedium);
    }
    finding_.explanation.alternatives.push_back(Verdict::kFragmentation);
    why("What the allocator held or could get is as good as full: only " +
        text(split.stranded() + free_) + " in pieces are not live.");
  }

  // Without what the driver and this process's context may take, where that is not known.
  uint64_t others_hold() const {
    const MemorySplit& split = finding_.split;
    const uint64_t elsewhere = split.elsewhere.value_or(0);
    if (split.context) return elsewhere;
    const uint64_t own = std::min(kContextAllowance, split.total.value_or(0) / kContextShare);
    return elsewhere - std::min(elsewhere, own);
  }

  // Without the device's own word: what is left of its size when all that is known is taken off.
  bool assume_free() {
    const MemorySplit& split = finding_.split;
    if (!split.total || !finding_.scene.driver_bytes) return false;
    const uint64_t used = *finding_.scene.driver_bytes + split.context.value_or(0);
    free_ = *split.total - std::min(*split.total, used);
    free_known_ = false;
    return true;
  }

  void does_not_fit(uint64_t missing) {
    const MemorySplit& split = finding_.split;
    const uint64_t outside = split.outside.value_or(0);
    const uint64_t elsewhere = others_hold();
    why("Live blocks and the request need " + text(missing) +
        " more than the allocator held or could get.");
    const bool plain_calls = finding_.scene.layout.empty();
    if (leaked() >= missing) {
      decide(Verdict::kLeakSuspected, Cause::leak, Confidence::kMedium);
      say_leaked();
    } else if (elsewhere >= missing && elsewhere >= outside) {
      decide(Verdict::kOtherProcess, Cause::other_process, confidence());
      why(text(elsewhere) + " of the device are held by other processes (or by the driver).");
    } else if (!plain_calls && outside >= missing) {
      decide(Verdict::kNonPytorchMemory, Cause::outside_pytorch, confidence());
      why(text(outside) + " are held by this process's own calls to CUDA, outside the allocator.");
    } else {
      decide(Verdict::kTrueExhaustion, Cause::capacity, confidence());
      why("No other holder has that much: this card is too small for it.");
    }
  }

  uint64_t leaked() const {
    if (grown_ > 0) return grown_;
    uint64_t bytes = 0;
    for (const LeakSuspect& suspect : finding_.leaks) bytes += suspect.bytes;
    return bytes;
  }
  void say_leaked() {
    if (grown_ > 0) {
      why(text(grown_) + " of the live blocks were left behind step by step by the same places.");
      return;
    }
    why(text(leaked()) +
        " of the live blocks come from places that left blocks behind evenly all along the run, "
        "while memory fell " +
        std::to_string(finding_.scene.descents) + " times: they look kept by mistake.");
  }

  void limited() {
    const MemorySplit& split = finding_.split;
    if (fails_on_purpose_) {
      decide(Verdict::kUnknown, Cause::on_purpose, Confidence::kMedium);
      why("The device had room, and calls were made to fail on purpose in this run (--oom-at, "
          "--fail-rate): most likely this is one of them.");
      return;
    }
    const bool by_allocator = finding_.scene.refused_by_cuda == false;
    if (!free_known_ && !by_allocator) {
      decide(Verdict::kOtherProcess, Cause::other_process, Confidence::kLow);
      why("The recording does not tell what the device had left. By its size and this process's "
          "own "
          "calls it should have been enough: another process may hold the rest.");
      return;
    }
    if (finding_.scene.refused_by_cuda == true && free_known_) {
      decide(Verdict::kUnknown, Cause::unknown, Confidence::kLow);
      finding_.explanation.alternatives.push_back(Verdict::kOtherProcess);
      why("CUDA itself refused although the device had room a moment later: another process may "
          "have "
          "held it just then, or the driver found no contiguous memory.");
      return;
    }
    if (split.stranded() >= request_.rounded) {
      strand(largest_stranded(split), Confidence::kMedium);
      finding_.explanation.alternatives.push_back(Verdict::kMemoryFractionCap);
      why("The device had room: a limit on the process refused. Below it " +
          text(split.stranded()) + " were free in segments, most of it in " +
          std::string(stranded_sentence(*finding_.stranded_in)) + ".");
      return;
    }
    decide(Verdict::kMemoryFractionCap, Cause::fraction, Confidence::kHigh);
    why("The device had room for the segment: a limit on the process (memory fraction) refused. " +
        limit_text());
    if (by_allocator)
      why("CUDA was not asked, or did not refuse: the allocator refused by itself.");
  }

  // The settings tell the limit, or it lies between what was held and what would have been.
  std::string limit_text() const {
    const uint64_t held = finding_.split.reserved();
    const uint64_t total = finding_.split.total.value_or(0);
    const auto share = [&](uint64_t bytes) {
      if (total == 0) return std::string();
      const double percent = 100.0 * static_cast<double>(bytes) / static_cast<double>(total);
      return " (" + std::to_string(std::lround(percent)) + " % of the device)";
    };
    const std::string sum = text(held) + " in segments + " + text(request_.segment) + " = " +
                            text(held + request_.segment);
    if (config_.per_process_memory_fraction && total > 0) {
      const double fraction = *config_.per_process_memory_fraction;
      const auto cap = static_cast<uint64_t>(fraction * static_cast<double>(total));
      return "The settings allow " + text(cap) + share(cap) + "; " + sum + ".";
    }
    return "The limit itself is not recorded: it lies from " + text(held) + share(held) +
           " to below " + text(held + request_.segment) + share(held + request_.segment) + " (" +
           sum + ").";
  }

  void add_alternatives() {
    Explanation& explanation = finding_.explanation;
    const auto add = [&](Verdict verdict) {
      if (explanation.verdict == verdict) return;
      auto& all = explanation.alternatives;
      if (std::find(all.begin(), all.end(), verdict) == all.end()) all.push_back(verdict);
    };
    if (finding_.cause == Cause::unknown || finding_.cause == Cause::pinned ||
        finding_.cause == Cause::on_purpose) {
      return;
    }
    if (!finding_.leaks.empty()) add(Verdict::kLeakSuspected);
    if (!free_known_ && finding_.cause != Cause::fraction) add(Verdict::kOtherProcess);
  }

  Confidence confidence() const {
    if (!free_known_ || source_ == replay::BlockSource::none) return Confidence::kMedium;
    return Confidence::kHigh;
  }

  bool fails_on_purpose_ = false;
  model::AllocatorConfig config_;
  Request request_;
  replay::BlockSource source_;
  TraceFinding finding_;
  uint64_t free_ = 0;
  uint64_t grown_ = 0;           // bytes of growth suspects, if they tell more than the windows
  std::optional<Growth> faint_;  // its suspects are not sure
  bool free_known_ = true;
};

}  // namespace

std::string_view cause_name(Cause cause) {
  constexpr std::array<std::string_view, 11> kNames = {
      "none",          "capacity", "fraction", "missed_retry", "stranded",  "outside_pytorch",
      "other_process", "pinned",   "leak",     "unknown",      "on_purpose"};
  return kNames[static_cast<size_t>(cause)];
}

TraceFinding judge(const Scene& scene, const replay::ProcessFacts& facts,
                   replay::BlockSource source, const Growth* growth) {
  return Judge(scene, facts, source, growth).run();
}

}  // namespace fragscope::diagnose
