#include "trace/text_events.h"

#include "tests/unit/trace/sample_trace.h"

using namespace fragscope;
using namespace fragscope::trace_test;
using trace::format_event;
using trace::format_trace;
using trace::parse_text_trace;
using trace::TraceReader;

namespace {

TraceReader parse(std::string_view text) {
  auto reader = parse_text_trace(text, "t.txt");
  INFO((reader.ok() ? std::string() : reader.error().text));
  REQUIRE(reader.ok());
  return std::move(reader).value();
}

std::string error_of(std::string_view text) {
  auto reader = parse_text_trace(text, "t.txt");
  if (reader.ok()) return "no error";
  CHECK(reader.error().code == ErrorCode::kDamaged);
  return reader.error().text;
}

}  // namespace

TEST_CASE("a hand-written trace") {
  TraceReader reader = parse(
      "# made by hand\n"
      "process pid=100 program=\"my demo\" exit=exited:3 dropped=4\r\n"
      "\n"
      "property block_source=adaptor\n"
      "property note=\"a=b \\\"c\\\" \\x41\\n\"\n"
      "stack 1 0x7f0000001000 0x400123\n"
      "module 0x400000-0x500000 0x0 \"/a b\" build_id=00ff seq=1\n"
      "calls cudaMalloc=12\n"
      "1 t=1000 tid=100 device_alloc api=cudaMalloc device=0 address=0x200000000000 size=2MiB\n"
      "- alloc t=1010 stream=0 device=0 address=0x200000000000 size=512 requested=100 stack=1\n"
      "- device_free result=pending\n"
      "- mark text=\"forward pass\"\n"
      "- mark text=forward\n"
      "10 range_push text=\"forward pass\" result=-3");
  CHECK(reader.process().pid == 100);
  CHECK(reader.process().program == "my demo");
  CHECK(reader.process().exit.kind == trace::ExitKind::exited);
  CHECK(reader.process().exit.code == 3);
  CHECK(reader.process().dropped_events == 4);
  CHECK(reader.process().properties.at("note") == "a=b \"c\" A\n");
  const auto events = read_events(reader);
  REQUIRE(events.size() == 6);
  Event alloc;
  alloc.seq = 1;
  alloc.time_ns = 1000;
  alloc.pid = alloc.tid = 100;
  alloc.kind = EventKind::device_alloc;
  alloc.api = 1;
  alloc.device = 0;
  alloc.address = 0x200000000000;
  alloc.size = 2 << 20;
  CHECK(events[0] == alloc);
  CHECK(events[1].seq == 2);
  CHECK(events[1].requested == 100);
  CHECK(events[1].stack == 1);
  CHECK(events[2].result == kResultPending);
  CHECK(events[2].time_ns == 1010);
  CHECK(events[2].device == kUnknownDevice);
  CHECK(events[2].stream == kUnknown);
  CHECK(events[3].text == 1);
  CHECK(events[4].text == 2);
  CHECK(events[5].text == 1);
  CHECK(events[5].seq == 10);
  CHECK(events[5].result == -3);
  const trace::TraceTables& tables = reader.tables();
  CHECK(tables.api_names.at(1) == "cudaMalloc");
  CHECK(tables.stacks.at(1) == std::vector<uint64_t>{0x7f0000001000, 0x400123});
  CHECK(tables.modules.at(0).path == "/a b");
  CHECK(tables.modules.at(0).build_id == "00ff");
  CHECK(tables.api_calls.at("cudaMalloc") == 12);
  CHECK(format_event(events[0], tables) ==
        "1 t=1000 tid=100 device_alloc api=cudaMalloc device=0 address=0x200000000000 "
        "size=2097152");
  CHECK(format_event(events[3], tables) == "4 t=1010 mark text=\"forward pass\"");
  CHECK(format_event(events[0], trace::TraceTables{}).find("api=#1") != std::string::npos);
}

TEST_CASE("no process line: nothing is claimed") {
  TraceReader reader = parse("");
  CHECK(reader.process().pid == 1);
  CHECK(reader.process().exit.kind == trace::ExitKind::vanished);
  CHECK(reader.process().sealed);
  CHECK_FALSE(parse("process sealed=0").process().sealed);
}

TEST_CASE("text and back: the same events, tables, ends") {
  for (const bool sealed : {true, false}) {
    auto first = TraceReader::open_bytes(sample_trace(sealed), "a");
    REQUIRE(first.ok());
    const std::string text = format_trace(*first);
    TraceReader second = parse(text);
    CHECK(format_trace(second) == text);
    first->rewind();
    second.rewind();
    CHECK(read_events(*first) == read_events(second));
    CHECK(first->tables().stacks == second.tables().stacks);
    CHECK(first->process().sealed == second.process().sealed);
    CHECK(first->process().torn_records == second.process().torn_records);
  }
}

TEST_CASE("random events survive the text form") {
  trace::MemorySink sink;
  auto writer = trace::TraceWriter::start(sink, sample_process());
  REQUIRE(writer.ok());
  // Two ids with one name, names that look like ids, and every byte.
  require_ok(writer->add_api_name(7, "same"));
  require_ok(writer->add_api_name(8, "same"));
  require_ok(writer->add_api_name(9, "#9 = x"));
  std::string every_byte;
  for (int c = 1; c < 256; ++c) every_byte += static_cast<char>(c);
  require_ok(writer->add_text(1, every_byte));
  require_ok(writer->add_property(every_byte, every_byte));
  require_ok(writer->add_property("", ""));
  for (const Event& event : random_events(11, 4000)) require_ok(writer->add_event(event));
  require_ok(writer->seal(sample_process(), {{every_byte, 1}}));
  auto first = TraceReader::open_bytes(sink.bytes(), "a");
  REQUIRE(first.ok());
  TraceReader second = parse(format_trace(*first));
  first->rewind();
  CHECK(read_events(*first) == read_events(second));
  CHECK(second.tables().texts == first->tables().texts);
  CHECK(second.process().properties == first->process().properties);
  CHECK(second.tables().api_calls == first->tables().api_calls);
}

TEST_CASE("what is wrong is said with its line") {
  CHECK(error_of("\n\nfoo\n") == "t.txt:3: 'foo' is neither an event number nor a known word");
  CHECK(error_of("1 t=5") == "t.txt:1: the kind of the event is missing");
  CHECK(error_of("1 alloc size=x") == "t.txt:1: 'x' is no value for size");
  CHECK(error_of("1 alloc device=4294967296") == "t.txt:1: '4294967296' is no value for device");
  CHECK(error_of("1 alloc tid=-1") == "t.txt:1: '-1' is no value for tid");
  CHECK(error_of("1 alloc colour=red") == "t.txt:1: unknown field 'colour'");
  CHECK(error_of("1 alloc alloc") == "t.txt:1: two kinds in one event");
  CHECK(error_of("1 cudaMalloc") == "t.txt:1: 'cudaMalloc' is no kind of event");
  CHECK(error_of("2 alloc\n1 alloc").find("t.txt:2: event 1 of process 1 is out of order") == 0);
  CHECK(error_of("1 alloc\nprocess pid=2") == "t.txt:2: `process` has to be the first line");
  CHECK(error_of("process pid=x") == "t.txt:1: 'x' is no value for pid");
  CHECK(error_of("process exit=exited") == "t.txt:1: 'exited' is no value for exit");
  CHECK(error_of("process exit=lost") == "t.txt:1: 'lost' is no value for exit");
  CHECK(error_of("process sealed=2") == "t.txt:1: '2' is no value for sealed");
  CHECK(error_of("process colour=red") == "t.txt:1: unknown field 'colour' of process");
  CHECK(error_of("property x") == "t.txt:1: expected: property KEY=VALUE");
  CHECK(error_of("api 70000 x") == "t.txt:1: expected: api ID NAME");
  CHECK(error_of("stack 1 zz") == "t.txt:1: 'zz' is no address");
  CHECK(error_of("module 5-4 0 /x").find("t.txt:1: module /x ends before it starts") == 0);
  CHECK(error_of("module 5 0 /x").find("t.txt:1: expected: module") == 0);
  CHECK(error_of("text 1 \"abc") ==
        "t.txt:1: a quoted value does not end, or has an unknown escape");
  CHECK(error_of("text 1 \"\\q\"") ==
        "t.txt:1: a quoted value does not end, or has an unknown escape");
}

TEST_CASE("no text makes the parser fail otherwise than with a line") {
  auto first = TraceReader::open_bytes(sample_trace(), "a");
  REQUIRE(first.ok());
  const std::string text = format_trace(*first);
  std::mt19937_64 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string broken = text;
    for (int change = 0; change < 3; ++change) {
      broken[random() % broken.size()] = static_cast<char>(random());
    }
    const auto reader = parse_text_trace(broken, "t.txt");
    if (!reader.ok() && reader.error().text.rfind("t.txt:", 0) != 0) FAIL(reader.error().text);
  }
}
