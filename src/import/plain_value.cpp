#include "import/plain_value.h"

#include <utility>

namespace fragscope::imported {
namespace {

constexpr uint64_t kTextOverhead = 96;  // of a text: string object and map entry
constexpr int64_t kLargestInline = (int64_t{1} << 58) - 1;
constexpr uint32_t kGenerations = (1u << 27) - 1;
constexpr size_t kKeptCapacity = 4096;  // items; larger storage is not kept for the next container

}  // namespace

uint32_t TextStore::intern(std::string_view text, Budget& budget) {
  const auto known = ids_.find(text);
  if (known != ids_.end()) return known->second;
  if (!budget.spend(text.size() + kTextOverhead)) return 0;
  const auto id = static_cast<uint32_t>(texts_.size());
  texts_.emplace_back(text);
  ids_.emplace(texts_.back(), id);
  return id;
}

Value ValueStore::new_container(Tag tag) {
  uint32_t index = 0;
  if (!unused_.empty()) {
    index = unused_.back();
    unused_.pop_back();
  } else {
    if (!budget_.spend(sizeof(Node))) return {};
    index = static_cast<uint32_t>(nodes_.size());
    nodes_.emplace_back();
  }
  Node& node = nodes_[index];
  node.tag = tag;
  node.memo = kNoMemo;
  return Value::run(tag, index, node.generation);
}

ValueStore::Node* ValueStore::node_of(Value container) {
  if (!container.is_container() || container.id() >= nodes_.size()) return nullptr;
  Node& node = nodes_[container.id()];
  const bool same = node.tag == container.tag() && node.generation == container.count();
  return same ? &node : nullptr;
}

std::vector<Value>* ValueStore::items(Value container) {
  Node* node = node_of(container);
  return node ? &node->items : nullptr;
}

uint32_t* ValueStore::memo_of(Value container) {
  Node* node = node_of(container);
  return node ? &node->memo : nullptr;
}

void ValueStore::append(std::vector<Value>& items, Value value) {
  if (items.size() == items.capacity()) {
    const size_t grown = items.capacity() == 0 ? 8 : items.capacity();
    if (!budget_.spend(grown * sizeof(Value))) return;
    items.reserve(items.capacity() + grown);
  }
  items.push_back(value);
}

void ValueStore::release(Value container) {
  to_release_.assign(1, container);
  while (!to_release_.empty()) {
    const Value next = to_release_.back();
    to_release_.pop_back();
    Node* node = node_of(next);
    if (!node || node->memo == kManyMemos) continue;
    for (const Value item : node->items) {
      if (item.is_container()) to_release_.push_back(item);
    }
    node->items.clear();
    if (node->items.capacity() > kKeptCapacity) {
      budget_.give_back(node->items.capacity() * sizeof(Value));
      std::vector<Value>().swap(node->items);
    }
    node->tag = Tag::gone;
    // An index whose generations are used up is left alone.
    if (++node->generation < kGenerations) unused_.push_back(next.id());
  }
}

Value ValueStore::integer(int64_t value) {
  if (value <= kLargestInline && value >= -kLargestInline) {
    return Value::of(Tag::integer, static_cast<uint64_t>(value));
  }
  if (!budget_.spend(sizeof value + 1)) return {};
  wide_.push_back(value);
  wide_is_unsigned_.push_back(false);
  return Value::of(Tag::wide, wide_.size() - 1);
}

Value ValueStore::unsigned_integer(uint64_t value) {
  if (value <= static_cast<uint64_t>(kLargestInline)) return Value::of(Tag::integer, value);
  if (!budget_.spend(sizeof value + 1)) return {};
  wide_.push_back(static_cast<int64_t>(value));
  wide_is_unsigned_.push_back(true);
  return Value::of(Tag::wide, wide_.size() - 1);
}

Value ValueStore::real(double value) {
  if (!budget_.spend(sizeof value)) return {};
  reals_.push_back(value);
  return Value::of(Tag::real, reals_.size() - 1);
}

std::optional<uint64_t> ValueStore::number(Value value) const {
  if (value.tag() == Tag::integer) {
    if (value.signed_payload() < 0) return std::nullopt;
    return static_cast<uint64_t>(value.signed_payload());
  }
  if (value.tag() != Tag::wide) return std::nullopt;
  const int64_t wide = wide_[value.payload()];
  if (wide < 0 && !wide_is_unsigned_[value.payload()]) return std::nullopt;
  return static_cast<uint64_t>(wide);
}

std::optional<double> ValueStore::real_of(Value value) const {
  if (value.tag() == Tag::real) return reals_[value.payload()];
  if (value.tag() == Tag::integer) return static_cast<double>(value.signed_payload());
  return std::nullopt;
}

}  // namespace fragscope::imported
