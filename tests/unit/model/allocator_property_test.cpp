// Random command lists under every release and family of options: the allocator's state must be
// consistent after each command, and its trace must make sense to someone who sees nothing else.
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "model/caching_allocator.h"
#include "model/command_json.h"
#include "model/command_runner.h"
#include "tests/support/catch.h"
#include "tests/support/invariants.h"
#include "tests/support/random_commands.h"

using namespace fragscope;
using namespace fragscope::model;
using fragscope::test::ListMaker;
using fragscope::test::ListShape;

namespace {

// What a trace says about one device, without any knowledge of the allocator.
class TraceBook {
 public:
  std::string apply(const TraceEntry& e) {
    switch (e.action) {
      case TraceAction::kSegmentAlloc:
      case TraceAction::kSegmentMap:
        return add(mapped_, e, "segment");
      case TraceAction::kSegmentFree:
      case TraceAction::kSegmentUnmap:
        return unmap(e);
      case TraceAction::kAlloc:
        return alloc(e);
      case TraceAction::kFreeRequested:
        return live_.count(e.address) != 0 ? "" : "a free of what is not live";
      case TraceAction::kFreeCompleted:
        return live_.erase(e.address) != 0 ? "" : "a completed free of what is not live";
      case TraceAction::kSnapshot:
      case TraceAction::kOom:
        break;
    }
    return {};
  }

  uint64_t mapped_bytes() const {
    uint64_t bytes = 0;
    for (const auto& [address, size] : mapped_) bytes += size;
    return bytes;
  }

 private:
  using Intervals = std::map<uint64_t, uint64_t>;

  static bool overlaps(const Intervals& set, uint64_t address, uint64_t size) {
    const auto after = set.lower_bound(address + size);
    if (after == set.begin()) return false;
    const auto before = std::prev(after);
    return before->first + before->second > address;
  }

  static std::string add(Intervals& set, const TraceEntry& e, const std::string& what) {
    if (e.size == 0) return "an empty " + what;
    if (overlaps(set, e.address, e.size)) return "a " + what + " over another one";
    set[e.address] = e.size;
    return {};
  }

  // Cuts [address, address + size) out of what is mapped.
  std::string unmap(const TraceEntry& e) {
    if (overlaps(live_, e.address, e.size)) return "live memory was given back";
    uint64_t at = e.address;
    const uint64_t end = e.address + e.size;
    while (at < end) {
      auto piece = mapped_.upper_bound(at);
      if (piece == mapped_.begin()) return "what is not mapped was given back";
      --piece;
      const auto [address, size] = *piece;
      if (address + size <= at) return "what is not mapped was given back";
      mapped_.erase(piece);
      if (address < at) mapped_[address] = at - address;
      if (address + size > end) mapped_[end] = address + size - end;
      at = address + size;
    }
    return {};
  }

  std::string alloc(const TraceEntry& e) {
    std::string problem = add(live_, e, "block");
    for (uint64_t at = e.address; problem.empty() && at < e.address + e.size;) {
      auto piece = mapped_.upper_bound(at);
      if (piece == mapped_.begin() || std::prev(piece)->first + std::prev(piece)->second <= at) {
        return "a block outside all segments";
      }
      at = std::prev(piece)->first + std::prev(piece)->second;
    }
    return problem;
  }

  Intervals mapped_;
  Intervals live_;
};

// Empty, or what went wrong first.
std::string run_checked(const std::vector<std::string>& lines, const std::string& settings,
                        const VersionProfile& profile, uint64_t memory) {
  const auto list = parse_commands(test::join_lines(lines), "list");
  if (!list) return list.error().text;
  const auto config = parse_config(settings, profile);
  if (!config) return config.error().text;
  const auto target = make_model_target(list.value(), config.value(), profile, memory);
  TraceBook book;
  std::string problem;
  run_commands(list.value(), *target, [&](const CommandResult& result) {
    if (!problem.empty()) return;
    for (const auto& entry : result.trace) {
      problem = book.apply(entry.entry);
      if (!problem.empty()) return;
    }
    // Where PyTorch itself has lost blocks the model need not know better; it must not crash.
    if (target->undefined_in_library()) return;
    const CachingAllocator& allocator = target->allocator(0);
    problem = check_invariants(allocator);
    const auto reserved = static_cast<uint64_t>(allocator.stats().reserved_bytes.all.current);
    if (problem.empty() && book.mapped_bytes() != reserved) problem = "segments miscounted";
    if (problem.empty() && reserved > memory) problem = "more reserved than the device has";
  });
  return problem;
}

struct Family {
  const char* settings;
  int first_minor;
  bool scopes;
  bool fractions;
  bool checkpoints = false;
};

constexpr Family kFamilies[] = {
    {"", 0, false, false},
    {"", 3, true, false},
    {"max_split_size_mb:32", 0, false, false},
    {"max_split_size_mb:64,max_non_split_rounding_mb:64", 6, false, false},
    {"roundup_power2_divisions:4", 0, false, false},
    {"roundup_power2_divisions:1", 0, false, false},
    {"roundup_power2_divisions:[1:2,4:8,32:1,>:4]", 0, false, false},
    {"garbage_collection_threshold:0.6", 0, false, true},
    {"expandable_segments:True", 1, false, false},
    {"expandable_segments:True", 5, true, true},
    {"", 3, true, false, true},
    {"expandable_segments:True", 5, true, false, true},
    {"expandable_segments:True,max_split_size_mb:48", 5, false, false},
    {"large_segment_size_mb:32,max_split_size_mb:40", 11, false, false},
    {"throw_on_cudamalloc_oom:True", 12, false, false},
};

}  // namespace

TEST_CASE("random lists keep the allocator consistent", "[property]") {
  const uint64_t seed = GENERATE(range<uint64_t>(0, 12));
  for (const VersionProfile& profile : version_profiles()) {
    for (const Family& family : kFamilies) {
      if (profile.minor < family.first_minor) continue;
      ListShape shape;
      shape.commands = 250;
      shape.scopes = family.scopes;
      shape.fractions = family.fractions;
      shape.checkpoints = family.checkpoints;
      shape.events = !family.checkpoints;
      const uint64_t memory = (seed % 2 == 0 ? 700 : 4096) * kMiB;
      const auto lines = ListMaker(seed * 100 + static_cast<uint64_t>(profile.minor), shape).make();
      const auto fails = [&](const std::vector<std::string>& some) {
        return !run_checked(some, family.settings, profile, memory).empty();
      };
      if (!fails(lines)) continue;
      const auto small = test::shrink_lines(lines, fails);
      FAIL("torch " << profile.name << ", " << family.settings << ", memory " << memory << ": "
                    << run_checked(small, family.settings, profile, memory) << "\n"
                    << test::join_lines(small));
    }
  }
}

TEST_CASE("the same list gives the same answer") {
  const auto lines = ListMaker(7, {}).make();
  const auto list = parse_commands(test::join_lines(lines), "list").value();
  const VersionProfile& profile = version_profiles().back();
  const auto answer = [&] {
    const auto target = make_model_target(list, {}, profile, 4 * kGiB);
    return list_result_json(run_commands(list, *target), profile, {});
  };
  CHECK(answer() == answer());
}

TEST_CASE("a changed split rule changes the answer") {
  const auto lines = ListMaker(11, {}).make();
  const auto list = parse_commands(test::join_lines(lines), "list").value();
  const auto answer = [&](SplitRule rule) {
    VersionProfile profile = version_profiles().back();
    profile.split_rule = rule;
    const auto target = make_model_target(list, {}, profile, 4 * kGiB);
    return list_result_json(run_commands(list, *target), profile, {});
  };
  const std::string right = answer(SplitRule::kReleased);
  CHECK(answer(SplitRule::kMutatedAtOneMiB) != right);
  CHECK(answer(SplitRule::kMutatedNeverLarge) != right);
}

TEST_CASE("shrinking keeps the failure and drops the rest") {
  const auto lines = ListMaker(3, {}).make();
  const auto fails = [](const std::vector<std::string>& some) {
    return std::count(some.begin(), some.end(), "empty_cache") > 0;
  };
  REQUIRE(fails(lines));
  CHECK(test::shrink_lines(lines, fails) == std::vector<std::string>{"empty_cache"});
}
