// Command lists: every wrong line is named, every right one survives being printed and read again.
#include "model/command_list.h"

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/run_list.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

std::string error_of(const std::string& text) {
  const auto list = parse_commands(text, "list.txt");
  return list ? "" : list.error().text;
}

CommandList list_of(const std::string& text) {
  const auto list = parse_commands(text, "list.txt");
  INFO(text << (list ? "" : list.error().text));
  REQUIRE(list.ok());
  return list.value();
}

}  // namespace

TEST_CASE("a wrong line is told with its number") {
  const struct {
    const char* text;
    const char* error;
  } rows[] = {
      {"jump", "unknown command 'jump'"},
      {"alloc", "alloc wants ID SIZE [STREAM]"},
      {"alloc a", "alloc wants ID SIZE [STREAM]"},
      {"alloc a 1 2 3", "alloc wants ID SIZE [STREAM]"},
      {"alloc a 1152921504606846976", "more than 1 EiB"},
      {"alloc a 1 64", "a stream is a number from 0 to 63"},
      {"alloc a 1 x", "a stream is a number from 0 to 63"},
      {"alloc a 1 1x", "a stream is a number from 0 to 63"},
      {"alloc a 1\nalloc a 1", "'a' is allocated already"},
      {"free", "free wants ID"},
      {"free a b", "free wants ID"},
      {"free a", "'a' is not allocated"},
      {"alloc a 1\nfree a\nfree a", "'a' is not allocated"},
      {"record_stream a", "record_stream wants ID STREAM"},
      {"record_stream a 1 2", "record_stream wants ID STREAM"},
      {"record_stream a 1", "'a' is not allocated"},
      {"alloc a 1\nrecord_stream a 64", "a stream is a number from 0 to 63"},
      {"work", "work wants STREAM"},
      {"complete 1 2", "complete wants STREAM"},
      {"work 64", "a stream is a number from 0 to 63"},
      {"empty_cache 1", "empty_cache takes no arguments"},
      {"reset_peak_stats 1", "reset_peak_stats takes no arguments"},
      {"reset_accumulated_stats x", "reset_accumulated_stats takes no arguments"},
      {"fraction", "fraction wants a number"},
      {"fraction 0.5 1", "fraction wants a number"},
      {"fraction half", "fraction wants a number, not 'half'"},
      {"begin_pool", "begin_pool wants POOL"},
      {"begin_pool 0", "a pool is N or N.M and not 0, not '0'"},
      {"end_pool x", "a pool is N or N.M and not 0, not 'x'"},
      {"end_pool x.1", "a pool is N or N.M and not 0, not 'x.1'"},
      {"end_pool 1.x", "a pool is N or N.M and not 0, not '1.x'"},
      {"end_pool 0.0", "a pool is N or N.M and not 0, not '0.0'"},
      {"begin_pool 1 64", "a stream is a number from 0 to 63"},
      {"begin_pool 1 2 3", "begin_pool: unexpected '3'"},
      {"end_pool 1 2", "end_pool: unexpected '2'"},
      {"begin_pool 1 2 use_on_oom", "begin_pool: unexpected 'use_on_oom'"},
      {"release_pool 1 no_split", "release_pool: unexpected 'no_split'"},
      {"create_pool 1 all", "create_pool: unexpected 'all'"},
      {"device", "device wants a number from 0 to 7"},
      {"device 8", "device wants a number from 0 to 7"},
      {"device 1 2", "device wants a number from 0 to 7"},
      {"device x", "device wants a number from 0 to 7"},
      {"capacity", "capacity wants SIZE"},
      {"capacity 1 2", "capacity wants SIZE"},
      {"capacity 0", "capacity must not be 0"},
      {"empty_cache\ncapacity 1GiB", "capacity must come before all commands"},
  };
  for (const auto& row : rows) {
    const std::string text = row.text;
    const auto line = 1 + std::count(text.begin(), text.end(), '\n');
    INFO(text);
    CHECK(error_of(text) == "list.txt:" + std::to_string(line) + ": " + row.error);
  }
  CHECK(error_of("# comment\n\nalloc a x").find("list.txt:3: ") == 0);
}

TEST_CASE("the largest request and the last stream and device are right") {
  const CommandList list = list_of(
      "alloc a 1152921504606846975 63\n"
      "device 7\r\n"
      "\talloc b 1KiB # the rest is a comment\n"
      "free a\n"
      "alloc a 0\n");
  REQUIRE(list.commands.size() == 4);
  CHECK(list.devices == 8);
  CHECK(list.commands[0].size == (1ull << 60) - 1);
  CHECK(list.commands[0].stream == 63);
  CHECK(list.commands[0].line == 1);
  CHECK(list.commands[1].device == 7);
  CHECK(list.commands[1].size == 1024);
  CHECK(list.commands[1].stream == 0);
  CHECK(list.commands[1].line == 3);
  CHECK(list.commands[2].device == 0);  // where `a` was allocated
  CHECK(list.commands[2].id == 0);
  CHECK(list.commands[3].device == 7);
  CHECK(list.commands[3].id == 0);
  CHECK(list.commands[3].size == 0);
  CHECK(list.ids == std::vector<std::string>{"a", "b"});
  CHECK_FALSE(list.capacity);
}

TEST_CASE("settings keep their inner blanks, pools their two numbers") {
  const CommandList list = list_of(
      "settings   max_split_size_mb : 64 \r\n"
      "settings\n"
      "begin_pool 3 5\nbegin_pool 4.2\n"
      "create_pool 9 use_on_oom no_split\ncreate_pool 8 no_split\ncreate_pool 7 use_on_oom\n"
      "fraction 0.25");
  CHECK(list.commands[0].settings == "max_split_size_mb : 64");
  CHECK(list.commands[1].settings.empty());
  CHECK(list.commands[2].pool == PoolId{0, 3});
  CHECK(list.commands[2].stream == 5);
  CHECK(list.commands[3].pool == PoolId{4, 2});
  CHECK_FALSE(list.commands[3].stream);
  CHECK(list.commands[4].use_on_oom);
  CHECK(list.commands[4].no_split);
  CHECK_FALSE(list.commands[5].use_on_oom);
  CHECK(list.commands[5].no_split);
  CHECK(list.commands[6].use_on_oom);
  CHECK_FALSE(list.commands[6].no_split);
  CHECK(list.commands[7].fraction == 0.25);
  CHECK(list.devices == 1);
}

TEST_CASE("a list is printed as it is read") {
  const std::string text =
      "capacity 1073741824\n"
      "alloc a 512\n"
      "alloc b 1024 3\n"
      "record_stream a 2\n"
      "work 2\n"
      "complete 0\n"
      "device 2\n"
      "alloc c 1\n"
      "device 0\n"
      "free a\n"
      "empty_cache\n"
      "settings max_split_size_mb:64\n"
      "fraction 0.5\n"
      "begin_pool 3 5\n"
      "begin_pool 4.2\n"
      "end_pool 3\n"
      "create_pool 9 use_on_oom no_split\n"
      "release_pool 3\n"
      "reset_peak_stats\n"
      "reset_accumulated_stats\n";
  CHECK(format_commands(list_of(text)) == text);
}

TEST_CASE("every command has its word") {
  CHECK(command_word(CommandKind::kAlloc) == "alloc");
  CHECK(command_word(CommandKind::kResetAccumulatedStats) == "reset_accumulated_stats");
  CHECK(command_word(static_cast<CommandKind>(200)) == "unknown");
}

TEST_CASE("a request without a stream is one on the default stream") {
  const ListResult result = run_list("alloc a 1MiB\nalloc b 30MiB\nhost_alloc c 64\n", "2.15");
  for (const SegmentSnapshot& segment : result.devices[0].segments) CHECK(segment.stream == 0);
  CHECK(run_list("alloc a 4MiB 0\nfree a\nalloc b 4MiB\n", "2.15").devices[0].segments.size() == 1);
}

TEST_CASE("what creating a pool answers") {
  const std::string unused = "create_pool 1\nrelease_pool 1\ncreate_pool 1\n";
  const ListResult result = run_list(unused, "2.15");
  CHECK(result.results[0].outcome == "ok");
  CHECK(result.results[2].outcome == "error");
  CHECK(result.results[2].message == "it->second->use_count > 0 INTERNAL ASSERT FAILED");
}

TEST_CASE("a name whose second request failed holds nothing") {
  const ListResult result =
      run_list("capacity 1GiB\nalloc a 10MiB\nfree a\nalloc a 9GiB\nfree a\n", "2.15");
  CHECK(result.results[2].outcome == "oom");
  CHECK(result.results[3].outcome == "skipped");
}
