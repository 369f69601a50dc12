// Verify on traces that the model itself recorded, and on damaged copies of them.
#include <algorithm>

#include "replay/event_stream.h"
#include "replay/replayer.h"
#include "tests/support/catch.h"
#include "tests/support/recorded_model.h"

using namespace fragscope;
using namespace fragscope::replay;
using test::RecordAs;
using test::RecordedModel;
using test::RecordSettings;

namespace {

ProcessReplay replayed(const std::vector<Event>& events, const std::string& conf = "",
                       const ReplayOptions& options = {}, const std::string& version = "2.15") {
  ProcessFacts facts;
  facts.pid = 100;
  facts.properties["torch_version"] = version;
  facts.properties["alloc_conf"] = conf;
  VectorStream stream(events);
  auto result = replay_process(stream, facts, options);
  REQUIRE(result.ok());
  return std::move(result).value();
}

VerifyCounts only_verify(const ProcessReplay& replay) {
  REQUIRE(replay.devices.size() == 1);
  REQUIRE(replay.devices[0].verify);
  return *replay.devices[0].verify;
}

void check_perfect(const ProcessReplay& replay) {
  const VerifyCounts counts = only_verify(replay);
  if (counts.first_divergence) {
    INFO("at " << counts.first_divergence->seq << ": " << counts.first_divergence->predicted
               << " / " << counts.first_divergence->recorded);
    CHECK_FALSE(counts.first_divergence);
  }
  CHECK(counts.block_events > 0);
  CHECK(counts.address_matches == counts.block_events);
  CHECK(counts.segment_calls > 0);
  CHECK(counts.segment_matches == counts.segment_calls);
  CHECK(counts.unknown_frees == 0);
  CHECK(replay.perfect());
}

void check_figures(const ProcessReplay& replay, RecordedModel& recorded) {
  const model::DeviceStats& stats = recorded.allocator().stats();
  const ReplayFigures& figures = *replay.devices[0].figures;
  CHECK(figures.reserved.peak == static_cast<uint64_t>(stats.reserved_bytes.all.peak));
  CHECK(figures.reserved.final == static_cast<uint64_t>(stats.reserved_bytes.all.current));
  CHECK(figures.allocated.peak == static_cast<uint64_t>(stats.allocated_bytes.all.peak));
  CHECK(figures.allocated.final == static_cast<uint64_t>(stats.allocated_bytes.all.current));
  CHECK(figures.segments.peak == static_cast<uint64_t>(stats.segment.all.peak));
}

}  // namespace

TEST_CASE("verify reproduces a recorded training run in every prediction") {
  const std::string conf = GENERATE("", "max_split_size_mb:32", "roundup_power2_divisions:4");
  const std::string version = GENERATE("2.1", "2.6", "2.15");
  RecordedModel recorded({RecordAs::adaptor, conf, version});
  test::train(recorded, 12, 5, false);
  const ProcessReplay replay = replayed(recorded.events(), conf, {}, version);
  check_perfect(replay);
  check_figures(replay, recorded);
  CHECK(replay.devices[0].figures->requested->peak ==
        static_cast<uint64_t>(recorded.allocator().stats().requested_bytes.all.peak));
}

TEST_CASE("verify follows streams and late completions") {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    RecordedModel recorded;
    test::train(recorded, 8, seed, true);
    const ProcessReplay replay = replayed(recorded.events());
    check_perfect(replay);
    check_figures(replay, recorded);
  }
}

TEST_CASE("verify follows refusals, the flush and out of memory") {
  RecordSettings settings;
  settings.capacity = 300 * kMiB;
  for (const char* conf : {"", "max_split_size_mb:40"}) {
    settings.conf = conf;
    uint64_t ooms = 0;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      RecordedModel recorded(settings);
      test::train(recorded, 8, seed, seed % 2 == 0);
      const ProcessReplay replay = replayed(recorded.events(), conf);
      check_perfect(replay);
      check_figures(replay, recorded);
      ooms += replay.devices[0].figures->ooms.size();
      CHECK(static_cast<int64_t>(replay.devices[0].figures->ooms.size()) ==
            recorded.allocator().stats().num_ooms);
    }
    CHECK(ooms > 0);
  }
}

TEST_CASE("verify follows a first request that is refused") {
  for (const uint64_t later : {uint64_t{0}, 30 * kMiB}) {
    RecordSettings settings;
    settings.capacity = 400 * kMiB;
    RecordedModel recorded(settings);
    CHECK(recorded.alloc(500 * kMiB) == 0);
    if (later > 0) CHECK(recorded.alloc(later) != 0);
    const VerifyCounts counts = only_verify(replayed(recorded.events()));
    CHECK(counts.address_matches == counts.block_events);
    CHECK(counts.segment_matches == counts.segment_calls);
    CHECK(replayed(recorded.events()).devices[0].figures->reserved.peak == later);
  }
}

TEST_CASE("verify follows expandable segments, page by page") {
  RecordSettings settings;
  settings.conf = "expandable_segments:True";
  settings.capacity = 300 * kMiB;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    RecordedModel recorded(settings);
    test::train(recorded, 8, seed, seed % 2 == 0);
    REQUIRE(recorded.allocator().stats().num_device_free > 0);
    ProcessFacts facts;
    facts.properties = {{"torch_version", "2.15"},
                        {"alloc_conf", settings.conf},
                        {"device.0.total_bytes", "314572800"}};
    VectorStream stream(recorded.events());
    const auto result = replay_process(stream, facts, {});
    REQUIRE(result.ok());
    check_perfect(result.value());
    check_figures(result.value(), recorded);
  }
}

TEST_CASE("verify works on c10 memory reports, and says what it assumes") {
  RecordSettings settings;
  settings.source = RecordAs::report;
  settings.capacity = 400 * kMiB;
  RecordedModel recorded(settings);
  test::train(recorded, 12, 3, false);
  const ProcessReplay replay = replayed(recorded.events());
  check_perfect(replay);
  check_figures(replay, recorded);
  CHECK(replay.source == BlockSource::report);
  CHECK_FALSE(replay.devices[0].figures->requested);
  REQUIRE(replay.assumptions.size() == 2);
  CHECK(replay.assumptions[0].find("requested sizes") != std::string::npos);
  CHECK(replay.assumptions[1].find("one stream is assumed") != std::string::npos);
}

TEST_CASE("the first block that the tracker missed is taken from its report") {
  RecordedModel recorded;
  test::train(recorded, 4, 11, false);
  std::vector<Event> events = recorded.events();
  const auto is_kind = [](EventKind kind) {
    return [kind](const Event& event) { return event.kind == kind; };
  };
  events.erase(std::find_if(events.begin(), events.end(), is_kind(EventKind::segment_alloc)));
  Event& first = *std::find_if(events.begin(), events.end(), is_kind(EventKind::alloc));
  first.flags = kFlagSourceReport;
  first.requested = first.stream = kUnknown;
  const ProcessReplay replay = replayed(events);
  check_perfect(replay);
  CHECK(replay.source == BlockSource::adaptor);
}

TEST_CASE("a mutated split rule does not verify") {
  RecordedModel recorded;
  test::train(recorded, 6, 5, false);
  ReplayOptions options;
  options.split_rule = model::SplitRule::kMutatedNeverLarge;
  const ProcessReplay replay = replayed(recorded.events(), "", options);
  const VerifyCounts counts = only_verify(replay);
  CHECK(counts.address_matches < counts.block_events);
  CHECK_FALSE(replay.perfect());
  REQUIRE(counts.first_divergence);
  CHECK_FALSE(counts.first_divergence->reason.empty());
}

TEST_CASE("a split rule that differs by one byte does not verify") {
  RecordedModel recorded;
  recorded.alloc(19 * kMiB);  // leaves exactly 1 MiB, which is not split off
  recorded.alloc(2 * kMiB);
  recorded.alloc(kMiB + 512);
  check_perfect(replayed(recorded.events()));
  ReplayOptions options;
  options.split_rule = model::SplitRule::kMutatedAtOneMiB;
  const ProcessReplay replay = replayed(recorded.events(), "", options);
  CHECK_FALSE(replay.perfect());
  CHECK(only_verify(replay).first_divergence->seq == 3);
}

TEST_CASE("one wrong address is one divergence: the replay goes on from the recorded state") {
  RecordedModel recorded;
  test::train(recorded, 6, 9, false);
  std::vector<Event> events = recorded.events();
  // Exchange the places of two small blocks of one size that are never freed.
  RecordedModel small;
  std::vector<uint64_t> kept;
  for (int i = 0; i < 20; ++i) kept.push_back(small.alloc(4096));
  events = small.events();
  for (Event& event : events) {
    if (event.kind != EventKind::alloc) continue;
    if (event.address == kept[10]) {
      event.address = kept[11];
    } else if (event.address == kept[11]) {
      event.address = kept[10];
    }
  }
  const VerifyCounts counts = only_verify(replayed(events));
  CHECK(counts.block_events == 20);
  CHECK(counts.address_matches == 19);
  CHECK(counts.segment_matches == counts.segment_calls);
  CHECK(counts.resyncs == 1);
  CHECK(counts.lost_blocks == 0);
  REQUIRE(counts.first_divergence);
  CHECK(counts.first_divergence->predicted.find("block of 4096 bytes at 0x") == 0);
  CHECK(counts.first_divergence->rule.find("best fit: the smallest free block of the small pool "
                                           "of stream 0 with at least 4096 bytes (") == 0);
}

TEST_CASE("a missing segment call and a wrong segment size are counted") {
  RecordedModel recorded;
  test::train(recorded, 3, 2, false);
  const size_t calls = only_verify(replayed(recorded.events())).segment_calls;

  std::vector<Event> missing = recorded.events();
  const auto is_segment = [](const Event& event) {
    return event.kind == EventKind::segment_alloc && event.size > 2 * kMiB;
  };
  const auto at = std::find_if(missing.begin(), missing.end(), is_segment);
  REQUIRE(at != missing.end());
  const uint64_t address = at->address;
  missing.erase(at);
  std::erase_if(missing, [&](const Event& event) {
    return event.kind == EventKind::device_alloc && event.address == address;
  });
  const VerifyCounts counts = only_verify(replayed(missing));
  CHECK(counts.segment_matches < counts.segment_calls);
  REQUIRE(counts.first_divergence);
  CHECK(counts.first_divergence->predicted.find("cudaMalloc of") == 0);
  CHECK(counts.first_divergence->rule.find("is asked of CUDA") != std::string::npos);
  CHECK(counts.first_divergence->recorded == "no call for device memory");

  std::vector<Event> wrong = recorded.events();
  std::find_if(wrong.begin(), wrong.end(), is_segment)->size += 2 * kMiB;
  const VerifyCounts resized = only_verify(replayed(wrong));
  CHECK(resized.segment_calls >= calls);
  CHECK(resized.segment_matches < resized.segment_calls);
}

TEST_CASE("a limit of the allocator's own is taken from the recording and told") {
  RecordSettings settings;
  settings.capacity = 8 * kGiB;
  RecordedModel recorded(settings);
  REQUIRE(recorded.allocator().set_memory_fraction(0.5));
  const uint64_t half = recorded.allocator().allowed_bytes().value();
  const uint64_t big = recorded.alloc(half / 2);
  recorded.free(big);
  REQUIRE(recorded.alloc(half - 30 * kMiB) != 0);  // after big's segment went back
  CHECK(recorded.alloc(64 * kMiB) == 0);
  CHECK(recorded.alloc(20 * kMiB) != 0);
  const ProcessReplay replay = replayed(recorded.events());
  check_perfect(replay);
  // The refused request tried twice; the release before the large one reads as empty_cache().
  CHECK(only_verify(replay).unasked_refusals == 2);
  const auto tells = [](const std::string& text) {
    return text.find("set_per_process_memory_fraction") != text.npos;
  };
  CHECK(std::count_if(replay.assumptions.begin(), replay.assumptions.end(), tells) == 1);
}

TEST_CASE("garbage that was collected under a fraction of the program's own is predicted") {
  const uint64_t seed = GENERATE(1u, 2u, 3u, 4u, 5u, 6u);
  RecordSettings settings;
  settings.capacity = 2 * kGiB;
  settings.conf = "garbage_collection_threshold:0.6";
  RecordedModel recorded(settings);
  REQUIRE(recorded.allocator().set_memory_fraction(0.5));
  std::vector<uint64_t> live;
  uint64_t random = seed;
  for (int step = 0; step < 600; ++step) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const uint64_t dice = random >> 33;
    if (live.size() > 12 || (dice % 5 < 2 && !live.empty())) {
      const size_t at = dice / 7 % live.size();
      recorded.free(live[at]);
      live.erase(live.begin() + static_cast<ptrdiff_t>(at));
    } else if (const uint64_t block = recorded.alloc((10 + dice % 60) * kMiB)) {
      live.push_back(block);
    }
    if (dice % 97 == 0) recorded.empty_cache();
  }
  const auto frees =
      std::count_if(recorded.events().begin(), recorded.events().end(),
                    [](const Event& event) { return event.kind == EventKind::segment_free; });
  REQUIRE(frees > 15);
  check_perfect(replayed(recorded.events(), settings.conf));
}

TEST_CASE("a call that was not predicted is counted") {
  RecordedModel recorded;
  const uint64_t first = recorded.alloc(30 * kMiB);
  recorded.free(first);
  recorded.alloc(30 * kMiB);  // reuses the segment
  std::vector<Event> events = recorded.events();
  Event extra = events.front();
  extra.kind = EventKind::segment_alloc;
  extra.flags = kFlagSourceAdaptor;
  extra.address = 0x2f0000000000;
  extra.size = 30 * kMiB;
  extra.seq = events.back().seq;
  events.insert(events.end() - 1, extra);
  const VerifyCounts counts = only_verify(replayed(events));
  CHECK(counts.segment_calls == 2);
  CHECK(counts.segment_matches == 1);
  REQUIRE(counts.first_divergence);
  CHECK(counts.first_divergence->predicted == "no call for device memory");
  CHECK(counts.first_divergence->recorded == "cudaMalloc of 31457280 bytes");
}

TEST_CASE("empty_cache is an input, and which segments it gives back is predicted") {
  RecordedModel recorded;
  const uint64_t keep = recorded.alloc(3 * kMiB);
  const uint64_t a = recorded.alloc(30 * kMiB);
  const uint64_t b = recorded.alloc(40 * kMiB);
  recorded.free(a);
  recorded.free(b);
  recorded.empty_cache();
  recorded.free(keep);
  check_perfect(replayed(recorded.events()));
  CHECK(only_verify(replayed(recorded.events())).segment_calls == 5);

  std::vector<Event> events = recorded.events();  // only one of the two comes back
  const auto freed = std::find_if(events.begin(), events.end(), [](const Event& event) {
    return event.kind == EventKind::segment_free;
  });
  const uint64_t address = freed->address;
  std::erase_if(events, [&](const Event& event) {
    return (event.kind == EventKind::segment_free || event.kind == EventKind::device_free) &&
           event.address == address;
  });
  CHECK_FALSE(replayed(events).perfect());
}

TEST_CASE("several devices are verified each by itself") {
  RecordSettings settings;
  RecordedModel zero(settings);
  settings.device = 1;
  RecordedModel one(settings);
  test::train(zero, 3, 1, false);
  test::train(one, 3, 2, false);
  std::vector<Event> events = zero.events();
  events.insert(events.end(), one.events().begin(), one.events().end());
  std::stable_sort(events.begin(), events.end(), [](const Event& left, const Event& right) {
    return left.time_ns < right.time_ns;
  });
  const ProcessReplay replay = replayed(events);
  REQUIRE(replay.devices.size() == 2);
  for (const DeviceReplay& device : replay.devices) {
    CHECK(device.verify->perfect());
    CHECK(device.verify->block_events > 0);
  }
  CHECK(replay.devices[1].device == 1);
}

TEST_CASE("a program that was recorded from its middle is replayed as well as possible") {
  RecordedModel recorded;
  test::train(recorded, 6, 4, false);
  const std::vector<Event>& events = recorded.events();
  const std::vector<Event> half(events.begin() + static_cast<std::ptrdiff_t>(events.size() / 2),
                                events.end());
  const VerifyCounts counts = only_verify(replayed(half));
  CHECK(counts.first_divergence);
  CHECK(counts.address_matches > 0);
  CHECK(counts.unknown_frees > 0);
}
