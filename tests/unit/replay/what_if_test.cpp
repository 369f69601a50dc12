// What-if: scenarios of the allocator's specification (S4, S7) as counterfactuals of recorded runs,
// and the questions that a source cannot answer.
#include <algorithm>

#include "base/bytes.h"
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

Result<ProcessReplay> try_replay(const std::vector<Event>& events, const ReplayOptions& options,
                                 const std::map<std::string, std::string>& properties = {}) {
  ProcessFacts facts;
  facts.pid = 100;
  facts.properties = properties;
  facts.properties.emplace("torch_version", "2.15");
  VectorStream stream(events);
  return replay_process(stream, facts, options);
}

ProcessReplay replayed(const std::vector<Event>& events, const ReplayOptions& options,
                       const std::map<std::string, std::string>& properties = {}) {
  auto result = try_replay(events, options, properties);
  REQUIRE(result.ok());
  return std::move(result).value();
}

ReplayOptions split_limit(uint64_t mebibytes) {
  ReplayOptions options;
  options.max_split_size_bytes = mebibytes * kMiB;
  return options;
}

// S7: capacity 1300, five requests, a false out of memory at the last one.
void false_oom(RecordedModel& recorded) {
  const uint64_t a = recorded.alloc(530 * kMiB);
  recorded.free(a);
  const uint64_t b = recorded.alloc(270 * kMiB);
  const uint64_t c = recorded.alloc(530 * kMiB);
  recorded.free(b);
  recorded.alloc(2 * kMiB);
  recorded.free(c);
  recorded.alloc(800 * kMiB);
}

}  // namespace

TEST_CASE("a release without rules is named: the asked one, or that of the trace") {
  RecordedModel recorded;
  recorded.alloc(kMiB);
  ReplayOptions options;
  options.torch_version = "2.99";
  const auto notes = replayed(recorded.events(), options).assumptions;
  CHECK(std::count(notes.begin(), notes.end(),
                   "there are no rules for torch 2.99: the rules of 2.15 are used") == 1);
  const auto plain = replayed(recorded.events(), {}, {{"torch_version", "3.1"}}).assumptions;
  CHECK(std::count(plain.begin(), plain.end(),
                   "the trace names no known torch release: the rules of 2.15 are used") == 1);
}

TEST_CASE("S4: a split limit of 64 MiB keeps large blocks whole") {
  RecordedModel recorded;
  recorded.free(recorded.alloc(100 * kMiB));
  recorded.alloc(50 * kMiB);
  recorded.free(recorded.alloc(81 * kMiB));
  recorded.alloc(80 * kMiB);
  const ProcessReplay replay = replayed(recorded.events(), split_limit(64));
  CHECK(replay.mode == ReplayMode::what_if);
  CHECK(replay.alloc_conf == "max_split_size_mb:64");
  REQUIRE(replay.devices.size() == 1);
  const ReplayFigures& figures = *replay.devices[0].figures;
  CHECK(figures.reserved.peak == 230 * kMiB);
  CHECK(figures.reserved.final == 230 * kMiB);
  CHECK(figures.allocated.peak == 150 * kMiB);  // 50, and the 100 block whole for 81
  CHECK(figures.allocated.final == 130 * kMiB);
  CHECK(figures.requested->peak == 131 * kMiB);
  CHECK(figures.segments.final == 3);
  CHECK(figures.device_mallocs == 3);
  CHECK(figures.device_frees == 0);
  CHECK(replay.devices[0].verify->perfect());
}

TEST_CASE("S7: the recorded out of memory is false, and a split limit avoids it") {
  RecordSettings settings;
  settings.capacity = 1300 * kMiB;
  RecordedModel recorded(settings);
  false_oom(recorded);

  const ProcessReplay as_recorded = replayed(recorded.events(), {});
  CHECK(as_recorded.mode == ReplayMode::verified);
  CHECK(as_recorded.perfect());
  REQUIRE(as_recorded.devices[0].figures->ooms.size() == 1);
  const OomFact& oom = as_recorded.devices[0].figures->ooms[0];
  CHECK(oom.requested == 800 * kMiB);
  CHECK(oom.device_free == 770 * kMiB);
  CHECK(as_recorded.devices[0].figures->reserved.final == 530 * kMiB);

  // The capacity is known from the refusal: 530 reserved + 770 free.
  const ProcessReplay limited = replayed(recorded.events(), split_limit(21));
  CHECK(limited.devices[0].capacity == 1300 * kMiB);
  const ReplayFigures& figures = *limited.devices[0].figures;
  CHECK(figures.ooms.empty());
  CHECK(limited.devices[0].ooms_avoided == 1);
  REQUIRE(limited.devices[0].at_oom);
  CHECK(limited.devices[0].at_oom->segments.size() == 2);  // 800 and 20, where 530 was before
  CHECK(limited.devices[0].at_oom->seq == oom.seq);
  REQUIRE(as_recorded.devices[0].at_oom);
  CHECK(as_recorded.devices[0].at_oom->segments.size() == 1);
  CHECK(figures.reserved.peak == 820 * kMiB);
  CHECK(figures.reserved.final == 820 * kMiB);
  CHECK(figures.device_frees == 2);
}

TEST_CASE("another device size decides whether the same run fits") {
  RecordedModel recorded;  // unlimited
  false_oom(recorded);
  ReplayOptions options;
  options.device_memory = 1300 * kMiB;
  const ProcessReplay small = replayed(recorded.events(), options);
  CHECK(small.devices[0].capacity == 1300 * kMiB);
  REQUIRE(small.devices[0].figures->ooms.size() == 1);
  CHECK(small.devices[0].figures->ooms[0].requested == 800 * kMiB);
  options.device_memory = 1332 * kMiB;
  CHECK(replayed(recorded.events(), options).devices[0].figures->ooms.empty());

  options.max_split_size_bytes = 21 * kMiB;
  options.device_memory = 1300 * kMiB;
  CHECK(replayed(recorded.events(), options).devices[0].figures->ooms.empty());
}

TEST_CASE("what others hold on the device is not the allocator's") {
  RecordedModel recorded;
  Event& library = recorded.driver(EventKind::device_alloc);
  library.size = 200 * kMiB;
  library.address = 0x2500'0000'0000;
  false_oom(recorded);
  ReplayOptions options;
  options.device_memory = 1500 * kMiB;
  CHECK(replayed(recorded.events(), options).devices[0].capacity == 1300 * kMiB);

  const std::map<std::string, std::string> card = {{"device.0.total_bytes", "1572864000"},
                                                   {"device.0.context_bytes", "104857600"}};
  const ProcessReplay same_card = replayed(recorded.events(), split_limit(21), card);
  CHECK(same_card.devices[0].capacity == (1500 - 200 - 100) * kMiB);
}

TEST_CASE("another release's rules can be asked for") {
  RecordedModel recorded({RecordAs::adaptor, "roundup_power2_divisions:1"});
  recorded.alloc(3 * kMiB + 1);
  ReplayOptions options;
  options.torch_version = "2.3";
  options.alloc_conf = "roundup_power2_divisions:1";
  const ProcessReplay replay =
      replayed(recorded.events(), options, {{"alloc_conf", "roundup_power2_divisions:1"}});
  CHECK(replay.torch_version == "2.3");
  CHECK(replay.devices[0].figures->allocated.peak == 3 * kMiB + 1);  // not rounded up to 2.3
  CHECK(replay.devices[0].verify->perfect());
}

TEST_CASE("a configuration that the release refuses is an error in its own words") {
  RecordedModel recorded;
  recorded.alloc(kMiB);
  ReplayOptions options;
  options.alloc_conf = "no_such_option:3";
  const auto result = try_replay(recorded.events(), options);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == ErrorCode::kInvalidArgument);
  CHECK(result.error().text.find("no_such_option") != std::string::npos);
}

TEST_CASE("a recorded configuration that cannot have been in force is left out and said") {
  RecordedModel recorded;
  recorded.alloc(kMiB);
  const ProcessReplay replay =
      replayed(recorded.events(), {}, {{"alloc_conf", "no_such_option:3"}});
  CHECK(replay.perfect());
  REQUIRE_FALSE(replay.assumptions.empty());
  CHECK(replay.assumptions[0].find("no_such_option") != std::string::npos);
}

TEST_CASE("the recorded settings come from the variable that the release reads") {
  RecordedModel recorded({RecordAs::adaptor, "max_split_size_mb:40"});
  recorded.free(recorded.alloc(100 * kMiB));
  recorded.alloc(30 * kMiB);
  const std::string limit = "max_split_size_mb:40";
  CHECK(replayed(recorded.events(), {}, {{"alloc_conf", limit}}).perfect());
  CHECK(replayed(recorded.events(), {}, {{"alloc_conf.generic", limit}}).perfect());
  CHECK_FALSE(replayed(recorded.events(), {}).perfect());
  CHECK_FALSE(
      replayed(recorded.events(), {}, {{"alloc_conf.generic", limit}, {"torch_version", "2.9"}})
          .perfect());
}

TEST_CASE("reports alone: a what-if of a process with streams is undecidable") {
  RecordSettings settings;
  settings.source = RecordAs::report;
  RecordedModel recorded(settings);
  recorded.driver(EventKind::stream_create).stream = 77;
  recorded.free(recorded.alloc(100 * kMiB));
  recorded.alloc(50 * kMiB);
  const ProcessReplay replay = replayed(recorded.events(), split_limit(64));
  CHECK(replay.mode == ReplayMode::undecidable);
  CHECK(replay.reason.find("created streams") != std::string::npos);
  CHECK_FALSE(replay.devices[0].figures);
  CHECK(replay.devices[0].verify->perfect());

  // Without a question verify answers all the same.
  CHECK(replayed(recorded.events(), {}).mode == ReplayMode::verified);
}

TEST_CASE("reports alone: a what-if is undecidable when one stream does not explain the run") {
  RecordSettings settings;
  settings.source = RecordAs::report;
  RecordedModel recorded(settings);
  recorded.free(recorded.alloc(100 * kMiB, 0));
  recorded.alloc(100 * kMiB, 5);  // its own segment, because of its stream
  const ProcessReplay replay = replayed(recorded.events(), split_limit(64));
  CHECK(replay.mode == ReplayMode::undecidable);
  CHECK(replay.reason.find("does not follow") != std::string::npos);
  CHECK_FALSE(replay.perfect());
}

TEST_CASE("reports alone: a what-if of a process with one stream is answered") {
  RecordSettings settings;
  settings.source = RecordAs::report;
  settings.capacity = 1300 * kMiB;
  RecordedModel recorded(settings);
  false_oom(recorded);
  const ProcessReplay replay = replayed(recorded.events(), split_limit(21));
  CHECK(replay.mode == ReplayMode::what_if);
  CHECK(replay.devices[0].ooms_avoided == 1);
  CHECK_FALSE(replay.devices[0].figures->requested);
  CHECK(replay.assumptions.size() >= 2);
}

TEST_CASE("a block that another stream keeps comes back when it did in the recording") {
  RecordedModel recorded;
  const uint64_t block = recorded.alloc(30 * kMiB);
  recorded.allocator().record_stream(block, 9);
  recorded.allocator().work(9);
  recorded.free(block);
  recorded.alloc(30 * kMiB);  // cannot have the first one
  recorded.allocator().complete(9);
  recorded.alloc(30 * kMiB);  // takes it
  ReplayOptions options;
  options.alloc_conf = "garbage_collection_threshold:0.5";
  const ProcessReplay replay = replayed(recorded.events(), options);
  CHECK(replay.devices[0].verify->perfect());
  CHECK(replay.devices[0].figures->reserved.peak == 60 * kMiB);
  CHECK(replay.devices[0].figures->allocated.peak == 60 * kMiB);
}

TEST_CASE("a program without blocks: its cudaMallocs are requests to the modelled allocator") {
  RecordedModel recorded;
  const auto malloc = [&](uint64_t address, uint64_t bytes, int32_t result) {
    Event& event = recorded.driver(EventKind::device_alloc);
    event.address = address;
    event.size = event.requested = bytes;
    event.result = result;
  };
  malloc(0x100000, 100 * kMiB, 0);
  recorded.driver(EventKind::device_free).address = 0x100000;
  malloc(0x9000000, 50 * kMiB, 0);
  malloc(0, 4000 * kMiB, 2);                               // refused
  recorded.driver(EventKind::device_free).address = 0x77;  // never seen
  const ProcessReplay replay = replayed(recorded.events(), {});
  CHECK(replay.mode == ReplayMode::modelled);
  CHECK(replay.source == BlockSource::none);
  REQUIRE(replay.devices.size() == 1);
  CHECK_FALSE(replay.devices[0].verify);
  CHECK(replay.devices[0].figures->reserved.peak == 4100 * kMiB);  // no limit: the last one fits
  CHECK(replay.devices[0].ooms_avoided == 1);
  CHECK(replay.devices[0].figures->allocated.final == 50 * kMiB);

  const std::map<std::string, std::string> card = {{"device.0.total_bytes", "1073741824"}};
  const ProcessReplay limited = replayed(recorded.events(), split_limit(64), card);
  CHECK(limited.devices[0].capacity == kGiB);
  CHECK(limited.devices[0].figures->ooms.size() == 1);
  CHECK(limited.devices[0].figures->reserved.peak == 150 * kMiB);
}

TEST_CASE("under an enforced policy the served calls are the requests") {
  RecordedModel recorded;
  Event& segment = recorded.driver(EventKind::device_alloc);
  segment.address = 0x200000000000;
  segment.size = 20 * kMiB;
  Event& served = recorded.driver(EventKind::device_alloc);
  served.address = 0x200000000000;
  served.size = 3 * kMiB;
  served.flags = kFlagServed;
  const ProcessReplay replay = replayed(recorded.events(), {});
  CHECK(replay.mode == ReplayMode::modelled);
  CHECK(replay.devices[0].figures->allocated.peak == 3 * kMiB);
  CHECK(replay.devices[0].figures->reserved.peak == 20 * kMiB);
}
