// Each scenario plants one cause in a recorded run; the verdict must find it, and the bytes by
// holder must add up to the device.
#include "diagnose/trace_verdict.h"

#include "tests/support/catch.h"
#include "tests/support/recorded_model.h"

using namespace fragscope;
using namespace fragscope::diagnose;
using metrics::SceneKind;
using test::RecordAs;
using test::RecordedModel;
using test::RecordSettings;

namespace {

constexpr uint64_t kLeakStack = 77;

RecordSettings card(uint64_t mib) {
  RecordSettings settings;
  settings.capacity = mib * kMiB;
  return settings;
}

struct MeasuredRun {
  replay::ProcessFacts facts;
  metrics::ProcessMetrics measured;
  std::vector<metrics::Scene> scenes;
};
MeasuredRun measured_run(RecordedModel& recorded, uint64_t total_mib = 1000) {
  MeasuredRun run;
  run.facts.properties["device.0.total_bytes"] = std::to_string(total_mib * kMiB);
  replay::VectorStream stream(recorded.events());
  run.measured = metrics::measure_process(stream, run.facts);
  run.scenes = metrics::scenes_of(stream, run.measured, 4);
  return run;
}

std::vector<TraceFinding> findings_of(std::vector<Event>& events, uint64_t total_mib) {
  replay::ProcessFacts facts;
  facts.pid = 100;
  facts.properties["device.0.total_bytes"] = std::to_string(total_mib * kMiB);
  facts.properties["torch_version"] = "2.15";
  replay::VectorStream stream(events);
  const auto measured = metrics::measure_process(stream, facts);
  std::vector<TraceFinding> findings;
  for (const metrics::Scene& scene : metrics::scenes_of(stream, measured, 4)) {
    findings.push_back(judge(scene, facts, measured.source));
  }
  return findings;
}

void check_sum(const MemorySplit& split) {
  if (!split.total || !split.elsewhere) return;
  CHECK(*split.total == split.reserved() + *split.outside + *split.device_free +
                            split.context.value_or(0) + *split.elsewhere);
}

// The last refusal.
TraceFinding refusal(std::vector<Event>& events, uint64_t total_mib) {
  TraceFinding last;
  size_t refusals = 0;
  for (const TraceFinding& finding : findings_of(events, total_mib)) {
    check_sum(finding.split);
    if (finding.scene.kind == SceneKind::peak) continue;
    last = finding;
    ++refusals;
  }
  REQUIRE(refusals > 0);
  return last;
}

// One block of `kept` MiB and a free rest in a segment of `size` MiB.
uint64_t split_segment(RecordedModel& recorded, uint64_t size, uint64_t kept, uint64_t stream = 0) {
  recorded.free(recorded.alloc(size * kMiB, stream));
  return recorded.alloc(kept * kMiB, stream);
}

}  // namespace

TEST_CASE("trace verdict: live data that does not fit is capacity") {
  RecordedModel recorded(card(1000));
  recorded.alloc(400 * kMiB);
  recorded.alloc(400 * kMiB);
  CHECK(recorded.alloc(400 * kMiB) == 0);
  const TraceFinding finding = refusal(recorded.events(), 1000);
  CHECK(finding.explanation.verdict == Verdict::kTrueExhaustion);
  CHECK(finding.cause == Cause::capacity);
  CHECK(finding.split.live == 800 * kMiB);
  CHECK(finding.split.device_free == 200 * kMiB);
  CHECK(finding.split.elsewhere == 0u);
}

TEST_CASE("trace verdict: pieces between live blocks are stranded, and what pins them is named") {
  RecordedModel recorded(card(1300));
  split_segment(recorded, 530, 2);
  CHECK(recorded.alloc(800 * kMiB) == 0);
  const TraceFinding finding = refusal(recorded.events(), 1300);
  CHECK(finding.explanation.verdict == Verdict::kFragmentation);
  CHECK(finding.cause == Cause::stranded);
  CHECK(finding.explanation.confidence == Confidence::kHigh);
  CHECK(finding.split.split_rests == 528 * kMiB);
  REQUIRE(finding.pins.size() == 1);
  CHECK(finding.pins[0].gap == 530 * kMiB);
  CHECK(finding.pins[0].releasable == 530 * kMiB);
}

TEST_CASE("trace verdict: the recording without the block that pins is replayed") {
  RecordedModel recorded(card(1300));
  split_segment(recorded, 530, 2);
  const uint64_t pin = recorded.events().back().seq;
  CHECK(recorded.alloc(800 * kMiB) == 0);
  replay::ProcessFacts facts;
  facts.properties["torch_version"] = "2.15";
  facts.properties["device.0.total_bytes"] = std::to_string(1300 * kMiB);
  replay::VectorStream stream(recorded.events());
  replay::ReadSettings reading;
  reading.with_calls = reading.with_seqs = true;
  const auto process = replay::read_process(stream, facts, reading);
  const auto without = replay_without(process, 0, pin);
  REQUIRE(without);
  CHECK(without->ooms == 0);
  CHECK(without->reserved_peak == 800 * kMiB);
  CHECK_FALSE(replay_without(process, 0, pin + 1000));
  // Elsewhere it takes a segment of 20 MiB, and the 530 MiB can be given back.
  for (const Moved where : {Moved::first, Moved::apart}) {
    const auto moved = replay_moved(process, 0, pin, where);
    REQUIRE(moved);
    CHECK(moved->ooms == 0);
    CHECK(moved->reserved_peak == 820 * kMiB);
    CHECK_FALSE(replay_moved(process, 0, pin + 1000, where));
  }
}

TEST_CASE("trace verdict: moving a block that does not pin gives nothing back") {
  RecordedModel recorded(card(1000));
  recorded.alloc(400 * kMiB);
  const uint64_t seq = recorded.events().back().seq;
  recorded.alloc(400 * kMiB);
  CHECK(recorded.alloc(400 * kMiB) == 0);
  replay::ProcessFacts facts;
  facts.properties["torch_version"] = "2.15";
  facts.properties["device.0.total_bytes"] = std::to_string(1000 * kMiB);
  replay::VectorStream stream(recorded.events());
  replay::ReadSettings reading;
  reading.with_calls = reading.with_seqs = true;
  const auto process = replay::read_process(stream, facts, reading);
  for (const Moved where : {Moved::first, Moved::apart}) {
    const auto moved = replay_moved(process, 0, seq, where);
    REQUIRE(moved);
    CHECK(moved->ooms == 1);
    CHECK(moved->reserved_peak == 800 * kMiB);
  }
}

TEST_CASE("trace verdict: a moved block has its own slot, and its free stays where it was") {
  using replay::Call;
  using replay::CallKind;
  replay::CallList list;
  list.origins = {{}};
  list.slots = 1;  // one block after the other
  for (const uint64_t size : {1, 2, 3}) {
    list.calls.push_back({size, 0, 0, CallKind::alloc});
    list.calls.push_back({0, 0, 0, CallKind::free});
  }
  list.seqs = {10, 11, 12, 13, 14, 15};
  list.allocations = 3;
  const auto first = moved_block(list, 12, Moved::first);
  REQUIRE(first);
  CHECK(first->seqs == std::vector<uint64_t>{12, 10, 11, 13, 14, 15});
  CHECK(first->slots == 2);
  for (size_t i = 0; i < first->calls.size(); ++i) {
    CHECK(first->calls[i].slot == (i == 0 || i == 3 ? 1 : 0));
  }
  const auto apart = moved_block(list, 12, Moved::apart);
  REQUIRE(apart);
  CHECK(apart->seqs == list.seqs);
  CHECK_FALSE(apart->origins[apart->calls[2].origin].pool.is_default());
  CHECK(apart->calls[4].origin == 0);
  // What was there when recording began cannot be moved in front of it.
  list.start_calls = 3;
  CHECK_FALSE(moved_block(list, 12, Moved::first));
  CHECK(moved_block(list, 14, Moved::first)->seqs == std::vector<uint64_t>{10, 11, 12, 14, 13, 15});
}

TEST_CASE("trace verdict: pieces of another stream are told apart") {
  RecordedModel recorded(card(330));
  split_segment(recorded, 200, 20, 7);
  CHECK(recorded.alloc(150 * kMiB) == 0);
  const TraceFinding finding = refusal(recorded.events(), 330);
  CHECK(finding.cause == Cause::stranded);
  CHECK(finding.split.other_stream == 180 * kMiB);
  CHECK(finding.split.split_rests == 0);
}

TEST_CASE("trace verdict: pieces of the other pool are told apart") {
  RecordedModel recorded(card(300));
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 200; ++i) blocks.push_back(recorded.alloc(kMiB));
  for (size_t i = 0; i < blocks.size(); i += 2) recorded.free(blocks[i]);
  CHECK(recorded.alloc(150 * kMiB) == 0);
  const TraceFinding finding = refusal(recorded.events(), 300);
  CHECK(finding.cause == Cause::stranded);
  CHECK(finding.split.other_pool == 100 * kMiB);
}

TEST_CASE(
    "trace verdict: memory of a private pool is told apart from pieces of the request's own") {
  RecordedModel recorded(card(700));
  recorded.allocator().begin_pool({1, 0});
  recorded.free(recorded.alloc(400 * kMiB));
  recorded.allocator().end_pool({1, 0});
  CHECK(recorded.alloc(500 * kMiB) == 0);
  bool of_pool = true;  // as torch 2.8 tells it: the first segment is the pool's
  for (Event& event : recorded.events()) {
    event.flags |= kFlagPool;
    event.text = of_pool ? 1 : 0;
    of_pool = of_pool && event.kind != EventKind::free_completed;
  }
  const TraceFinding finding = refusal(recorded.events(), 700);
  CHECK(finding.cause == Cause::stranded);
  CHECK(finding.stranded_in == Stranded::private_pool);
  CHECK(finding.split.private_pool == 400 * kMiB);
  // No setting reaches it: what does is about the graphs themselves.
  REQUIRE_FALSE(finding.explanation.actions.empty());
  CHECK(finding.explanation.actions[0].find("graph_pool_handle") != std::string::npos);
  for (const std::string& action : finding.explanation.actions) {
    CHECK(action.find("expandable_segments") == std::string::npos);
    CHECK(action.find("max_split_size_mb") == std::string::npos);
  }
}

TEST_CASE("trace verdict: a run that grew is told at its peak, also where nothing was refused") {
  RecordedModel recorded(card(1000));
  recorded.alloc(400 * kMiB);
  const auto [facts, measured, scenes] = measured_run(recorded);
  REQUIRE(scenes.size() == 1);
  Growth growth;
  CHECK(judge(scenes[0], facts, measured.source, &growth).leaks.empty());
  growth.suspect_bytes = 100 * kMiB;
  growth.suspects.push_back({{100 * kMiB, 4}, kLeakStack, 1, 4});
  const TraceFinding finding = judge(scenes[0], facts, measured.source, &growth);
  REQUIRE(finding.leaks.size() == 1);
  CHECK(finding.leaks[0].steps == 4);
  CHECK(finding.cause == Cause::none);
  CHECK(finding.explanation.alternatives == std::vector<Verdict>{Verdict::kLeakSuspected});
  // Of few steps: the same place is named, and said to be no proof.
  growth.sure = false;
  const TraceFinding faint = judge(scenes[0], facts, measured.source, &growth);
  REQUIRE(faint.leaks.size() == 1);
  CHECK(faint.leaks[0].stack == kLeakStack);
  CHECK(faint.explanation.alternatives == std::vector<Verdict>{Verdict::kLeakSuspected});
  REQUIRE_FALSE(faint.explanation.why.empty());
  CHECK(faint.explanation.why.back().find("grew in each of the 4 steps") != std::string::npos);
  CHECK(faint.explanation.why.back().find("low confidence") != std::string::npos);
}

TEST_CASE("trace verdict: growth over few steps does not change why a request was refused") {
  RecordedModel recorded(card(1000));
  recorded.alloc(900 * kMiB);
  recorded.alloc(400 * kMiB);
  const auto [facts, measured, scenes] = measured_run(recorded);
  REQUIRE(scenes.size() == 2);
  Growth growth;
  growth.sure = false;
  growth.suspect_bytes = 700 * kMiB;
  growth.suspects.push_back({{700 * kMiB, 4}, kLeakStack, 1, 4});
  for (const auto& scene : scenes) {
    const TraceFinding with = judge(scene, facts, measured.source, &growth);
    const TraceFinding without = judge(scene, facts, measured.source);
    CHECK(with.explanation.verdict == without.explanation.verdict);
    CHECK(with.cause == without.cause);
    CHECK(with.leaks.size() == 1);
  }
}

TEST_CASE("trace verdict: blocks that wait for another stream are stranded by it, not missing") {
  RecordedModel recorded(card(700));
  const uint64_t shared = recorded.alloc(400 * kMiB);
  recorded.allocator().record_stream(shared, 9);
  recorded.allocator().work(9);
  recorded.allocator().begin_capture();
  recorded.free(shared);
  CHECK(recorded.alloc(500 * kMiB) == 0);
  const TraceFinding finding = refusal(recorded.events(), 700);
  CHECK(finding.cause == Cause::stranded);
  CHECK(finding.stranded_in == Stranded::pending);
  CHECK(finding.split.pending == 400 * kMiB);
}

TEST_CASE("trace verdict: without CUDA's refusal the allocator itself refused") {
  std::vector<Event> events(1);
  events[0].kind = EventKind::oom;
  events[0].seq = events[0].time_ns = 1;
  events[0].device = 0;
  events[0].requested = 300 * kMiB;
  events[0].flags = kFlagSourceReport;
  const TraceFinding unrecorded = refusal(events, 1000);
  CHECK(unrecorded.cause == Cause::unknown);
  replay::ProcessFacts facts;
  facts.properties["device.0.total_bytes"] = std::to_string(1000 * kMiB);
  facts.properties["coverage.hooked"] = "60";
  replay::VectorStream stream(events);
  const auto measured = metrics::measure_process(stream, facts);
  const auto scenes = metrics::scenes_of(stream, measured, 4);
  REQUIRE(scenes.size() == 1);
  CHECK(judge(scenes[0], facts, measured.source).cause == Cause::fraction);
}

TEST_CASE("trace verdict: a piece that came free too late is a missed retry") {
  RecordedModel recorded(card(200));
  split_segment(recorded, 200, 20);
  const uint64_t late = recorded.alloc(180 * kMiB);
  REQUIRE(late != 0);
  recorded.allocator().record_stream(late, 9);
  recorded.allocator().work(9);
  recorded.free(late);
  CHECK(recorded.alloc(150 * kMiB) == 0);
  const TraceFinding finding = refusal(recorded.events(), 200);
  CHECK(finding.explanation.verdict == Verdict::kFragmentation);
  CHECK(finding.cause == Cause::missed_retry);
}

TEST_CASE("trace verdict: room on the device and a refusal is a limit") {
  RecordSettings settings = card(1000);
  settings.conf = "per_process_memory_fraction:0.5";
  RecordedModel recorded(settings);
  recorded.alloc(400 * kMiB);
  CHECK(recorded.alloc(200 * kMiB) == 0);
  const TraceFinding finding = refusal(recorded.events(), 1000);
  CHECK(finding.explanation.verdict == Verdict::kMemoryFractionCap);
  CHECK(finding.cause == Cause::fraction);
  // What the limit is, as far as the recording tells.
  std::string why;
  for (const std::string& sentence : finding.explanation.why) why += sentence;
  CHECK(why.find("limit itself is not recorded: it lies from") != std::string::npos);
}

TEST_CASE("trace verdict: free pieces below a limit are fragmentation first") {
  RecordSettings settings = card(1000);
  settings.conf = "per_process_memory_fraction:0.5";
  RecordedModel recorded(settings);
  const uint64_t first = recorded.alloc(250 * kMiB);
  const uint64_t second = recorded.alloc(250 * kMiB);
  recorded.free(first);
  recorded.alloc(20 * kMiB);  // leaves 230 of the first segment
  recorded.free(second);
  const uint64_t start = recorded.alloc(231 * kMiB);
  recorded.alloc(15 * kMiB);
  recorded.free(start);  // leaves 231 of the second one
  CHECK(recorded.alloc(240 * kMiB) == 0);
  const TraceFinding finding = refusal(recorded.events(), 1000);
  CHECK(finding.explanation.verdict == Verdict::kFragmentation);
  CHECK(finding.explanation.alternatives == std::vector{Verdict::kMemoryFractionCap});
}

TEST_CASE("trace verdict: what this process holds outside the allocator is named") {
  RecordedModel recorded(card(400));
  Event& library = recorded.driver(EventKind::device_alloc);
  library.address = 0x7f0000000000;
  library.size = library.requested = 600 * kMiB;
  library.result = 0;
  recorded.alloc(300 * kMiB);
  CHECK(recorded.alloc(200 * kMiB) == 0);
  const TraceFinding finding = refusal(recorded.events(), 1000);
  CHECK(finding.explanation.verdict == Verdict::kNonPytorchMemory);
  CHECK(finding.cause == Cause::outside_pytorch);
  CHECK(finding.split.outside == 600 * kMiB);
}

TEST_CASE("trace verdict: what nobody of this process holds is another's") {
  RecordedModel recorded(card(400));
  recorded.alloc(300 * kMiB);
  CHECK(recorded.alloc(200 * kMiB) == 0);
  const TraceFinding finding = refusal(recorded.events(), 1000);
  CHECK(finding.explanation.verdict == Verdict::kOtherProcess);
  CHECK(finding.cause == Cause::other_process);
  CHECK(finding.split.elsewhere == 600 * kMiB);
}

TEST_CASE("trace verdict: a context that was not recorded is not another process") {
  RecordedModel recorded(card(960));
  recorded.alloc(900 * kMiB);
  CHECK(recorded.alloc(100 * kMiB) == 0);
  const TraceFinding finding = refusal(recorded.events(), 1000);  // 40 MiB are the driver's
  CHECK(finding.split.elsewhere == 40 * kMiB);
  CHECK(finding.cause == Cause::capacity);
}

TEST_CASE("trace verdict: the last rests of a full device are no fragmentation") {
  RecordedModel recorded(card(1000));
  recorded.alloc(900 * kMiB);
  split_segment(recorded, 90, 66);
  CHECK(recorded.alloc(26 * kMiB) == 0);
  const TraceFinding finding = refusal(recorded.events(), 1000);
  CHECK(finding.cause == Cause::capacity);
  CHECK(finding.explanation.alternatives == std::vector{Verdict::kFragmentation});
}

TEST_CASE("trace verdict: survivors of every step are a leak, weights are not") {
  RecordedModel recorded(card(400));
  const auto alloc = [&](uint64_t bytes, uint32_t stack) {
    const uint64_t address = recorded.alloc(bytes);
    if (address != 0) recorded.events().back().stack = stack;
    return address;
  };
  for (int i = 0; i < 5; ++i) alloc(10 * kMiB, 1);
  bool refused = false;
  for (int step = 0; step < 500 && !refused; ++step) {
    std::vector<uint64_t> activations;
    for (int i = 0; i < 10 && !refused; ++i) {
      activations.push_back(alloc(11 * kMiB, 2));
      refused = activations.back() == 0;
    }
    refused = refused || alloc(3 * kMiB, kLeakStack) == 0;
    for (const uint64_t address : activations) {
      if (address != 0) recorded.free(address);
    }
  }
  REQUIRE(refused);
  const TraceFinding finding = refusal(recorded.events(), 400);
  CHECK(finding.explanation.verdict == Verdict::kLeakSuspected);
  CHECK(finding.cause == Cause::leak);
  REQUIRE(finding.leaks.size() == 1);
  CHECK(finding.leaks[0].stack == kLeakStack);
}

TEST_CASE("trace verdict: building a model is no leak") {
  RecordedModel recorded(card(400));
  while (recorded.alloc(10 * kMiB) != 0) recorded.events().back().stack = 5;
  const TraceFinding finding = refusal(recorded.events(), 400);
  CHECK(finding.explanation.verdict == Verdict::kTrueExhaustion);
  CHECK(finding.leaks.empty());
}

TEST_CASE("trace verdict: refused page-locked memory is the host's matter") {
  RecordedModel recorded(card(400));
  recorded.alloc(10 * kMiB);
  Event& pinned = recorded.driver(EventKind::pinned_alloc);
  pinned.size = pinned.requested = 64 * kMiB;
  pinned.result = 2;
  const TraceFinding finding = refusal(recorded.events(), 400);
  CHECK(finding.explanation.verdict == Verdict::kHostPinned);
  CHECK(finding.cause == Cause::pinned);
}

TEST_CASE("trace verdict: a program without an allocator is judged by CUDA's refusals") {
  std::vector<Event> events;
  const auto add = [&](uint64_t bytes, int32_t result) {
    Event event;
    event.kind = EventKind::device_alloc;
    event.seq = events.size() + 1;
    event.time_ns = event.seq;
    event.device = 0;
    event.size = event.requested = bytes;
    event.result = result;
    if (result == 0) event.address = 0x10000000 * event.seq;
    events.push_back(event);
  };
  add(700 * kMiB, 0);
  add(400 * kMiB, 2);
  const TraceFinding finding = refusal(events, 1000);
  CHECK(finding.explanation.verdict == Verdict::kTrueExhaustion);
  CHECK(finding.explanation.confidence == Confidence::kMedium);
  add(200 * kMiB, 2);  // it would have fitted
  CHECK(refusal(events, 1000).explanation.verdict == Verdict::kOtherProcess);
}

TEST_CASE("trace verdict: block sizes alone are enough for capacity and fragmentation") {
  RecordSettings settings = card(1300);
  settings.source = RecordAs::report;
  RecordedModel recorded(settings);
  split_segment(recorded, 530, 2);
  CHECK(recorded.alloc(800 * kMiB) == 0);
  CHECK(refusal(recorded.events(), 1300).cause == Cause::stranded);
}

TEST_CASE("trace verdict: without a refusal there is a peak and no verdict") {
  RecordedModel recorded(card(1000));
  recorded.free(recorded.alloc(100 * kMiB));
  const auto findings = findings_of(recorded.events(), 1000);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].cause == Cause::none);
  CHECK(findings[0].split.live == 100 * kMiB);
}

TEST_CASE("trace verdict: of many refusals the first ones and the last are kept") {
  RecordedModel recorded(card(100));
  for (int i = 0; i < 20; ++i) CHECK(recorded.alloc((200 + 2 * i) * kMiB) == 0);
  std::vector<uint64_t> asked;
  for (const TraceFinding& finding : findings_of(recorded.events(), 100)) {
    asked.push_back(finding.scene.requested.value_or(0) / kMiB);
  }
  CHECK(asked == std::vector<uint64_t>{200, 202, 204, 238});
}
