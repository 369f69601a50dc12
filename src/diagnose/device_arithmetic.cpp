#include "diagnose/device_arithmetic.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"

namespace fragscope::diagnose {
namespace {

// "Several GiB" beside PyTorch: more than contexts and libraries usually take. Small cards: a
// share.
constexpr int64_t kLargeOutside = static_cast<int64_t>(kGiB) * 5 / 2;
constexpr double kLargeOutsideShare = 0.4;
constexpr double kFullShare = 0.94;  // of the card is live: exhaustion, whatever is idle
// As many times the idle memory is outside: not the idle pieces are the trouble.
constexpr int64_t kOutsideDominates = 8;
constexpr int64_t kLargeGap = static_cast<int64_t>(kGiB) * 8;

bool is_small_share(int64_t part, int64_t whole, double share) {
  return static_cast<double>(part) < share * static_cast<double>(whole);
}

class DeviceCase {
 public:
  DeviceCase(const OomFacts& facts, Explanation& out) : f_(facts), d_(out.derived), out_(out) {}

  void judge();

 private:
  void decide(Verdict verdict, Confidence confidence, std::vector<Verdict> alternatives) {
    out_.verdict = verdict;
    out_.confidence = confidence;
    out_.alternatives = std::move(alternatives);
  }
  void say(std::string sentence) { out_.why.push_back(std::move(sentence)); }

  void without_free();
  void not_the_device();
  void cap_refused();
  void contradicts_cap();
  void device_refused();
  void fragmented();
  void out_of_reach();
  void outside_holds_it(int64_t outside);
  void reserved_unknown();
  void say_contradictions();
  bool live_fills_card() const;
  bool is_large(int64_t outside) const;
  int64_t precision() const;
  // Live data plus the request, where both are known.
  std::optional<int64_t> needed() const;

  const OomFacts& f_;
  const Derived& d_;
  Explanation& out_;
};

std::optional<int64_t> DeviceCase::needed() const {
  const auto& allocated = f_[Field::kAllocated];
  if (!allocated || !f_[Field::kTried]) return std::nullopt;
  // From 2.4 on "allocated" contains the idle memory of private pools.
  const int64_t pools = f_[Field::kPrivatePools] ? signed_bytes(*f_[Field::kPrivatePools]) : 0;
  return signed_bytes(*allocated) - pools + signed_bytes(*f_[Field::kTried]);
}

int64_t DeviceCase::precision() const {
  return slack(f_[Field::kTried]) + slack(f_[Field::kFree]) + slack(f_[Field::kReserved]) +
         slack(f_[Field::kAllocated]) + slack(f_[Field::kUnallocated]) + slack(f_[Field::kCached]);
}

bool DeviceCase::live_fills_card() const {
  const auto& allocated = f_[Field::kAllocated];
  const auto& total = f_[Field::kTotal];
  return allocated && total &&
         !is_small_share(signed_bytes(*allocated), signed_bytes(*total), kFullShare);
}

bool DeviceCase::is_large(int64_t outside) const {
  if (outside >= kLargeOutside) return true;
  const auto& total = f_[Field::kTotal];
  return total && outside > 0 && !is_small_share(outside, signed_bytes(*total), kLargeOutsideShare);
}

void DeviceCase::say_contradictions() {
  const auto total = signed_bytes(f_[Field::kTotal]);
  const auto free = signed_bytes(f_[Field::kFree]);
  const auto allocated = signed_bytes(f_[Field::kAllocated]);
  const int64_t tolerance = precision() + slack(f_[Field::kTotal]);
  if (f_.process_in_use_is_sentinel) {
    say("The driver had no value for this process's use: it printed 2^64 bytes, as it does on WSL "
        "and on Windows.");
  }
  if (total && allocated && *allocated > *total + tolerance) {
    say("Figures contradict each other: " + size_text(*allocated) +
        " allocated are more than the "
        "card's " +
        size_text(*total) + "; the driver has moved data to host memory (Windows, WSL).");
  }
  if (total && free && d_.reserved && *free + *d_.reserved > *total + tolerance) {
    say("Figures contradict each other: free " + size_text(*free) + " + reserved " +
        size_text(*d_.reserved) + " = " + size_text(*free + *d_.reserved) +
        ", more than the total of " + size_text(*total) + ".");
  }
  if (d_.idle_reserved && *d_.idle_reserved < -tolerance) {
    say("Figures contradict each other: more is allocated than reserved.");
  }
}

void DeviceCase::judge() {
  const auto& tried = f_[Field::kTried];
  const auto& total = f_[Field::kTotal];
  const auto& free = f_[Field::kFree];
  if (!tried) {
    say("The size of the request is missing from the text, so the figures cannot be weighed.");
    decide(Verdict::kUnknown, Confidence::kLow,
           {Verdict::kTrueExhaustion, Verdict::kFragmentation});
  } else if (total && signed_bytes(*tried) > signed_bytes(*total)) {
    say("One request of " + size_text(*tried) + " is larger than the whole card (" +
        size_text(*total) + "): no setting can make it fit.");
    decide(Verdict::kTrueExhaustion, Confidence::kHigh, {});
  } else if (!free) {
    without_free();
  } else if (signed_bytes(*free) >= signed_bytes(*tried)) {
    not_the_device();
  } else {
    device_refused();
  }
  say_contradictions();
}

void DeviceCase::without_free() {
  const auto need = needed();
  if (need && f_[Field::kTotal] && *need > signed_bytes(*f_[Field::kTotal])) {
    say("Live data " + size_text(*f_[Field::kAllocated]) + " + request " +
        size_text(*f_[Field::kTried]) + " = " + size_text(*need) + ", more than the card's " +
        size_text(*f_[Field::kTotal]) + ".");
    decide(Verdict::kTrueExhaustion, Confidence::kMedium, {});
    return;
  }
  say("The text is cut before the free memory is printed, so the cause stays open.");
  decide(Verdict::kUnknown, Confidence::kLow, {Verdict::kTrueExhaustion, Verdict::kFragmentation});
}

// The device had room for the request: something else refused.
void DeviceCase::not_the_device() {
  say("The device had room: " + size_text(*f_[Field::kFree]) + " free against a request of " +
      size_text(*f_[Field::kTried]) + ".");
  if (d_.cap) {
    cap_refused();
    return;
  }
  std::vector<Verdict> alternatives;
  if (!f_[Field::kCached]) alternatives.push_back(Verdict::kMemoryFractionCap);
  alternatives.push_back(Verdict::kOtherProcess);
  say("No memory fraction is printed or known. A fraction may be in force all the same (torch 2.1 "
      "to 2.4 do not print it), another process may have released memory between the refusal and "
      "the count, or the driver refused for a reason of its own.");
  decide(Verdict::kUnknown, Confidence::kLow, std::move(alternatives));
}

void DeviceCase::cap_refused() {
  const int64_t tried = signed_bytes(*f_[Field::kTried]);
  const int64_t cap = *d_.cap;
  const int64_t cap_slack = slack(f_[Field::kAllowed]) + slack(f_[Field::kLimit]);
  const auto& total = f_[Field::kTotal];
  if (d_.reserved) {
    const int64_t wanted = *d_.reserved + tried;
    say("Reserved " + size_text(*d_.reserved) + " + request " + size_text(tried) + " = " +
        size_text(wanted) + (wanted + precision() + cap_slack >= cap ? ", above" : ", below") +
        " the limit of " + size_text(cap) + ".");
    if (wanted + precision() + cap_slack < cap) {
      say("Figures contradict each other: neither the device nor the limit had a reason to "
          "refuse.");
      decide(Verdict::kUnknown, Confidence::kLow,
             {Verdict::kMemoryFractionCap, Verdict::kOtherProcess});
      return;
    }
    std::vector<Verdict> alternatives;
    if (d_.idle_reserved.value_or(0) + std::max<int64_t>(cap - *d_.reserved, 0) >= tried) {
      alternatives.push_back(Verdict::kFragmentation);
    }
    decide(Verdict::kMemoryFractionCap,
           f_[Field::kAllowed] ? Confidence::kHigh : Confidence::kMedium, std::move(alternatives));
    return;
  }
  const bool impossible = total && signed_bytes(*total) - signed_bytes(*f_[Field::kFree]) + tried +
                                           precision() + slack(total) + cap_slack <
                                       cap;
  if (impossible) {
    contradicts_cap();
    return;
  }
  say("What PyTorch had reserved is missing from the text; a limit of " + size_text(cap) +
      " is in force, and the device itself had room.");
  decide(Verdict::kMemoryFractionCap, Confidence::kMedium, {Verdict::kFragmentation});
}

// A cap, room on the device, and too little in use for the cap to refuse.
void DeviceCase::contradicts_cap() {
  const int64_t tried = signed_bytes(*f_[Field::kTried]);
  const int64_t free = signed_bytes(*f_[Field::kFree]);
  const int64_t cap = *d_.cap;
  const int64_t most = signed_bytes(*f_[Field::kTotal]) - free;
  say("\"reserved\" is missing and a limit of " + size_text(cap) + " is in force (" +
      std::to_string(std::lround(100.0 * static_cast<double>(cap) /
                                 static_cast<double>(signed_bytes(*f_[Field::kTotal])))) +
      " % of " + size_text(*f_[Field::kTotal]) + "). Figures contradict each other: with " +
      size_text(free) + " free on the device at most " + size_text(*f_[Field::kTotal]) + " - " +
      size_text(free) + " = " + size_text(most) + " could be reserved, and " + size_text(most) +
      " + " + size_text(tried) + " stays under " + size_text(cap) + ".");
  const auto allocated = signed_bytes(f_[Field::kAllocated]);
  const int64_t off = allocated ? std::abs(*allocated + free - cap) : 0;
  const int64_t tolerance = precision() + slack(f_[Field::kAllowed]);
  if (!allocated || off > tolerance) {
    decide(Verdict::kUnknown, Confidence::kLow,
           {Verdict::kMemoryFractionCap, Verdict::kOtherProcess});
    return;
  }
  out_.derived.reserved_at_least = cap - tried;
  out_.derived.idle_reserved_at_least = cap - tried - *allocated;
  say("But " + size_text(*allocated) + " allocated + " + size_text(free) +
      " free = " + size_text(*allocated + free) +
      ", the limit itself: \"free\" is what the limit leaves above "
      "the live data. Then PyTorch refused because about " +
      size_text(cap - tried) + " or more were reserved, " + size_text(cap - tried - *allocated) +
      " of it idle in pieces: fragmentation under a limit.");
  decide(Verdict::kFragmentation, Confidence::kMedium, {Verdict::kMemoryFractionCap});
}

void DeviceCase::device_refused() {
  if (!d_.obtainable) {
    reserved_unknown();
    return;
  }
  const int64_t tried = signed_bytes(*f_[Field::kTried]);
  say("Free " + size_text(*f_[Field::kFree]) + " + idle in PyTorch's cache " +
      size_text(*d_.idle_reserved) + " = " + size_text(*d_.obtainable) + " obtainable, request " +
      size_text(tried) + ".");
  if (tried <= *d_.obtainable) {
    fragmented();
  } else {
    out_of_reach();
  }
  const bool cap_too = d_.cap && d_.reserved && *d_.reserved + tried > *d_.cap &&
                       out_.verdict != Verdict::kMemoryFractionCap;
  if (cap_too) {
    say("A limit of " + size_text(*d_.cap) + " would have refused as well.");
    out_.alternatives.push_back(Verdict::kMemoryFractionCap);
  }
}

void DeviceCase::fragmented() {
  const int64_t tried = signed_bytes(*f_[Field::kTried]);
  const auto total = signed_bytes(f_[Field::kTotal]);
  if (live_fills_card()) {
    say("The request would fit if the idle pieces were one, but live data already takes " +
        size_text(*f_[Field::kAllocated]) + " of " + size_text(*f_[Field::kTotal]) +
        " (94 % or more): the next request fails anyway.");
    decide(Verdict::kTrueExhaustion, Confidence::kMedium, {Verdict::kFragmentation});
    return;
  }
  const int64_t idle = *d_.idle_reserved;
  const int64_t outside = d_.outside_pytorch.value_or(0);
  if (total && needed() && is_large(outside) && outside >= kOutsideDominates * idle) {
    say("Joining the idle pieces would serve this request, but they are small beside what is in "
        "use outside PyTorch's allocator.");
    outside_holds_it(outside);
    out_.alternatives.push_back(Verdict::kFragmentation);
    return;
  }
  say("Enough memory is there, but not in one piece: the idle part lies in segments that live "
      "blocks keep from being returned (or belongs to other streams and pools, which the text "
      "cannot tell).");
  const int64_t margin = *d_.obtainable - tried;
  const bool clear = idle >= 2 * (tried - signed_bytes(*f_[Field::kFree])) && total &&
                     !is_small_share(idle, *total, 0.1) && d_.outside_pytorch &&
                     is_small_share(*d_.outside_pytorch, *total, 0.25);
  const Confidence confidence = clear                  ? Confidence::kHigh
                                : margin > precision() ? Confidence::kMedium
                                                       : Confidence::kLow;
  std::vector<Verdict> alternatives;
  if (d_.outside_pytorch && is_large(*d_.outside_pytorch)) {
    say(size_text(*d_.outside_pytorch) + " are in use outside PyTorch's allocator.");
    alternatives = {Verdict::kNonPytorchMemory, Verdict::kOtherProcess};
  }
  if (confidence != Confidence::kHigh) alternatives.push_back(Verdict::kTrueExhaustion);
  decide(Verdict::kFragmentation, confidence, std::move(alternatives));
}

// Nothing PyTorch could do with its own memory makes the request fit.
void DeviceCase::out_of_reach() {
  const auto total = signed_bytes(f_[Field::kTotal]);
  const auto need = needed();
  const bool fits_alone = total && need && *need <= *total;
  const int64_t outside = d_.outside_pytorch.value_or(0);
  if (fits_alone && !live_fills_card() && is_large(outside)) {
    outside_holds_it(outside);
    return;
  }
  const int64_t missing = signed_bytes(*f_[Field::kTried]) - *d_.obtainable;
  if (fits_alone && d_.outside_pytorch && d_.other_processes && *d_.other_processes >= missing &&
      !is_small_share(*d_.other_processes, *total, 0.1)) {
    outside_holds_it(outside);
    return;
  }
  if (need && total) {
    say("Live data " + size_text(*f_[Field::kAllocated]) + " + request " +
        size_text(*f_[Field::kTried]) + " = " + size_text(*need) + " of " + size_text(*total) +
        "; joining all idle memory leaves " + size_text(missing) + " missing.");
  }
  const bool never = need && total && *need > *total + precision() + slack(f_[Field::kTotal]);
  const bool mostly_live = total && f_[Field::kAllocated] &&
                           !is_small_share(signed_bytes(*f_[Field::kAllocated]), *total, 0.75);
  std::vector<Verdict> alternatives;
  if (!never && outside > static_cast<int64_t>(kGiB)) {
    alternatives = {Verdict::kNonPytorchMemory, Verdict::kOtherProcess};
  }
  if (!never) alternatives.push_back(Verdict::kLeakSuspected);
  decide(Verdict::kTrueExhaustion,
         never         ? Confidence::kHigh
         : mostly_live ? Confidence::kMedium
                       : Confidence::kLow,
         std::move(alternatives));
}

void DeviceCase::outside_holds_it(int64_t outside) {
  const auto& in_use = f_[Field::kProcessInUse];
  say("Total " + size_text(*f_[Field::kTotal]) + " - free " + size_text(*f_[Field::kFree]) +
      " - reserved " + size_text(*d_.reserved) + " = " + size_text(outside) +
      " in use outside PyTorch's allocator; without it live data and the request (" +
      size_text(*needed()) + ") would fit.");
  if (d_.other_processes) {
    const int64_t others = *d_.other_processes;
    const int64_t own = in_use ? signed_bytes(*in_use) - *d_.reserved : outside - others;
    say("Of it other processes hold " + size_text(others) +
        ", this process (CUDA context, "
        "libraries) " +
        size_text(own) + ".");
    const bool theirs = others >= own;
    const bool sure =
        !f_.listed_processes.empty() && in_use && others >= 4 * std::max<int64_t>(own, 1);
    decide(theirs ? Verdict::kOtherProcess : Verdict::kNonPytorchMemory,
           theirs && sure ? Confidence::kHigh : Confidence::kMedium,
           {theirs ? Verdict::kNonPytorchMemory : Verdict::kOtherProcess});
    return;
  }
  const auto total = signed_bytes(*f_[Field::kTotal]);
  const bool told = f_.has(Hint::kOtherProcess);
  const bool most = outside >= kLargeGap && !is_small_share(outside, total, 0.5);
  if (told) {
    say("The text around it speaks of other processes on the card.");
  } else if (most) {
    say("The text does not list processes, but so much is seldom one process's own.");
  } else {
    say("The text does not list processes, so it may be this process (CUDA context, NCCL, other "
        "libraries) or another one.");
  }
  const bool theirs = told || most;
  decide(theirs ? Verdict::kOtherProcess : Verdict::kNonPytorchMemory, Confidence::kMedium,
         {theirs ? Verdict::kNonPytorchMemory : Verdict::kOtherProcess});
}

// The async backend does not print what it holds idle, and cut messages lose it.
void DeviceCase::reserved_unknown() {
  const auto total = signed_bytes(f_[Field::kTotal]);
  const auto allocated = signed_bytes(f_[Field::kAllocated]);
  const int64_t free = signed_bytes(*f_[Field::kFree]);
  const auto need = needed();
  say("Free " + size_text(free) + " is less than the request of " + size_text(*f_[Field::kTried]) +
      "; how much PyTorch holds idle is not printed.");
  if (total && need && (*need > *total || live_fills_card())) {
    say("Live data " + size_text(*allocated) + " + request = " + size_text(*need) + " of " +
        size_text(*total) + ".");
    decide(Verdict::kTrueExhaustion, *need > *total ? Confidence::kHigh : Confidence::kMedium, {});
    return;
  }
  if (total && d_.other_processes && is_large(*d_.other_processes)) {
    say("Other processes hold " + size_text(*d_.other_processes) + " of " + size_text(*total) +
        ".");
    decide(Verdict::kOtherProcess, Confidence::kMedium,
           {Verdict::kTrueExhaustion, Verdict::kFragmentation});
    return;
  }
  if (!total || !allocated || f_[Field::kProcessInUse]) {
    decide(Verdict::kTrueExhaustion, Confidence::kLow,
           {Verdict::kFragmentation, Verdict::kOtherProcess, Verdict::kNonPytorchMemory});
    return;
  }
  const int64_t gap = *total - free - *allocated;
  say("Total " + size_text(*total) + " - free " + size_text(free) + " - live " +
      size_text(*allocated) + " = " + size_text(gap) +
      " are idle in the cache or in use outside "
      "PyTorch; the text does not tell which.");
  if (gap >= kLargeGap) {
    decide(Verdict::kFragmentation, Confidence::kLow,
           {Verdict::kNonPytorchMemory, Verdict::kOtherProcess});
  } else if (is_large(gap)) {
    decide(Verdict::kNonPytorchMemory, Confidence::kLow,
           {Verdict::kFragmentation, Verdict::kOtherProcess});
  } else {
    decide(Verdict::kTrueExhaustion, Confidence::kLow,
           {Verdict::kFragmentation, Verdict::kNonPytorchMemory});
  }
}

}  // namespace

std::string size_text(int64_t bytes) {
  const auto magnitude = static_cast<uint64_t>(bytes < 0 ? -bytes : bytes);
  return (bytes < 0 ? "-" : "") + format_size(magnitude);
}

std::string size_text(const Quantity& value) { return size_text(signed_bytes(value)); }

void judge_device(const OomFacts& facts, Explanation& out) { DeviceCase(facts, out).judge(); }

}  // namespace fragscope::diagnose
