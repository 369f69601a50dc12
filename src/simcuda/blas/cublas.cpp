// Stand-in for cuBLAS. Prototypes come from our own table (cublas_functions.def): callers pass more
// arguments than the functions here name, which the C calling conventions of x86-64 and aarch64
// allow.
#include <cstring>
#include <new>

#include "simcuda/blas/blas_common.h"

using namespace fragscope::simcuda;

namespace {

struct Handle {
  void* stream = nullptr;
  int math_mode = 0;
  int pointer_mode = 0;  // 0 host, 1 device
  int atomics_mode = 0;
  int sm_count_target = 0;
};

using Word = void*;

BlasStatus work(const char* name, const Handle* handle) {
  return handle == nullptr ? kBlasNotInitialized : device_work(name, handle->stream);
}

BlasStatus set(Handle* handle, int Handle::*member, int value) {
  if (handle == nullptr) return kBlasNotInitialized;
  handle->*member = value;
  return kBlasSuccess;
}

BlasStatus get(const Handle* handle, int Handle::*member, int* value) {
  if (handle == nullptr) return kBlasNotInitialized;
  if (value == nullptr) return kBlasInvalidValue;
  *value = handle->*member;
  return kBlasSuccess;
}

}  // namespace

#define BLAS(name) \
  BLAS_EXPORT int name(Handle* handle) { return work(#name, handle); }
#define BLAS_UNSUPPORTED(name) \
  BLAS_EXPORT int name(void) { return unsupported_blas(#name); }
#define BLAS_OUTPUT(name, position, bytes, on_host)                                          \
  BLAS_EXPORT int name(Handle* handle, Word a2, Word a3, Word a4, Word a5, Word a6, Word a7, \
                       Word a8, Word a9, Word a10) {                                         \
    Word const arguments[] = {nullptr, handle, a2, a3, a4, a5, a6, a7, a8, a9, a10};         \
    const BlasStatus status = work(#name, handle);                                           \
    if (status == kBlasSuccess && (on_host)) std::memset(arguments[position], 0, bytes);     \
    return status;                                                                           \
  }
#define BLAS_RESULT(name, position, bytes) \
  BLAS_OUTPUT(name, position, bytes, handle->pointer_mode == 0)
#define BLAS_INFO(name, position) BLAS_OUTPUT(name, position, sizeof(int), true)
#include "simcuda/blas/cublas_functions.def"

BLAS_EXPORT int cublasCreate_v2(Handle** handle) {
  if (handle == nullptr) return kBlasInvalidValue;
  if (driver_function("fragscope_sim_note_launch") == nullptr) return kBlasNotInitialized;
  *handle = new (std::nothrow) Handle;
  return *handle == nullptr ? kBlasAllocFailed : kBlasSuccess;
}
BLAS_EXPORT int cublasDestroy_v2(Handle* handle) {
  if (handle == nullptr) return kBlasNotInitialized;
  delete handle;
  return kBlasSuccess;
}

BLAS_EXPORT int cublasSetStream_v2(Handle* handle, void* stream) {
  if (handle == nullptr) return kBlasNotInitialized;
  handle->stream = stream;
  return kBlasSuccess;
}
BLAS_EXPORT int cublasGetStream_v2(Handle* handle, void** stream) {
  if (handle == nullptr || stream == nullptr) return kBlasNotInitialized;
  *stream = handle->stream;
  return kBlasSuccess;
}
BLAS_EXPORT int cublasSetWorkspace_v2(Handle* handle, void*, size_t) {
  return handle == nullptr ? kBlasNotInitialized : kBlasSuccess;
}
BLAS_EXPORT int cublasSetMathMode(Handle* handle, int mode) {
  return set(handle, &Handle::math_mode, mode);
}
BLAS_EXPORT int cublasGetMathMode(Handle* handle, int* mode) {
  return get(handle, &Handle::math_mode, mode);
}
BLAS_EXPORT int cublasSetPointerMode_v2(Handle* handle, int mode) {
  return set(handle, &Handle::pointer_mode, mode);
}
BLAS_EXPORT int cublasGetPointerMode_v2(Handle* handle, int* mode) {
  return get(handle, &Handle::pointer_mode, mode);
}
BLAS_EXPORT int cublasSetAtomicsMode(Handle* handle, int mode) {
  return set(handle, &Handle::atomics_mode, mode);
}
BLAS_EXPORT int cublasGetAtomicsMode(Handle* handle, int* mode) {
  return get(handle, &Handle::atomics_mode, mode);
}
BLAS_EXPORT int cublasSetSmCountTarget(Handle* handle, int count) {
  return set(handle, &Handle::sm_count_target, count);
}
BLAS_EXPORT int cublasGetSmCountTarget(Handle* handle, int* count) {
  return get(handle, &Handle::sm_count_target, count);
}
BLAS_EXPORT int cublasGetVersion_v2(Handle*, int* version) {
  if (version == nullptr) return kBlasInvalidValue;
  *version = FRAGSCOPE_CUDA_MAJOR * 10000;
  return kBlasSuccess;
}
BLAS_EXPORT int cublasGetProperty(int which, int* value) {
  if (value == nullptr || which < 0 || which > 2) return kBlasInvalidValue;
  *value = which == 0 ? FRAGSCOPE_CUDA_MAJOR : 0;
  return kBlasSuccess;
}
BLAS_EXPORT const char* cublasGetStatusName(int status) {
  return status == 0 ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
BLAS_EXPORT const char* cublasGetStatusString(int status) {
  return status == 0 ? "success" : "not supported by the simulated GPU";
}
