#include "shim/python_runtime.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "shim/checked_memory.h"
#include "shim/elf_lookup.h"
#include "shim/python_walk.h"

namespace fragscope::shim {
namespace {

enum class State : uint32_t {
  absent,     // no interpreter is loaded (yet)
  searching,  // a thread fills g_runtime
  unproved,
  proving,
  ready,
  no_gil,
  no_symbols,
  unknown_version,
  not_proved,
};

constinit std::atomic<State> g_state{State::absent};
constinit PythonRuntime g_runtime{};
constinit uintptr_t g_published = 0;  // _PyRuntime of 3.13 and later
constinit char g_status[] = "cpython 3.00";

constexpr PythonLayout kLayouts[] = {
#define PYTHON_LAYOUT(minor, ...) {minor, true, __VA_ARGS__},
#include "shim/python_layouts.def"
};

struct Published {
  int minor;
  bool tested;
  unsigned thread_frame, frame_previous, code_filename;  // indexes of words
};
constexpr Published kPublished[] = {
#define PYTHON_PUBLISHED(minor, tested, ...) {minor, tested, __VA_ARGS__},
#include "shim/python_layouts.def"
};
constexpr unsigned kPublishedWords = 64;
constexpr unsigned kFreeThreadedWord = 2;
constexpr unsigned kVersionWord = 1;

template <typename T>
T function_in(const LoadedObject& object, const char* name) {
  return reinterpret_cast<T>(find_symbol(object, name));
}

// PY_VERSION_HEX: 0x030b07f0 for 3.11.7.
uint32_t version_in(const LoadedObject& object) {
  if (const void* const version = find_symbol(object, "Py_Version")) {
    return static_cast<uint32_t>(*static_cast<const unsigned long*>(version));
  }
  const auto text_of = function_in<const char* (*)()>(object, "Py_GetVersion");
  const char* const text = text_of != nullptr ? text_of() : "";
  if (std::strncmp(text, "3.", 2) != 0) return 0;
  return 0x03000000u | static_cast<uint32_t>(std::strtoul(text + 2, nullptr, 10)) << 16;
}

bool fill_functions(const LoadedObject& object, PythonRuntime& out) {
  out.code_type = reinterpret_cast<uintptr_t>(find_symbol(object, "PyCode_Type"));
  out.text_type = reinterpret_cast<uintptr_t>(find_symbol(object, "PyUnicode_Type"));
  out.bytes_type = reinterpret_cast<uintptr_t>(find_symbol(object, "PyBytes_Type"));
  out.thread_state = function_in<void* (*)()>(object, "_PyThreadState_UncheckedGet");
  if (out.thread_state == nullptr) {
    out.thread_state = function_in<void* (*)()>(object, "PyThreadState_GetUnchecked");
  }
  out.own_thread_state = function_in<void* (*)()>(object, "PyGILState_GetThisThreadState");
  out.is_finalizing = function_in<int (*)()>(object, "Py_IsFinalizing");
  if (out.is_finalizing == nullptr) {
    out.is_finalizing = function_in<int (*)()>(object, "_Py_IsFinalizing");
  }
  out.line_of = function_in<int (*)(void*, int)>(object, "PyCode_Addr2Line");
  out.text_length = function_in<intptr_t (*)(void*)>(object, "PyUnicode_GetLength");
  out.text_char = function_in<uint32_t (*)(void*, intptr_t)>(object, "PyUnicode_ReadChar");
  out.hash = function_in<intptr_t (*)(void*)>(object, "PyObject_Hash");
  return out.code_type != 0 && out.text_type != 0 && out.bytes_type != 0 &&
         out.thread_state != nullptr && out.own_thread_state != nullptr && out.line_of != nullptr &&
         out.text_length != nullptr && out.text_char != nullptr && out.hash != nullptr;
}

State examine(const LoadedObject& object) {
  PythonRuntime found{};
  const uint32_t version = version_in(object);
  if (version >> 24 != 3 || !fill_functions(object, found)) return State::no_symbols;
  const int minor = static_cast<int>(version >> 16 & 0xff);
  g_status[std::strlen(g_status) - 2] = static_cast<char>('0' + minor / 10 % 10);
  g_status[std::strlen(g_status) - 1] = static_cast<char>('0' + minor % 10);
  found.layout.minor = minor;
  for (const PythonLayout& layout : kLayouts) {
    if (layout.minor == minor) found.layout = layout;
  }
  const bool is_published = found.layout.thread_frame == 0;
  g_published = 0;
  if (is_published) {
    g_published = reinterpret_cast<uintptr_t>(find_symbol(object, "_PyRuntime"));
    uint64_t head[3];
    if (g_published == 0 || !read_checked(g_published, head, sizeof head) ||
        std::memcmp(head, "xdebugpy", 8) != 0 || head[kVersionWord] != version) {
      return State::unknown_version;
    }
    if (head[kFreeThreadedWord] != 0) return State::no_gil;
  }
  g_runtime = found;
  return State::unproved;
}

PythonLayout published_layout(const Published& row, const uint64_t (&words)[kPublishedWords]) {
  const auto at = [&words](unsigned index) { return static_cast<int32_t>(words[index]); };
  PythonLayout layout{};
  layout.minor = row.minor;
  layout.tested = row.tested;
  layout.thread_frame = at(row.thread_frame);
  layout.cframe_frame = -1;
  layout.frame_previous = at(row.frame_previous);
  layout.frame_code = at(row.frame_previous + 1);
  layout.frame_instruction = at(row.frame_previous + 2);
  layout.frame_owner = at(row.frame_previous + 4);
  layout.code_filename = at(row.code_filename);
  layout.code_name = at(row.code_filename + 2);
  layout.code_lines = at(row.code_filename + 3);
  layout.code_first_line = at(row.code_filename + 4);
  layout.code_bytes = at(row.code_filename + 8);
  return layout;
}

// Offsets of structures that are at most some kilobytes large.
bool is_plausible(const PythonLayout& layout) {
  for (const int32_t offset :
       {layout.thread_frame, layout.frame_previous, layout.frame_code, layout.frame_instruction,
        layout.code_filename, layout.code_name, layout.code_first_line, layout.code_lines}) {
    if (offset < 0 || offset > 4096) return false;
  }
  return true;
}

bool has_type(uintptr_t object, uintptr_t type) {
  uintptr_t found = 0;
  return CheckedReader::load(object + kObjectType, found) && found == type;
}

bool is_code(const PythonRuntime& python, uintptr_t code) {
  const PythonLayout& layout = python.layout;
  uintptr_t filename = 0;
  uintptr_t name = 0;
  uintptr_t lines = 0;
  int32_t first_line = 0;
  return CheckedReader::load(code + static_cast<uintptr_t>(layout.code_filename), filename) &&
         CheckedReader::load(code + static_cast<uintptr_t>(layout.code_name), name) &&
         CheckedReader::load(code + static_cast<uintptr_t>(layout.code_lines), lines) &&
         CheckedReader::load(code + static_cast<uintptr_t>(layout.code_first_line), first_line) &&
         has_type(filename, python.text_type) && has_type(name, python.text_type) &&
         has_type(lines, python.bytes_type) && first_line >= 0 && first_line < 100'000'000;
}

// Every frame up to a limit has to be what it should be; without a frame nothing is proved.
State prove_layout(const PythonRuntime& python, uintptr_t thread) {
  constexpr size_t kMostFrames = 200;
  size_t codes = 0;
  const bool right =
      walk_python_frames<CheckedReader>(python, thread, [&](uintptr_t code, int instruction) {
        const bool plausible = instruction >= -8 && instruction <= 1 << 28;
        if (!plausible || !is_code(python, code)) return Walk::fail;
        return ++codes == kMostFrames ? Walk::stop : Walk::go_on;
      });
  if (!right) return State::not_proved;
  return codes > 0 ? State::ready : State::unproved;
}

State prove(uintptr_t thread) {
  if (g_published == 0) return prove_layout(g_runtime, thread);
  uint64_t words[kPublishedWords];
  if (!read_checked(g_published, words, sizeof words)) return State::not_proved;
  State answer = State::unknown_version;
  for (const Published& row : kPublished) {
    if (row.minor != g_runtime.layout.minor) continue;
    PythonRuntime candidate = g_runtime;
    candidate.layout = published_layout(row, words);
    const State proof =
        is_plausible(candidate.layout) ? prove_layout(candidate, thread) : State::not_proved;
    if (proof == State::ready) g_runtime.layout = candidate.layout;
    if (proof == State::ready || proof == State::unproved) return proof;
    answer = proof;
  }
  return answer;
}

// Its state is 0 when the thread has none, or none that may be read.
PythonThread find_thread(bool is_main) {
  PythonThread thread;
  const auto current = reinterpret_cast<uintptr_t>(g_runtime.thread_state());
  const auto own = reinterpret_cast<uintptr_t>(g_runtime.own_thread_state());
  // Up to 3.11 thread_state() answers with the holder of the GIL, whoever asks.
  const bool has_gil = g_runtime.layout.minor <= 11 ? own == current : current != 0;
  thread.state = has_gil ? current : own;
  if (has_gil || own == 0) return thread;
  if (g_runtime.is_finalizing == nullptr || g_runtime.is_finalizing() != 0) thread.state = 0;
  thread.checked = !is_main;
  return thread;
}

}  // namespace

void look_for_python() noexcept {
  State expected = State::absent;
  if (!g_state.compare_exchange_strong(expected, State::searching)) return;
  State found = State::absent;
  for_each_object(
      [](const LoadedObject& object, void* context) {
        if (find_symbol(object, "PyCode_Type") == nullptr) return false;
        *static_cast<State*>(context) = examine(object);
        return true;
      },
      &found);
  g_state.store(found, std::memory_order_release);
}

PythonThread python_of_thread(bool is_main) noexcept {
  State state = g_state.load(std::memory_order_acquire);
  if (state != State::ready && state != State::unproved) return {};
  PythonThread thread = find_thread(is_main);
  if (thread.state == 0) return {};
  if (state == State::unproved) {
    if (!g_state.compare_exchange_strong(state, State::proving)) return {};
    state = prove(thread.state);
    g_state.store(state, std::memory_order_release);
  }
  if (state == State::ready) thread.python = &g_runtime;
  return thread;
}

const char* python_status(uint32_t& version) noexcept {
  const State state = g_state.load(std::memory_order_acquire);
  version = static_cast<uint32_t>(state) + 1;
  switch (state) {
    case State::absent:
    case State::searching:
      return "none: no CPython is loaded";
    case State::unproved:
    case State::proving:
      return "none yet: no call came from a thread of Python's";
    case State::ready:
      return g_status;
    case State::no_gil:
      return "none: a free-threaded CPython has no GIL that would keep frames still";
    case State::no_symbols:
      return "none: the interpreter does not export what is needed";
    case State::unknown_version:
      return "none: the layout of this CPython version is not known";
    case State::not_proved:
      break;
  }
  return "none: the structures of this CPython are not where they should be";
}

}  // namespace fragscope::shim
