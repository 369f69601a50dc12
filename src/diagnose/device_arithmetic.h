// The arithmetic of messages that print device figures (PyTorch's native and async allocators).
#pragma once

#include "diagnose/verdict.h"

namespace fragscope::diagnose {

inline int64_t signed_bytes(const Quantity& value) { return static_cast<int64_t>(value.bytes); }
inline std::optional<int64_t> signed_bytes(const std::optional<Quantity>& value) {
  if (!value) return std::nullopt;
  return signed_bytes(*value);
}
// Half the distance between the smallest and the largest value that prints like this.
inline int64_t slack(const std::optional<Quantity>& value) {
  return value ? static_cast<int64_t>((value->high - value->low) / 2) : 0;
}

Derived derive(const OomFacts& facts);

// Fills verdict, alternatives, confidence and why; `out.derived` must be derive(facts).
void judge_device(const OomFacts& facts, Explanation& out);

// "-1.25 GiB", as PyTorch prints sizes.
std::string size_text(int64_t bytes);
std::string size_text(const Quantity& value);

}  // namespace fragscope::diagnose
