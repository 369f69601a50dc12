#include "metrics/coverage.h"

#include <charconv>
#include <string_view>

namespace fragscope::metrics {
namespace {

constexpr std::string_view kUnhooked = "coverage.unhooked.";
constexpr std::string_view kCudart = "cudart.";
constexpr std::string_view kStaticCudart = "cudart_static.";

std::optional<uint64_t> number(const std::string& text) {
  uint64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Coverage coverage_of(const replay::ProcessFacts& facts) {
  Coverage coverage;
  if (const auto hooked = facts.property("coverage.hooked")) coverage.hooked = number(*hooked);
  coverage.calls = facts.api_calls;
  coverage.stacks = facts.property("stacks");
  for (const auto& [key, value] : facts.properties) {
    if (key.compare(0, kUnhooked.size(), kUnhooked) == 0) {
      if (const auto count = number(value))
        coverage.unhooked[key.substr(kUnhooked.size())] = *count;
    } else if (key.compare(0, kCudart.size(), kCudart) == 0) {
      coverage.cudart.push_back(value);
    } else if (key.compare(0, kStaticCudart.size(), kStaticCudart) == 0) {
      coverage.static_cudart.push_back(value);
    }
  }
  return coverage;
}

}  // namespace fragscope::metrics
