// Stand-in for CUPTI: activity records of kernels, copies, fills, calls and external correlation
// (activity.h). Callbacks at calls, counters of the hardware and all other kinds are accepted and
// never come.
#include <string>

#include "simcuda/cupti/activity.h"
#include "simcuda/cupti/api_ids.h"
#include "simcuda/cupti/records.h"
#include "simcuda/library_common.h"

using namespace fragscope::simcuda;
namespace activity = fragscope::simcuda::cupti;

namespace {

// CUptiResult
enum CuptiResult : int {
  kCuptiSuccess = 0,
  kCuptiInvalidParameter = 1,
  kCuptiInvalidOperation = 7,
  kCuptiMaxLimitReached = 12,
  kCuptiQueueEmpty = 18,
  kCuptiInvalidKind = 21,
  kCuptiNotSupported = 27,
};

int g_subscriber = 0;

// Kinds without records here. That of a profiler's own overhead stays rightly empty.
int accept_kind(uint32_t kind) {
  if (kind == 0 || kind >= activity::kMostKinds) return kCuptiInvalidKind;
  if (kind != activity::kOverhead) {
    note_unsupported_call(("CUPTI activity kind " + std::to_string(kind)).c_str());
  }
  return kCuptiSuccess;
}

int select_api(ApiDomain domain, uint32_t id, uint8_t on) {
  return activity::select_api(domain, id, on != 0) ? kCuptiSuccess : kCuptiInvalidParameter;
}

}  // namespace

#define CUPTI_ACCEPT(name) \
  LIBRARY_EXPORT int name(void) { return kCuptiSuccess; }
// Counters of the hardware and metrics made of them.
#define CUPTI_UNSUPPORTED(name)   \
  LIBRARY_EXPORT int name(void) { \
    note_unsupported_call(#name); \
    return kCuptiNotSupported;    \
  }
#include "simcuda/cupti/cupti_functions.def"

LIBRARY_EXPORT int cuptiGetVersion(uint32_t* version) {
  if (version == nullptr) return kCuptiInvalidParameter;
  *version = FRAGSCOPE_CUPTI_VERSION;
  return kCuptiSuccess;
}
LIBRARY_EXPORT int cuptiSubscribe(void** subscriber) {
  if (subscriber == nullptr) return kCuptiInvalidParameter;
  *subscriber = &g_subscriber;
  return kCuptiSuccess;
}

LIBRARY_EXPORT int cuptiActivityEnable(uint32_t kind) {
  return activity::select_kind(kind, true) ? kCuptiSuccess : accept_kind(kind);
}
LIBRARY_EXPORT int cuptiActivityDisable(uint32_t kind) {
  if (activity::select_kind(kind, false)) return kCuptiSuccess;
  return kind == 0 || kind >= activity::kMostKinds ? kCuptiInvalidKind : kCuptiSuccess;
}
LIBRARY_EXPORT int cuptiActivityEnableContext(void*, uint32_t kind) {
  return cuptiActivityEnable(kind);  // of all contexts
}
LIBRARY_EXPORT int cuptiActivityDisableContext(void*, uint32_t kind) {
  return cuptiActivityDisable(kind);
}
LIBRARY_EXPORT int cuptiActivityEnableRuntimeApi(uint32_t id, uint8_t on) {
  return select_api(ApiDomain::kRuntime, id, on);
}
LIBRARY_EXPORT int cuptiActivityEnableDriverApi(uint32_t id, uint8_t on) {
  return select_api(ApiDomain::kDriver, id, on);
}
LIBRARY_EXPORT int cuptiActivityRegisterCallbacks(activity::BufferRequested requested,
                                                  activity::BufferCompleted completed) {
  if (requested == nullptr || completed == nullptr) return kCuptiInvalidParameter;
  return activity::set_buffer_functions(requested, completed) ? kCuptiSuccess
                                                              : kCuptiInvalidOperation;
}
LIBRARY_EXPORT int cuptiActivityRegisterTimestampCallback(activity::TimestampFunction clock) {
  if (clock == nullptr) return kCuptiInvalidParameter;
  return activity::set_clock(clock) ? kCuptiSuccess : kCuptiInvalidOperation;
}
LIBRARY_EXPORT int cuptiActivityFlushAll(uint32_t) {
  return activity::flush() ? kCuptiSuccess : kCuptiInvalidOperation;
}
LIBRARY_EXPORT int cuptiFinalize(void) {
  activity::select_nothing();
  return activity::flush() ? kCuptiSuccess : kCuptiInvalidOperation;
}
LIBRARY_EXPORT int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes, void** record) {
  if (record == nullptr) return kCuptiInvalidParameter;
  const void* next =
      buffer == nullptr ? nullptr : activity::next_record(buffer, valid_bytes, *record);
  *record = const_cast<void*>(next);
  return next != nullptr ? kCuptiSuccess : kCuptiMaxLimitReached;
}
LIBRARY_EXPORT int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  if (dropped == nullptr) return kCuptiInvalidParameter;
  *dropped = activity::take_dropped();
  return kCuptiSuccess;
}
LIBRARY_EXPORT int cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id) {
  return activity::push_external(kind, id) ? kCuptiSuccess : kCuptiInvalidParameter;
}
LIBRARY_EXPORT int cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t* last) {
  if (last != nullptr) *last = 0;
  return activity::pop_external(kind, last) ? kCuptiSuccess : kCuptiQueueEmpty;
}
// CUpti_ActivityThreadIdType
LIBRARY_EXPORT int cuptiSetThreadIdType(uint32_t type) {
  if (type > 1) return kCuptiInvalidParameter;
  activity::number_threads_by_system(type == 1);
  return kCuptiSuccess;
}
LIBRARY_EXPORT int cuptiGetThreadIdType(uint32_t* type) {
  if (type == nullptr) return kCuptiInvalidParameter;
  *type = activity::threads_are_numbered_by_system() ? 1 : 0;
  return kCuptiSuccess;
}
LIBRARY_EXPORT int cuptiGetCallbackName(uint32_t domain, uint32_t id, const char** name) {
  if (name == nullptr) return kCuptiInvalidParameter;
  constexpr uint32_t kDriverDomain = 1, kRuntimeDomain = 2;  // CUpti_CallbackDomain
  *name = "unknown";
  if (domain != kDriverDomain && domain != kRuntimeDomain) return kCuptiSuccess;
  const char* found =
      activity::api_name(domain == kDriverDomain ? ApiDomain::kDriver : ApiDomain::kRuntime, id);
  if (found == nullptr) return kCuptiInvalidParameter;
  *name = found;
  return kCuptiSuccess;
}
LIBRARY_EXPORT int cuptiGetResultString(int result, const char** text) {
  if (text == nullptr) return kCuptiInvalidParameter;
  *text = result == kCuptiSuccess ? "CUPTI_SUCCESS" : "not supported by the simulated GPU";
  return kCuptiSuccess;
}
LIBRARY_EXPORT int cuptiGetDeviceId(void*, uint32_t* device) {
  if (device == nullptr) return kCuptiInvalidParameter;
  *device = 0;
  return kCuptiSuccess;
}
// In the clock of the records.
LIBRARY_EXPORT int cuptiGetTimestamp(uint64_t* timestamp) {
  if (timestamp == nullptr) return kCuptiInvalidParameter;
  *timestamp = activity::clock_now();
  return kCuptiSuccess;
}
