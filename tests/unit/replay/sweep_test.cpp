// Sweeps: the configuration file, and the same answer whatever the number of threads.
#include "replay/sweep.h"

#include "replay/event_stream.h"
#include "tests/support/catch.h"
#include "tests/support/recorded_model.h"

using namespace fragscope;
using namespace fragscope::replay;

TEST_CASE("a sweep file has one configuration a line") {
  const auto configs = parse_sweep(
      "# comment\n\n  torch \r\nmax_split_size_mb:128\ntorch-2.4\t max_split_size_mb:64 \nplan",
      "f");
  REQUIRE(configs.ok());
  REQUIRE(configs->size() == 4);
  CHECK((*configs)[0].backend == "torch");
  CHECK((*configs)[0].alloc_conf.empty());
  CHECK((*configs)[1].backend == "torch");
  CHECK((*configs)[1].alloc_conf == "max_split_size_mb:128");
  CHECK((*configs)[2].backend == "torch-2.4");
  CHECK((*configs)[2].alloc_conf == "max_split_size_mb:64");
  CHECK((*configs)[3].backend == "plan");
}

TEST_CASE("a wrong line is named") {
  CHECK(parse_sweep("torch\n\nnumpy\n", "f.txt").error().text.starts_with("f.txt:3: no allocator"));
  CHECK(parse_sweep("torch-1.13 x:1", "f").error().text.starts_with("f:1: no rules for torch"));
  CHECK(parse_sweep("# nothing\n", "f").error().text == "f: no configuration in it");
}

TEST_CASE("rows come by configuration and device, and do not depend on threads") {
  test::RecordedModel recorded;
  test::train(recorded, 10, 3, true);
  ProcessFacts facts;
  facts.properties["torch_version"] = "2.15";
  VectorStream stream(recorded.events());
  ReadSettings settings;
  settings.with_calls = true;
  const RecordedProcess process = read_process(stream, facts, settings);
  std::vector<std::unique_ptr<Backend>> backends;
  for (const char* conf :
       {"", "max_split_size_mb:21", "roundup_power2_divisions:4", "expandable_segments:True"}) {
    backends.push_back(parse_backend("torch", conf, "2.15").value());
  }
  backends.push_back(parse_backend("cuda", "", "").value());
  size_t calls = 0;
  size_t last = 0;
  const auto alone = run_sweep(process, backends, 1, [&](size_t done) {
    ++calls;
    last = done;
  });
  CHECK(calls == 5);
  CHECK(last == 5);
  const auto many = run_sweep(process, backends, 4);
  REQUIRE(alone.size() == 5);
  REQUIRE(many.size() == 5);
  for (size_t i = 0; i < alone.size(); ++i) {
    CHECK(alone[i].config == i);
    CHECK(alone[i].device == 0);
    CHECK(many[i].config == i);
    CHECK(alone[i].figures.reserved.peak == many[i].figures.reserved.peak);
    CHECK(alone[i].figures.device_mallocs == many[i].figures.device_mallocs);
  }
  CHECK(alone[0].figures.reserved.peak != alone[4].figures.reserved.peak);
}
