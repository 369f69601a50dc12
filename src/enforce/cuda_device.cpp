#include "enforce/cuda_device.h"

namespace fragscope::enforce {
namespace {

constexpr int kNotReady = 600;          // CUDA_ERROR_NOT_READY
constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING

constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

// As PyTorch does for segments of a capture: the thread's calls are not held against any capture.
class RelaxedCapture {
 public:
  RelaxedCapture(const CudaFunctions& cuda, bool wanted) : cuda_(cuda) {
    active_ = wanted && cuda.exchange_capture_mode != nullptr &&
              cuda.exchange_capture_mode(&mode_) == kSuccess;
  }
  ~RelaxedCapture() {
    if (active_) static_cast<void>(cuda_.exchange_capture_mode(&mode_));
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const CudaFunctions& cuda_;
  int mode_ = kRelaxed;  // then the one before
  bool active_ = false;
};

}  // namespace

bool CudaFunctions::complete() const {
  return malloc != nullptr && free != nullptr && synchronize != nullptr && memory_info != nullptr &&
         event_create != nullptr && event_record != nullptr && event_query != nullptr &&
         event_synchronize != nullptr && context_push != nullptr && context_pop != nullptr &&
         context_current != nullptr;
}

CudaDevice::Current::Current(const CudaDevice& device) : cuda_(device.cuda_) {
  void* current = nullptr;
  const bool known = cuda_.context_current(&current) == kSuccess;
  if (known && current == device.context_) return;
  pushed_ = cuda_.context_push(device.context_) == kSuccess;
}

CudaDevice::Current::~Current() {
  void* popped = nullptr;
  if (pushed_) static_cast<void>(cuda_.context_pop(&popped));
}

CudaResult CudaDevice::malloc(uint64_t bytes, uint64_t& address) {
  const Current current(*this);
  const RelaxedCapture relaxed(cuda_, captures_);
  return cuda_.malloc(&address, bytes);
}

CudaResult CudaDevice::free(uint64_t address) {
  const Current current(*this);
  const RelaxedCapture relaxed(cuda_, captures_);
  return cuda_.free(address);
}

CudaResult CudaDevice::synchronize() {
  const Current current(*this);
  return cuda_.synchronize();
}

bool CudaDevice::may_synchronize() {
  if (cuda_.exchange_capture_mode == nullptr) return true;
  int mode = kRelaxed;
  if (cuda_.exchange_capture_mode(&mode) != kSuccess) return true;
  const bool relaxed = mode == kRelaxed;
  if (!relaxed) static_cast<void>(cuda_.exchange_capture_mode(&mode));
  return !relaxed;
}

bool CudaDevice::memory_info(uint64_t& free_bytes, uint64_t& total) {
  const Current current(*this);
  size_t free_now = 0;
  size_t total_now = 0;
  if (cuda_.memory_info(&free_now, &total_now) != kSuccess) return false;
  free_bytes = free_now;
  total = total_now;
  return true;
}

void CudaDevice::forget_last_error() {
  if (cuda_.take_last_error != nullptr) static_cast<void>(cuda_.take_last_error());
}

Event CudaDevice::record_event(uint64_t stream) {
  const Current current(*this);
  Event event = nullptr;
  if (idle_events_.empty()) {
    if (cuda_.event_create(&event, kDisableTiming) != kSuccess) return nullptr;
  } else {
    event = idle_events_.back();
    idle_events_.pop_back();
  }
  if (cuda_.event_record(event, reinterpret_cast<void*>(stream)) == kSuccess) return event;
  idle_events_.push_back(event);
  return nullptr;
}

EventState CudaDevice::query_event(Event event) {
  const int result = cuda_.event_query(event);
  if (result == kSuccess) return EventState::kDone;
  return result == kNotReady ? EventState::kPending : EventState::kFailed;
}

CudaResult CudaDevice::wait_event(Event event) { return cuda_.event_synchronize(event); }

}  // namespace fragscope::enforce
