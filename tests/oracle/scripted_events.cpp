#include "tests/oracle/scripted_events.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace {

struct Work {
  uint64_t submitted = 0;
  uint64_t completed = 0;
};

struct Event {
  Work* work = nullptr;  // of the stream it was recorded on last
  uint64_t position = 0;
};

Work& work_of(int device, const void* stream) {
  static std::map<std::pair<int, const void*>, Work> all;
  return all[{device, stream}];
}

int current_device() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

std::set<int>& capturing_devices() {
  static std::set<int> devices;
  return devices;
}

}  // namespace

namespace fragscope::oracle {

void set_capturing(int device, bool capturing) {
  if (capturing) {
    capturing_devices().insert(device);
  } else {
    capturing_devices().erase(device);
  }
}

void submit_work(int device, uint64_t stream) {
  ++work_of(device, stream_handle(stream)).submitted;
}

void complete_work(int device, uint64_t stream) {
  Work& work = work_of(device, stream_handle(stream));
  work.completed = work.submitted;
}

}  // namespace fragscope::oracle

#define FRAGSCOPE_OVERRIDE extern "C" __attribute__((visibility("default")))

FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event,
                                                                  unsigned int) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}

FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<Event*>(event);
  return cudaSuccess;
}

FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Work& work = work_of(current_device(), stream);
  *reinterpret_cast<Event*>(event) = {&work, work.submitted};
  return cudaSuccess;
}

FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI cudaEventRecordWithFlags(cudaEvent_t event,
                                                                  cudaStream_t stream,
                                                                  unsigned int) {
  return cudaEventRecord(event, stream);
}

FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  const Event& e = *reinterpret_cast<Event*>(event);
  const bool done = e.work == nullptr || e.work->completed >= e.position;
  return done ? cudaSuccess : cudaErrorNotReady;
}

FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  const Event& e = *reinterpret_cast<Event*>(event);
  if (e.work != nullptr) e.work->completed = std::max(e.work->completed, e.position);
  return cudaSuccess;
}

FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
  Work& work = work_of(current_device(), stream);
  work.completed = work.submitted;
  return cudaSuccess;
}

FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI
cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus* status) {
  const bool active = capturing_devices().count(current_device()) != 0;
  *status = active ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

// The releases ask by different functions of the runtime; only status and id are wanted.
FRAGSCOPE_OVERRIDE int capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                    unsigned long long* id) asm("cudaStreamGetCaptureInfo");
FRAGSCOPE_OVERRIDE int capture_info_v2(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                       unsigned long long* id) asm("cudaStreamGetCaptureInfo_v2");

int capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id) {
  if (id != nullptr) *id = 1;
  return cudaStreamIsCapturing(stream, status);
}

int capture_info_v2(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id) {
  return capture_info(stream, status, id);
}
