#include "import/snapshot_collector.h"

#include <algorithm>
#include <array>
#include <limits>

namespace fragscope::imported {
namespace {

constexpr std::string_view kKeyNames[] = {
    "",
#define SNAPSHOT_KEY(name) #name,
#include "import/snapshot_keys.def"
#undef SNAPSHOT_KEY
};

struct ActionName {
  std::string_view name;
  Action action;
};
constexpr ActionName kActions[] = {
    {"alloc", Action::alloc},
    {"free_requested", Action::free_requested},
    {"free_completed", Action::free_completed},
    {"free", Action::free_completed},  // _memory_viz.py's own name for both
    {"segment_alloc", Action::segment_alloc},
    {"segment_free", Action::segment_free},
    {"segment_map", Action::segment_map},
    {"segment_unmap", Action::segment_unmap},
    {"snapshot", Action::snapshot},
    {"oom", Action::oom},
    {"annotate", Action::annotate},
};

}  // namespace

struct SnapshotCollector::Fields {
  std::array<Value, static_cast<size_t>(Key::count)> values;
  std::array<bool, static_cast<size_t>(Key::count)> present{};

  Value operator[](Key key) const { return values[static_cast<size_t>(key)]; }
  bool has(Key key) const { return present[static_cast<size_t>(key)]; }
};

SnapshotCollector::SnapshotCollector(SnapshotParts& parts, ValueStore& values, Budget& budget)
    : parts_(parts), values_(values), budget_(budget) {
  parts_.texts.intern("", budget_);  // id 0: none
  for (size_t i = 1; i < std::size(kKeyNames); ++i) {
    const uint32_t id = parts_.texts.intern(kKeyNames[i], budget_);
    if (id >= keys_.size()) keys_.resize(id + 1, Key::none);
    keys_[id] = static_cast<Key>(i);
  }
  for (const ActionName& entry : kActions) {
    const uint32_t id = parts_.texts.intern(entry.name, budget_);
    if (id >= actions_.size()) actions_.resize(id + 1, Action::unknown);
    actions_[id] = entry.action;
  }
}

Key SnapshotCollector::key_of(Value text) const {
  const uint64_t id = text.payload();
  return text.tag() == Tag::text && id < keys_.size() ? keys_[id] : Key::none;
}

Action SnapshotCollector::action_of(Value value) const {
  const uint64_t id = value.payload();
  return value.tag() == Tag::text && id < actions_.size() ? actions_[id] : Action::unknown;
}

Value SnapshotCollector::collect(Value value, std::optional<uint32_t> key) {
  if (value.tag() == Tag::dict) return collect_dict(value);
  if (value.tag() != Tag::list || !key || *key >= keys_.size()) return value;
  const bool is_stack = keys_[*key] == Key::frames || keys_[*key] == Key::cpp_frames;
  return is_stack ? collect_stack(value) : value;
}

// False: no key of ours is there.
bool SnapshotCollector::take_fields(const std::vector<Value>& items, Fields& fields) const {
  bool any = false;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const Key key = key_of(items[i]);
    if (key == Key::none) continue;
    fields.values[static_cast<size_t>(key)] = items[i + 1];
    fields.present[static_cast<size_t>(key)] = true;
    any = true;
  }
  return any;
}

Value SnapshotCollector::collect_dict(Value value) {
  const std::vector<Value>* items = values_.items(value);
  Fields fields;
  if (!items || items->size() > 256 || !take_fields(*items, fields)) return value;
  if (fields.has(Key::filename) && fields.has(Key::name)) return make_frame(fields);
  if (fields.has(Key::action)) return make_entry(fields);
  if (fields.has(Key::blocks) && fields.has(Key::total_size)) return make_segment(fields);
  if (fields.has(Key::state) && fields.has(Key::size)) return make_block(fields);
  if (fields.has(Key::stage) && fields.has(Key::time_us)) return make_annotation(fields);
  return value;
}

Value SnapshotCollector::collect_stack(Value value) {
  const std::vector<Value>* items = values_.items(value);
  if (!items) return value;
  frames_.clear();
  for (const Value item : *items) {
    if (item.tag() != Tag::frame) return value;
    frames_.push_back(static_cast<uint32_t>(item.payload()));
  }
  if (frames_.empty()) return Value::of(Tag::stack, 0);
  return Value::of(Tag::stack, parts_.stacks.intern(frames_, budget_));
}

Value SnapshotCollector::make_frame(const Fields& fields) {
  Frame frame;
  frame.function = text_or_none(fields[Key::name]);
  frame.file = text_or_none(fields[Key::filename]);
  const uint64_t line = number_or_unknown(fields[Key::line]);
  frame.line = line > UINT32_MAX ? 0 : static_cast<uint32_t>(line);
  return Value::of(Tag::frame, parts_.frames.intern(frame, budget_));
}

Value SnapshotCollector::make_entry(const Fields& fields) {
  if (!budget_.spend(sizeof(TraceEntry))) return {};
  TraceEntry entry;
  entry.action = action_of(fields[Key::action]);
  const Key address = entry.action == Action::oom ? Key::device_free : Key::addr;
  entry.address = number_or_unknown(fields[address]);
  entry.size = number_or_unknown(fields[Key::size]);
  entry.time_us = number_or_unknown(fields[Key::time_us]);
  entry.stream = stream_or_none(fields[Key::stream]);
  entry.stack = stack_or_none(fields[Key::frames]);
  entry.pool = pool_or_none(fields[Key::pool_id]);
  const uint32_t text = text_or_none(fields[Key::user_metadata]);
  if (!parts_.texts[text].empty()) entry.text = text;
  see(Evidence::time_us, fields[Key::time_us]);
  see(Evidence::compile_context, fields[Key::compile_context]);
  see(Evidence::user_metadata, fields[Key::user_metadata]);
  see(Evidence::entry_pool, fields[Key::pool_id]);
  parts_.entries.push_back(entry);
  return Value::run(Tag::entry, static_cast<uint32_t>(parts_.entries.size() - 1), 1);
}

// The newest of a block's recorded uses (2.0: history instead of frames).
uint32_t SnapshotCollector::history_stack(Value history, uint64_t& real_size) {
  const std::vector<Value>* uses = values_.items(history);
  if (!uses || uses->empty()) return 0;
  const std::vector<Value>* use = values_.items(uses->front());
  Fields fields;
  if (!use || !take_fields(*use, fields)) return 0;
  real_size = number_or_unknown(fields[Key::real_size]);
  return stack_or_none(fields[Key::frames]);
}

Value SnapshotCollector::make_block(const Fields& fields) {
  if (!budget_.spend(sizeof(SnapshotBlock))) return {};
  SnapshotBlock block;
  block.address = number_or_unknown(fields[Key::address]);
  block.size = number_or_unknown(fields[Key::size]);
  block.requested = number_or_unknown(fields[Key::requested_size]);
  block.stack = stack_or_none(fields[Key::frames]);
  uint64_t real_size = kUnknown;
  if (fields.has(Key::history)) {
    const uint32_t stack = history_stack(fields[Key::history], real_size);
    if (block.stack == 0) block.stack = stack;
    if (block.requested == kUnknown) block.requested = real_size;
  }
  const uint32_t state = text_or_none(fields[Key::state]);
  const std::string_view name = parts_.texts[state];
  if (name == "active_allocated") block.state = BlockState::allocated;
  if (name == "active_pending_free" || name == "active_awaiting_free") {
    block.state = BlockState::pending_free;
  }
  see(Evidence::block_address, fields[Key::address]);
  see(Evidence::block_history, fields[Key::history]);
  parts_.blocks.push_back(block);
  return Value::run(Tag::block, static_cast<uint32_t>(parts_.blocks.size() - 1), 1);
}

Value SnapshotCollector::make_segment(const Fields& fields) {
  if (!budget_.spend(sizeof(SnapshotSegment))) return {};
  SnapshotSegment segment;
  segment.address = number_or_unknown(fields[Key::address]);
  segment.size = number_or_unknown(fields[Key::total_size]);
  const uint64_t device = number_or_unknown(fields[Key::device]);
  segment.device = device > 4096 ? kUnknownDevice : static_cast<int32_t>(device);
  segment.stream = stream_or_none(fields[Key::stream]);
  segment.stack = stack_or_none(fields[Key::frames]);
  segment.pool = pool_or_none(fields[Key::segment_pool_id]);
  segment.expandable = fields[Key::is_expandable] == Value::of(Tag::boolean, 1);
  const std::string_view type = parts_.texts[text_or_none(fields[Key::segment_type])];
  if (type == "small") segment.type = SegmentType::small;
  if (type == "large") segment.type = SegmentType::large;
  const std::vector<Value>* blocks = values_.items(fields[Key::blocks]);
  if (!blocks || blocks->size() > 1) segment.broken = true;
  if (blocks && blocks->size() == 1) {
    segment.broken = blocks->front().tag() != Tag::block;
    segment.first_block = blocks->front().id();
    segment.block_count = blocks->front().count();
  }
  parts_.segments.push_back(segment);
  return Value::run(Tag::segment, static_cast<uint32_t>(parts_.segments.size() - 1), 1);
}

Value SnapshotCollector::make_annotation(const Fields& fields) {
  if (!budget_.spend(sizeof(Annotation))) return {};
  Annotation annotation;
  annotation.time_us = number_or_unknown(fields[Key::time_us]);
  const uint64_t device = number_or_unknown(fields[Key::device]);
  if (device <= 4096) annotation.device = static_cast<int32_t>(device);
  annotation.name = text_or_none(fields[Key::name]);
  annotation.end = parts_.texts[text_or_none(fields[Key::stage])] == "END";
  parts_.annotations.push_back(annotation);
  return Value::run(Tag::annotation, static_cast<uint32_t>(parts_.annotations.size() - 1), 1);
}

// --- fields -------------------------------------------------------------------------------------

uint64_t SnapshotCollector::number_or_unknown(Value value) const {
  return values_.number(value).value_or(kUnknown);
}

// Id of a text; of what is none: 0, the empty one.
uint32_t SnapshotCollector::text_or_none(Value value) const {
  return value.tag() == Tag::text ? static_cast<uint32_t>(value.payload()) : 0;
}

uint32_t SnapshotCollector::stack_or_none(Value value) const {
  return value.tag() == Tag::stack ? static_cast<uint32_t>(value.payload()) : 0;
}

uint32_t SnapshotCollector::pool_or_none(Value value) {
  const std::vector<Value>* items = values_.items(value);
  if (!items || items->size() != 2) return 0;
  const auto first = values_.number((*items)[0]);
  const auto second = values_.number((*items)[1]);
  if (!first || !second) return 0;
  return parts_.pools.intern({*first, *second}, budget_);
}

// 0: not told, or one stream more than can be numbered.
uint16_t SnapshotCollector::stream_or_none(Value value) {
  const auto stream = values_.number(value);
  if (!stream) return 0;
  const uint32_t id = parts_.streams.intern(*stream, budget_);
  return id > std::numeric_limits<uint16_t>::max() ? uint16_t{0} : static_cast<uint16_t>(id);
}

}  // namespace fragscope::imported
