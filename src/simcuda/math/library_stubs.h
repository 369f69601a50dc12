// Functions of the math libraries made from tables (math/*.def, by make_library_tables.py). They
// keep handles and streams, issue device work without effect, and write every output that the host
// may read, so that no caller continues with stale values:
//
//   LIBRARY_CREATE(name)         the first argument receives a new object
//   LIBRARY_DESTROY(name)        the first argument is one
//   LIBRARY_SET_STREAM(name), LIBRARY_GET_STREAM(name)
//   LIBRARY_CALL(name, work, …)  work: issued to the stream of the handle in the first argument.
//                                Further: FS_OUTPUT(position, bytes), zeroed when it lies on the
//                                host; sizes of workspaces are therefore 0
//
// Positions count the arguments that are neither floating point nor passed by value in floating
// point registers; a variadic definition reads them wherever the C calling conventions of x86-64
// and aarch64 (Linux) put them.
#pragma once

#include <cstdarg>
#include <cstring>
#include <initializer_list>
#include <new>

#include "model/device_memory.h"
#include "simcuda/library_common.h"

namespace fragscope::simcuda {

// Status values that the libraries share: cusolverStatus_t and cusparseStatus_t.
enum LibraryStatus : int {
  kLibrarySuccess = 0,
  kLibraryNotInitialized = 1,
  kLibraryAllocFailed = 2,
  kLibraryInvalidValue = 3,
  kLibraryExecutionFailed = 6,
};

struct LibraryObject {
  void* stream = nullptr;
};

struct Output {
  int position;  // of the pointer, the first argument is 1
  size_t bytes;
};

inline bool lies_on_host(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return address != 0 && (address < model::kDeviceWindowBase ||
                          address >= model::device_window(model::kMaxDevices));
}

inline void zero_outputs(void* first, va_list rest, std::initializer_list<Output> outputs) {
  int at = 1;
  void* argument = first;
  for (const Output& output : outputs) {  // by position
    for (; at < output.position; ++at) argument = va_arg(rest, void*);
    if (lies_on_host(argument)) std::memset(argument, 0, output.bytes);
  }
}

inline LibraryStatus library_work(const char* name, const LibraryObject* handle) {
  if (handle == nullptr) return kLibraryNotInitialized;
  return note_device_work(name, handle->stream) ? kLibrarySuccess : kLibraryExecutionFailed;
}

inline LibraryStatus library_create(LibraryObject** out) {
  if (out == nullptr) return kLibraryInvalidValue;
  if (driver_function("fragscope_sim_note_launch") == nullptr) return kLibraryNotInitialized;
  *out = new (std::nothrow) LibraryObject;
  return *out == nullptr ? kLibraryAllocFailed : kLibrarySuccess;
}

}  // namespace fragscope::simcuda

#define FS_OUTPUT(position, bytes) \
  ::fragscope::simcuda::Output { position, bytes }
#define LIBRARY_CREATE(name) \
  LIBRARY_EXPORT int name(LibraryObject** out) { return library_create(out); }
#define LIBRARY_DESTROY(name)                      \
  LIBRARY_EXPORT int name(LibraryObject* object) { \
    delete object;                                 \
    return kLibrarySuccess;                        \
  }
#define LIBRARY_SET_STREAM(name)                                 \
  LIBRARY_EXPORT int name(LibraryObject* handle, void* stream) { \
    if (handle == nullptr) return kLibraryNotInitialized;        \
    handle->stream = stream;                                     \
    return kLibrarySuccess;                                      \
  }
#define LIBRARY_GET_STREAM(name)                                               \
  LIBRARY_EXPORT int name(const LibraryObject* handle, void** stream) {        \
    if (handle == nullptr || stream == nullptr) return kLibraryNotInitialized; \
    *stream = handle->stream;                                                  \
    return kLibrarySuccess;                                                    \
  }
#define LIBRARY_CALL(name, is_work, ...)                                             \
  LIBRARY_EXPORT int name(void* first, ...) {                                        \
    va_list rest;                                                                    \
    va_start(rest, first);                                                           \
    zero_outputs(first, rest, {__VA_ARGS__});                                        \
    va_end(rest);                                                                    \
    return (is_work) ? library_work(#name, static_cast<const LibraryObject*>(first)) \
                     : kLibrarySuccess;                                              \
  }
