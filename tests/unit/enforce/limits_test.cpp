// src/enforce/limits.h: what the variables may say, and which calls fail on purpose.
#include "enforce/limits.h"

#include <signal.h>

#include <map>
#include <string>

#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::enforce;

namespace {

std::map<std::string, std::string> g_variables;
const char* variable(const char* name) {
  const auto at = g_variables.find(name);
  return at == g_variables.end() ? nullptr : at->second.c_str();
}

Result<Limits> limits_of(std::map<std::string, std::string> variables) {
  g_variables = std::move(variables);
  return read_limits(variable);
}

}  // namespace

TEST_CASE("no variable, no limit") {
  const auto limits = limits_of({});
  REQUIRE(limits.ok());
  CHECK_FALSE(limits->any());
  CHECK(limits->on_oom.action == OomAction::none);
}

TEST_CASE("each variable is read") {
  const auto limits = limits_of({{"FRAGSCOPE_MEMORY_LIMIT", "12GiB"},
                                 {"FRAGSCOPE_PINNED_LIMIT", "1.5g"},
                                 {"FRAGSCOPE_MEMORY_LIMIT_SCOPE", "run"},
                                 {"FRAGSCOPE_MEMORY_ACCOUNT", "/tmp/a"},
                                 {"FRAGSCOPE_OOM_AT", "3-5"},
                                 {"FRAGSCOPE_FAIL_RATE", "25%:7"},
                                 {"FRAGSCOPE_WARN_AT", "90%"},
                                 {"FRAGSCOPE_ON_OOM", "signal:SIGTERM"}});
  REQUIRE(limits.ok());
  CHECK(limits->any());
  CHECK(limits->device_bytes == 12ull << 30);
  CHECK(limits->pinned_bytes == 3ull << 29);
  CHECK(limits->scope == LimitScope::run);
  CHECK(limits->oom_at->first == 3);
  CHECK(limits->oom_at->last == 5);
  CHECK(limits->fail_rate->probability == 0.25);
  CHECK(limits->fail_rate->seed == 7);
  CHECK(limits->warn_at->of(1000) == 900);
  CHECK(limits->on_oom.action == OomAction::signal);
  CHECK(limits->on_oom.signal == SIGTERM);
}

TEST_CASE("what cannot be read is refused by name") {
  const std::pair<const char*, const char*> wrong[] = {
      {"FRAGSCOPE_MEMORY_LIMIT", "much"},
      {"FRAGSCOPE_MEMORY_LIMIT", "0"},
      {"FRAGSCOPE_MEMORY_LIMIT", "-1"},
      {"FRAGSCOPE_PINNED_LIMIT", "1x"},
      {"FRAGSCOPE_OOM_AT", "0"},
      {"FRAGSCOPE_OOM_AT", "5-3"},
      {"FRAGSCOPE_OOM_AT", "-3"},
      {"FRAGSCOPE_OOM_AT", "3-"},
      {"FRAGSCOPE_OOM_AT", "+"},
      {"FRAGSCOPE_FAIL_RATE", "1.5"},
      {"FRAGSCOPE_FAIL_RATE", "-0.1"},
      {"FRAGSCOPE_FAIL_RATE", "nan"},
      {"FRAGSCOPE_FAIL_RATE", "0.1:x"},
      {"FRAGSCOPE_FAIL_RATE", "0.1:"},
      {"FRAGSCOPE_WARN_AT", "0%"},
      {"FRAGSCOPE_WARN_AT", "101%"},
      {"FRAGSCOPE_ON_OOM", "explode"},
      {"FRAGSCOPE_ON_OOM", "signal:SIGNONE"},
      {"FRAGSCOPE_ON_OOM", "signal:0"},
      {"FRAGSCOPE_MEMORY_LIMIT_SCOPE", "all"},
      {"FRAGSCOPE_MEMORY_LIMIT_SCOPE", "run"},  // without an account
  };
  for (const auto& [name, value] : wrong) {
    CAPTURE(name, value);
    const auto limits = limits_of({{name, value}});
    REQUIRE_FALSE(limits.ok());
    CHECK(limits.error().code == ErrorCode::kInvalidArgument);
    CHECK(limits.error().text.find(name) == 0);
  }
}

TEST_CASE("the calls that fail are told by their numbers") {
  CHECK(parse_oom_at("5")->contains(5));
  CHECK_FALSE(parse_oom_at("5")->contains(4));
  CHECK_FALSE(parse_oom_at("5")->contains(6));
  CHECK(parse_oom_at("5+")->contains(1'000'000));
  CHECK_FALSE(parse_oom_at("5+")->contains(4));
}

TEST_CASE("a rate fails the same calls for the same seed, about as many as it says") {
  const FailRate rate{0.25, 42};
  const FailRate same{0.25, 42};
  const FailRate other{0.25, 43};
  int failed = 0;
  int different = 0;
  for (uint64_t number = 1; number <= 100'000; ++number) {
    CHECK(rate.contains(number) == same.contains(number));
    failed += rate.contains(number);
    different += rate.contains(number) != other.contains(number);
  }
  CHECK(failed > 24'000);
  CHECK(failed < 26'000);
  CHECK(different > 30'000);
  CHECK_FALSE(FailRate{0, 1}.contains(1));
  CHECK(FailRate{1, 1}.contains(1));
}
