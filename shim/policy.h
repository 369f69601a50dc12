// Enforcement for programs that call cudaMalloc and cudaFree (cuMemAlloc, cuMemFree) directly:
// served by src/enforce with the settings of FRAGSCOPE_ALLOC_CONF. Only on request
// (FRAGSCOPE_ENFORCE, shim/README.md). Not an observer: it changes addresses and moments of the
// program's memory calls, takes a lock and makes CUDA calls; src/enforce/README.md says what
// exactly.
//
// A served free first waits for the device, as cudaFree itself does: a block is never handed out
// again before the work on it is done, whatever stream or thread that work came from.
// An allocation that fails has asked real CUDA last: the error code and the last-error state are
// CUDA's own. Addresses that the policy did not hand out go to real CUDA.
//
// Threads: any. Contexts have an allocator each. A forked child starts anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "event/event.h"
#include "log/log_layout.h"
#include "shim/cuda_abi.h"
#include "shim/hook_table.h"

namespace fragscope::shim {
struct Session;
}

namespace fragscope::shim::policy {

// runtime and driver functions of the same purpose have equal ABIs (cudaMalloc, cuMemAlloc_v2).
using RealMalloc = int (*)(DevicePtr* out, size_t bytes);
using RealFree = int (*)(DevicePtr address);
using RealFreeAsync = int (*)(DevicePtr address, Stream stream);
using RealExport = int (*)(IpcHandle* out, DevicePtr address);

// Whether this process is served. Decided by the first memory call and kept.
bool enabled() noexcept;
// "shim", "native" (the program's own allocator, PyTorch's, carries the settings), "none".
// Why FRAGSCOPE_ENFORCE is not carried out; empty: it is, or nobody asked.
std::string problem();
const char* mode() noexcept;
log::Enforcement who_enforces() noexcept;
// Before the first memory call: this program's allocator carries the settings itself.
// `even_if_named`: also when the shim was asked for by name.
void leave_to_program(bool even_if_named) noexcept;
// At the process's end: how many requests a plan was asked for and how many it placed.
void write_plan_counts(Session& session) noexcept;

// For an outermost call. True: `result` is the answer; false: the call is real CUDA's.
bool allocate(HookId id, RealMalloc real, DevicePtr* out, size_t bytes, int& result) noexcept;
bool release(HookId id, RealFree real, DevicePtr address, int& result) noexcept;
// cudaFreeAsync of a served block: it comes back when the stream's work so far is done.
bool release_async(HookId id, RealFreeAsync real, DevicePtr address, Stream stream,
                   int& result) noexcept;
// A handle of a block that is not the start of its segment would name other memory: refused.
bool refuse_export(HookId id, RealExport real, IpcHandle* out, DevicePtr address,
                   int& result) noexcept;

// CUDA has refused `event`'s call, or the caps have, for want of device memory: what is cached and
// idle goes back to the device. True: some came free, the call is worth another attempt. Not by a
// thread that works under a capture.
bool make_room(HookId id, const void* real, const Event& event) noexcept;
// That attempt was good: the last error of the first one must not be seen.
void forget_last_error(HookId id, const void* real) noexcept;

// The memory of a context, or of all of a device's (kUnknownDevice: of all), is gone: so are its
// segments.
void forget_context(const void* context) noexcept;
void forget_device(int device) noexcept;

}  // namespace fragscope::shim::policy
