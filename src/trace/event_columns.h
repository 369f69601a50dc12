// Events of one chunk <-> 15 columns (FORMAT.md, EVNT). Columns compress two to three times better
// than records, because each holds one kind of number; dictionaries keep a loop's iterations equal
// byte for byte, which zstd then finds.
//
// Threads: one at a time. Decoding checks everything at parse() and cannot fail afterwards.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/byte_cursor.h"
#include "event/event.h"

namespace fragscope::trace {

inline constexpr size_t kEventColumns = 15;

// Value -> index in order of first appearance. Open addressing, emptied in O(1).
class ValueIndex {
 public:
  ValueIndex();
  void clear();
  uint32_t insert(uint64_t value);
  const std::vector<uint64_t>& values() const { return values_; }

 private:
  struct Entry {
    uint64_t value = 0;
    uint32_t index = 0;
    uint32_t generation = 0;
  };
  std::vector<Entry> entries_;
  std::vector<uint64_t> values_;
  uint32_t generation_ = 0;
};

class EventEncoder {
 public:
  // At most kMaxChunkEvents events, numbered densely.
  void encode(std::span<const Event> events, uint64_t log_position, ByteWriter& out);

 private:
  void encode_column(std::span<const uint64_t> values, bool prefer_differences, ByteWriter& out);
  void encode_dictionary(ByteWriter& out);

  ValueIndex index_;
  std::vector<uint64_t> values_;
  std::vector<uint32_t> rows_;
};

class EventDecoder {
 public:
  // Borrows `raw` until the last fill(). False: damaged, nothing may be filled.
  bool parse(std::span<const std::byte> raw, uint32_t pid);

  uint32_t count() const { return count_; }
  uint64_t first_seq() const { return first_seq_; }
  uint64_t log_position() const { return log_position_; }

  // Constants that an array of events holds in all its places already, by column.
  using Held = std::array<std::optional<uint64_t>, kEventColumns>;
  // Events from `first` on into the front of `batch`: `count` of them, first + count <= count().
  // `held` belongs to `batch` and is kept up; columns that it names are not written again.
  void fill(uint32_t first, uint32_t count, std::span<Event> batch, Held& held) const;

 private:
  enum class Encoding : uint8_t { constant = 0, dictionary = 1, differences = 2 };
  struct Column {
    Encoding encoding = Encoding::constant;
    uint64_t constant = 0;
    std::vector<uint64_t> values;          // the dictionary, or all values
    std::span<const std::byte> low, high;  // bytes of the indexes; `high` may be empty
  };

  bool parse_all(std::span<const std::byte> raw);
  bool parse_column(ByteReader& in, Column& column, uint64_t limit) const;
  bool parse_dictionary(ByteReader& in, Column& column) const;
  bool parse_differences(ByteReader& in, Column& column) const;
  template <auto Member>
  static void fill_column(const Column& column, uint32_t first, std::span<Event> out);

  Column columns_[kEventColumns];
  uint32_t count_ = 0;
  uint32_t pid_ = 0;
  uint64_t first_seq_ = 0;
  uint64_t log_position_ = 0;
};

}  // namespace fragscope::trace
