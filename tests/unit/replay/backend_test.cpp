// Backends: the same calls on PyTorch's allocator, on plain cudaMalloc and on an offline plan.
#include "replay/backend.h"

#include "base/bytes.h"
#include "replay/event_stream.h"
#include "replay/recorded_process.h"
#include "tests/support/catch.h"
#include "tests/support/recorded_model.h"

using namespace fragscope;
using namespace fragscope::replay;
using test::RecordedModel;

namespace {

RecordedProcess process_of(const std::vector<Event>& events) {
  ProcessFacts facts;
  facts.properties["torch_version"] = "2.15";
  VectorStream stream(events);
  ReadSettings settings;
  settings.with_calls = settings.with_seqs = true;
  return read_process(stream, facts, settings);
}

BackendRun run(const std::string& backend, const RecordedModel& recorded,
               uint64_t capacity = model::LocalCapacity::kUnlimited) {
  const RecordedProcess process = process_of(const_cast<RecordedModel&>(recorded).events());
  REQUIRE(process.devices.size() == 1);
  const auto made = parse_backend(backend, "", "2.15");
  REQUIRE(made.ok());
  BackendDevice device = process.devices[0].backend_device();
  device.capacity = capacity;
  return made.value()->run(process.devices[0].calls, device);
}

}  // namespace

TEST_CASE("a call list has the client's calls and nothing of the allocator") {
  RecordedModel recorded;
  const uint64_t a = recorded.alloc(3 * kMiB);
  const uint64_t b = recorded.alloc(1000, 7);
  recorded.free(a);
  recorded.alloc(5 * kMiB);
  recorded.free(b);
  const CallList calls = process_of(recorded.events()).devices.at(0).calls;
  REQUIRE(calls.calls.size() == 5);
  CHECK(calls.allocations == 3);
  CHECK(calls.slots == 2);  // the third block has the slot of the first
  CHECK(calls.sizes_known);
  CHECK(calls.unusable == 0);
  CHECK(calls.calls[1].bytes == 1000);
  CHECK(calls.origins.at(calls.calls[1].origin) == CallOrigin{7, {}});
  CHECK(calls.calls[2].kind == CallKind::free);
  CHECK(calls.calls[2].slot == calls.calls[0].slot);
  CHECK(calls.calls[3].slot == calls.calls[0].slot);
  REQUIRE(calls.seqs.size() == 5);
  CHECK(recorded.events().at(calls.seqs[4] - 1).address == b);
}

TEST_CASE("torch as recorded gives the recorded figures") {
  RecordedModel recorded;
  test::train(recorded, 20, 5, true);
  const BackendRun result = run("torch", recorded);
  const model::DeviceStats& stats = recorded.allocator().stats();
  CHECK(result.figures.reserved.peak == static_cast<uint64_t>(stats.reserved_bytes.all.peak));
  CHECK(result.figures.allocated.peak == static_cast<uint64_t>(stats.allocated_bytes.all.peak));
  CHECK(result.figures.requested->peak == static_cast<uint64_t>(stats.requested_bytes.all.peak));
  CHECK_FALSE(result.live_peak);
}

TEST_CASE("cuda: every request is a cudaMalloc of whole pages, small ones share one") {
  RecordedModel recorded;
  const uint64_t a = recorded.alloc(3 * kMiB);
  const uint64_t b = recorded.alloc(1000);
  const uint64_t c = recorded.alloc(2000);
  recorded.free(a);
  recorded.free(b);
  recorded.alloc(2 * kMiB);
  recorded.free(c);
  const ReplayFigures figures = run("cuda", recorded).figures;
  CHECK(figures.device_mallocs == 4);
  CHECK(figures.device_frees == 3);
  CHECK(figures.reserved.peak == 6 * kMiB);  // 4 for the first, 2 for both small ones
  CHECK(figures.reserved.final == 2 * kMiB);
  CHECK(figures.allocated.peak == 3 * kMiB + 3000);
  CHECK(figures.requested->final == 2 * kMiB);
  CHECK(figures.segments.peak == 3);
  CHECK(figures.ooms.empty());
}

TEST_CASE("cuda: what does not fit is told with its event") {
  RecordedModel recorded;
  recorded.alloc(3 * kMiB);
  recorded.alloc(6 * kMiB);
  const BackendRun result = run("cuda", recorded, 8 * kMiB);
  REQUIRE(result.figures.ooms.size() == 1);
  CHECK(result.figures.ooms[0].requested == 6 * kMiB);
  CHECK(result.figures.ooms[0].device_free == 4 * kMiB);
  CHECK(recorded.events().at(result.figures.ooms[0].seq - 1).requested == 6 * kMiB);
  CHECK(result.first_oom == 1);
}

TEST_CASE("a refusal of the recording is asked for and given back") {
  test::RecordSettings settings;
  settings.capacity = 40 * kMiB;
  RecordedModel recorded(settings);
  recorded.alloc(12 * kMiB);
  CHECK(recorded.alloc(32 * kMiB) == 0);
  for (const char* backend : {"torch", "cuda"}) {
    const BackendRun roomy = run(backend, recorded);
    CHECK(roomy.ooms_avoided == 1);
    CHECK(roomy.figures.ooms.empty());
    CHECK(roomy.figures.allocated.peak == 44 * kMiB);
    CHECK(roomy.figures.allocated.final == 12 * kMiB);
    CHECK(run(backend, recorded, 40 * kMiB).figures.ooms.size() == 1);
  }
  CHECK(run("plan", recorded).live_peak == 44 * kMiB);
}

TEST_CASE("plan: between the live peak and everything else") {
  RecordedModel recorded;
  test::train(recorded, 30, 9, true);
  const BackendRun plan = run("plan", recorded);
  REQUIRE(plan.live_peak);
  CHECK(plan.figures.reserved.peak >= *plan.live_peak);
  CHECK(plan.figures.reserved.peak < run("torch", recorded).figures.reserved.peak);
  CHECK(plan.figures.device_mallocs == 1);
  CHECK(plan.fits);
  CHECK_FALSE(run("plan", recorded, *plan.live_peak - 1).fits);
}

TEST_CASE("a backend is named, or refused with what is known") {
  const auto name = [](const std::string& text, const std::string& conf = "") {
    auto backend = parse_backend(text, conf, "2.6");
    return backend ? backend.value()->name() + "|" + backend.value()->alloc_conf()
                   : backend.error().text;
  };
  CHECK(name("torch") == "torch-2.6|");
  CHECK(name("torch-2.4", "max_split_size_mb:64") == "torch-2.4|max_split_size_mb:64");
  CHECK(name("torch-2.99") == "torch-2.15|");
  CHECK(name("cuda") == "cuda|");
  CHECK(name("plan") == "plan|");
  CHECK(name("torch-1.0") == "no rules for torch '1.0'; known: 2.0 … 2.15");
  CHECK(name("torch-") == "no rules for torch ''; known: 2.0 … 2.15");
  CHECK(name("tcmalloc").find("known: torch, torch-2.N, cuda, plan") != std::string::npos);
  CHECK(name("cuda", "max_split_size_mb:64") == "cuda has no settings; found max_split_size_mb:64");
  CHECK(name("torch-2.4", "nonsense:1").find("nonsense") != std::string::npos);
}

TEST_CASE("a call list asks first for what lived when recording began, in its pool") {
  auto event = [seq = uint64_t{0}](EventKind kind, uint64_t address, uint64_t bytes,
                                   uint32_t flags) mutable {
    Event made;
    made.kind = kind;
    made.seq = ++seq;
    made.address = address;
    made.size = made.requested = bytes;
    made.stream = 0;
    made.device = 0;
    made.result = 0;
    made.flags = kFlagSourceSnapshot | flags;
    if (flags & kFlagPool) REQUIRE(pack_pool({0, 5}, made.text));
    return made;
  };
  constexpr uint64_t kBase = 0x7000'0000'0000;
  constexpr uint32_t kPrivate = kFlagAtStart | kFlagPool;
  const std::vector<Event> events = {
      event(EventKind::segment_alloc, kBase, 20 * kMiB, kFlagAtStart),
      event(EventKind::segment_alloc, kBase + 64 * kMiB, 20 * kMiB, kPrivate),
      event(EventKind::alloc, kBase, 4 * kMiB, kFlagAtStart),
      event(EventKind::free_requested, kBase, 4 * kMiB, kFlagAtStart),
      event(EventKind::alloc, kBase + 64 * kMiB, 4 * kMiB, kPrivate),
      event(EventKind::alloc, kBase + 68 * kMiB, 4 * kMiB, kFlagPool),
      // Right behind the start, and yet the end of another stream's use:
      event(EventKind::free_completed, kBase, 4 * kMiB, 0),
      event(EventKind::alloc, kBase, 2 * kMiB, 0),
  };
  const RecordedProcess process = process_of(events);
  REQUIRE(process.devices.size() == 1);
  CHECK(process.start_blocks == 2);
  CHECK(process.perfect());
  const CallList& list = process.devices[0].calls;
  REQUIRE(list.calls.size() == 6);
  CHECK(list.calls[0].kind == CallKind::alloc);
  CHECK(list.calls[1].kind == CallKind::free_later);
  const CallOrigin in_pool{0, {0, 5}};
  CHECK(list.origins.at(list.calls[2].origin) == in_pool);
  CHECK(list.origins.at(list.calls[3].origin) == in_pool);
  CHECK(list.calls[4].kind == CallKind::complete);
  CHECK(list.origins.at(list.calls[5].origin) == CallOrigin{});
  const BackendRun run = torch_backend(process.rules.profile, process.rules.config)
                             ->run(list, process.devices[0].backend_device());
  CHECK(run.figures.segments.peak == 2);  // one for each pool
  CHECK(run.figures.reserved.peak == 40 * kMiB);
  CHECK(run.figures.allocated.final == 10 * kMiB);
}
