// CUDA events and streams under the command list's control: work on a stream is done when the list
// says so. These definitions of the event functions come before those of the CUDA runtime, because
// they stand in the program itself.
#pragma once

#include <cstdint>

namespace fragscope::oracle {

// A stream's number in a command list as the handle that the allocator sees. Handles sort like
// numbers; an external stream's handle must be even for c10.
inline void* stream_handle(uint64_t number) { return reinterpret_cast<void*>(number * 16); }
inline uint64_t stream_number(const void* handle) {
  return reinterpret_cast<uint64_t>(handle) / 16;
}

void submit_work(int device, uint64_t stream);
void complete_work(int device, uint64_t stream);

// What cudaStreamIsCapturing says of every stream of the device.
void set_capturing(int device, bool capturing);

}  // namespace fragscope::oracle
