#include "simcuda/sim_config.h"

#include <set>
#include <string>

#include "base/bytes.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::simcuda;

TEST_CASE("a size is the total that CUDA reports, without context bytes") {
  const auto config = resolve_gpu("24GiB");
  REQUIRE(config);
  CHECK(config->total_bytes == 24 * kGiB);
  CHECK(config->context_bytes == 0);
  CHECK(config->devices == 1);
  CHECK(config->preset.empty());
}

TEST_CASE("a preset brings its card, a count brings several") {
  const auto config = resolve_gpu("2xa100-40gb");
  REQUIRE(config);
  CHECK(config->devices == 2);
  CHECK(config->name == "NVIDIA A100-SXM4-40GB");
  CHECK(config->sm_count == 108);
  CHECK(config->context_bytes > 0);
  CHECK(config->preset == "a100-40gb");
  CHECK(resolve_gpu("3x512MiB")->devices == 3);
}

TEST_CASE("what is no card says so and names close ones") {
  const auto unknown = resolve_gpu("a100-41gb");
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().code == ErrorCode::kInvalidArgument);
  CHECK(unknown.error().text.find("a100-40gb, a100-80gb") != std::string::npos);
  CHECK_FALSE(resolve_gpu(""));
  CHECK_FALSE(resolve_gpu("9xt4-16gb"));
  CHECK_FALSE(resolve_gpu("0x24GiB"));
  CHECK_FALSE(resolve_gpu("1MiB"));
  CHECK_FALSE(resolve_gpu("2000TiB"));
}

TEST_CASE("a card is recognised however it is written") {
  const auto advice = [](const char* text) { return resolve_gpu(text).error().text; };
  for (const char* text : {"rtx4090", "RTX 4090", "4090", "rtx-4090", "NVIDIA GeForce RTX 4090"}) {
    CHECK(advice(text).find("; did you mean rtx4090-24gb?") != std::string::npos);
  }
  CHECK(advice("RTX3060").find("rtx3060-laptop-6gb, rtx3060-12gb?") != std::string::npos);
  CHECK(advice("h100-96gb").find("did you mean h100-80gb?") != std::string::npos);
  CHECK(advice("voodoo").find("nor a known card: rtx3060-laptop-6gb, ") != std::string::npos);
  CHECK(advice("12").find("did you mean") == std::string::npos);
}

TEST_CASE("the text form gives back what went in") {
  for (const GpuPreset& preset : gpu_presets()) {
    auto config = resolve_gpu(preset.id);
    REQUIRE(config);
    config->books = "/tmp/a=b;c%d.txt";
    config->event_latency_queries = 3;
    config->kernel_us = 20;
    const auto again = parse_config(format_config(*config));
    REQUIRE(again);
    CHECK(*again == *config);
  }
}

TEST_CASE("a configuration that cannot be used is refused") {
  CHECK(parse_config("total_bytes=2097152"));
  CHECK_FALSE(parse_config(""));
  CHECK_FALSE(parse_config("total_bytes=2097151"));
  CHECK_FALSE(parse_config("total_bytes=1G"));
  CHECK_FALSE(parse_config("total_bytes=2097152;colour=red"));
  CHECK_FALSE(parse_config("total_bytes=2097152;devices=0"));
  CHECK_FALSE(parse_config("total_bytes=2097152;cc=8"));
  CHECK_FALSE(parse_config("total_bytes=2097152;context_bytes=2097153"));
}

TEST_CASE("cards have distinct identities") {
  CHECK(uuid_text(0).size() == std::string("GPU-00000000-0000-0000-0000-000000000000").size());
  CHECK(uuid_text(0) != uuid_text(1));
}

TEST_CASE("presets have distinct ids, a source and a context that fits") {
  std::set<std::string> ids;
  for (const GpuPreset& preset : gpu_presets()) {
    CHECK(ids.insert(preset.id).second);
    CHECK(std::string(preset.total_source).size() > 0);
    CHECK(preset.context_bytes < preset.total_bytes / 10);
    CHECK(preset.cc_major >= 7);
  }
  CHECK(ids.size() >= 15);
}
