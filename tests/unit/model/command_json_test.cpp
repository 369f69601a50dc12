// The JSON of a list's answers: what is there for one device, for several, and how texts are
// escaped.
#include "model/command_json.h"

#include "tests/support/catch.h"
#include "tests/support/run_list.h"

using namespace fragscope::model;

namespace {

std::string json_of(const std::string& commands, const std::string& version = "2.15") {
  return list_result_json(run_list(commands, version), version_profile(version),
                          {{"torch", version}});
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("answers name the device from the second one on") {
  const std::string one = json_of("alloc a 1000\n");
  CHECK(count_of(one, "\"stats\": ") == 1);
  CHECK(count_of(one, "\"stats_by_device\"") == 0);
  CHECK(count_of(one, "\"torch\": \"2.15\"") == 1);
  CHECK(count_of(one, "\"segment_alloc\", \"address\": ") == 2);
  for (const int devices : {2, 3}) {
    std::string commands;
    for (int i = 0; i < devices; ++i) {
      const std::string name = std::to_string(i);
      commands += "device " + name + "\nalloc a" + name + " 1000\n";
    }
    const std::string text = json_of(commands);
    CHECK(count_of(text, "\"stats\": ") == 1);
    CHECK(count_of(text, "\"stats_by_device\"") == 1);
    CHECK(count_of(text, "\"allocated_bytes.all.current\": 1024") == size_t(devices) + 1);
    // Each as a segment call and as a trace entry.
    CHECK(count_of(text, "\"segment_alloc\", \"device\": ") == 2 * size_t(devices));
  }
}

TEST_CASE("texts are escaped") {
  CHECK(json_escape("plain") == "plain");
  CHECK(json_escape("a\"b\\c") == "a\\\"b\\\\c");
  CHECK(json_escape(std::string("\x01\x1f ", 3)) == "\\u0001\\u001f ");
  CHECK(json_escape(std::string("\0", 1)) == "\\u0000");
}

// The names in torch.cuda.memory_stats() of each release.
TEST_CASE("statistics have the names that their release has") {
  const auto since = [](const std::string& name, int first) {
    for (const VersionProfile& profile : version_profiles()) {
      const std::string text = json_of("begin_pool 1\nalloc a 1000\n", std::string(profile.name));
      INFO("torch " << profile.name << ", " << name);
      CHECK((count_of(text, "\"" + name) > 0) == (profile.minor >= first));
    }
  };
  for (const char* name :
       {"num_alloc_retries\": 0", "num_ooms\": 0", "max_split_size\": -1", "active.all.peak\": 1",
        "requested_bytes.small_pool.current\": 1000", "oversize_segments.current\": 0"}) {
    since(name, 0);
  }
  since("num_sync_all_streams\": 0", 3);
  since("num_device_alloc\": 1", 3);
  since("num_device_free\": 0", 3);
  since("num_oom_rejections\": 0", 12);
  since("reserved_bytes_by_private_pools.0_1.all.current\": 2097152", 13);
}

TEST_CASE("the answer begins with its facts and ends with what is undefined") {
  const ListResult two =
      run_list("begin_pool 1\nalloc a 30MiB\nalloc b 30MiB\ncheckpoint k 1\nrestore k\n", "2.12");
  REQUIRE(two.undefined_from_line == 5u);
  const std::string text =
      list_result_json(two, version_profile("2.12"), {{"torch", "2.12"}, {"allocator", "model"}});
  CHECK(text.rfind("{\n\"torch\": \"2.12\",\n\"allocator\": \"model\",\n\"results\": [\n", 0) == 0);
  CHECK(text.find("\n\"undefined_from_line\": 5\n") != text.npos);
}
