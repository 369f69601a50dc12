// A level over time: what it is, the most it ever was, and when that was first reached.
#pragma once

#include <cstdint>
#include <optional>

namespace fragscope::metrics {

class Gauge {
 public:
  void rise(uint64_t amount, uint64_t seq) { set(current_ + amount, seq); }
  void fall(uint64_t amount) { current_ -= amount < current_ ? amount : current_; }
  void set(uint64_t value, uint64_t seq) {
    current_ = value;
    if (value <= peak_) return;
    peak_ = value;
    peak_seq_ = seq;
  }

  uint64_t current() const { return current_; }
  uint64_t peak() const { return peak_; }
  uint64_t peak_seq() const { return peak_seq_; }  // 0: it never rose

 private:
  uint64_t current_ = 0;
  uint64_t peak_ = 0;
  uint64_t peak_seq_ = 0;
};

// A level for reports; absent = unknown.
struct KnownLevel {
  std::optional<uint64_t> peak;
  std::optional<uint64_t> final;  // when the process ended

  static KnownLevel of(const Gauge& gauge) { return {gauge.peak(), gauge.current()}; }
  friend bool operator==(const KnownLevel&, const KnownLevel&) = default;
};

}  // namespace fragscope::metrics
