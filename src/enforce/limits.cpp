#include "enforce/limits.h"

#include <signal.h>

#include <charconv>
#include <cstring>

#include "base/bytes.h"

namespace fragscope::enforce {
namespace {

Error wrong(std::string_view text, const char* expected) {
  return {ErrorCode::kInvalidArgument,
          "\"" + std::string(text) + "\" is not " + std::string(expected)};
}

std::optional<uint64_t> whole(std::string_view text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return value;
}

// "0.25" or "25%" -> 0.25
std::optional<double> share(std::string_view text) {
  const bool percent = !text.empty() && text.back() == '%';
  if (percent) text.remove_suffix(1);
  std::optional<double> value = parse_decimal(text);
  if (!value) return std::nullopt;
  if (percent) *value /= 100;
  if (*value > 1) return std::nullopt;
  return value;
}

// splitmix64: equal on every machine.
uint64_t scrambled(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

struct SignalName {
  const char* name;
  int number;
};
constexpr SignalName kSignals[] = {
    {"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"ABRT", SIGABRT}, {"USR1", SIGUSR1},
    {"USR2", SIGUSR2}, {"TERM", SIGTERM}, {"TRAP", SIGTRAP}, {"SEGV", SIGSEGV}, {"ALRM", SIGALRM},
    {"KILL", SIGKILL}, {"STOP", SIGSTOP}, {"TSTP", SIGTSTP}, {"CONT", SIGCONT}, {"URG", SIGURG},
};

std::optional<int> signal_number(std::string_view text) {
  if (const auto number = whole(text)) {
    if (*number < 1 || *number > 64) return std::nullopt;
    return static_cast<int>(*number);
  }
  if (text.starts_with("SIG")) text.remove_prefix(3);
  for (const SignalName& known : kSignals) {
    if (text == known.name) return known.number;
  }
  return std::nullopt;
}

template <typename T, typename Parse, typename Store>
std::optional<Error> take(const char* variable, const char* text, Parse parse, Store store) {
  if (text == nullptr || *text == '\0') return std::nullopt;
  Result<T> value = parse(text);
  if (!value) return Error{value.error().code, std::string(variable) + ": " + value.error().text};
  store(*value);
  return std::nullopt;
}

}  // namespace

bool FailRate::contains(uint64_t number) const {
  const uint64_t drawn = scrambled(scrambled(seed) ^ number) >> 11;  // 53 bits
  return static_cast<double>(drawn) < probability * 9007199254740992.0;
}

uint64_t Threshold::of(uint64_t device_bytes) const {
  if (bytes != 0) return bytes;
  return static_cast<uint64_t>(static_cast<double>(device_bytes) * share);
}

Result<uint64_t> parse_limit(std::string_view text) {
  Result<uint64_t> bytes = parse_size(text);
  if (bytes && *bytes == 0) return wrong(text, "a size above 0, such as 12GiB");
  return bytes;
}

Result<LimitScope> parse_limit_scope(std::string_view text) {
  if (text == "process") return LimitScope::process;
  if (text == "run") return LimitScope::run;
  return wrong(text, "process or run");
}

Result<CallRange> parse_oom_at(std::string_view text) {
  constexpr const char* kForms = "N, N-M or N+ (numbers of calls from 1)";
  if (!text.empty() && text.back() == '+') {
    const auto first = whole(text.substr(0, text.size() - 1));
    if (!first || *first == 0) return wrong(text, kForms);
    return CallRange{*first, UINT64_MAX};
  }
  const size_t dash = text.find('-');
  const auto first = whole(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : whole(text.substr(dash + 1));
  if (!first || !last || *first == 0 || *last < *first) return wrong(text, kForms);
  return CallRange{*first, *last};
}

Result<FailRate> parse_fail_rate(std::string_view text) {
  constexpr const char* kForms = "P or P:SEED (P from 0 to 1, or 10%; SEED a whole number)";
  const size_t colon = text.find(':');
  FailRate rate;
  const auto probability = share(text.substr(0, colon));
  if (!probability) return wrong(text, kForms);
  rate.probability = *probability;
  if (colon == std::string_view::npos) return rate;
  const auto seed = whole(text.substr(colon + 1));
  if (!seed) return wrong(text, kForms);
  rate.seed = *seed;
  return rate;
}

Result<Threshold> parse_threshold(std::string_view text) {
  Threshold threshold;
  if (!text.empty() && text.back() == '%') {
    const auto of_device = share(text);
    if (!of_device || *of_device == 0) return wrong(text, "a share above 0%, up to 100%");
    threshold.share = *of_device;
    return threshold;
  }
  const Result<uint64_t> bytes = parse_limit(text);
  if (!bytes) return wrong(text, "a size such as 10GiB or a share such as 90%");
  threshold.bytes = *bytes;
  return threshold;
}

Result<OnOom> parse_on_oom(std::string_view text) {
  if (text == "dump") return OnOom{OomAction::dump, 0};
  if (text == "pause") return OnOom{OomAction::pause, 0};
  if (text == "report") return OnOom{OomAction::report, 0};
  if (text == "signal") return OnOom{OomAction::signal, SIGUSR1};
  constexpr std::string_view kSignal = "signal:";
  if (text.starts_with(kSignal)) {
    if (const auto number = signal_number(text.substr(kSignal.size()))) {
      return OnOom{OomAction::signal, *number};
    }
    return wrong(text, "signal:NAME with a signal's name (USR1, TERM, …) or number");
  }
  return wrong(text, "dump, signal, signal:NAME, pause or report");
}

Result<Limits> read_limits(GetVariable get) {
  Limits limits;
  const auto read = [get](const char* name) { return get(name); };
  std::optional<Error> failed;
  const auto settle = [&]<typename T>(const char* name, Result<T> (*parse)(std::string_view),
                                      auto store) {
    if (!failed) failed = take<T>(name, read(name), parse, store);
  };
  settle("FRAGSCOPE_MEMORY_LIMIT", parse_limit, [&](uint64_t v) { limits.device_bytes = v; });
  settle("FRAGSCOPE_PINNED_LIMIT", parse_limit, [&](uint64_t v) { limits.pinned_bytes = v; });
  settle("FRAGSCOPE_MEMORY_LIMIT_SCOPE", parse_limit_scope,
         [&](LimitScope v) { limits.scope = v; });
  settle("FRAGSCOPE_OOM_AT", parse_oom_at, [&](CallRange v) { limits.oom_at = v; });
  settle("FRAGSCOPE_FAIL_RATE", parse_fail_rate, [&](FailRate v) { limits.fail_rate = v; });
  settle("FRAGSCOPE_WARN_AT", parse_threshold, [&](Threshold v) { limits.warn_at = v; });
  settle("FRAGSCOPE_ON_OOM", parse_on_oom, [&](OnOom v) { limits.on_oom = v; });
  if (failed) return *failed;
  const char* const account = get("FRAGSCOPE_MEMORY_ACCOUNT");
  if (account != nullptr) limits.account = account;
  if (limits.scope == LimitScope::run && limits.account.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "FRAGSCOPE_MEMORY_LIMIT_SCOPE=run needs FRAGSCOPE_MEMORY_ACCOUNT, a file for the "
                 "run's account"};
  }
  return limits;
}

}  // namespace fragscope::enforce
