// The two searches over a long recording, held against what they are allowed to take: all settings
// of `advise` over a million events, and a plan of 282,000 requests.
//
// usage: search_speed [EVENTS [REQUESTS]]
// Exit code 1: a plan lies further above the live bytes than it may, or advice is worse than the
// default. Times are printed beside what is asked for, and fail nothing: machines differ.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "diagnose/advice.h"
#include "replay/backend.h"
#include "replay/event_stream.h"
#include "tests/support/recorded_model.h"

namespace {

using namespace fragscope;

constexpr double kMostSecondsPer100 = 60;  // settings over a million events, on two cores
constexpr double kMostPlanSeconds = 5;
constexpr double kMostExcess = 0.01;  // of a plan above the live bytes
constexpr unsigned kCores = 2;

std::vector<Event> training(size_t events) {
  test::RecordedModel model;
  constexpr int kSteps = 500;
  test::train(model, kSteps, 3, false);
  while (model.events().size() < events) test::train(model, kSteps, 3, false);
  return model.events();
}

replay::RecordedProcess read(std::vector<Event>& events) {
  replay::ProcessFacts facts;
  facts.block_source = replay::BlockSource::adaptor;
  facts.properties["torch_version"] = "2.15";
  replay::VectorStream stream(events);
  replay::ReadSettings reading;
  reading.with_calls = reading.with_seqs = true;
  return replay::read_process(stream, facts, reading);
}

// Of the clock, and of all threads together: other programs on the machine count for the first.
struct Took {
  double wall = 0;
  double cpu = 0;
};

template <typename Body>
Took measure(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu = std::clock();
  body();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC};
}

bool search(size_t events) {
  std::vector<Event> recorded = training(events);
  const replay::RecordedProcess process = read(recorded);
  diagnose::AdviceSettings settings;
  settings.threads = kCores;
  bool well = true;
  for (const bool exhaustive : {true, false}) {
    settings.exhaustive_work = exhaustive ? UINT64_MAX : 0;
    diagnose::Advice advice;
    const Took took = measure([&] { advice = diagnose::advise(process, 0, settings); });
    std::printf("advise, %s: %zu events, %zu settings in %.1f s on %u cores, %.1f s of CPU",
                exhaustive ? "every setting on the whole run" : "successive halving",
                recorded.size(), advice.searched, took.wall, kCores, took.cpu);
    if (exhaustive) {
      const double share = 100.0 / static_cast<double>(advice.searched);
      std::printf("; 100 settings: %.1f s (asked for: %.0f s a million events)", share * took.wall,
                  kMostSecondsPer100);
    }
    std::printf("\n");
    const auto& best = advice.best ? *advice.best : advice.default_settings;
    well = well && best.reserved_peak <= advice.default_settings.reserved_peak &&
           best.ooms <= advice.default_settings.ooms;
  }
  if (!well) std::printf("advice is worse than the default\n");
  return well;
}

bool plan(size_t requests) {
  std::vector<Event> recorded = training(requests * 4);
  const replay::RecordedProcess process = read(recorded);
  replay::CallList list = process.devices.at(0).calls;
  // The first `requests` allocations with what becomes of them up to there.
  size_t allocations = 0;
  size_t end = 0;
  while (end < list.calls.size() && allocations < requests) {
    allocations += list.calls[end++].kind == replay::CallKind::alloc ? 1 : 0;
  }
  list.calls.resize(end);
  list.seqs.resize(end);
  list.allocations = allocations;
  replay::BackendRun run;
  const Took took = measure([&] { run = replay::plan_backend()->run(list, {}); });
  const uint64_t live = run.live_peak.value_or(0);
  const uint64_t reserved = run.figures.reserved.peak;
  const double excess = static_cast<double>(reserved - live) / static_cast<double>(live);
  std::printf(
      "plan: %zu requests in %.2f s, %.2f s of CPU (asked for: %.0f s), %.3f %% above the live "
      "bytes "
      "(asked for: %.0f %%)\n",
      allocations, took.wall, took.cpu, kMostPlanSeconds, 100 * excess, 100 * kMostExcess);
  return live > 0 && excess <= kMostExcess;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t events = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  const size_t requests = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 282'000;
  const bool advised = search(events);
  const bool planned = plan(requests);
  return advised && planned ? 0 : 1;
}
