// Traces of every version stay readable for ever, and this version writes the same payloads. (The
// compressed bytes may differ between versions of zstd; payloads may not.)
#include "tests/support/golden.h"

#include "base/byte_cursor.h"
#include "tests/unit/trace/sample_trace.h"
#include "trace/compression.h"
#include "trace/format.h"
#include "trace/text_events.h"

using namespace fragscope;
using namespace fragscope::trace_test;

namespace {

// Header, then each chunk with its payload uncompressed, then the end mark's magic.
std::string payloads(std::span<const std::byte> file) {
  const auto header_bytes =
      trace::check_file_header(file.first(trace::kHeaderFixedBytes), "golden");
  REQUIRE(header_bytes.ok());
  std::string out = "header\n" + test::hex_dump(file.first(*header_bytes));
  file = file.subspan(*header_bytes);
  while (file.size() > trace::kEndMarkBytes) {
    const auto header = trace::decode_chunk_header(file);
    REQUIRE(header);
    std::vector<std::byte> raw;
    REQUIRE(trace::decompress(file.subspan(trace::kChunkHeaderBytes, header->stored_bytes),
                              header->raw_bytes, raw));
    out += std::string(reinterpret_cast<const char*>(&header->tag), 4) + " " +
           std::to_string(header->records) + " records\n" + test::hex_dump(raw);
    file = file.subspan(trace::kChunkHeaderBytes + header->stored_bytes);
  }
  return out + "end mark\n" + test::hex_dump(file.subspan(8));
}

}  // namespace

TEST_CASE("payloads byte by byte") {
  test::check_golden("trace/small.payloads", payloads(sample_trace()));
}

TEST_CASE("files of every version read as the same text") {
  if (std::getenv("FRAGSCOPE_WRITE_GOLDEN") != nullptr) {
    const auto bytes = sample_trace();
    test::check_golden("trace/small.fst.hex",
                       "size " + std::to_string(bytes.size()) + "\n" + test::hex_dump(bytes));
  }
  for (const std::string name : {"trace/small.", "trace/version_1."}) {
    INFO(name);
    const std::string hex = test::read_golden(name + "fst.hex");
    const size_t size = std::stoul(hex.substr(5));
    auto reader = trace::TraceReader::open_bytes(
        test::from_hex_dump(hex.substr(hex.find('\n') + 1), size), "small.fst");
    REQUIRE(reader.ok());
    test::check_golden(name + "txt", trace::format_trace(*reader));
    CHECK_FALSE(reader->damage());
  }
}
