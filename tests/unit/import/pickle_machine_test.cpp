// The restricted pickle machine: what it builds, what it refuses, and that no input harms it.
#include <random>

#include "tests/unit/import/pickle_maker.h"

using namespace fragscope;
using namespace fragscope::import_test;

namespace {

std::string error_of(const std::string& bytes) {
  const auto snapshot = read_bytes(bytes);
  REQUIRE_FALSE(snapshot.ok());
  CHECK(snapshot.error().text.find('\n') == std::string::npos);
  CHECK(snapshot.error().text.substr(0, 13) == "test.pickle: ");
  return snapshot.error().text;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

SnapshotSpec small_spec(int protocol) {
  SnapshotSpec spec;
  spec.protocol = protocol;
  spec.segments = {{0x7f0000000000,
                    {{1024, 1000, "active_allocated"}, {2096128, 0, "inactive"}},
                    "small",
                    0,
                    0,
                    0,
                    0,
                    false}};
  spec.traces = {{{"segment_alloc", 0x7f0000000000, 2097152, 0, 10},
                  {"alloc", 0x7f0000000000, 1000, 0, 10},
                  {"alloc", 0x7f0000000400, 512, 0, 20},
                  {"free_requested", 0x7f0000000400, 512, 0, 0},
                  {"free_completed", 0x7f0000000400, 512, 0, 0}},
                 {}};
  return spec;
}

}  // namespace

TEST_CASE("a snapshot reads alike in protocols 2 to 5") {
  const int protocol = GENERATE(2, 3, 4, 5);
  const auto snapshot = read_bytes(make_pickle(small_spec(protocol)));
  REQUIRE(snapshot.ok());
  const imported::SnapshotParts& parts = snapshot->parts;
  REQUIRE(parts.segments.size() == 1);
  CHECK(parts.segments[0].address == 0x7f0000000000);
  CHECK(parts.segments[0].size == 2097152);
  CHECK(parts.segments[0].type == imported::SegmentType::small);
  REQUIRE(parts.segments[0].block_count == 2);
  CHECK(parts.blocks[0].requested == 1000);
  CHECK(parts.blocks[0].state == imported::BlockState::allocated);
  REQUIRE(snapshot->traces.size() == 2);
  REQUIRE(snapshot->traces[0].size() == 1);
  CHECK(snapshot->traces[0][0].count == 5);
  CHECK(snapshot->traces[1].empty());
  CHECK(parts.entries[0].action == imported::Action::segment_alloc);
  CHECK(parts.entries[2].size == 512);
  CHECK(parts.entries[2].time_us == 1'700'000'000'000'030);
  // Three stacks of three frames each; two entries share one.
  CHECK(parts.stacks.size() == 3);
  CHECK(parts.entries[0].stack == parts.entries[1].stack);
  CHECK(parts.frames.size() == 9);
  CHECK(parts.texts[parts.frames[1].file] == "project/model.py");
}

TEST_CASE("numbers of every width arrive, and absurd ones are unknown") {
  const auto with_size = [](const std::string& opcodes) {
    PickleMaker p;
    p.dict().mark().text("segments").list().text("device_traces").list().mark().list().mark();
    p.dict().mark().text("action").text("alloc").text("size");
    for (const char c : opcodes) p.byte(static_cast<uint8_t>(c));
    p.setitems().appends().appends().setitems();
    const auto snapshot = read_bytes(p.finish());
    REQUIRE(snapshot.ok());
    return snapshot->parts.entries.at(0).size;
  };
  using namespace std::string_literals;
  CHECK(with_size("K\xff"s) == 255);
  CHECK(with_size("M\xff\xff"s) == 65535);
  CHECK(with_size("J\xff\xff\xff\x7f"s) == 2147483647);
  CHECK(with_size("J\xff\xff\xff\xff"s) == kUnknown);  // -1
  CHECK(with_size("\x8a\x00"s) == 0);
  CHECK(with_size("\x8a\x05\x00\x00\x00\x00\x01"s) == 0x100000000);
  CHECK(with_size("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"s) == INT64_MAX);
  CHECK(with_size("\x8a\x09\xfe\xff\xff\xff\xff\xff\xff\xff\x00"s) == UINT64_MAX - 1);
  CHECK(with_size("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x01"s) == kUnknown);
  CHECK(with_size("\x8b\x02\x00\x00\x00\x01\x02"s) == 0x0201);
  CHECK(with_size("N"s) == kUnknown);
  CHECK(with_size("\x88"s) == kUnknown);
}

TEST_CASE("what would run code is refused with its name and place") {
  PickleMaker global(2);
  global.op('c');
  for (const char c : std::string("os\nsystem\n")) global.byte(static_cast<uint8_t>(c));
  const std::string text = error_of(global.finish());
  CHECK(contains(text, "asks for os.system"));
  CHECK(contains(text, "nothing of this file was run"));
  CHECK(contains(text, "at byte 2"));

  PickleMaker stacked(4);
  stacked.text("builtins").text("eval").op(0x93);
  CHECK(contains(error_of(stacked.finish()), "asks for builtins.eval"));

  for (const int code : {0x52, 0x69, 0x6f, 0x62, 0x81, 0x92, 0x82, 0x83, 0x84, 0x50, 0x51}) {
    PickleMaker p;
    p.dict().dict().op(code).op(0).op(0).op(0).op(0);
    const auto snapshot = read_bytes(p.finish());
    REQUIRE_FALSE(snapshot.ok());
    CHECK(snapshot.error().code == ErrorCode::kForeign);
  }
}

TEST_CASE("a cut snapshot ends in one line that says where") {
  const std::string whole = make_pickle(small_spec(4));
  for (size_t length = 0; length < whole.size(); ++length) {
    const auto snapshot = read_bytes(whole.substr(0, length));
    REQUIRE_FALSE(snapshot.ok());
    CHECK(snapshot.error().text.find('\n') == std::string::npos);
    CHECK(contains(snapshot.error().text, "at byte "));
  }
}

TEST_CASE("data that is no snapshot is told apart") {
  PickleMaker p;
  p.dict().mark().text("weights").list().setitems();
  CHECK(contains(error_of(p.finish()), "no snapshot of PyTorch"));
  PickleMaker number;
  number.number(7);
  CHECK(contains(error_of(number.finish()), "no snapshot of PyTorch"));
  PickleMaker newer(4);
  newer.op(0x80).byte(6);
  CHECK(contains(error_of(newer.finish()), "protocol 6"));
  PickleMaker odd;
  odd.op(0x05);
  CHECK(contains(error_of(odd.finish()), "opcode 0x05"));
}

TEST_CASE("stack, memo and groups are checked") {
  const auto with = [](std::initializer_list<int> codes) {
    PickleMaker p;
    for (const int code : codes) p.op(code);
    return error_of(p.finish());
  };
  CHECK(contains(with({'0'}), "empty stack"));
  CHECK(contains(with({0x86}), "empty stack"));
  CHECK(contains(with({'e'}), "group that was not begun"));
  CHECK(contains(with({'(', 'e'}), "appends to nothing"));
  CHECK(contains(with({'}', '(', 'e'}), "no list"));
  CHECK(contains(with({']', '(', 'u'}), "no dictionary"));
  CHECK(contains(with({'}', '(', 'N', 'u'}), "key without a value"));
  CHECK(contains(with({'h', 3}), "entry 3 of its memo"));
  CHECK(contains(with({'r', 0xff, 0xff, 0xff, 0x7f}), "remembers nothing"));
  CHECK(contains(with({'N', 'r', 0xff, 0xff, 0xff, 0x7f}), "out of order"));
  CHECK(contains(with({']', ']'}), "other than one value"));
  CHECK(contains(with({']', '(', '.'}), "other than one value"));
}

TEST_CASE("bombs end at the budget, and depth costs no recursion") {
  // Lists in lists, a hundred thousand deep.
  PickleMaker deep(2);
  for (int i = 0; i < 100'000; ++i) deep.op(']');
  for (int i = 0; i < 99'999; ++i) deep.op('a');
  CHECK(contains(error_of(deep.finish()), "no segment"));
  // A list that is doubled into itself over the memo: each step is a reference, not a copy.
  PickleMaker doubled(4);
  doubled.list();
  for (int i = 0; i < 64; ++i) {
    const uint32_t last = doubled.memos() - 1;
    doubled.op('0').list().mark().get(last).get(last).appends();
  }
  CHECK(contains(error_of(doubled.finish()), "no segment"));
  // A list in itself.
  PickleMaker cycle(4);
  cycle.list().get(0).op('a');
  CHECK(contains(error_of(cycle.finish()), "no segment"));
  // Containers of one byte each: what they need in memory is bounded.
  std::string many = "\x80\x02(";
  many.append(8'000'000, ']');
  CHECK(contains(error_of(many), "far more data"));
}

TEST_CASE("a list of stacks, blocks or entries may be named twice") {
  PickleMaker p;
  p.dict().mark().text("segments").list().mark();
  p.dict().mark().text("address").number(4096).text("total_size").number(1024).text("blocks");
  p.list().mark().dict().mark().text("size").number(1024).text("state").text("active_allocated");
  const uint32_t shared = p.memos();
  p.text("frames").list();
  p.mark().dict().mark().text("filename").text("a.py").text("line").number(3).text("name");
  p.text("f").setitems().appends().setitems().appends().setitems().appends();
  p.text("device_traces").list().mark().list().mark();
  for (int i = 0; i < 2; ++i) {
    p.dict().mark().text("action").text("alloc").text("frames").get(shared + 1).setitems();
  }
  p.appends().appends().setitems();
  const auto snapshot = read_bytes(p.finish());
  REQUIRE(snapshot.ok());
  CHECK(snapshot->parts.entries.at(0).stack == 1);
  CHECK(snapshot->parts.entries.at(1).stack == 1);
  CHECK(snapshot->parts.blocks.at(0).stack == 1);
}

TEST_CASE("no mutation of a snapshot harms the reader") {
  std::mt19937_64 random(20);
  const int protocol = GENERATE(2, 4);
  const std::string whole = make_pickle(small_spec(protocol));
  size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = whole;
    const size_t changes = 1 + random() % 4;
    for (size_t i = 0; i < changes; ++i) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, 1 + random() % 8);
          break;
        case 2:
          bytes.insert(at, bytes.substr(random() % bytes.size(), 1 + random() % 32));
          break;
        default:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      }
      if (bytes.empty()) bytes = "\x80";
    }
    const auto snapshot = read_bytes(bytes);
    if (snapshot.ok()) continue;
    ++refused;
    CHECK(snapshot.error().text.find('\n') == std::string::npos);
  }
  CHECK(refused > 1000);
}
