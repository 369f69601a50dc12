// Stand-in for cuFFT. A plan is a number; it keeps its stream. Transforms need no workspace here.
#include <mutex>
#include <vector>

#include "simcuda/math/library_stubs.h"

using namespace fragscope::simcuda;

namespace {

// cufftResult
enum FftResult : int {
  kFftSuccess = 0,
  kFftInvalidPlan = 1,
  kFftAllocFailed = 2,
  kFftInvalidValue = 4,
  kFftExecFailed = 6,
  kFftSetupFailed = 7,
};

struct Plan {
  bool used = false;
  void* stream = nullptr;
};
std::mutex g_lock;
std::vector<Plan>& plans() {  // never destroyed: programs end with plans alive
  static auto* const all = new std::vector<Plan>;
  return *all;
}

bool valid(int plan) {
  return plan >= 0 && static_cast<size_t>(plan) < plans().size() &&
         plans()[static_cast<size_t>(plan)].used;
}

FftResult make(int* out) noexcept try {
  if (out == nullptr) return kFftInvalidValue;
  if (driver_function("fragscope_sim_note_launch") == nullptr) return kFftSetupFailed;
  const std::lock_guard<std::mutex> guard(g_lock);
  size_t at = 0;
  while (at < plans().size() && plans()[at].used) ++at;
  if (at == plans().size()) plans().emplace_back();
  plans()[at] = {true, nullptr};
  *out = static_cast<int>(at);
  return kFftSuccess;
} catch (...) {
  return kFftAllocFailed;
}

FftResult check(int plan) {
  const std::lock_guard<std::mutex> guard(g_lock);
  return valid(plan) ? kFftSuccess : kFftInvalidPlan;
}

FftResult transform(int plan, const char* name) {
  void* stream = nullptr;
  {
    const std::lock_guard<std::mutex> guard(g_lock);
    if (!valid(plan)) return kFftInvalidPlan;
    stream = plans()[static_cast<size_t>(plan)].stream;
  }
  return note_device_work(name, stream) ? kFftSuccess : kFftExecFailed;
}

FftResult no_workspace(int plan, size_t* bytes) {
  const FftResult known = check(plan);
  if (known == kFftSuccess && bytes != nullptr) *bytes = 0;
  return known;
}

}  // namespace

LIBRARY_EXPORT int cufftCreate(int* plan) { return make(plan); }
LIBRARY_EXPORT int cufftPlan1d(int* plan, int, int, int) { return make(plan); }
LIBRARY_EXPORT int cufftPlan2d(int* plan, int, int, int) { return make(plan); }
LIBRARY_EXPORT int cufftPlan3d(int* plan, int, int, int, int) { return make(plan); }
LIBRARY_EXPORT int cufftPlanMany(int* plan, int, int*, int*, int, int, int*, int, int, int, int) {
  return make(plan);
}
LIBRARY_EXPORT int cufftDestroy(int plan) {
  const std::lock_guard<std::mutex> guard(g_lock);
  if (!valid(plan)) return kFftInvalidPlan;
  plans()[static_cast<size_t>(plan)] = {};
  return kFftSuccess;
}
LIBRARY_EXPORT int cufftSetStream(int plan, void* stream) {
  const std::lock_guard<std::mutex> guard(g_lock);
  if (!valid(plan)) return kFftInvalidPlan;
  plans()[static_cast<size_t>(plan)].stream = stream;
  return kFftSuccess;
}
LIBRARY_EXPORT int cufftSetAutoAllocation(int plan, int) { return check(plan); }
LIBRARY_EXPORT int cufftSetWorkArea(int plan, void*) { return check(plan); }
LIBRARY_EXPORT int cufftGetSize(int plan, size_t* bytes) { return no_workspace(plan, bytes); }
LIBRARY_EXPORT int cufftMakePlan1d(int plan, int, int, int, size_t* bytes) {
  return no_workspace(plan, bytes);
}
LIBRARY_EXPORT int cufftMakePlan2d(int plan, int, int, int, size_t* bytes) {
  return no_workspace(plan, bytes);
}
LIBRARY_EXPORT int cufftMakePlan3d(int plan, int, int, int, int, size_t* bytes) {
  return no_workspace(plan, bytes);
}
LIBRARY_EXPORT int cufftMakePlanMany(int plan, int, int*, int*, int, int, int*, int, int, int, int,
                                     size_t* bytes) {
  return no_workspace(plan, bytes);
}
LIBRARY_EXPORT int cufftMakePlanMany64(int plan, int, long long*, long long*, long long, long long,
                                       long long*, long long, long long, int, long long,
                                       size_t* bytes) {
  return no_workspace(plan, bytes);
}
LIBRARY_EXPORT int cufftXtMakePlanMany(int plan, int, long long*, long long*, long long, long long,
                                       int, long long*, long long, long long, int, long long,
                                       size_t* bytes, int) {
  return no_workspace(plan, bytes);
}
#define FFT_EXECUTE(name) \
  LIBRARY_EXPORT int name(int plan) { return transform(plan, #name); }
FFT_EXECUTE(cufftExecC2C)
FFT_EXECUTE(cufftExecR2C)
FFT_EXECUTE(cufftExecC2R)
FFT_EXECUTE(cufftExecZ2Z)
FFT_EXECUTE(cufftExecD2Z)
FFT_EXECUTE(cufftExecZ2D)
FFT_EXECUTE(cufftXtExec)

LIBRARY_EXPORT int cufftGetVersion(int* version) {
  if (version == nullptr) return kFftInvalidValue;
  *version = FRAGSCOPE_FFT_MAJOR * 1000;
  return kFftSuccess;
}
LIBRARY_EXPORT int cufftGetProperty(int which, int* value) {
  if (value == nullptr || which < 0 || which > 2) return kFftInvalidValue;
  *value = which == 0 ? FRAGSCOPE_FFT_MAJOR : 0;
  return kFftSuccess;
}
