// Varints: what a writer writes a reader reads; impossible bytes fail and give nothing wrong.
#include "base/byte_cursor.h"

#include "tests/support/catch.h"

using namespace fragscope;

namespace {

std::vector<uint64_t> awkward_values() {
  std::vector<uint64_t> values = {0, 1, UINT64_MAX, INT64_MAX, uint64_t{1} << 63};
  for (unsigned bit = 0; bit < 64; bit += 7) {
    for (const int64_t around : {-1, 0, 1}) {
      values.push_back((uint64_t{1} << bit) + static_cast<uint64_t>(around));
    }
  }
  return values;
}

}  // namespace

TEST_CASE("running sums are the sums of the varints, one by one") {
  ByteWriter out;
  const std::vector<uint64_t> values = awkward_values();
  uint64_t last = 0;
  for (const uint64_t value : values) {
    out.signed_varint(static_cast<int64_t>(value - last));
    last = value;
  }
  out.varint(77);
  std::vector<uint64_t> read(values.size());
  ByteReader in(out.data());
  in.running_sums(read);
  CHECK(in.ok());
  CHECK(read == values);
  CHECK(in.varint() == 77);  // what follows is untouched
  CHECK(in.remaining() == 0);
}

TEST_CASE("running sums fail where a single varint would, at every cut") {
  ByteWriter out;
  for (const uint64_t value : awkward_values()) out.signed_varint(static_cast<int64_t>(value));
  std::vector<uint64_t> read(awkward_values().size());
  for (size_t cut = 0; cut < out.data().size(); ++cut) {
    ByteReader in(std::span<const std::byte>(out.data()).first(cut));
    in.running_sums(read);
    CHECK_FALSE(in.ok());
  }
  const std::vector<std::byte> endless(30, std::byte{0xff});
  ByteReader in(endless);
  in.running_sums(std::span<uint64_t>(read).first(1));
  CHECK_FALSE(in.ok());
}
