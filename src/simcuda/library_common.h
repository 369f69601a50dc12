// What the stand-ins of the vendor's libraries share: the way to our own driver. They hold no
// device memory of their own unless they say so.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "simcuda/sim_config.h"

#define LIBRARY_EXPORT extern "C" __attribute__((visibility("default")))

namespace fragscope::simcuda {

// A function of our own libcuda; null when the program has not loaded it.
inline void* driver_function(const char* name) {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : ::dlsym(library, name);
}

// Device work of this name was issued to the stream. False: there is no driver, or it refused.
inline bool note_device_work(const char* name, void* stream) {
  using NoteLaunch = int (*)(const char*, void*);
  static const auto note =
      reinterpret_cast<NoteLaunch>(driver_function("fragscope_sim_note_launch"));
  return note != nullptr && note(name, stream) == 0;
}

// Counts a call that has no implementation.
inline void note_unsupported_call(const char* name) {
  using Note = void (*)(const char*);
  const auto note = reinterpret_cast<Note>(driver_function("fragscope_sim_note_unsupported"));
  if (note != nullptr) note(name);
}

// A size that the library would have chosen itself follows our formula.
inline void note_assumed_size(const char* name, size_t bytes) {
  using Note = void (*)(const char*, size_t);
  const auto note = reinterpret_cast<Note>(driver_function("fragscope_sim_note_assumed"));
  if (note != nullptr) note(name, bytes);
}

// The simulated machine; one A100-like device when FRAGSCOPE_SIM is absent or damaged (the driver
// says so then).
inline const SimConfig& simulated_machine() {
  static const SimConfig config = [] {
    const char* text = ::secure_getenv(kConfigVariable);
    auto parsed = parse_config(text == nullptr ? "" : text);
    return parsed ? *parsed : SimConfig{};
  }();
  return config;
}

}  // namespace fragscope::simcuda
