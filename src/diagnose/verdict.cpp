#include "diagnose/verdict.h"

#include <algorithm>
#include <array>

#include "diagnose/device_arithmetic.h"
#include "diagnose/remedies.h"
#include "diagnose/stated_cause.h"

namespace fragscope::diagnose {
namespace {

bool has_device_figures(const OomFacts& facts) {
  return facts.family == Family::kNative || facts.family == Family::kAsync ||
         (facts.family == Family::kJulia && facts[Field::kDeviceInUse] && facts[Field::kTotal]);
}

// CUDA.jl prints what the device has in use instead of what is free.
OomFacts with_free(const OomFacts& facts) {
  OomFacts out = facts;
  const auto& in_use = facts[Field::kDeviceInUse];
  const auto& total = facts[Field::kTotal];
  auto& free = out.figures[static_cast<size_t>(Field::kFree)];
  if (!free && in_use && total) {
    const auto less = [](uint64_t a, uint64_t b) { return a > b ? a - b : 0; };
    free = Quantity{less(total->bytes, in_use->bytes), less(total->low, in_use->high),
                    less(total->high, in_use->low)};
  }
  return out;
}

// The same arithmetic, another allocator: the sentences name it.
void name_allocator(Family family, Explanation& out) {
  if (family != Family::kJulia) return;
  for (std::string& sentence : out.why) {
    for (size_t at = 0; (at = sentence.find("PyTorch", at)) != std::string::npos;) {
      sentence.replace(at, 7, "CUDA.jl");
    }
  }
}

void prefer(Explanation& out, Verdict verdict) {
  auto& others = out.alternatives;
  others.erase(std::remove(others.begin(), others.end(), verdict), others.end());
  others.insert(others.begin(), out.verdict);
  out.verdict = verdict;
}

// Figures show that live data fills the card; whether it should be alive only the text can tell.
void consider_leak(const MessageScan& scan, Explanation& out) {
  const OomFacts& facts = *scan.message;
  const bool device = has_device_figures(facts) || facts.family == Family::kCupy ||
                      facts.family == Family::kBareAllocator;
  if (!device) return;
  const auto& total = facts[Field::kTotal];
  const auto& tried = facts[Field::kTried];
  const bool too_large = total && tried && tried->bytes > total->bytes;
  const bool little_idle =
      out.verdict == Verdict::kFragmentation && total &&
      out.derived.idle_reserved.value_or(INT64_MAX) < static_cast<int64_t>(total->bytes / 10);
  const bool live = (out.verdict == Verdict::kTrueExhaustion && !too_large) || little_idle ||
                    facts.family == Family::kBareAllocator;
  if (facts.has(Hint::kLeak) && live) {
    out.why.emplace_back(
        "The text around it says that memory grows or that results stay alive: "
        "then the live data itself is the fault.");
    prefer(out, Verdict::kLeakSuspected);
    out.confidence = std::min(out.confidence, Confidence::kMedium);
  } else if (scan.allocated_grew && live && out.verdict != Verdict::kLeakSuspected) {
    out.why.emplace_back(
        "Each message of this log reports more allocated memory than the one "
        "before it.");
    auto& others = out.alternatives;
    others.erase(std::remove(others.begin(), others.end(), Verdict::kLeakSuspected), others.end());
    others.insert(others.begin(), Verdict::kLeakSuspected);
  }
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  constexpr std::array<std::string_view, 9> kNames = {"true_exhaustion",
                                                      "fragmentation",
                                                      "non_pytorch_memory",
                                                      "other_process",
                                                      "memory_fraction_cap",
                                                      "leak_suspected",
                                                      "host_pinned",
                                                      "shm",
                                                      "unknown"};
  return kNames[static_cast<size_t>(verdict)];
}

std::string_view confidence_name(Confidence confidence) {
  constexpr std::array<std::string_view, 3> kNames = {"low", "medium", "high"};
  return kNames[static_cast<size_t>(confidence)];
}

Explanation explain(const MessageScan& scan) {
  const OomFacts facts = with_free(*scan.message);
  Explanation out;
  out.derived = derive(facts);
  if (has_device_figures(facts)) {
    judge_device(facts, out);
    name_allocator(facts.family, out);
  } else {
    judge_stated(facts, out);
  }
  consider_leak(scan, out);
  out.actions = remedies(facts, out);
  return out;
}

}  // namespace fragscope::diagnose
