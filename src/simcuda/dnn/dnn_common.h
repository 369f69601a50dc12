// What the parts of the stand-in of cuDNN share: handle, status codes of cuDNN 9, and the machine.
#pragma once

#include <cstdint>
#include <mutex>
#include <new>

#include "simcuda/dnn/convolution_plan.h"
#include "simcuda/library_common.h"

#define DNN_EXPORT LIBRARY_EXPORT

namespace fragscope::simcuda {

// cudnnStatus_t
#if FRAGSCOPE_DNN_VERSION < 90000
enum DnnStatus : int {
  kDnnSuccess = 0,
  kDnnNotInitialized = 1,
  kDnnAllocFailed = 2,
  kDnnBadParam = 3,
  kDnnExecutionFailed = 8,
  kDnnNotSupported = 9,
};
#else
enum DnnStatus : int {
  kDnnSuccess = 0,
  kDnnNotInitialized = 1001,
  kDnnBadParam = 2000,
  kDnnNotSupported = 3000,
  kDnnAllocFailed = 4003,
  kDnnExecutionFailed = 5000,
};
#endif

struct DnnHandle {
  void* stream = nullptr;
};

inline DnnStatus dnn_work(const DnnHandle* handle, const char* name) {
  if (handle == nullptr) return kDnnBadParam;
  return note_device_work(name, handle->stream) ? kDnnSuccess : kDnnExecutionFailed;
}

inline DnnStatus unsupported_dnn(const char* name) {
  note_unsupported_call(name);
  return kDnnNotSupported;
}

inline DnnDevice dnn_device() {
  const SimConfig& machine = simulated_machine();
  return {machine.cc_major * 10 + machine.cc_minor, machine.sm_count};
}

// What other kernels than ours might add to the process's peak. A workspace larger than all before
// it finds no room in what earlier ones left: it needs a segment of its own. One that the device
// does not hold is not used; the caller takes the next plan.
inline void note_largest_workspace(const ConvolutionProblem& problem) {
  static std::mutex mutex;
  static uint64_t largest = 0, room = 0;
  const uint64_t bytes = largest_workspace(problem, dnn_device());
  const std::lock_guard<std::mutex> lock(mutex);
  if (bytes <= largest || bytes > simulated_machine().total_bytes) return;
  largest = bytes;
  room += bytes;
  note_assumed_size(kWorkspaceRoomName, room);
}

// Creates and destroys one kind of descriptor.
template <typename T>
DnnStatus dnn_create(T** out) {
  if (out == nullptr) return kDnnBadParam;
  *out = new (std::nothrow) T;
  return *out == nullptr ? kDnnAllocFailed : kDnnSuccess;
}
template <typename T>
DnnStatus dnn_destroy(T* object) {
  delete object;
  return kDnnSuccess;
}

}  // namespace fragscope::simcuda
