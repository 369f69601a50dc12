// Two steps of a training loop by hand: every role, phase and lifetime is planted.
#include "diagnose/attribution.h"

#include <numeric>

#include "diagnose/attribution_text.h"
#include "diagnose/memory_remedies.h"
#include "event/frame.h"
#include "symbolize/symbolizer.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::diagnose;

namespace {

constexpr uint32_t kMain = 100;
constexpr uint32_t kEngineThread = 101;
enum StackId : uint32_t { kApply = 1, kForward, kBackward, kStep, kPlain, kLeak };

// Events of one device; blocks lie in one segment of 1 GiB.
class Loop {
 public:
  Loop() {
    tables_.python_frames[1] = {"Module._apply", "/s/site-packages/torch/nn/modules/module.py", 9,
                                1};
    tables_.python_frames[2] = {"Net.forward", "/src/app/net.py", 12, 1};
    tables_.python_frames[3] = {"backward", "/s/site-packages/torch/autograd/__init__.py", 3, 1};
    tables_.python_frames[4] = {"Adam.step", "/s/site-packages/torch/optim/adam.py", 4, 1};
    tables_.python_frames[5] = {"<module>", "/src/app/net.py", 40, 1};
    tables_.python_frames[6] = {"log", "/src/app/net.py", 50, 1};
    for (uint32_t id = 1; id <= 6; ++id) tables_.stacks[id] = {kPythonFrame | id};
    Event& segment = add(EventKind::segment_alloc);
    segment.address = 1 << 20;
    segment.size = 1 << 30;
    segment.stream = 0;
  }

  uint64_t alloc(StackId stack, uint64_t bytes, uint32_t tid = kMain) {
    Event& event = add(EventKind::alloc, tid);
    event.stack = stack;
    event.address = next_;
    event.size = bytes;
    event.requested = bytes - 12;
    event.stream = 0;
    next_ += bytes;
    return event.address;
  }
  void free(uint64_t address, uint32_t tid = kMain) {
    for (const EventKind kind : {EventKind::free_requested, EventKind::free_completed}) {
      Event& event = add(kind, tid);
      event.address = address;
      event.stream = 0;
    }
  }

  Attribution run() {
    replay::ProcessFacts facts;
    facts.pid = kMain;
    facts.block_source = replay::BlockSource::adaptor;
    replay::VectorStream stream(events_);
    const auto measured = metrics::measure_process(stream, facts);
    symbolize::Symbolizer symbols(tables_);
    StackRoles roles(&symbols);
    auto all = attribute(stream, measured, roles, tables_.texts);
    REQUIRE(all.size() == 1);
    return all.front();
  }

 private:
  Event& add(EventKind kind, uint32_t tid = kMain) {
    Event event;
    event.kind = kind;
    event.seq = events_.size() + 1;
    event.time_ns = event.seq;
    event.pid = kMain;
    event.tid = tid;
    event.device = 0;
    event.flags = kFlagSourceAdaptor;
    events_.push_back(event);
    return events_.back();
  }

  trace::TraceTables tables_;
  std::vector<Event> events_;
  uint64_t next_ = 1 << 20;
};

// The peak is in the last step's backward pass.
Attribution of_steps(int steps, uint64_t leaked) {
  Loop loop;
  loop.alloc(kApply, 4096);
  std::vector<uint64_t> gradients;
  for (int step = 0; step < steps; ++step) {
    const bool last = step + 1 == steps;
    const uint64_t batch = loop.alloc(kPlain, 512);
    for (const uint64_t gradient : gradients) loop.free(gradient);
    const uint64_t activation = loop.alloc(kForward, 8192);
    const uint64_t loss = loop.alloc(kPlain, 1024);
    const uint64_t passing = loop.alloc(kBackward, last ? 2048 : 1536, kEngineThread);
    gradients = {loop.alloc(kBackward, 4096, kEngineThread)};
    if (last) loop.alloc(kBackward, 512, kEngineThread);
    loop.free(passing, kEngineThread);
    loop.free(activation, kEngineThread);
    if (step == 0) loop.alloc(kStep, 16384);
    const uint64_t scratch = loop.alloc(kStep, 512);
    loop.free(scratch);
    if (leaked > 0) loop.alloc(kLeak, leaked);
    loop.free(batch);
    loop.free(loss);
  }
  loop.free(loop.alloc(kPlain, 512));  // evaluation: the frees above are not the process's end
  return loop.run();
}

uint64_t of(const Attribution& data, TensorRole role) {
  return data.roles[static_cast<size_t>(role)].bytes;
}

template <typename Shares>
uint64_t sum(const Shares& shares) {
  return std::accumulate(shares.begin(), shares.end(), uint64_t{0},
                         [](uint64_t all, const Share& share) { return all + share.bytes; });
}

}  // namespace

TEST_CASE("attribution: each planted role is found, and all tables add up") {
  const Attribution data = of_steps(3, 0);
  CHECK(of(data, TensorRole::parameters) == 4096);
  CHECK(of(data, TensorRole::activations) == 8192 + 1024);
  CHECK(of(data, TensorRole::inputs) == 512);
  CHECK(of(data, TensorRole::optimizer_state) == 16384);
  CHECK(of(data, TensorRole::temporary) == 2048);
  CHECK(of(data, TensorRole::gradients) == 4096 + 512);
  CHECK(of(data, TensorRole::unknown) == 0);
  CHECK(data.steps == 2);
  for (const uint64_t total : {sum(data.roles), sum(data.phases), sum(data.lifetimes),
                               sum(data.stacks), sum(data.modules), sum(data.ranges)}) {
    CHECK(total == data.live_bytes);
  }
  CHECK(data.live_bytes - data.requested_bytes == 12 * 8);
  CHECK(data.phases[static_cast<size_t>(LoopPhase::setup)].bytes == 4096);
  CHECK(data.lifetimes[static_cast<size_t>(Lifetime::run)].bytes == 4096 + 16384 + 4096 + 512);
  CHECK(data.modules.size() == 2);
  CHECK(data.growth.suspects.empty());
}

TEST_CASE("attribution: what every step leaves behind is a suspect, and the first remedy") {
  const Attribution data = of_steps(9, 65536);
  REQUIRE(data.growth.suspects.size() == 1);
  CHECK(data.growth.suspects[0].stack == kLeak);
  CHECK(data.growth.median_change == 65536);
  const auto remedies = memory_remedies(data);
  REQUIRE_FALSE(remedies.empty());
  CHECK(remedies[0].name == "leak");
  CHECK(remedies[0].bytes == data.growth.suspects[0].bytes);
}

TEST_CASE("attribution: a leak of a few steps is named when every one of them left something") {
  for (const uint32_t steps : {6, 7, 8}) {
    INFO(steps);
    CHECK(of_steps(steps, 0).growth.suspects.empty());
    const Attribution data = of_steps(steps, 65536);
    REQUIRE(data.growth.suspects.size() == 1);
    CHECK(data.growth.suspects[0].stack == kLeak);
    CHECK(data.growth.suspects[0].steps >= 2);
  }
}

TEST_CASE("attribution: growth in each of three or more steps is named, as no proof") {
  for (const uint32_t steps : {3, 4, 5}) {
    INFO(steps);
    CHECK(of_steps(steps, 0).growth.suspects.empty());
    const Attribution data = of_steps(steps, 65536);
    REQUIRE(data.growth.suspects.size() == 1);
    CHECK(data.growth.suspects[0].stack == kLeak);
    CHECK(data.growth.suspects[0].steps == steps - 1);
    CHECK_FALSE(data.growth.sure);
    for (const auto& remedy : memory_remedies(data)) CHECK(remedy.name != "leak");
  }
  CHECK(of_steps(2, 65536).growth.suspects.empty());
  CHECK(of_steps(9, 65536).growth.sure);
}

TEST_CASE("attribution: remedies are ranked by what the peak could lose") {
  const auto remedies = memory_remedies(of_steps(3, 0));
  std::vector<std::string> names;
  for (const MemoryRemedy& remedy : remedies) names.push_back(remedy.name);
  CHECK(names ==
        std::vector<std::string>{"offload", "optimizer_8bit", "checkpoint", "batch", "amp"});
  CHECK(remedies[0].bytes == 16384);
  CHECK(remedies[1].bytes == 12288);
}

TEST_CASE("attribution: the text names roles, modules and lines") {
  const Attribution data = of_steps(3, 0);
  const StackLines lines = [](uint32_t stack, uint64_t) {
    return std::vector<std::string>{"stack " + std::to_string(stack)};
  };
  const std::string text = attribution_text(data, lines, 8);
  CHECK(text.find("optimizer state") != std::string::npos);
  CHECK(text.find("Net (net.py:12)") != std::string::npos);
  CHECK(text.find("stack 4") != std::string::npos);
}

TEST_CASE("attribution: a process without stacks has phases of nothing, and still adds up") {
  std::vector<Event> events;
  for (uint64_t i = 1; i <= 4; ++i) {
    Event event;
    event.kind = EventKind::alloc;
    event.seq = event.time_ns = i;
    event.device = 0;
    event.flags = kFlagSourceReport;
    event.address = i << 20;
    event.size = 4096;
    events.push_back(event);
  }
  replay::ProcessFacts facts;
  replay::VectorStream stream(events);
  const auto measured = metrics::measure_process(stream, facts);
  StackRoles roles(nullptr);
  const auto all = attribute(stream, measured, roles, {});
  REQUIRE(all.size() == 1);
  CHECK(of(all[0], TensorRole::unknown) == 4 * 4096);
  CHECK_FALSE(all[0].requests_known);
}
