#include "import/pickle_writer.h"

#include <bit>
#include <cstring>

namespace fragscope::imported {
namespace {

constexpr uint64_t kMaxInt32 = 0x7fff'ffff;

}  // namespace

// Little-endian, as the machines that run this.
template <typename T>
void PickleWriter::raw(T value) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof value);
  out_.write(bytes, sizeof bytes);
}

PickleWriter::PickleWriter(std::ostream& out) : out_(out) { out_.write("\x80\x02", 2); }

void PickleWriter::begin_dict() {
  put('}');
  put('(');
}

void PickleWriter::begin_list() {
  put(']');
  put('(');
}

void PickleWriter::text(std::string_view value) {
  const auto [known, fresh] = texts_.try_emplace(std::string(value), 0);
  if (!fresh) return recall(known->second);
  put('X');
  raw(static_cast<uint32_t>(value.size()));
  out_.write(value.data(), static_cast<std::streamsize>(value.size()));
  known->second = memoize();
}

void PickleWriter::number(uint64_t value) {
  if (value <= 0xff) {
    put('K');
    raw(static_cast<uint8_t>(value));
  } else if (value <= kMaxInt32) {
    put('J');
    raw(static_cast<uint32_t>(value));
  } else {
    // LONG1 is signed: a ninth byte keeps the number above 0.
    put('\x8a');
    put('\x09');
    raw(value);
    put('\0');
  }
}

void PickleWriter::number_signed(int64_t value) {
  if (value >= 0) return number(static_cast<uint64_t>(value));
  put('\x8a');
  put('\x08');
  raw(value);
}

// Big-endian, unlike everything else.
void PickleWriter::real(double value) {
  put('G');
  raw(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
}

void PickleWriter::pair(uint64_t first, uint64_t second) {
  number(first);
  number(second);
  put('\x86');
}

uint32_t PickleWriter::memoize() {
  put('r');
  raw(memos_);
  return memos_++;
}

void PickleWriter::recall(uint32_t memo) {
  put('j');
  raw(memo);
}

}  // namespace fragscope::imported
