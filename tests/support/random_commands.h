// Seeded random command lists for the allocator model, for property tests and for the comparison
// with the real library, and a shrinker for those that fail.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fragscope::test {

class Random {
 public:
  // The state is mixed, or neighbouring seeds would give the same numbers, shifted.
  explicit Random(uint64_t seed) : state_(seed) { state_ = next() ^ 0x5851'f42d'4c95'7f2dull; }
  uint64_t next() {  // splitmix64
    uint64_t z = (state_ += 0x9e37'79b9'7f4a'7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11ebull;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t bound) { return next() % bound; }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  uint64_t state_;
};

struct ListShape {
  size_t commands = 300;
  unsigned streams = 4;
  uint64_t largest = 256ull << 20;   // bytes of one request
  uint64_t live_limit = 2ull << 30;  // frees become likely above it
  bool events = true;                // record_stream, work, complete
  bool scopes = false;               // private pools
  bool scope_streams = false;        // every scope names its stream (2.0 … 2.2)
  bool captures = false;             // of graphs; without scopes, which may stand alone
  bool checkpoints = false;          // of private pools; with scopes, without events
  bool fractions = false;
  unsigned devices = 1;
  std::vector<std::string> pools;     // made at the start: "use_on_oom", "no_split"
  std::vector<std::string> settings;  // switched between at run time
};

// One list as lines; IDs are a0, a1, …
class ListMaker {
 public:
  ListMaker(uint64_t seed, ListShape shape) : random_(seed), shape_(std::move(shape)) {
    for (int i = 0; i < 6; ++i) palette_.push_back(fresh_size());
  }

  std::vector<std::string> make() {
    for (size_t i = 0; i < shape_.pools.size(); ++i) {
      const std::string pool = std::to_string(i + 1);
      add("create_pool " + pool + " " + shape_.pools[i]);
      used_.insert(pool);
      users_[i + 1] = 1;
    }
    while (lines_.size() < shape_.commands) step();
    return std::move(lines_);
  }

 private:
  void step() {
    const uint64_t dice = random_.below(1000);
    if (dice < 20 && shape_.events) {
      add("work " + stream());
    } else if (dice < 40 && shape_.events) {
      add("complete " + stream());
    } else if (dice < 110 && shape_.events && !live_.empty()) {
      add("record_stream " + live_[random_.below(live_.size())].name + " " + stream());
    } else if (dice < 116) {
      add("empty_cache");
    } else if (dice < 130 && shape_.scopes) {
      scope();
    } else if (dice >= 150 && dice < 162 && shape_.captures) {
      add(capturing_ ? "end_capture" : "begin_capture");
      capturing_ = !capturing_;
    } else if (dice >= 162 && dice < 186 && shape_.checkpoints) {
      checkpoint();
    } else if (dice < 134 && !shape_.settings.empty()) {
      add("settings " + random_.pick(shape_.settings));
    } else if (dice < 137 && shape_.fractions) {
      add(std::string("fraction ") +
          random_.pick(std::vector<std::string>{"1.0", "0.9", "0.75", "0.5"}));
    } else if (dice < 139) {
      add(random_.chance(50) ? "reset_peak_stats" : "reset_accumulated_stats");
    } else if (dice < 150 && shape_.devices > 1) {
      add("device " + std::to_string(random_.below(shape_.devices)));
    } else {
      alloc_or_free();
    }
  }

  void alloc_or_free() {
    const bool full = bytes_ > shape_.live_limit;
    if (!live_.empty() && random_.chance(full ? 65 : 44)) {
      const size_t at = random_.chance(40) ? live_.size() - 1 : random_.below(live_.size());
      add("free " + live_[at].name);
      bytes_ -= live_[at].size;
      live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    }
    const uint64_t size = random_.chance(55) ? random_.pick(palette_) : fresh_size();
    const std::string name = "a" + std::to_string(count_++);
    add("alloc " + name + " " + std::to_string(size) + " " + stream());
    live_.push_back({name, size});
    bytes_ += size;
  }

  // What tensors of training programs take: products of usual dimensions and of an element's size.
  uint64_t tensor_size() {
    static const std::vector<uint64_t> kDimensions = {
        1,   3,    7,    56,   64,   77,   112,  128,  196,   224,   256,   384,  512,
        768, 1000, 1024, 1536, 2048, 3072, 4096, 5120, 11008, 14336, 32000, 50257};
    uint64_t size = 1ull << random_.below(4);
    const uint64_t rank = 1 + random_.below(4);
    for (uint64_t i = 0; i < rank; ++i) {
      const uint64_t dimension = random_.pick(kDimensions);
      if (size * dimension <= shape_.largest) size *= dimension;
    }
    return size;
  }

  // Around every constant of the allocator, of tensors, and log-uniform.
  uint64_t fresh_size() {
    if (random_.chance(20)) return tensor_size();
    static const std::vector<uint64_t> kEdges = {1,        512,      1024,     4096,     524288,
                                                 1048576,  1572864,  2097152,  8388608,  10485760,
                                                 12582912, 19922944, 20971520, 22020096, 33554432,
                                                 41943040, 67108864, 88080384, 104857600};
    uint64_t size = 0;
    if (random_.chance(45)) {
      const uint64_t edge = random_.pick(kEdges);
      const std::vector<uint64_t> offsets = {0, 1, 511, 512, 513, 1048576};
      const uint64_t offset = random_.pick(offsets);
      size = random_.chance(50) ? edge + offset : edge - std::min(edge - 1, offset);
    } else {
      size = 1 + (random_.next() >> 1) % (1ull << (1 + random_.below(28)));
      if (random_.chance(30)) size = (size + 511) / 512 * 512;
    }
    return std::min(size, shape_.largest);
  }

  void scope() {
    const std::string pool = std::to_string(1 + random_.below(3));
    if (open_.count(pool) != 0) {
      add("end_pool " + pool);
      open_.erase(pool);
      open_streams_.erase(open_on_[pool]);
      if (random_.chance(50)) return;
      add("release_pool " + pool);
      --users_[std::stoul(pool)];
    } else if (open_.size() < 2) {
      // A pool that lost its last user must not be opened again.
      if (users_[std::stoul(pool)] == 0 && used_.count(pool) != 0) return;
      const bool named = shape_.scope_streams || random_.chance(40);
      const std::string on = named ? " " + stream() : "";
      // Up to 2.2 a stream has one scope; a second one is an assertion.
      if (shape_.scope_streams && !open_streams_.insert(on).second) return;
      open_on_[pool] = on;
      add("begin_pool " + pool + on);
      open_.insert(pool);
      used_.insert(pool);
      ++users_[std::stoul(pool)];
    }
  }

  // Peaks are reset behind a restore: they depend on the order of the segments, a hash map's.
  void checkpoint() {
    if (!checkpoints_.empty() && random_.chance(60)) {
      const Checkpoint& kept = checkpoints_[random_.below(checkpoints_.size())];
      if (users_[kept.pool] == 0) return;
      add("restore " + kept.name);
      add("reset_peak_stats");
      for (const Live& live : kept.live) {
        const auto same = [&](const Live& other) { return other.name == live.name; };
        if (std::none_of(live_.begin(), live_.end(), same)) live_.push_back(live);
      }
      return;
    }
    const size_t pool = 1 + random_.below(3);
    if (users_[pool] == 0) return;
    const std::string name = "c" + std::to_string(checkpoints_.size());
    add("checkpoint " + name + " " + std::to_string(pool));
    checkpoints_.push_back({name, pool, live_});
  }

  std::string stream() {
    return std::to_string(random_.chance(50) ? 0 : random_.below(shape_.streams));
  }
  void add(const std::string& line) { lines_.push_back(line); }

  struct Live {
    std::string name;
    uint64_t size;
  };
  Random random_;
  ListShape shape_;
  std::vector<uint64_t> palette_;
  std::vector<std::string> lines_;
  std::vector<Live> live_;
  std::set<std::string> open_;
  std::set<std::string> used_;
  std::set<std::string> open_streams_;
  std::map<std::string, std::string> open_on_;  // pool -> its scope's stream
  size_t users_[8] = {};
  struct Checkpoint {
    std::string name;
    size_t pool;
    std::vector<Live> live;
  };
  std::vector<Checkpoint> checkpoints_;
  uint64_t bytes_ = 0;
  size_t count_ = 0;
  bool capturing_ = false;
};

inline std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// Without the lines that name an allocation, an open scope or a pool's user that is no longer
// there.
inline std::vector<std::string> repair_lines(const std::vector<std::string>& lines) {
  std::set<std::string> live;
  std::set<std::string> open;
  std::map<std::string, int> users;
  std::map<std::string, std::set<std::string>> checkpoints;
  std::vector<std::string> kept;
  for (const std::string& line : lines) {
    std::istringstream words(line);
    std::string op;
    std::string id;
    words >> op >> id;
    if (op == "alloc" || op == "host_alloc") live.insert(id);
    if (op == "checkpoint") checkpoints[id] = live;
    if (op == "restore") {
      if (checkpoints.count(id) == 0) continue;
      live.insert(checkpoints[id].begin(), checkpoints[id].end());
    }
    const bool frees = op == "free" || op == "host_free";
    const bool uses = frees || op == "record_stream" || op == "host_record";
    if (uses && live.count(id) == 0) continue;
    if (frees) live.erase(id);
    const std::string pool = (op.starts_with("host_") ? "host " : "") + id;
    if (op.ends_with("begin_pool")) open.insert(pool);
    if (op.ends_with("begin_pool") || op == "create_pool") ++users[pool];
    if (op.ends_with("end_pool") && open.erase(pool) == 0) continue;
    if (op.ends_with("release_pool")) {
      if (users[pool] <= static_cast<int>(open.count(pool))) continue;
      --users[pool];
    }
    kept.push_back(line);
  }
  return kept;
}

// The smallest list found for which `fails` still holds: halves, quarters, … single lines go.
inline std::vector<std::string> shrink_lines(
    std::vector<std::string> lines,
    const std::function<bool(const std::vector<std::string>&)>& fails) {
  for (size_t chunk = lines.size() / 2; chunk > 0;) {
    bool smaller = false;
    for (size_t at = 0; at + chunk <= lines.size();) {
      std::vector<std::string> candidate(lines.begin(),
                                         lines.begin() + static_cast<std::ptrdiff_t>(at));
      candidate.insert(candidate.end(), lines.begin() + static_cast<std::ptrdiff_t>(at + chunk),
                       lines.end());
      candidate = repair_lines(candidate);
      if (fails(candidate)) {
        lines = std::move(candidate);
        smaller = true;
      } else {
        at += chunk;
      }
    }
    if (!smaller) chunk /= 2;
    chunk = std::min(chunk, lines.size());
  }
  return lines;
}

}  // namespace fragscope::test
