#include "shim/python_runtime.h"

#include <pthread.h>

#include <cstdlib>
#include <cstring>

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
  out.line_of = function_in<int (*)(void*, int)>(object, "PyCode_Addr2Line");
  out.text_length = function_in<intptr_t (*)(void*)>(object, "PyUnicode_GetLength");
  out.text_char = function_in<uint32_t (*)(void*, intptr_t)>(object, "PyUnicode_ReadChar");
  out.hash = function_in<intptr_t (*)(void*)>(object, "PyObject_Hash");
  return out.code_type != 0 && out.text_type != 0 && out.bytes_type != 0 &&
         out.thread_state != nullptr && out.line_of != nullptr && out.text_length != nullptr &&
         out.text_char != nullptr && out.hash != nullptr;
}

State examine(const LoadedObject& object) {
  PythonRuntime found{};
  const uint32_t version = version_in(object);
  if (version >> 24 != 3 || !fill_functions(object, found)) return State::no_symbols;
  const int minor = static_cast<int>(version >> 16 & 0xff);
  g_status[std::strlen(g_status) - 2] = static_cast<char>('0' + minor / 10 % 10);
  g_status[std::strlen(g_status) - 1] = static_cast<char>('0' + minor % 10);
  // Up to 3.11 it answers with the thread that holds the GIL, whoever asks.
  if (minor <= 11) {
    found.gil_thread_state = function_in<void* (*)()>(object, "PyGILState_GetThisThreadState");
    if (found.gil_thread_state == nullptr) return State::no_symbols;
  }
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

// At least one frame of Python code, and every frame up to the limit is what it should be.
bool is_proved(const PythonRuntime& python, uintptr_t thread) {
  constexpr size_t kMostFrames = 200;
  size_t codes = 0;
  const bool whole =
      walk_python_frames<CheckedReader>(python, thread, [&](uintptr_t code, int instruction) {
        if (!is_code(python, code) || instruction < -8 || instruction > (1 << 28))
          return Walk::fail;
        return ++codes == kMostFrames ? Walk::stop : Walk::go_on;
      });
  return whole && codes > 0;
}

State prove(uintptr_t thread) {
  if (g_published == 0) return is_proved(g_runtime, thread) ? State::ready : State::not_proved;
  uint64_t words[kPublishedWords];
  if (!read_checked(g_published, words, sizeof words)) return State::not_proved;
  bool known = false;
  for (const Published& row : kPublished) {
    if (row.minor != g_runtime.layout.minor) continue;
    known = true;
    PythonRuntime candidate = g_runtime;
    candidate.layout = published_layout(row, words);
    if (!is_plausible(candidate.layout) || !is_proved(candidate, thread)) continue;
    g_runtime.layout = candidate.layout;
    return State::ready;
  }
  return known ? State::not_proved : State::unknown_version;
}

// The thread's own state when it holds the GIL, else 0.
uintptr_t held_thread_state() {
  const auto current = reinterpret_cast<uintptr_t>(g_runtime.thread_state());
  if (current == 0 || g_runtime.gil_thread_state == nullptr) return current;
  const auto own = reinterpret_cast<uintptr_t>(g_runtime.gil_thread_state());
  return own == current ? current : 0;
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

const PythonRuntime* python_of_thread(uintptr_t& thread) noexcept {
  State state = g_state.load(std::memory_order_acquire);
  if (state != State::ready && state != State::unproved) return nullptr;
  thread = held_thread_state();
  if (thread == 0) return nullptr;
  if (state == State::ready) return &g_runtime;
  if (!g_state.compare_exchange_strong(state, State::proving)) return nullptr;
  state = prove(thread);
  g_state.store(state, std::memory_order_release);
  return state == State::ready ? &g_runtime : nullptr;
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
      return "none yet: no call came from a thread that holds the GIL";
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
