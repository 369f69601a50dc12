// cuDNN's older API: tensors, convolutions by algorithm number, batch normalisation, dropout, CTC
// loss and the rest that PyTorch imports. Prototypes as in the public API reference; what a
// function does not look at is not named.
#include <algorithm>
#include <cstring>

#include "simcuda/dnn/descriptors.h"
#include "simcuda/dnn/dnn_common.h"

using namespace fragscope::simcuda;

namespace {

struct ConvolutionDescriptor {
  int groups = 1;
};

// cudnnConvolution*AlgoPerf_t
struct AlgorithmResult {
  int algorithm;
  int status;
  float milliseconds;
  size_t workspace_bytes;
  int deterministic;
  int math_type;
  int reserved[3];
};
static_assert(sizeof(AlgorithmResult) == 48);

constexpr int kDirectAlgorithm = 0;     // CUDNN_CONVOLUTION_…_ALGO_0, IMPLICIT_GEMM
constexpr int kPreferredAlgorithm = 1;  // …_ALGO_1, IMPLICIT_PRECOMP_GEMM
constexpr int kTensorOpMath = 1;        // CUDNN_TENSOR_OP_MATH

ConvolutionPlan plan_of(int algorithm, ConvolutionKind kind, const TensorDescriptor& input,
                        const FilterDescriptor& filter, const TensorDescriptor& output) {
  const auto plans =
      convolution_plans({kind, input.tensor, filter.tensor, output.tensor}, dnn_device());
  return algorithm == kDirectAlgorithm ? plans.back() : plans.front();
}

DnnStatus list_algorithms(ConvolutionKind kind, const TensorDescriptor* input,
                          const FilterDescriptor* filter, const TensorDescriptor* output,
                          int wanted, int* found, AlgorithmResult* results) {
  if (input == nullptr || filter == nullptr || output == nullptr || found == nullptr ||
      results == nullptr || wanted < 1) {
    return kDnnBadParam;
  }
  *found = std::min(wanted, 2);
  constexpr int kOrder[] = {kPreferredAlgorithm, kDirectAlgorithm};
  for (int i = 0; i < *found; ++i) {
    const ConvolutionPlan plan = plan_of(kOrder[i], kind, *input, *filter, *output);
    results[i] = {};
    results[i].algorithm = kOrder[i];
    results[i].milliseconds = static_cast<float>(i + 1);
    results[i].workspace_bytes = plan.workspace_bytes;
    results[i].deterministic = 1;
    results[i].math_type = plan.tensor_cores ? kTensorOpMath : 0;
  }
  return kDnnSuccess;
}

DnnStatus algorithm_workspace(ConvolutionKind kind, const TensorDescriptor* input,
                              const FilterDescriptor* filter, const TensorDescriptor* output,
                              int algorithm, size_t* bytes) {
  if (input == nullptr || filter == nullptr || output == nullptr || bytes == nullptr) {
    return kDnnBadParam;
  }
  *bytes = plan_of(algorithm, kind, *input, *filter, *output).workspace_bytes;
  return kDnnSuccess;
}

DnnStatus set_size(size_t* out, uint64_t value) {
  if (out == nullptr) return kDnnBadParam;
  *out = value;
  return kDnnSuccess;
}

uint64_t multiprocessors() { return static_cast<uint64_t>(simulated_machine().sm_count); }

// Partial sums and squares of NHWC batch normalisation, a pair for each channel and multiprocessor.
uint64_t batch_norm_bytes(const TensorDescriptor* x) {
  if (x == nullptr || x->tensor.sizes.size() < 2 || !x->tensor.channels_last()) return 0;
  return 2 * sizeof(float) * multiprocessors() * static_cast<uint64_t>(x->tensor.sizes[1]);
}

// Forward and backward variables of every step, sequence and (blank-interleaved) label.
uint64_t ctc_bytes(const TensorDescriptor* probabilities, uint64_t longest_label) {
  if (probabilities == nullptr || probabilities->tensor.sizes.size() < 2) return 0;
  const auto& sizes = probabilities->tensor.sizes;
  return 2 * sizeof(float) * static_cast<uint64_t>(sizes[0] * sizes[1]) * (2 * longest_label + 1);
}

constexpr uint64_t kLongestCtcLabel = 255;  // of cuDNN's deterministic algorithm
constexpr uint64_t kRandomStateBytes = 48;  // of one thread
constexpr uint64_t kDropoutThreads = 1024;  // per multiprocessor

}  // namespace

#define DNN_DESCRIPTOR(kind, type)                                                     \
  DNN_EXPORT int cudnnCreate##kind##Descriptor(type** out) { return dnn_create(out); } \
  DNN_EXPORT int cudnnDestroy##kind##Descriptor(type* object) { return dnn_destroy(object); }
DNN_DESCRIPTOR(Tensor, TensorDescriptor)
DNN_DESCRIPTOR(Filter, FilterDescriptor)
DNN_DESCRIPTOR(Convolution, ConvolutionDescriptor)
DNN_DESCRIPTOR(Activation, PlainDescriptor)
DNN_DESCRIPTOR(Pooling, PlainDescriptor)
DNN_DESCRIPTOR(CTCLoss, PlainDescriptor)
DNN_DESCRIPTOR(SpatialTransformer, PlainDescriptor)
DNN_DESCRIPTOR(Dropout, DropoutDescriptor)

// Device work that reads its handle first.
#define DNN_WORK(name) \
  DNN_EXPORT int name(DnnHandle* handle) { return dnn_work(handle, #name); }
// A descriptor is filled with what nothing here depends on.
#define DNN_ACCEPT(name) \
  DNN_EXPORT int name(const void* object) { return object == nullptr ? kDnnBadParam : kDnnSuccess; }
#define DNN_UNSUPPORTED(name) \
  DNN_EXPORT int name(void) { return unsupported_dnn(#name); }
#include "simcuda/dnn/cudnn_functions.def"
#if FRAGSCOPE_DNN_VERSION < 90000
#include "simcuda/dnn/cudnn_8_functions.def"
#endif

DNN_EXPORT int cudnnCreate(DnnHandle** out) {
  if (driver_function("fragscope_sim_note_launch") == nullptr) return kDnnNotInitialized;
  return dnn_create(out);
}
DNN_EXPORT int cudnnDestroy(DnnHandle* handle) { return dnn_destroy(handle); }
DNN_EXPORT int cudnnSetStream(DnnHandle* handle, void* stream) {
  if (handle == nullptr) return kDnnBadParam;
  handle->stream = stream;
  return kDnnSuccess;
}
DNN_EXPORT int cudnnGetStream(const DnnHandle* handle, void** stream) {
  if (handle == nullptr || stream == nullptr) return kDnnBadParam;
  *stream = handle->stream;
  return kDnnSuccess;
}
DNN_EXPORT size_t cudnnGetVersion(void) { return FRAGSCOPE_DNN_VERSION; }
DNN_EXPORT size_t cudnnGetCudartVersion(void) { return 13000; }
DNN_EXPORT int cudnnGetProperty(int which, int* value) {
  constexpr int kMajor = FRAGSCOPE_DNN_VERSION < 90000 ? 1000 : 10000;  // 8907, but 90100
  constexpr int kParts[] = {FRAGSCOPE_DNN_VERSION / kMajor, FRAGSCOPE_DNN_VERSION % kMajor / 100,
                            FRAGSCOPE_DNN_VERSION % 100};
  if (value == nullptr || which < 0 || which > 2) return kDnnBadParam;
  *value = kParts[which];
  return kDnnSuccess;
}
DNN_EXPORT const char* cudnnGetErrorString(int status) {
  switch (status) {
    case kDnnSuccess:
      return "CUDNN_STATUS_SUCCESS";
    case kDnnNotInitialized:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case kDnnBadParam:
      return "CUDNN_STATUS_BAD_PARAM";
    case kDnnNotSupported:
      return "CUDNN_STATUS_NOT_SUPPORTED (by the simulated GPU)";
    case kDnnAllocFailed:
      return "CUDNN_STATUS_ALLOC_FAILED";
    default:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}
DNN_EXPORT void cudnnGetLastErrorString(char* message, size_t bytes) {
  if (message != nullptr && bytes != 0) *message = '\0';
}

DNN_EXPORT int cudnnSetTensorNdDescriptor(TensorDescriptor* descriptor, int type, int dimensions,
                                          const int* sizes, const int* strides) {
  if (descriptor == nullptr || dimensions < 1 || sizes == nullptr || strides == nullptr) {
    return kDnnBadParam;
  }
  descriptor->tensor = {
      static_cast<DnnType>(type), {sizes, sizes + dimensions}, {strides, strides + dimensions}};
  return kDnnSuccess;
}
DNN_EXPORT int cudnnGetTensorNdDescriptor(const TensorDescriptor* descriptor, int requested,
                                          int* type, int* dimensions, int* sizes, int* strides) {
  if (descriptor == nullptr || dimensions == nullptr) return kDnnBadParam;
  const DnnTensor& tensor = descriptor->tensor;
  *dimensions = static_cast<int>(tensor.sizes.size());
  if (type != nullptr) *type = static_cast<int>(tensor.type);
  for (int i = 0; i < std::min(requested, *dimensions); ++i) {
    const auto at = static_cast<size_t>(i);
    if (sizes != nullptr) sizes[i] = static_cast<int>(tensor.sizes[at]);
    if (strides != nullptr) strides[i] = static_cast<int>(tensor.strides[at]);
  }
  return kDnnSuccess;
}
DNN_EXPORT int cudnnSetFilterNdDescriptor(FilterDescriptor* descriptor, int type, int format,
                                          int dimensions, const int* sizes) {
  if (descriptor == nullptr || dimensions < 2 || sizes == nullptr) return kDnnBadParam;
  descriptor->format = format;
  descriptor->tensor = {static_cast<DnnType>(type), {sizes, sizes + dimensions}, {}};
  std::vector<int64_t>& strides = descriptor->tensor.strides;
  strides.assign(static_cast<size_t>(dimensions), 1);
  for (size_t i = strides.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * sizes[i];
  if (format == 1) strides[1] = 1;  // enough to tell the layout
  return kDnnSuccess;
}
DNN_EXPORT int cudnnGetFilterNdDescriptor(const FilterDescriptor* descriptor, int requested,
                                          int* type, int* format, int* dimensions, int* sizes) {
  if (descriptor == nullptr || dimensions == nullptr) return kDnnBadParam;
  *dimensions = static_cast<int>(descriptor->tensor.sizes.size());
  if (type != nullptr) *type = static_cast<int>(descriptor->tensor.type);
  if (format != nullptr) *format = descriptor->format;
  for (int i = 0; sizes != nullptr && i < std::min(requested, *dimensions); ++i) {
    sizes[i] = static_cast<int>(descriptor->tensor.sizes[static_cast<size_t>(i)]);
  }
  return kDnnSuccess;
}
DNN_EXPORT int cudnnSetConvolutionGroupCount(ConvolutionDescriptor* descriptor, int groups) {
  if (descriptor == nullptr || groups < 1) return kDnnBadParam;
  descriptor->groups = groups;
  return kDnnSuccess;
}

DNN_EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(DnnHandle*, TensorDescriptor* x,
                                                      FilterDescriptor* w, void*,
                                                      TensorDescriptor* y, int wanted, int* found,
                                                      AlgorithmResult* results) {
  return list_algorithms(ConvolutionKind::kForward, x, w, y, wanted, found, results);
}
DNN_EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(DnnHandle*, FilterDescriptor* w,
                                                           TensorDescriptor* dy, void*,
                                                           TensorDescriptor* dx, int wanted,
                                                           int* found, AlgorithmResult* results) {
  return list_algorithms(ConvolutionKind::kBackwardData, dx, w, dy, wanted, found, results);
}
DNN_EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(DnnHandle*, TensorDescriptor* x,
                                                             TensorDescriptor* dy, void*,
                                                             FilterDescriptor* dw, int wanted,
                                                             int* found, AlgorithmResult* results) {
  return list_algorithms(ConvolutionKind::kBackwardFilter, x, dw, dy, wanted, found, results);
}
DNN_EXPORT int cudnnFindConvolutionForwardAlgorithmEx(DnnHandle*, TensorDescriptor* x, const void*,
                                                      FilterDescriptor* w, const void*, void*,
                                                      TensorDescriptor* y, void*, int wanted,
                                                      int* found, AlgorithmResult* results, void*,
                                                      size_t) {
  return list_algorithms(ConvolutionKind::kForward, x, w, y, wanted, found, results);
}
DNN_EXPORT int cudnnFindConvolutionBackwardDataAlgorithmEx(
    DnnHandle*, FilterDescriptor* w, const void*, TensorDescriptor* dy, const void*, void*,
    TensorDescriptor* dx, void*, int wanted, int* found, AlgorithmResult* results, void*, size_t) {
  return list_algorithms(ConvolutionKind::kBackwardData, dx, w, dy, wanted, found, results);
}
DNN_EXPORT int cudnnFindConvolutionBackwardFilterAlgorithmEx(
    DnnHandle*, TensorDescriptor* x, const void*, TensorDescriptor* dy, const void*, void*,
    FilterDescriptor* dw, void*, int wanted, int* found, AlgorithmResult* results, void*, size_t) {
  return list_algorithms(ConvolutionKind::kBackwardFilter, x, dw, dy, wanted, found, results);
}
DNN_EXPORT int cudnnGetConvolutionForwardWorkspaceSize(DnnHandle*, TensorDescriptor* x,
                                                       FilterDescriptor* w, void*,
                                                       TensorDescriptor* y, int algorithm,
                                                       size_t* bytes) {
  return algorithm_workspace(ConvolutionKind::kForward, x, w, y, algorithm, bytes);
}
DNN_EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(DnnHandle*, FilterDescriptor* w,
                                                            TensorDescriptor* dy, void*,
                                                            TensorDescriptor* dx, int algorithm,
                                                            size_t* bytes) {
  return algorithm_workspace(ConvolutionKind::kBackwardData, dx, w, dy, algorithm, bytes);
}
DNN_EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(DnnHandle*, TensorDescriptor* x,
                                                              TensorDescriptor* dy, void*,
                                                              FilterDescriptor* dw, int algorithm,
                                                              size_t* bytes) {
  return algorithm_workspace(ConvolutionKind::kBackwardFilter, x, dw, dy, algorithm, bytes);
}

DNN_EXPORT int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(DnnHandle*, int, int,
                                                                        TensorDescriptor* x, void*,
                                                                        void*, void*, void*,
                                                                        size_t* bytes) {
  return set_size(bytes, batch_norm_bytes(x));
}
DNN_EXPORT int cudnnGetBatchNormalizationBackwardExWorkspaceSize(DnnHandle*, int, int,
                                                                 TensorDescriptor* x, void*, void*,
                                                                 void*, void*, void*, void*,
                                                                 size_t* bytes) {
  return set_size(bytes, batch_norm_bytes(x));
}
DNN_EXPORT int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(DnnHandle*, int, int operations,
                                                                    void*, TensorDescriptor* x,
                                                                    size_t* bytes) {
  // A bit per value where a fused ReLU was open; plain normalisation keeps nothing.
  const bool fused = operations != 0 && x != nullptr;
  return set_size(bytes, fused ? (x->tensor.elements() + 7) / 8 : 0);
}

DNN_EXPORT int cudnnGetCTCLossWorkspaceSize(DnnHandle*, TensorDescriptor* probabilities, void*,
                                            const int*, const int* label_lengths, const int*, int,
                                            void*, size_t* bytes) {
  uint64_t longest = 0;
  if (probabilities != nullptr && probabilities->tensor.sizes.size() > 1 &&
      label_lengths != nullptr) {
    for (int64_t i = 0; i < probabilities->tensor.sizes[1]; ++i) {
      longest = std::max(longest, static_cast<uint64_t>(std::max(label_lengths[i], 0)));
    }
  }
  return set_size(bytes, ctc_bytes(probabilities, longest));
}
DNN_EXPORT int cudnnGetCTCLossWorkspaceSize_v8(DnnHandle*, int, void*,
                                               TensorDescriptor* probabilities, void*,
                                               size_t* bytes) {
  return set_size(bytes, ctc_bytes(probabilities, kLongestCtcLabel));
}

DNN_EXPORT int cudnnDropoutGetStatesSize(DnnHandle*, size_t* bytes) {
  return set_size(bytes, multiprocessors() * kDropoutThreads * kRandomStateBytes);
}
DNN_EXPORT int cudnnSetDropoutDescriptor(DropoutDescriptor* descriptor, DnnHandle* handle,
                                         float probability, void* states) {
  if (descriptor == nullptr) return kDnnBadParam;
  descriptor->probability = probability;
  return states == nullptr ? kDnnSuccess : dnn_work(handle, "cudnn_dropout_states");
}
DNN_EXPORT int cudnnRestoreDropoutDescriptor(DropoutDescriptor* descriptor, DnnHandle*,
                                             float probability) {
  if (descriptor == nullptr) return kDnnBadParam;
  descriptor->probability = probability;
  return kDnnSuccess;
}
