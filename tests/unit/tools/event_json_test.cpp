#include "tools/event_json.h"

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::tools;
using nlohmann::json;

namespace {

json line_of(const Event& event, const trace::TraceTables& tables, bool stacks = false) {
  std::string out;
  StackNames names;
  EventJson(stacks ? &names : nullptr).append(event, tables, out);
  CHECK(out.back() == '\n');
  return json::parse(out);
}

}  // namespace

TEST_CASE("what is unknown is null, never 0") {
  Event event;
  event.kind = EventKind::device_free;
  event.result = kResultPending;
  const json line = line_of(event, {});
  for (const char* key :
       {"api", "device", "stream", "address", "size", "requested", "result", "stack"}) {
    CHECK(line.at(key).is_null());
  }
  CHECK(line.at("plane") == "driver");
  CHECK(line.at("kind") == "device_free");
}

TEST_CASE("addresses and sizes are integers of full width") {
  Event event;
  event.kind = EventKind::alloc;
  event.device = 0;
  event.address = UINT64_MAX - 1;
  event.size = 1ull << 63;
  event.aux = 7;
  event.aux2 = 9;
  event.flags = kFlagSourceAdaptor;
  const json line = line_of(event, {});
  CHECK(line.at("address") == UINT64_MAX - 1);
  CHECK(line.at("size") == 1ull << 63);
  CHECK(line.at("allocated") == 7);
  CHECK(line.at("reserved") == 9);
  CHECK(line.at("source") == "adaptor");
}

TEST_CASE("frames name the module that was there at the time") {
  trace::TraceTables tables;
  tables.stacks[3] = {0x1010, 0x9999};
  tables.modules.push_back({0x1000, 0x2000, 0, 1, "/old.so", ""});
  tables.modules.push_back({0x1000, 0x2000, 0x100, 5, "/new.so", ""});
  Event event;
  event.kind = EventKind::mark;
  event.stack = 3;
  event.seq = 4;
  CHECK(line_of(event, tables).at("stack") == 3);
  const json old_frames = line_of(event, tables, true).at("stack");
  REQUIRE(old_frames.size() == 2);
  CHECK(old_frames[0].at("module") == "/old.so");
  CHECK(old_frames[0].at("offset") == 0x10);
  for (const char* key : {"function", "file", "line"}) CHECK(old_frames[0].at(key).is_null());
  CHECK(old_frames[1] == json{{"address", 0x9999},
                              {"module", nullptr},
                              {"offset", nullptr},
                              {"function", nullptr},
                              {"file", nullptr},
                              {"line", nullptr}});
  event.seq = 5;
  const json new_frame = line_of(event, tables, true).at("stack")[0];
  CHECK(new_frame.at("module") == "/new.so");
  CHECK(new_frame.at("offset") == 0x110);
}

TEST_CASE("foreign text is escaped") {
  trace::TraceTables tables;
  tables.texts[1] = "a\"b\n\xff";
  Event event;
  event.kind = EventKind::mark;
  event.text = 1;
  CHECK(line_of(event, tables).at("text") == "a\"b\n\xEF\xBF\xBD");
}
