// Turns the containers of a snapshot's pickle into parts while the pickle is read: a dictionary
// with an `action` is a trace entry, one with `filename` a frame, and so on. Keys are PyTorch's.
//
// Threads: one at a time. Errors: none here; what does not have the shape of a part stays as it is.
#pragma once

#include <optional>
#include <vector>

#include "import/pickle_machine.h"
#include "import/snapshot_parts.h"

namespace fragscope::imported {

// Text ids of the keys, so that a key is one comparison.
enum class Key : uint8_t {
  none,
#define SNAPSHOT_KEY(name) name,
#include "import/snapshot_keys.def"
#undef SNAPSHOT_KEY
  count
};

class SnapshotCollector final : public PartCollector {
 public:
  SnapshotCollector(SnapshotParts& parts, ValueStore& values, Budget& budget);

  Value collect(Value value, std::optional<uint32_t> key) override;
  // The key that a text id stands for.
  Key key_of(Value text) const;

 private:
  struct Fields;  // values of a dictionary by key
  bool take_fields(const std::vector<Value>& items, Fields& fields) const;
  Value collect_dict(Value value);
  Value collect_stack(Value value);
  Value make_frame(const Fields& fields);
  Value make_entry(const Fields& fields);
  Value make_block(const Fields& fields);
  Value make_segment(const Fields& fields);
  Value make_annotation(const Fields& fields);

  uint64_t number_or_unknown(Value value) const;
  uint32_t text_or_none(Value value) const;
  uint32_t stack_or_none(Value value) const;
  uint32_t pool_or_none(Value value);
  uint16_t stream_or_none(Value value);
  uint32_t history_stack(Value history, uint64_t& real_size);
  Action action_of(Value value) const;
  void see(Evidence key, Value value) {
    if (value.tag() != Tag::none) parts_.evidence[static_cast<size_t>(key)] = true;
  }

  SnapshotParts& parts_;
  ValueStore& values_;
  Budget& budget_;
  std::vector<Key> keys_;        // by text id
  std::vector<Action> actions_;  // by text id
  std::vector<uint32_t> frames_;
};

}  // namespace fragscope::imported
