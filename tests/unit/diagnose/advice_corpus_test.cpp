// Advice against exhaustive search: on every trace of a corpus the advised settings (or the
// default) are within 3 % of the best of the whole grid, by either way of searching.
#include "diagnose/advice.h"
#include "replay/backend.h"
#include "tests/support/catch.h"
#include "tests/support/recorded_model.h"

using namespace fragscope;
using namespace fragscope::diagnose;
using test::RecordedModel;
using test::RecordSettings;

namespace {

struct Trace {
  std::string name;
  std::string version;
  std::vector<Event> events;
};

// Sequences of ever new lengths beside a cache that grows, as in training with variable lengths.
void lengths(RecordedModel& recorded, uint64_t seed) {
  uint64_t state = seed;
  std::vector<uint64_t> kept;
  for (int step = 0; step < 40; ++step) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t length = 60 + (state >> 33) % 200;
    std::vector<uint64_t> live;
    for (uint64_t layer = 1; layer <= 6; ++layer)
      live.push_back(recorded.alloc(length * layer * 60000));
    if (step % 3 == 0) kept.push_back(recorded.alloc((1 + length % 7) * 700000));
    for (const uint64_t address : live) {
      if (address != 0) recorded.free(address);
    }
  }
}

// Prompts that are answered token by token: caches that grow by doubling.
void serving(RecordedModel& recorded, uint64_t seed) {
  uint64_t state = seed;
  std::vector<uint64_t> caches;
  for (int request = 0; request < 60; ++request) {
    state = state * 2862933555777941757u + 3037000493u;
    uint64_t bytes = 300000 + (state >> 40) % 5000000;
    uint64_t cache = recorded.alloc(bytes);
    for (int grown = 0; grown < 4; ++grown) {
      const uint64_t next = recorded.alloc(bytes += bytes / 2);
      if (cache != 0) recorded.free(cache);
      cache = next;
    }
    caches.push_back(cache);
    if (caches.size() > 12) {
      if (caches.front() != 0) recorded.free(caches.front());
      caches.erase(caches.begin());
    }
  }
}

std::vector<Trace> corpus() {
  std::vector<Trace> traces;
  const char* const versions[] = {"2.15", "2.4", "2.8", "2.1"};
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    RecordSettings settings;
    settings.version = versions[seed - 1];
    const auto record = [&](const char* name, auto&& fill) {
      RecordedModel recorded(settings);
      fill(recorded);
      traces.push_back({name + std::to_string(seed), settings.version, recorded.events()});
    };
    record("train", [&](RecordedModel& r) { test::train(r, 10, seed, false); });
    record("streams", [&](RecordedModel& r) { test::train(r, 8, seed + 50, true); });
    record("lengths", [&](RecordedModel& r) { lengths(r, seed); });
    record("serving", [&](RecordedModel& r) { serving(r, seed); });
  }
  return traces;
}

replay::RecordedProcess read(Trace& trace) {
  replay::ProcessFacts facts;
  facts.pid = 100;
  facts.properties["torch_version"] = trace.version;
  replay::VectorStream stream(trace.events);
  replay::ReadSettings settings;
  settings.with_calls = true;
  return replay::read_process(stream, facts, settings);
}

// Least refusals, then least reserved (or fewest calls), over every setting of the grid.
std::pair<uint64_t, uint64_t> least(const replay::RecordedProcess& process, Objective objective) {
  std::pair<uint64_t, uint64_t> best = {UINT64_MAX, UINT64_MAX};
  const auto& device = process.devices.at(0);
  for (const std::string& settings : settings_grid(process.rules.profile)) {
    const auto config = model::parse_config(settings, process.rules.profile);
    const auto run = replay::torch_backend(process.rules.profile, config.value())
                         ->run(device.calls, device.backend_device());
    const replay::ReplayFigures& figures = run.figures;
    const uint64_t cost = objective == Objective::mallocs
                              ? figures.device_mallocs + figures.device_frees
                              : figures.reserved.peak;
    best = std::min(best, {figures.ooms.size(), cost});
  }
  return best;
}

void check(const Trace& trace, const replay::RecordedProcess& process, Objective objective,
           uint64_t exhaustive_work) {
  INFO(trace.name << (exhaustive_work == 0 ? ", halving" : ", exhaustive"));
  AdviceSettings asked;
  asked.objective = objective;
  asked.exhaustive_work = exhaustive_work;
  const Advice advice = advise(process, 0, asked);
  const TriedSettings& given = advice.best ? *advice.best : advice.default_settings;
  const auto [ooms, cost] = least(process, objective);
  const uint64_t own = objective == Objective::mallocs ? given.segment_calls : given.reserved_peak;
  CHECK(given.ooms == ooms);
  CHECK(static_cast<double>(own) <= 1.03 * static_cast<double>(cost));
  CHECK_FALSE(better(advice.default_settings, given, objective));
  CHECK(advice.exhaustive == (exhaustive_work != 0));
}

}  // namespace

TEST_CASE("advice: within 3 % of exhaustive search on the corpus") {
  for (Trace& trace : corpus()) {
    const auto process = read(trace);
    for (const Objective objective : {Objective::peak, Objective::mallocs}) {
      check(trace, process, objective, UINT64_MAX);
      check(trace, process, objective, 0);
    }
  }
}
