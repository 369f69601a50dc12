// Stand-in for CUPTI: profilers may switch everything on, and no activity is ever recorded, since
// nothing runs. What they record of the host stays right.
#include <ctime>

#include "simcuda/library_common.h"

using namespace fragscope::simcuda;

namespace {

// CUptiResult
enum CuptiResult : int {
  kCuptiSuccess = 0,
  kCuptiInvalidParameter = 1,
  kCuptiMaxLimitReached = 12,
  kCuptiNotSupported = 27,
};

int g_subscriber = 0;

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
LIBRARY_EXPORT int cuptiActivityGetNextRecord(uint8_t*, size_t, void** record) {
  if (record == nullptr) return kCuptiInvalidParameter;
  *record = nullptr;
  return kCuptiMaxLimitReached;  // no further record in the buffer
}
LIBRARY_EXPORT int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  if (dropped == nullptr) return kCuptiInvalidParameter;
  *dropped = 0;
  return kCuptiSuccess;
}
LIBRARY_EXPORT int cuptiActivityPopExternalCorrelationId(int, uint64_t* last) {
  if (last != nullptr) *last = 0;
  return kCuptiSuccess;
}
LIBRARY_EXPORT int cuptiGetCallbackName(int, uint32_t, const char** name) {
  if (name == nullptr) return kCuptiInvalidParameter;
  *name = "unknown";
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
// Nanoseconds of the host's clock, as the vendor's profilers use them beside their own.
LIBRARY_EXPORT int cuptiGetTimestamp(uint64_t* timestamp) {
  if (timestamp == nullptr) return kCuptiInvalidParameter;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  *timestamp =
      static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  return kCuptiSuccess;
}
