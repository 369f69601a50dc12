// Snapshots as traces: the state at the start of recording, events, stacks, pools, releases.
#include "import/snapshot_to_trace.h"

#include "event/frame.h"
#include "import/device_history.h"
#include "import/releases.h"
#include "tests/unit/import/pickle_maker.h"
#include "trace/text_events.h"

using namespace fragscope;
using namespace fragscope::import_test;

namespace {

constexpr uint64_t kMiBytes = 1 << 20;

trace::TraceReader traced(const SnapshotSpec& spec) {
  auto snapshot = read_bytes(make_pickle(spec));
  REQUIRE(snapshot.ok());
  auto bytes = imported::snapshot_to_trace(*snapshot, "test.pickle");
  REQUIRE(bytes.ok());
  auto reader = trace::TraceReader::open_bytes(std::move(bytes).value(), "test.pickle");
  REQUIRE(reader.ok());
  reader->load_tables();
  return std::move(reader).value();
}

std::vector<Event> events_of(trace::TraceReader& reader) {
  std::vector<Event> events;
  for (Event event; reader.next(event);) events.push_back(event);
  return events;
}

std::string property(const trace::TraceReader& reader, const std::string& key) {
  const auto& properties = reader.process().properties;
  const auto at = properties.find(key);
  return at == properties.end() ? std::string() : at->second;
}

// At the end: one segment with a live block of 4 MiB at its start.
SnapshotSpec one_block() {
  SnapshotSpec spec;
  spec.segments = {{100 * kMiBytes,
                    {{4 * kMiBytes, 4 * kMiBytes, "active_allocated"}, {16 * kMiBytes, 0}},
                    "large"}};
  return spec;
}

}  // namespace

TEST_CASE("a trace from the first segment on starts with nothing") {
  SnapshotSpec spec = one_block();
  spec.traces = {{{"segment_alloc", 100 * kMiBytes, 20 * kMiBytes, 0, 5},
                  {"alloc", 100 * kMiBytes, 4 * kMiBytes, 0, 5}}};
  auto reader = traced(spec);
  CHECK(property(reader, "block_source") == "snapshot");
  CHECK(property(reader, "snapshot.entries") == "2");
  CHECK(property(reader, "snapshot.start_segments") == "0");
  CHECK(property(reader, "snapshot.start_blocks") == "0");
  CHECK(property(reader, "snapshot.contradictions").empty());
  const auto events = events_of(reader);
  REQUIRE(events.size() == 2);
  CHECK(events[0].kind == EventKind::segment_alloc);
  CHECK(events[0].size == 20 * kMiBytes);
  CHECK(events[0].time_ns == 0);
  CHECK(events[1].kind == EventKind::alloc);
  CHECK(events[1].requested == 4 * kMiBytes);
  CHECK(events[1].size == kUnknown);
  CHECK(events[1].time_ns == 10'000);
  CHECK(events[1].stream == 0);
  CHECK(events[1].flags == (kFlagSourceSnapshot | kFlagPool));
  CHECK(unpack_pool(events[1].text) == PoolName{0, 0});
  CHECK(reader.process().realtime_ns == 1'700'000'000'000'010'000);
}

TEST_CASE("frames keep their names, innermost first") {
  SnapshotSpec spec = one_block();
  spec.traces = {{{"alloc", 100 * kMiBytes, 4 * kMiBytes, 0, 5}}};
  auto reader = traced(spec);
  const auto events = events_of(reader);
  const uint32_t stack = events.back().stack;
  REQUIRE(stack != kNoStack);
  const auto& frames = reader.tables().stacks.at(stack);
  REQUIRE(frames.size() == 3);
  REQUIRE(is_python_frame(frames[0]));
  const trace::PythonFrame& frame = reader.tables().python_frames.at(python_frame_id(frames[0]));
  CHECK(frame.function == "f0");
  CHECK(frame.file == "project/model.py");
  CHECK(frame.line == 5);
}

TEST_CASE("what was there at the start is found by undoing the trace") {
  SnapshotSpec spec = one_block();
  // Before: a block of 1 MiB + 1 B behind the live one, freed on the way; a second segment that was
  // given back; the live block is older than the trace.
  spec.traces = {{{"free_requested", 104 * kMiBytes, kMiBytes + 1},
                  {"free_completed", 104 * kMiBytes, kMiBytes + 1},
                  {"segment_free", 300 * kMiBytes, 2 * kMiBytes},
                  {"alloc", 105 * kMiBytes, 3 * kMiBytes},
                  {"free_requested", 105 * kMiBytes, 3 * kMiBytes},
                  {"free_completed", 105 * kMiBytes, 3 * kMiBytes}}};
  auto reader = traced(spec);
  CHECK(property(reader, "snapshot.start_segments") == "2");
  CHECK(property(reader, "snapshot.start_blocks") == "2");
  CHECK(property(reader, "snapshot.contradictions").empty());
  const auto events = events_of(reader);
  REQUIRE(events.size() == 4 + 6);
  for (size_t i = 0; i < 4; ++i) CHECK((events[i].flags & kFlagAtStart) != 0);
  CHECK((events[4].flags & kFlagAtStart) == 0);
  CHECK(events[0].kind == EventKind::segment_alloc);
  CHECK(events[0].address == 100 * kMiBytes);
  CHECK(events[0].aux == 0);  // of the large pool
  CHECK(events[1].size == 4 * kMiBytes);
  CHECK(events[1].stack != kNoStack);
  CHECK(events[2].address == 104 * kMiBytes);
  CHECK(events[2].size == kUnknown);
  CHECK(events[2].requested == kMiBytes + 1);
  CHECK(events[3].address == 300 * kMiBytes);
  CHECK(events[3].aux == kUnknown);
}

TEST_CASE("a block that waited for a stream at the start is told as such") {
  SnapshotSpec spec = one_block();
  spec.traces = {{{"free_completed", 104 * kMiBytes, 2 * kMiBytes}}};
  auto reader = traced(spec);
  const auto events = events_of(reader);
  REQUIRE(events.size() == 5);
  CHECK(events[2].kind == EventKind::alloc);
  CHECK(events[3].kind == EventKind::free_requested);
  CHECK((events[3].flags & kFlagAtStart) != 0);
  CHECK(events[3].address == 104 * kMiBytes);
  CHECK(events[4].kind == EventKind::free_completed);
}

TEST_CASE("pages of an expandable segment are unmapped and mapped backwards") {
  SnapshotSpec spec;
  SegmentSpec range = {200 * kMiBytes, {{40 * kMiBytes, 40 * kMiBytes, "active_allocated"}}};
  range.expandable = true;
  spec.segments = {range};
  spec.traces = {{{"segment_unmap", 260 * kMiBytes, 20 * kMiBytes},
                  {"segment_map", 220 * kMiBytes, 20 * kMiBytes},
                  {"alloc", 200 * kMiBytes, 40 * kMiBytes}}};
  auto reader = traced(spec);
  const auto events = events_of(reader);
  REQUIRE(events.size() == 5);
  CHECK(events[0].kind == EventKind::segment_map);
  CHECK(events[0].address == 200 * kMiBytes);
  CHECK(events[0].size == 20 * kMiBytes);
  CHECK(events[1].address == 260 * kMiBytes);
  CHECK(events[1].size == 20 * kMiBytes);
  CHECK(property(reader, "snapshot.contradictions").empty());
}

TEST_CASE("entries that cannot be are counted") {
  SnapshotSpec spec = one_block();
  spec.traces = {{{"alloc", 900 * kMiBytes, 512},           // in no segment, not there at the end
                  {"free_completed", 100 * kMiBytes, 512},  // but it is live at the end
                  {"segment_alloc", 700 * kMiBytes, 2 * kMiBytes}}};
  auto reader = traced(spec);
  CHECK(property(reader, "snapshot.outside_segments") == "1");
  CHECK(property(reader, "snapshot.contradictions") == "3");
}

TEST_CASE("allocations get the private pool of their segment") {
  SnapshotSpec spec = one_block();
  spec.segments[0].pool_second = 3;
  spec.traces = {{{"alloc", 100 * kMiBytes, 4 * kMiBytes}}};
  auto reader = traced(spec);
  const auto events = events_of(reader);
  for (const Event& event : events) {
    CHECK((event.flags & kFlagPool) != 0);
    CHECK(unpack_pool(event.text) == PoolName{0, 3});
  }
}

TEST_CASE("devices are merged by time, each in its own order") {
  SnapshotSpec spec = one_block();
  spec.traces = {{{"alloc", 100 * kMiBytes, 4 * kMiBytes}}, {{"oom", 5 * kMiBytes, kMiBytes}}};
  auto reader = traced(spec);
  const auto events = events_of(reader);
  REQUIRE(events.size() == 3);
  CHECK(events[1].device == 0);
  CHECK(events[2].device == 1);
  CHECK(events[2].kind == EventKind::oom);
  CHECK(events[2].aux == 5 * kMiBytes);
  CHECK(events[2].requested == kMiBytes);
  CHECK(events[2].address == kUnknown);
}

TEST_CASE("segments without a trace are a state and no more") {
  SnapshotSpec spec = one_block();
  spec.segments_only = true;
  auto reader = traced(spec);
  CHECK(property(reader, "snapshot.entries") == "0");
  const auto events = events_of(reader);
  REQUIRE(events.size() == 2);
  CHECK(events[1].size == 4 * kMiBytes);
}

TEST_CASE("blocks of the old schema lie one after the other and have a history") {
  SnapshotSpec spec = one_block();
  spec.old_schema = true;
  spec.segments[0].blocks.insert(spec.segments[0].blocks.begin(),
                                 {2 * kMiBytes, kMiBytes + 5, "active_pending_free"});
  auto reader = traced(spec);
  const auto events = events_of(reader);
  REQUIRE(events.size() == 4);
  CHECK(events[1].address == 100 * kMiBytes);
  CHECK(events[2].kind == EventKind::free_requested);
  CHECK(events[3].address == 102 * kMiBytes);
  CHECK(events[3].stack != kNoStack);
  CHECK((events[3].flags & kFlagPool) == 0);
  CHECK(property(reader, "snapshot.torch_oldest") == "2.0");
  CHECK(property(reader, "snapshot.torch_newest") == "2.0");
  CHECK(property(reader, "alloc_conf").empty());
}

TEST_CASE("keys bound the release, and settings are read") {
  SnapshotSpec spec = one_block();
  spec.traces = {{{"alloc", 100 * kMiBytes, 4 * kMiBytes}}};
  auto snapshot = read_bytes(make_pickle(spec));
  REQUIRE(snapshot.ok());
  const auto releases = imported::releases_of(*snapshot);
  CHECK(releases.oldest == 5);  // annotations; no compile_context
  CHECK(releases.newest == 7);
  CHECK(imported::settings_text(*snapshot) == "");
  snapshot->settings.flags["expandable_segments"] = true;
  snapshot->settings.numbers["max_split_size"] = 128.0 * kMiBytes;
  snapshot->settings.roundup = {{1, 0}, {2, 4}};
  CHECK(imported::settings_text(*snapshot) ==
        "expandable_segments:True,max_split_size_mb:128,roundup_power2_divisions:[1:0,2:4]");
  snapshot->settings.text = "max_split_size_mb:64";
  CHECK(imported::settings_text(*snapshot) == "max_split_size_mb:64");
}
