// The CPython of this process: where its structures lie and the few of its functions that are
// called. It is found among the loaded objects by its symbols (libpython, or an executable that
// contains it), never linked or loaded.
//
// What is called is read-only, takes no lock, runs no Python code and creates no object:
//   _PyThreadState_UncheckedGet, PyGILState_GetThisThreadState   the thread's own state
//   PyCode_Addr2Line                                             line of an instruction
//   PyUnicode_GetLength, PyUnicode_ReadChar, PyObject_Hash       of exact str and bytes objects;
//   the
//                                                                hash is stored in the object
//   _Py_IsFinalizing, Py_GetVersion (to 3.10; once)
//
// A thread looks at its own frames alone. They stand still while it is inside a call, also when it
// has released the GIL for the time of that call (PyTorch does so around almost every operation):
// nobody else may change them, and they keep their code objects and the names in those alive. The
// one exception is the end of the interpreter, which throws away the states of threads that still
// run: then nothing is read, and threads other than the main one, which would not notice its
// beginning in time, read frames without the GIL only in ways that cannot fault (their own state,
// two words right after the question whether the end has begun, directly).
//
// Before anything is read directly, the structures of the running thread are walked once with reads
// that cannot fault, and every object met has to be of the type that it should be. An interpreter
// that does not pass, is unknown, or has no GIL is refused: no Python frames are recorded, and the
// trace says why (property python_stacks).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fragscope::shim {

struct PythonLayout {
  int minor;
  bool tested;  // interpreters of this version were at hand when it was written
  int32_t thread_frame, cframe_frame;
  int32_t frame_previous, frame_code, frame_instruction, frame_owner;
  int32_t code_filename, code_name, code_first_line, code_lines, code_bytes;
};

struct PythonRuntime {
  PythonLayout layout;
  uintptr_t code_type;  // addresses of the type objects
  uintptr_t text_type;
  uintptr_t bytes_type;
  void* (*thread_state)();
  void* (*own_thread_state)();
  int (*is_finalizing)();  // null: frames are read with the GIL only
  int (*line_of)(void* code, int byte_offset);
  intptr_t (*text_length)(void* text);
  uint32_t (*text_char)(void* text, intptr_t index);
  intptr_t (*hash)(void* object);
};

inline constexpr uintptr_t kObjectType = 8;    // PyObject.ob_type
inline constexpr uintptr_t kObjectHash = 24;   // PyASCIIObject.hash, PyBytesObject.ob_shash
inline constexpr uint8_t kFirstShimOwner = 3;  // owners from here on mark frames of no Python code

// Looks for an interpreter, if none was found yet. Not for the hot path.
void look_for_python() noexcept;

struct PythonThread {
  const PythonRuntime* python = nullptr;  // null: no frames are to be had
  uintptr_t state = 0;
  bool checked = false;  // only to be read with CheckedReader
};
// Of the calling thread; `is_main`: it is the process's first. The first call that finds a thread
// state makes the proof.
PythonThread python_of_thread(bool is_main) noexcept;

// "cpython 3.11", or why there are no Python frames. `version` changes with the answer.
const char* python_status(uint32_t& version) noexcept;

}  // namespace fragscope::shim
