// Errors by script (fault_script.h).
#include <time.h>

#include "simcuda/driver/driver_state.h"

namespace fragscope::simcuda {

namespace {

CUresult error_of(const std::string& name) {
#define ERROR_NAME(enumerator, text) \
  if (name == #enumerator) return enumerator;
#include "simcuda/driver/driver_errors.def"
#undef ERROR_NAME
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace

CUresult scripted_fault(DriverState& state, const char* function) {
  FaultRow met;
  {
    const std::lock_guard<std::mutex> guard(state.lock);
    const FaultRow* row = state.faults->next(fault_point(function));
    if (row == nullptr) return CUDA_SUCCESS;
    met = *row;
  }
  if (met.action != FaultRow::Action::kSlow) return error_of(met.error);
  const timespec pause{static_cast<time_t>(met.milliseconds / 1000),
                       static_cast<long>(met.milliseconds % 1000) * 1'000'000};
  ::nanosleep(&pause, nullptr);
  return CUDA_SUCCESS;
}

}  // namespace fragscope::simcuda
