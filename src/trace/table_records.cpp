#include "trace/table_records.h"

#include <algorithm>

#include "trace/format.h"

namespace fragscope::trace {
namespace {

enum class RecordType : uint8_t {
  stack = 1,
  text = 2,
  api_name = 3,
  module = 4,
  property = 5,
  python_frame = 6,
};

class TableDecoder {
 public:
  TableDecoder(std::span<const std::byte> raw, TraceTables& tables,
               std::map<std::string, std::string>& properties)
      : in_(raw), tables_(tables), properties_(properties) {}

  bool decode(uint32_t records) {
    for (uint32_t i = 0; i < records; ++i) {
      if (!decode_record()) return false;
    }
    return in_.remaining() == 0;
  }

 private:
  bool decode_record() {
    const auto type = static_cast<RecordType>(in_.fixed<uint8_t>());
    if (!in_.ok()) return false;
    switch (type) {
      case RecordType::stack:
        return decode_stack();
      case RecordType::text:
        return decode_named(tables_.texts);
      case RecordType::api_name:
        return decode_named(tables_.api_names);
      case RecordType::module:
        return decode_module();
      case RecordType::property: {
        std::string key = in_.text(kMaxText);
        std::string value = in_.text(kMaxText);
        if (in_.ok()) properties_[std::move(key)] = std::move(value);
        return in_.ok();
      }
      case RecordType::python_frame:
        return decode_python_frame();
    }
    return false;
  }

  bool decode_stack() {
    const uint64_t id = in_.varint();
    const uint64_t count = in_.varint();
    const uint64_t shared = in_.varint();
    frames_ += count;
    if (!in_.ok() || id > UINT32_MAX || count > kMaxStackFrames || shared > count ||
        shared > last_stack_.size() || frames_ > kMaxChunkFrames) {
      return false;
    }
    std::vector<uint64_t> stack(count);
    for (uint64_t i = 0; i < count - shared; ++i) {
      last_frame_ += static_cast<uint64_t>(in_.signed_varint());
      stack[i] = last_frame_;
    }
    std::copy(last_stack_.end() - static_cast<ptrdiff_t>(shared), last_stack_.end(),
              stack.end() - static_cast<ptrdiff_t>(shared));
    if (!in_.ok()) return false;
    last_stack_ = stack;
    tables_.stacks[static_cast<uint32_t>(id)] = std::move(stack);
    return true;
  }

  template <typename Map>
  bool decode_named(Map& map) {
    using Id = typename Map::key_type;
    const uint64_t id = in_.varint();
    std::string name = in_.text(kMaxText);
    if (!in_.ok() || id > static_cast<Id>(-1)) return false;
    map[static_cast<Id>(id)] = std::move(name);
    return true;
  }

  bool decode_module() {
    Module module;
    module.start = in_.varint();
    module.end = module.start + in_.varint();
    module.file_offset = in_.varint();
    module.first_seq = in_.varint();
    module.path = in_.text(kMaxText);
    module.build_id = in_.text(kMaxText);
    if (!in_.ok() || module.end < module.start) return false;
    tables_.modules.push_back(std::move(module));
    return true;
  }

  bool decode_python_frame() {
    const uint64_t id = in_.varint();
    PythonFrame frame;
    const int64_t line = in_.signed_varint();
    const int64_t first_line = in_.signed_varint();
    frame.function = in_.text(kMaxText);
    frame.file = in_.text(kMaxText);
    frame.line = static_cast<int32_t>(line);
    frame.first_line = static_cast<int32_t>(first_line);
    if (!in_.ok() || id > UINT32_MAX || frame.line != line || frame.first_line != first_line)
      return false;
    tables_.python_frames[static_cast<uint32_t>(id)] = std::move(frame);
    return true;
  }

  ByteReader in_;
  TraceTables& tables_;
  std::map<std::string, std::string>& properties_;
  std::vector<uint64_t> last_stack_;
  uint64_t last_frame_ = 0;
  uint64_t frames_ = 0;
};

}  // namespace

void TableEncoder::begin(uint8_t type) {
  out_.fixed(type);
  ++records_;
}

void TableEncoder::stack(uint32_t id, std::span<const uint64_t> frames) {
  begin(static_cast<uint8_t>(RecordType::stack));
  size_t shared = 0;
  const size_t comparable = std::min(frames.size(), last_stack_.size());
  while (shared < comparable &&
         frames[frames.size() - 1 - shared] == last_stack_[last_stack_.size() - 1 - shared]) {
    ++shared;
  }
  out_.varint(id);
  out_.varint(frames.size());
  out_.varint(shared);
  for (const uint64_t frame : frames.first(frames.size() - shared)) {
    out_.signed_varint(static_cast<int64_t>(frame - last_frame_));
    last_frame_ = frame;
  }
  last_stack_.assign(frames.begin(), frames.end());
  frames_ += frames.size();
}

void TableEncoder::text(uint32_t id, std::string_view text) {
  begin(static_cast<uint8_t>(RecordType::text));
  out_.varint(id);
  out_.text(text);
}

void TableEncoder::api_name(uint16_t id, std::string_view name) {
  begin(static_cast<uint8_t>(RecordType::api_name));
  out_.varint(id);
  out_.text(name);
}

void TableEncoder::module(const Module& module) {
  begin(static_cast<uint8_t>(RecordType::module));
  out_.varint(module.start);
  out_.varint(module.end - module.start);
  out_.varint(module.file_offset);
  out_.varint(module.first_seq);
  out_.text(module.path);
  out_.text(module.build_id);
}

void TableEncoder::property(std::string_view key, std::string_view value) {
  begin(static_cast<uint8_t>(RecordType::property));
  out_.text(key);
  out_.text(value);
}

void TableEncoder::python_frame(uint32_t id, const PythonFrame& frame) {
  begin(static_cast<uint8_t>(RecordType::python_frame));
  out_.varint(id);
  out_.signed_varint(frame.line);
  out_.signed_varint(frame.first_line);
  out_.text(frame.function);
  out_.text(frame.file);
}

void TableEncoder::clear() {
  out_.clear();
  last_stack_.clear();
  last_frame_ = 0;
  frames_ = 0;
  records_ = 0;
}

bool decode_table(std::span<const std::byte> raw, uint32_t records, TraceTables& tables,
                  std::map<std::string, std::string>& properties) {
  return TableDecoder(raw, tables, properties).decode(records);
}

}  // namespace fragscope::trace
