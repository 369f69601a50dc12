// The served devices of this process.
//
// Threads: any. A forked child starts without any.
#pragma once

#include <string>

#include "alloc/cuda_library.h"
#include "enforce/served_allocator.h"

namespace fragscope::alloc {

inline constexpr int kMaxDevices = 64;

// What all devices share. `problem`: why nothing can be served, "" if it can.
struct Settings {
  model::AllocatorConfig config;
  const model::VersionProfile* profile = nullptr;
  std::string problem;
};

// Before the first allocation. "": accepted.
std::string configure(const char* settings, const char* torch_version);
// For devices that serve already and those to come. "": accepted.
std::string change_settings(const char* settings);

// The allocator of `device`, made if there is none. nullptr: it cannot be; `why` says so.
enforce::ServedAllocator* allocator_of(int device, std::string& why);
// nullptr: none serves it yet.
enforce::ServedAllocator* existing_allocator(int device);
// Calls visit(allocator) for each device.
template <typename Visit>
void for_each_allocator(Visit visit) {
  for (int device = 0; device < kMaxDevices; ++device) {
    if (enforce::ServedAllocator* const found = existing_allocator(device)) visit(*found);
  }
}

}  // namespace fragscope::alloc
