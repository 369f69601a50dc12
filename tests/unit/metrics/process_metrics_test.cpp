// Recorded allocators: the levels from their events are the allocator's own statistics.
#include "metrics/process_metrics.h"

#include <algorithm>

#include "base/bytes.h"
#include "metrics/layout_from_model.h"
#include "metrics/replay_metrics.h"
#include "replay/event_stream.h"
#include "tests/support/catch.h"
#include "tests/support/recorded_model.h"

using namespace fragscope;
using namespace fragscope::metrics;
using test::RecordAs;
using test::RecordedModel;
using test::RecordSettings;

namespace {

ProcessMetrics measured(const std::vector<Event>& events,
                        const std::map<std::string, std::string>& properties = {}) {
  replay::ProcessFacts facts;
  facts.pid = 100;
  facts.properties = properties;
  replay::VectorStream stream(events);
  return measure_process(stream, facts);
}

KnownLevel level_of(const model::PoolStat& stat) {
  return {static_cast<uint64_t>(stat.all.peak), static_cast<uint64_t>(stat.all.current)};
}

void check_same_layout(const Layout& left, const Layout& right) {
  REQUIRE(left.size() == right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    CHECK(left[i].address == right[i].address);
    CHECK(left[i].size == right[i].size);
    REQUIRE(left[i].blocks.size() == right[i].blocks.size());
    for (size_t b = 0; b < left[i].blocks.size(); ++b) {
      CHECK(left[i].blocks[b].address == right[i].blocks[b].address);
      CHECK(left[i].blocks[b].size == right[i].blocks[b].size);
      CHECK(left[i].blocks[b].state == right[i].blocks[b].state);
    }
  }
}

}  // namespace

TEST_CASE("levels from the tracker's events equal the allocator's statistics") {
  RecordSettings settings;
  settings.capacity = GENERATE(300 * kMiB, model::LocalCapacity::kUnlimited);
  settings.conf = GENERATE("", "expandable_segments:True");
  if (!settings.conf.empty()) settings.capacity = 300 * kMiB;  // a range needs a size
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    RecordedModel recorded(settings);
    test::train(recorded, 8, seed, seed % 2 == 0);
    const ProcessMetrics metrics = measured(recorded.events());
    CHECK(metrics.source == replay::BlockSource::adaptor);
    CHECK(metrics.anomalies == 0);
    const DeviceMetrics& device = metrics.devices.at(0);
    REQUIRE(device.heap);
    const model::DeviceStats& stats = recorded.allocator().stats();
    CHECK(device.heap->reserved == level_of(stats.reserved_bytes));
    CHECK(device.heap->allocated == level_of(stats.allocated_bytes));
    CHECK(device.heap->active == level_of(stats.active_bytes));
    CHECK(device.heap->requested == level_of(stats.requested_bytes));
    CHECK(device.heap->segments == level_of(stats.segment));
    CHECK(device.heap->inactive_split.final == level_of(stats.inactive_split_bytes).final);
    if (seed % 2 == 1) {  // several completions in one call: their order shows in this peak alone
      CHECK(device.heap->inactive_split == level_of(stats.inactive_split_bytes));
    }
    if (settings.conf.empty()) CHECK(device.driver == device.heap->reserved);
    CHECK(device.ooms.size() == static_cast<size_t>(stats.num_ooms));
    if (settings.conf.empty())
      check_same_layout(device.at_end->layout, layout_from_model(recorded.allocator().segments()));
  }
}

TEST_CASE("levels from c10 reports equal the statistics as far as reports can tell") {
  RecordSettings settings;
  settings.source = RecordAs::report;
  settings.capacity = 300 * kMiB;
  RecordedModel recorded(settings);
  test::train(recorded, 8, 3, false);
  const model::DeviceStats& stats = recorded.allocator().stats();

  const ProcessMetrics metrics = measured(recorded.events());
  CHECK(metrics.source == replay::BlockSource::report);
  const HeapFigures& heap = *metrics.devices.at(0).heap;
  CHECK(heap.reserved == level_of(stats.reserved_bytes));
  CHECK(heap.allocated == level_of(stats.allocated_bytes));
  CHECK(heap.segments == level_of(stats.segment));
  CHECK(heap.inactive_split == level_of(stats.inactive_split_bytes));
  CHECK_FALSE(heap.requested.peak);

  // With a second stream nobody knows when a freed block is free.
  recorded.driver(EventKind::stream_create).stream = 5;
  const HeapFigures streams = *measured(recorded.events()).devices.at(0).heap;
  CHECK(streams.allocated == level_of(stats.allocated_bytes));
  CHECK(streams.active == KnownLevel{});
  CHECK(streams.inactive_split == KnownLevel{});
}

TEST_CASE("blocks whose segments are not known: the totals that came with them are taken") {
  RecordSettings settings;
  settings.source = RecordAs::report;
  RecordedModel recorded(settings);
  test::train(recorded, 3, 3, false);
  std::vector<Event> events = recorded.events();
  std::erase_if(events, [](const Event& event) {
    return event.kind == EventKind::device_alloc || event.kind == EventKind::device_free;
  });
  const ProcessMetrics metrics = measured(events);
  const HeapFigures& heap = *metrics.devices.at(0).heap;
  CHECK(heap.reserved.peak == level_of(recorded.allocator().stats().reserved_bytes).peak);
  CHECK(heap.segments == KnownLevel{});
  CHECK(heap.inactive_split == KnownLevel{});
  CHECK(metrics.devices.at(0).driver == KnownLevel{});  // no driver plane at all
  CHECK(metrics.pinned_driver == KnownLevel{});

  for (Event& event : events) event.aux2 = kUnknown;
  CHECK(measured(events).devices.at(0).heap->reserved == KnownLevel{});
}

TEST_CASE("a process without blocks has no allocator's figures") {
  RecordedModel recorded;
  Event& alloc = recorded.driver(EventKind::device_alloc);
  alloc.address = 0x1000;
  alloc.size = 4096;
  const ProcessMetrics metrics = measured(recorded.events());
  CHECK(metrics.source == replay::BlockSource::none);
  CHECK_FALSE(metrics.devices.at(0).heap);
  CHECK(metrics.devices.at(0).driver == KnownLevel{4096, 4096});
  CHECK(metrics.pinned_driver == KnownLevel{0, 0});
}

TEST_CASE("the pictures are taken at the peak, at the first refusal and at the end") {
  RecordSettings settings;
  settings.capacity = 100 * kMiB;
  RecordedModel recorded(settings);
  const uint64_t small = recorded.alloc(1000);
  const uint64_t large = recorded.alloc(60 * kMiB);
  const uint64_t peak_seq = recorded.events().back().seq;
  recorded.free(small);
  CHECK(recorded.alloc(50 * kMiB) == 0);
  const uint64_t oom_seq = recorded.events().back().seq;
  recorded.free(large);
  const ProcessMetrics metrics = measured(recorded.events());
  const DeviceMetrics& device = metrics.devices.at(0);
  REQUIRE(device.at_peak);
  CHECK(device.at_peak->seq == peak_seq);
  CHECK(device.at_peak->time_ns == 1000 * peak_seq);
  CHECK(device.at_peak->layout.size() == 2);
  REQUIRE(device.at_oom);
  CHECK(device.at_oom->seq == oom_seq);
  CHECK(device.at_oom->layout.size() == 1);  // the flush gave the small segment back
  CHECK(device.at_oom->layout[0].active_bytes() == 60 * kMiB);
  CHECK(device.at_end->layout[0].active_bytes() == 0);
  REQUIRE(device.ooms.size() == 1);
  CHECK(device.ooms[0].requested == 50 * kMiB);
  CHECK(device.ooms[0].device_free == 40 * kMiB);
}

TEST_CASE("hostile event orders are counted, not trusted") {
  RecordedModel recorded;
  const auto put = [&](EventKind kind, uint64_t address, uint64_t size) {
    Event& event = recorded.driver(kind);
    event.address = address;
    event.size = size;
    event.requested = size;
    event.flags = kFlagSourceAdaptor;
  };
  put(EventKind::free_requested, 0x500, kUnknown);  // of nothing
  put(EventKind::free_completed, 0x500, kUnknown);  // of nothing
  put(EventKind::segment_free, 0x900, 10);          // of nothing
  put(EventKind::segment_alloc, 0x1000, 0x1000);
  put(EventKind::alloc, 0x1000, 0x200);
  put(EventKind::alloc, 0x1000, 0x400);  // again, without a free
  put(EventKind::free_requested, 0x1000, kUnknown);
  put(EventKind::free_requested, 0x1000, kUnknown);  // twice
  put(EventKind::segment_free, 0x1000, 0x1000);      // under a live block
  put(EventKind::free_completed, 0x1000, kUnknown);
  put(EventKind::alloc, UINT64_MAX - 1, UINT64_MAX - 1);
  put(EventKind::segment_alloc, kUnknown, kUnknown);  // nowhere
  put(EventKind::segment_map, 0x10, 0x10);
  put(EventKind::segment_unmap, 0x10, 0x100);  // more than there is
  const ProcessMetrics metrics = measured(recorded.events());
  CHECK(metrics.anomalies == 7);
  replay::VectorStream stream(recorded.events());
  const auto replayed = measure_replay(stream, metrics.facts, {});
  REQUIRE(replayed.ok());
  CHECK_FALSE(replayed->perfect);
}

TEST_CASE("any order of any events is survived") {
  RecordedModel recorded;
  test::train(recorded, 3, 8, true);
  uint64_t state = 99;
  const auto random = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  for (int round = 0; round < 30; ++round) {
    std::vector<Event> events = recorded.events();
    for (int i = 0; i < 200; ++i) {
      Event& event = events[random(events.size())];
      switch (random(5)) {
        case 0:
          std::swap(event, events[random(events.size())]);
          break;
        case 1:
          event.kind = static_cast<EventKind>(random(60));
          break;
        case 2:
          event.size = random(2) == 0 ? kUnknown : random(UINT64_MAX >> random(63));
          break;
        case 3:
          event.address = events[random(events.size())].address + random(3);
          break;
        default:
          event.requested = random(2) == 0 ? 0 : kUnknown - random(9);
      }
    }
    const ProcessMetrics metrics = measured(events);
    CHECK(metrics.events == events.size());
    replay::VectorStream stream(events);
    replay::ReplayOptions options;
    options.max_split_size_bytes = 32 * kMiB;
    const auto replayed = measure_replay(stream, metrics.facts, options);
    REQUIRE(replayed.ok());
  }
}
