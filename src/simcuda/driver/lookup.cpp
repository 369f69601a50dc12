// How programs find the driver: by symbol, or by name, version and flags. And the answers of all
// functions that nothing here implements.
#include <cstring>

#include "simcuda/driver/driver_state.h"
#include "simcuda/export_stub.h"

namespace fragscope::simcuda {

namespace {

CUstream per_thread_stream() { return CU_STREAM_PER_THREAD; }

}  // namespace

}  // namespace fragscope::simcuda

#define STUB(symbol) FS_STUB(symbol, ::fragscope::simcuda::unsupported_call)
#include "simcuda/driver/driver_stubs.def"
#undef STUB
#define TWIN(symbol, base) FS_TWIN(symbol, base, CUstream, ::fragscope::simcuda::per_thread_stream)
#include "simcuda/driver/driver_twins.def"
#undef TWIN

namespace fragscope::simcuda {

namespace {

struct Procedure {
  const char* name;
  int version;       // first CUDA version that means this ABI
  void* legacy;      // for the legacy default stream
  void* per_thread;  // for the per-thread one; null: there is only one
};

const Procedure* find_newest(const char* name, int version, bool& name_known) {
  static const Procedure kProcedures[] = {
#define PROCEDURE(name, version, legacy) \
  {#name, version, reinterpret_cast<void*>(&::legacy), nullptr},
#define PROCEDURE_PER_THREAD(name, version, legacy, twin) \
  {#name, version, reinterpret_cast<void*>(&::legacy), reinterpret_cast<void*>(&::twin)},
#include "simcuda/driver/driver_procedures.def"
#undef PROCEDURE
#undef PROCEDURE_PER_THREAD
  };
  const Procedure* best = nullptr;
  for (const Procedure& row : kProcedures) {
    if (std::strcmp(row.name, name) != 0) continue;
    name_known = true;
    if (row.version <= version && (best == nullptr || row.version > best->version)) best = &row;
  }
  return best;
}

void note_unsupported(const char* name) { unsupported_call(name); }

CUresult look_up(const char* name, void** function, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status) {
  int driver_version = 0;
  cuDriverGetVersion(&driver_version);
  if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (function == nullptr || name == nullptr || version > driver_version || flags > 2) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *function = nullptr;
  if (std::strcmp(name, "fragscope_sim_note_unsupported") == 0) {  // for our own runtime
    *function = reinterpret_cast<void*>(&note_unsupported);
    return CUDA_SUCCESS;
  }
  if (std::strcmp(name, "fragscope_sim_activity_tap") == 0) {
    *function = &g_activity_tap;
    return CUDA_SUCCESS;
  }
  bool name_known = false;
  const Procedure* found = find_newest(name, version, name_known);
  if (found == nullptr) {
    if (status != nullptr && name_known) *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    return CUDA_ERROR_NOT_FOUND;
  }
  const bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  *function = per_thread && found->per_thread != nullptr ? found->per_thread : found->legacy;
  if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}

struct ErrorName {
  CUresult code;
  const char* name;
  const char* text;
};
const ErrorName* find_error(CUresult code) {
  static const ErrorName kErrors[] = {
#define ERROR_NAME(name, text) {name, #name, text},
#include "simcuda/driver/driver_errors.def"
#undef ERROR_NAME
  };
  for (const ErrorName& row : kErrors) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

}  // namespace

}  // namespace fragscope::simcuda

using namespace fragscope::simcuda;

extern "C" {

CUresult CUDAAPI cuGetProcAddress_v2(const char* name, void** function, int version,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  return look_up(name, function, version, flags, status);
}
CUresult CUDAAPI cuGetProcAddress(const char* name, void** function, int version,
                                  cuuint64_t flags) {
  return look_up(name, function, version, flags, nullptr);
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorName* found = find_error(error);
  *text = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorName* found = find_error(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // extern "C"
