// Seeded random command lists about pinned host memory (see random_commands.h).
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/random_commands.h"

namespace fragscope::test {

struct HostShape {
  size_t commands = 300;
  unsigned devices = 1;
  bool pools = false;                 // private pools
  bool background = false;            // rounds of the background thread
  bool stats = true;                  // resets
  bool one_stream = false;            // at most one per block: the order of several is a hash map's
  bool small = false;                 // at most 1 MiB each: their pages are touched
  std::vector<std::string> settings;  // switched between at run time
};

class HostListMaker {
 public:
  HostListMaker(uint64_t seed, HostShape shape) : random_(seed), shape_(std::move(shape)) {
    for (int i = 0; i < 8; ++i) palette_.push_back(fresh_size());
  }

  std::vector<std::string> make() {
    while (lines_.size() < shape_.commands) step();
    return std::move(lines_);
  }

 private:
  void step() {
    const uint64_t dice = random_.below(1000);
    if (dice < 60) {
      add("work " + stream());
    } else if (dice < 120) {
      add("complete " + stream());
    } else if (dice < 260 && !live_.empty()) {
      record(random_.pick(live_));
    } else if (dice < 275) {
      add("host_empty_cache");
    } else if (dice < 325 && shape_.background) {
      add("host_background");
    } else if (dice < 345 && shape_.pools) {
      scope();
    } else if (dice < 355 && !shape_.settings.empty()) {
      add("settings " + random_.pick(shape_.settings));
    } else if (dice < 362 && shape_.stats) {
      add(random_.chance(50) ? "host_reset_peak_stats" : "host_reset_accumulated_stats");
    } else if (dice < 380 && shape_.devices > 1) {
      add("device " + std::to_string(random_.below(shape_.devices)));
    } else if (dice < 390) {
      add("empty_cache");  // also waits for the streams' work
    } else {
      alloc_or_free();
    }
  }

  void record(const std::string& name) {
    if (!shape_.one_stream || recorded_.insert(name).second)
      add("host_record " + name + " " + stream());
  }

  void alloc_or_free() {
    if (!live_.empty() && random_.chance(live_.size() > 12 ? 70 : 45)) {
      const size_t at = random_.below(live_.size());
      add("host_free " + live_[at]);
      live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    }
    const uint64_t size = random_.chance(60) ? random_.pick(palette_) : fresh_size();
    const std::string name = "h" + std::to_string(count_++);
    add("host_alloc " + name + " " + std::to_string(size) + " " + stream());
    live_.push_back(name);
  }

  // Around powers of two and the limits of the settings, and log-uniform.
  uint64_t fresh_size() {
    const uint64_t power = 1ull << random_.below(shape_.small ? 20 : 29);
    if (random_.chance(10)) return random_.below(3);
    if (random_.chance(40)) return power - 1 + random_.below(3);
    if (!shape_.small && random_.chance(20))
      return (1ull << 20) * (1 + random_.below(6)) + random_.below(3) - 1;
    return power + random_.below(power);
  }

  void scope() {
    const std::string pool = std::to_string(1 + random_.below(3));
    if (open_.count(pool) != 0) {
      add("host_end_pool " + pool);
      open_.erase(pool);
      if (random_.chance(40)) return;
      add("host_release_pool " + pool);
      if (--users_[std::stoul(pool)] == 0) used_.insert(pool);
    } else if (open_.size() < 2 && used_.count(pool) == 0) {
      add("host_begin_pool " + pool + (random_.chance(50) ? " " + stream() : ""));
      open_.insert(pool);
      ++users_[std::stoul(pool)];
    }
  }

  std::string stream() { return std::to_string(random_.chance(30) ? 0 : random_.below(4)); }
  void add(const std::string& line) { lines_.push_back(line); }

  Random random_;
  HostShape shape_;
  std::vector<uint64_t> palette_;
  std::vector<std::string> lines_;
  std::vector<std::string> live_;
  std::set<std::string> recorded_;
  std::set<std::string> open_;
  std::set<std::string> used_;  // lost their last user: not opened again
  size_t users_[8] = {};
  size_t count_ = 0;
};

}  // namespace fragscope::test
