// Stand-in for cuBLASLt: descriptors that keep nothing, one algorithm without workspace for every
// product, products that count as launches. Layouts of the two structures that callers read are
// those of the public API (cublasLtMatmulAlgo_t: 64 opaque bytes, cublasLtMatmulHeuristicResult_t
// below).
#include <cstring>
#include <new>

#include "simcuda/blas/blas_common.h"

using namespace fragscope::simcuda;

namespace {

struct Object {  // a handle or descriptor
  uint64_t unused = 0;
};

struct Algorithm {
  uint64_t data[8];
};

struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

BlasStatus create(Object** out) {
  if (out == nullptr) return kBlasInvalidValue;
  *out = new (std::nothrow) Object;
  return *out == nullptr ? kBlasAllocFailed : kBlasSuccess;
}
BlasStatus destroy(Object* object) {
  delete object;
  return kBlasSuccess;
}
BlasStatus accept(const Object* object) {
  return object == nullptr ? kBlasInvalidValue : kBlasSuccess;
}

}  // namespace

BLAS_EXPORT int cublasLtCreate(Object** handle) { return create(handle); }
BLAS_EXPORT int cublasLtDestroy(Object* handle) { return destroy(handle); }
BLAS_EXPORT size_t cublasLtGetVersion(void) { return FRAGSCOPE_CUDA_MAJOR * 10000; }
BLAS_EXPORT size_t cublasLtGetCudartVersion(void) { return FRAGSCOPE_CUDA_MAJOR * 1000; }

BLAS_EXPORT int cublasLtMatmulDescCreate(Object** out, int, int) { return create(out); }
BLAS_EXPORT int cublasLtMatmulDescDestroy(Object* object) { return destroy(object); }
BLAS_EXPORT int cublasLtMatmulDescSetAttribute(Object* object, int, const void*, size_t) {
  return accept(object);
}
BLAS_EXPORT int cublasLtMatrixLayoutCreate(Object** out, int, uint64_t, uint64_t, int64_t) {
  return create(out);
}
BLAS_EXPORT int cublasLtMatrixLayoutDestroy(Object* object) { return destroy(object); }
BLAS_EXPORT int cublasLtMatrixLayoutSetAttribute(Object* object, int, const void*, size_t) {
  return accept(object);
}
BLAS_EXPORT int cublasLtMatmulPreferenceCreate(Object** out) { return create(out); }
BLAS_EXPORT int cublasLtMatmulPreferenceDestroy(Object* object) { return destroy(object); }
BLAS_EXPORT int cublasLtMatmulPreferenceSetAttribute(Object* object, int, const void*, size_t) {
  return accept(object);
}

BLAS_EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, const Object*, const Object*, const Object*,
                                               const Object*, const Object*, const Object*,
                                               int wanted, HeuristicResult* results, int* found) {
  if (results == nullptr || found == nullptr || wanted < 1) return kBlasInvalidValue;
  std::memset(results, 0, sizeof *results);
  results->waves = 1.0F;
  *found = 1;
  return kBlasSuccess;
}
BLAS_EXPORT int cublasLtMatmulAlgoInit(void*, int, int, int, int, int, int, int,
                                       Algorithm* algorithm) {
  if (algorithm == nullptr) return kBlasInvalidValue;
  std::memset(algorithm, 0, sizeof *algorithm);
  return kBlasSuccess;
}
BLAS_EXPORT int cublasLtMatmulAlgoCheck(void*, const Object*, const Object*, const Object*,
                                        const Object*, const Object*, const Algorithm* algorithm,
                                        HeuristicResult* result) {
  if (algorithm == nullptr || result == nullptr) return kBlasInvalidValue;
  std::memset(result, 0, sizeof *result);
  result->algorithm = *algorithm;
  result->waves = 1.0F;
  return kBlasSuccess;
}
BLAS_EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm*, int, void* value,
                                                     size_t bytes, size_t* written) {
  if (value != nullptr) std::memset(value, 0, bytes);
  if (written != nullptr) *written = bytes;
  return kBlasSuccess;
}
BLAS_EXPORT int cublasLtMatmulAlgoConfigSetAttribute(Algorithm* algorithm, int, const void*,
                                                     size_t) {
  return algorithm == nullptr ? kBlasInvalidValue : kBlasSuccess;
}

BLAS_EXPORT int cublasLtMatmul(void*, Object* description, const void*, const void*, Object*,
                               const void*, Object*, const void*, const void*, Object*, void*,
                               Object*, const Algorithm*, void*, size_t, void* stream) {
  if (description == nullptr) return kBlasInvalidValue;
  return device_work("cublasLtMatmul", stream);
}
