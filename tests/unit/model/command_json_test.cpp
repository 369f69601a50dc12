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
