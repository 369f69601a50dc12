// DeviceApi over CUDA's functions, as pointers: of a runtime or of the driver alone, whose
// functions of one purpose have equal ABIs.
//
// Threads: as DeviceApi. Ownership: the pointers stay valid.
#pragma once

#include <vector>

#include "enforce/device_api.h"
#include "enforce/mutex.h"

namespace fragscope::enforce {

struct CudaFunctions {
  int (*malloc)(uint64_t* out, size_t bytes) = nullptr;
  int (*free)(uint64_t address) = nullptr;
  int (*synchronize)() = nullptr;
  int (*memory_info)(size_t* free_bytes, size_t* total) = nullptr;
  int (*take_last_error)() = nullptr;  // runtime only
  // Of the driver: a query that answers "not ready" leaves no last error behind.
  int (*event_create)(Event* out, unsigned flags) = nullptr;
  int (*event_record)(Event event, void* stream) = nullptr;
  int (*event_query)(Event event) = nullptr;
  int (*event_synchronize)(Event event) = nullptr;
  // Makes the context of the device current.
  int (*context_push)(void* context) = nullptr;
  int (*context_pop)(void** context) = nullptr;
  int (*context_current)(void** context) = nullptr;

  // cuThreadExchangeStreamCaptureMode; without it no capture is known.
  int (*exchange_capture_mode)(int* mode) = nullptr;

  bool complete() const;
};

class CudaDevice : public DeviceApi {
 public:
  // `context`: the driver's, of the device; made current for calls from elsewhere.
  CudaDevice(const CudaFunctions& functions, void* context) : cuda_(functions), context_(context) {}

  CudaResult malloc(uint64_t bytes, uint64_t& address) override;
  CudaResult free(uint64_t address) override;
  CudaResult synchronize() override;
  bool may_synchronize() override;
  bool memory_info(uint64_t& free_bytes, uint64_t& total) override;
  void forget_last_error() override;
  void note_captures(bool under_way) override { captures_ = under_way; }
  Event record_event(uint64_t stream) override;
  EventState query_event(Event event) override;
  CudaResult wait_event(Event event) override;
  void drop_event(Event event) override { idle_events_.push_back(event); }

  void* context() const { return context_; }

  // The context is current on this thread while it lives.
  class Current {
   public:
    explicit Current(const CudaDevice& device);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const CudaFunctions& cuda_;
    bool pushed_ = false;
  };

 private:
  CudaFunctions cuda_;
  void* context_;
  std::vector<Event> idle_events_;
  bool captures_ = false;
};

}  // namespace fragscope::enforce
