// Values of a pickle: numbers, texts, lists, dictionaries and tuples, and what finished parts of a
// snapshot became (snapshot_parts.h). Nothing else can be built.
//
// A value is 8 bytes. Containers lie in a store and are named by index and generation: when a part
// of a snapshot is finished, its containers are given back, and whoever still names one finds
// `gone`.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fragscope::imported {

enum class Tag : uint8_t {
  none,
  boolean,
  integer,  // 59 bits with sign
  wide,     // an integer that needs 64 bits: index of ValueStore::wide
  huge,     // an integer beyond 64 bits: its value is not kept
  real,     // index of ValueStore::reals
  text,     // id of a text
  list,
  dict,
  tuple,
  gone,
  frame,  // parts of a snapshot, by id
  stack,
  entry,  // these four: first id and count, a run of parts in a list
  block,
  segment,
  annotation,
  mark,  // only on the machine's stack
};

class Value {
 public:
  constexpr Value() = default;
  static constexpr Value of(Tag tag, uint64_t payload) {
    return Value(payload << kTagBits | static_cast<uint64_t>(tag));
  }
  constexpr Tag tag() const { return static_cast<Tag>(bits_ & ((1 << kTagBits) - 1)); }
  constexpr uint64_t payload() const { return bits_ >> kTagBits; }
  constexpr int64_t signed_payload() const { return static_cast<int64_t>(bits_) >> kTagBits; }
  constexpr bool is_container() const {
    return tag() == Tag::list || tag() == Tag::dict || tag() == Tag::tuple;
  }

  // Parts: a run of `count` ids from `first` on.
  static constexpr Value run(Tag tag, uint32_t first, uint32_t count) {
    return of(tag, static_cast<uint64_t>(count) << 32 | first);
  }
  constexpr uint32_t id() const { return static_cast<uint32_t>(payload()); }
  constexpr uint32_t count() const { return static_cast<uint32_t>(payload() >> 32); }

  friend constexpr bool operator==(Value, Value) = default;

 private:
  static constexpr unsigned kTagBits = 5;
  explicit constexpr Value(uint64_t bits) : bits_(bits) {}
  uint64_t bits_ = 0;  // Tag::none
};
static_assert(sizeof(Value) == 8);
inline constexpr uint32_t kLongestRun = (1u << 27) - 1;

// How much may be built, in bytes. A file is trusted with a multiple of its own size.
class Budget {
 public:
  explicit Budget(uint64_t bytes) : left_(bytes) {}
  // False: used up (and so it stays).
  bool spend(uint64_t bytes) {
    if (bytes > left_) {
      left_ = 0;
      exceeded_ = true;
      return false;
    }
    left_ -= bytes;
    return true;
  }
  void give_back(uint64_t bytes) {
    if (!exceeded_) left_ += bytes;
  }
  bool exceeded() const { return exceeded_; }

 private:
  uint64_t left_;
  bool exceeded_ = false;
};

// Texts, each once.
class TextStore {
 public:
  // Id of the text; texts are compared by content.
  uint32_t intern(std::string_view text, Budget& budget);
  std::string_view operator[](uint32_t id) const { return texts_[id]; }

 private:
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, uint32_t> ids_;
};

class ValueStore {
 public:
  explicit ValueStore(Budget& budget) : budget_(budget) {}

  Value new_container(Tag tag);
  // The items of a container (of a dictionary: key, value, key, value …); nullptr: gone.
  std::vector<Value>* items(Value container);
  void append(std::vector<Value>& items, Value value);
  // Which memo entry names it, so that it can be told what the container became; kNoMemo: none,
  // kManyMemos: several do.
  uint32_t* memo_of(Value container);
  static constexpr uint32_t kNoMemo = UINT32_MAX;
  static constexpr uint32_t kManyMemos = UINT32_MAX - 1;
  // Gives it back with all that only it could name. Containers that several memo entries name stay.
  void release(Value container);

  Value integer(int64_t value);
  Value unsigned_integer(uint64_t value);
  Value real(double value);
  // As an unsigned number of 64 bits; nothing: no number, negative, or beyond.
  std::optional<uint64_t> number(Value value) const;
  std::optional<double> real_of(Value value) const;

 private:
  struct Node {
    std::vector<Value> items;
    uint32_t generation = 0;
    uint32_t memo = kNoMemo;
    Tag tag = Tag::gone;
  };
  Node* node_of(Value container);

  Budget& budget_;
  std::deque<Node> nodes_;
  std::vector<uint32_t> unused_;
  std::vector<Value> to_release_;
  std::deque<int64_t> wide_;  // bit patterns; those of unsigned numbers follow their mark
  std::deque<bool> wide_is_unsigned_;
  std::deque<double> reals_;
};

}  // namespace fragscope::imported
