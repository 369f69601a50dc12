#include "trace/event_columns.h"

#include <algorithm>
#include <type_traits>

#include "event/event_names.h"
#include "trace/format.h"

namespace fragscope::trace {
namespace {

constexpr size_t kIndexEntries = 2 * kMaxChunkEvents;
constexpr size_t kKindColumn = 2;

template <typename T>
constexpr uint64_t to_wire(T value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<uint64_t>(value);
  } else {
    return static_cast<std::make_unsigned_t<T>>(value);
  }
}

template <auto Member>
using MemberType = std::remove_reference_t<decltype(std::declval<Event&>().*Member)>;

template <auto Member>
constexpr uint64_t limit_of() {
  return sizeof(MemberType<Member>) == 8
             ? UINT64_MAX
             : (uint64_t{1} << (8 * sizeof(MemberType<Member>) % 64)) - 1;
}

// Calls visit.operator()<&Event::field>(column number, prefers differences) in file order.
template <typename Visit>
bool for_each_column(Visit&& visit) {
  return visit.template operator()<&Event::time_ns>(0, true) &&
         visit.template operator()<&Event::tid>(1, false) &&
         visit.template operator()<&Event::kind>(2, false) &&
         visit.template operator()<&Event::api>(3, false) &&
         visit.template operator()<&Event::device>(4, false) &&
         visit.template operator()<&Event::result>(5, false) &&
         visit.template operator()<&Event::stack>(6, false) &&
         visit.template operator()<&Event::stream>(7, false) &&
         visit.template operator()<&Event::address>(8, false) &&
         visit.template operator()<&Event::size>(9, false) &&
         visit.template operator()<&Event::requested>(10, false) &&
         visit.template operator()<&Event::aux>(11, false) &&
         visit.template operator()<&Event::aux2>(12, false) &&
         visit.template operator()<&Event::flags>(13, false) &&
         visit.template operator()<&Event::text>(14, false);
}

}  // namespace

namespace {

// Plain loops, which the compiler makes wide (see CMakeLists.txt).
uint32_t largest_byte(std::span<const std::byte> bytes) {
  uint8_t largest = 0;
  for (const std::byte byte : bytes) largest = std::max(largest, static_cast<uint8_t>(byte));
  return largest;
}

uint32_t largest_index(std::span<const std::byte> low, std::span<const std::byte> high) {
  uint16_t largest = 0;
  for (size_t i = 0; i < low.size(); ++i) {
    const auto index =
        static_cast<uint16_t>(static_cast<uint16_t>(low[i]) | static_cast<uint16_t>(high[i]) << 8);
    largest = std::max(largest, index);
  }
  return largest;
}

}  // namespace

ValueIndex::ValueIndex() : entries_(kIndexEntries) {}

void ValueIndex::clear() {
  values_.clear();
  if (++generation_ == 0) {
    std::fill(entries_.begin(), entries_.end(), Entry{});
    generation_ = 1;
  }
}

uint32_t ValueIndex::insert(uint64_t value) {
  uint64_t hash = value * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 32;
  for (size_t at = hash % kIndexEntries;; at = (at + 1) % kIndexEntries) {
    Entry& entry = entries_[at];
    if (entry.generation != generation_) {
      entry = {value, static_cast<uint32_t>(values_.size()), generation_};
      values_.push_back(value);
      return entry.index;
    }
    if (entry.value == value) return entry.index;
  }
}

void EventEncoder::encode(std::span<const Event> events, uint64_t log_position, ByteWriter& out) {
  out.varint(events.size());
  out.varint(events.empty() ? 0 : events.front().seq);
  out.varint(log_position);
  if (events.empty()) return;
  for_each_column([&]<auto Member>(size_t, bool prefer_differences) {
    values_.clear();
    for (const Event& event : events) values_.push_back(to_wire(event.*Member));
    encode_column(values_, prefer_differences, out);
    return true;
  });
}

void EventEncoder::encode_column(std::span<const uint64_t> values, bool prefer_differences,
                                 ByteWriter& out) {
  const uint64_t first = values.front();
  if (std::all_of(values.begin(), values.end(), [&](uint64_t v) { return v == first; })) {
    out.fixed(uint8_t{0});
    out.varint(first);
    return;
  }
  if (!prefer_differences) {
    index_.clear();
    rows_.clear();
    for (const uint64_t value : values) rows_.push_back(index_.insert(value));
    // A dictionary pays as long as its entries come back a few times.
    if (index_.values().size() <= values.size() / 2 || values.size() < 64) {
      return encode_dictionary(out);
    }
  }
  out.fixed(uint8_t{2});
  uint64_t last = 0;
  for (const uint64_t value : values) {
    out.signed_varint(static_cast<int64_t>(value - last));
    last = value;
  }
}

void EventEncoder::encode_dictionary(ByteWriter& out) {
  out.fixed(uint8_t{1});
  out.varint(index_.values().size());
  uint64_t last = 0;
  for (const uint64_t value : index_.values()) {
    out.signed_varint(static_cast<int64_t>(value - last));
    last = value;
  }
  for (const uint32_t row : rows_) out.fixed(static_cast<uint8_t>(row));
  if (index_.values().size() <= 256) return;
  for (const uint32_t row : rows_) out.fixed(static_cast<uint8_t>(row >> 8));
}

bool EventDecoder::parse(std::span<const std::byte> raw, uint32_t pid) {
  pid_ = pid;
  if (parse_all(raw)) return true;
  count_ = 0;
  return false;
}

bool EventDecoder::parse_all(std::span<const std::byte> raw) {
  ByteReader in(raw);
  const uint64_t count = in.varint();
  first_seq_ = in.varint();
  log_position_ = in.varint();
  if (!in.ok() || count > kMaxChunkEvents) return false;
  count_ = static_cast<uint32_t>(count);
  if (count == 0) return in.remaining() == 0;
  if (first_seq_ == 0 || first_seq_ > UINT64_MAX - count) return false;
  const bool good = for_each_column([&]<auto Member>(size_t number, bool) {
    return parse_column(in, columns_[number], limit_of<Member>());
  });
  if (!good || in.remaining() != 0) return false;
  const Column& kinds = columns_[kKindColumn];
  if (kinds.encoding == Encoding::constant) return kind_from_wire(kinds.constant).has_value();
  return std::all_of(kinds.values.begin(), kinds.values.end(),
                     [](uint64_t kind) { return kind_from_wire(kind).has_value(); });
}

bool EventDecoder::parse_column(ByteReader& in, Column& column, uint64_t limit) const {
  const auto encoding = in.fixed<uint8_t>();
  column.encoding = static_cast<Encoding>(encoding);
  switch (column.encoding) {
    case Encoding::constant:
      column.constant = in.varint();
      return in.ok() && column.constant <= limit;
    case Encoding::dictionary:
      if (!parse_dictionary(in, column)) return false;
      break;
    case Encoding::differences:
      if (!parse_differences(in, column)) return false;
      break;
    default:
      return false;
  }
  return std::all_of(column.values.begin(), column.values.end(),
                     [limit](uint64_t value) { return value <= limit; });
}

bool EventDecoder::parse_dictionary(ByteReader& in, Column& column) const {
  const uint64_t entries = in.varint();
  if (!in.ok() || entries == 0 || entries > count_) return false;
  column.values.resize(entries);
  in.running_sums(column.values);
  column.low = in.bytes(count_);
  column.high = entries <= 256 ? std::span<const std::byte>{} : in.bytes(count_);
  if (!in.ok()) return false;
  return column.high.empty() ? largest_byte(column.low) < entries
                             : largest_index(column.low, column.high) < entries;
}

bool EventDecoder::parse_differences(ByteReader& in, Column& column) const {
  column.values.resize(count_);
  in.running_sums(column.values);
  return in.ok();
}

template <auto Member>
void EventDecoder::fill_column(const Column& column, uint32_t first, std::span<Event> out) {
  using T = MemberType<Member>;
  switch (column.encoding) {
    case Encoding::constant:
      for (Event& event : out) event.*Member = static_cast<T>(column.constant);
      return;
    case Encoding::differences: {
      const uint64_t* value = column.values.data() + first;
      for (Event& event : out) event.*Member = static_cast<T>(*value++);
      return;
    }
    case Encoding::dictionary:
      break;
  }
  const uint64_t* entries = column.values.data();
  const std::byte* low = column.low.data() + first;
  if (column.high.empty()) {
    for (Event& event : out) event.*Member = static_cast<T>(entries[static_cast<size_t>(*low++)]);
    return;
  }
  const std::byte* high = column.high.data() + first;
  for (Event& event : out) {
    const size_t index = static_cast<size_t>(*low++) | static_cast<size_t>(*high++) << 8;
    event.*Member = static_cast<T>(entries[index]);
  }
}

void EventDecoder::fill(uint32_t first, uint32_t count, std::span<Event> batch, Held& held) const {
  const std::span<Event> out = batch.first(count);
  uint64_t seq = first_seq_ + first;
  for (Event& event : out) {
    event.seq = seq++;
    event.pid = pid_;
  }
  for_each_column([&]<auto Member>(size_t number, bool) {
    const Column& column = columns_[number];
    if (column.encoding != Encoding::constant) {
      held[number].reset();
      fill_column<Member>(column, first, out);
    } else if (held[number] != column.constant) {
      held[number] = column.constant;
      fill_column<Member>(column, first, batch);
    }
    return true;
  });
}

}  // namespace fragscope::trace
