#include "shim/python_frames.h"

#include <charconv>

#include "event/frame.h"
#include "shim/python_walk.h"
#include "shim/stack_walk.h"

namespace fragscope::shim {
namespace {

struct CodeFacts {
  uintptr_t filename = 0;
  uintptr_t name = 0;
  uintptr_t lines = 0;
  int32_t first_line = 0;
};

template <typename Reader>
CodeFacts facts_of(const PythonLayout& layout, uintptr_t code) {
  CodeFacts facts;
  Reader::load(code + static_cast<uintptr_t>(layout.code_filename), facts.filename);
  Reader::load(code + static_cast<uintptr_t>(layout.code_name), facts.name);
  Reader::load(code + static_cast<uintptr_t>(layout.code_lines), facts.lines);
  Reader::load(code + static_cast<uintptr_t>(layout.code_first_line), facts.first_line);
  return facts;
}

// The hash that an exact str or bytes object holds; computed by CPython when it holds none yet.
// Other objects (a subclass may have a hash of its own, in Python) count by their address.
template <typename Reader>
uint64_t hash_of(const PythonRuntime& python, uintptr_t object, uintptr_t type) {
  if (object == 0) return 0;
  uintptr_t found_type = 0;
  if (!Reader::load(object + kObjectType, found_type) || found_type != type) return object;
  intptr_t hash = -1;
  if (!Reader::load(object + kObjectHash, hash)) return object;
  if (hash == -1) hash = python.hash(reinterpret_cast<void*>(object));
  return static_cast<uint64_t>(hash);
}

// UTF-8 text that grows up to a bound.
struct Text {
  char data[2304];
  size_t size = 0;

  void add(char c) {
    if (size < sizeof data) data[size++] = c;
  }
  void add_number(int value) {
    const auto [end, error] = std::to_chars(data + size, data + sizeof data, value);
    if (error == std::errc()) size = static_cast<size_t>(end - data);
  }
  void add_utf8(uint32_t c) {
    if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;  // surrogates have no UTF-8
    if (c == 0) c = 0xFFFD;                     // ends a field here
    if (c < 0x80) return add(static_cast<char>(c));
    if (c < 0x800) {
      add(static_cast<char>(0xC0 | c >> 6));
    } else if (c < 0x10000) {
      add(static_cast<char>(0xE0 | c >> 12));
      add(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    } else {
      add(static_cast<char>(0xF0 | c >> 18));
      add(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
      add(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    }
    add(static_cast<char>(0x80 | (c & 0x3F)));
  }
};

// The last characters of long names say more than the first.
void add_name(const PythonRuntime& python, uintptr_t object, Text& text) {
  uintptr_t type = 0;
  if (object != 0) DirectReader::load(object + kObjectType, type);
  if (type != python.text_type) return;
  constexpr intptr_t kMostCharacters = 280;
  void* const name = reinterpret_cast<void*>(object);
  const intptr_t length = python.text_length(name);
  for (intptr_t i = length > kMostCharacters ? length - kMostCharacters : 0; i < length; ++i) {
    text.add_utf8(python.text_char(name, i));
  }
}

}  // namespace

PythonFrames::Answer PythonFrames::capture(std::span<uint64_t> out, bool is_main,
                                           log::LogWriter& writer) noexcept {
  Answer answer;
  const PythonThread thread = python_of_thread(is_main);
  if (thread.python == nullptr) return answer;
  if (thread.checked) {
    walk<CheckedReader>(*thread.python, thread.state, out, answer, writer);
  } else {
    walk<DirectReader>(*thread.python, thread.state, out, answer, writer);
  }
  return answer;
}

template <typename Reader>
void PythonFrames::walk(const PythonRuntime& python, uintptr_t thread, std::span<uint64_t> out,
                        Answer& answer, log::LogWriter& writer) noexcept {
  walk_python_frames<Reader, DirectReader>(python, thread, [&](uintptr_t code, int instruction) {
    if (answer.count == out.size()) {
      answer.truncated = true;
      return Walk::stop;
    }
    const uint32_t id = id_of<Reader>(python, code, instruction, writer);
    if (id == 0) return Walk::go_on;
    out[answer.count++] = kPythonFrame | id;
    answer.hash = add_frame_hash(answer.hash, id);
    return Walk::go_on;
  });
}

template <typename Reader>
uint32_t PythonFrames::id_of(const PythonRuntime& python, uintptr_t code, int instruction,
                             log::LogWriter& writer) noexcept {
  const CodeFacts facts = facts_of<Reader>(python.layout, code);
  uint64_t function = mix_hash(hash_of<Reader>(python, facts.filename, python.text_type),
                               hash_of<Reader>(python, facts.name, python.text_type));
  function = mix_hash(function, hash_of<Reader>(python, facts.lines, python.bytes_type));
  function = mix_hash(function, static_cast<uint64_t>(facts.first_line));
  const uint64_t key = mix_hash(function, static_cast<uint64_t>(instruction)) | 1;
  InternMap::Entry* const entry = ids_.entry(key);
  if (entry == nullptr) return 0;
  const uint32_t known = entry->id.load(std::memory_order_acquire);
  if (known != 0) return known;
  const uint32_t id = intern_line(python, code, instruction, function, writer);
  entry->id.store(id, std::memory_order_release);
  return id;
}

// 0 when the log or the table is full: tried again with the next call.
__attribute__((noinline)) uint32_t PythonFrames::intern_line(const PythonRuntime& python,
                                                             uintptr_t code, int instruction,
                                                             uint64_t function,
                                                             log::LogWriter& writer) noexcept {
  const int line = python.line_of(reinterpret_cast<void*>(code), instruction);
  const uint64_t key = mix_hash(~function, static_cast<uint64_t>(line)) | 1;
  InternMap::Entry* const entry = ids_.entry(key);
  if (entry == nullptr) return 0;
  const uint32_t known = entry->id.load(std::memory_order_acquire);
  if (known != 0) return known;
  const CodeFacts facts = facts_of<DirectReader>(python.layout, code);
  Text text;
  text.add_number(line);
  text.add('\0');
  text.add_number(facts.first_line);
  text.add('\0');
  add_name(python, facts.name, text);
  text.add('\0');
  add_name(python, facts.filename, text);
  const uint32_t id = next_id_.fetch_add(1, std::memory_order_relaxed);
  if (!writer.write_blob(log::BlobKind::python_frame, id, std::string_view(text.data, text.size)))
    return 0;
  entry->id.store(id, std::memory_order_release);
  return id;
}

}  // namespace fragscope::shim
