// cuDNN's recurrent networks: one layout of the weight space (rnn_layout.h) behind the three
// functions that describe it.
#include <cstring>

#include "simcuda/dnn/descriptors.h"
#include "simcuda/dnn/dnn_common.h"
#include "simcuda/dnn/rnn_layout.h"

using namespace fragscope::simcuda;

namespace {

struct RnnDescriptor {
  RnnShape shape;
  DnnType type = DnnType::kFloat;
};
struct RnnDataDescriptor {
  int longest_sequence = 0;
  int batch = 0;
};

// Describes one parameter: both answers are optional.
void describe(const RnnParameter& parameter, DnnType type, const void* weights,
              TensorDescriptor* descriptor, void** address) {
  const bool present = parameter.rows > 0;
  if (address != nullptr) {
    *address =
        present
            ? reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(weights) + parameter.offset_bytes)
            : nullptr;
  }
  if (descriptor == nullptr) return;
  descriptor->tensor = {};
  descriptor->tensor.type = type;
  if (!present) {
    descriptor->tensor.sizes = {0, 0, 0};
    descriptor->tensor.strides = {0, 0, 0};
    return;
  }
  descriptor->tensor.sizes = {1, parameter.rows, parameter.columns};
  descriptor->tensor.strides = {parameter.rows * parameter.columns, parameter.columns, 1};
}

}  // namespace

DNN_EXPORT int cudnnCreateRNNDescriptor(RnnDescriptor** out) { return dnn_create(out); }
DNN_EXPORT int cudnnDestroyRNNDescriptor(RnnDescriptor* object) { return dnn_destroy(object); }
DNN_EXPORT int cudnnCreateRNNDataDescriptor(RnnDataDescriptor** out) { return dnn_create(out); }
DNN_EXPORT int cudnnDestroyRNNDataDescriptor(RnnDataDescriptor* object) {
  return dnn_destroy(object);
}

DNN_EXPORT int cudnnSetRNNDescriptor_v8(RnnDescriptor* descriptor, int, int cell, int bias,
                                        int direction, int input_mode, int type, int, int,
                                        int32_t input, int32_t hidden, int32_t projection,
                                        int32_t layers, const DropoutDescriptor* dropout,
                                        uint32_t) {
  if (descriptor == nullptr || cell < 0 || cell > 3 || input < 1 || hidden < 1 || layers < 1) {
    return kDnnBadParam;
  }
  descriptor->type = static_cast<DnnType>(type);
  descriptor->shape = {static_cast<RnnCell>(cell),
                       bias,
                       direction == 1,
                       input_mode == 1,
                       dropout != nullptr && dropout->probability > 0,
                       input,
                       hidden,
                       projection,
                       layers,
                       bytes_of(descriptor->type)};
  return kDnnSuccess;
}
DNN_EXPORT int cudnnSetRNNDataDescriptor(RnnDataDescriptor* descriptor, int, int,
                                         int longest_sequence, int batch, int, const int*, void*) {
  if (descriptor == nullptr || longest_sequence < 1 || batch < 1) return kDnnBadParam;
  *descriptor = {longest_sequence, batch};
  return kDnnSuccess;
}

DNN_EXPORT int cudnnGetRNNWeightSpaceSize(DnnHandle*, const RnnDescriptor* descriptor,
                                          size_t* bytes) {
  if (descriptor == nullptr || bytes == nullptr) return kDnnBadParam;
  *bytes = rnn_weight_bytes(descriptor->shape);
  return kDnnSuccess;
}
DNN_EXPORT int cudnnGetRNNWeightParams(DnnHandle*, const RnnDescriptor* descriptor,
                                       int32_t pseudo_layer, size_t, const void* weights,
                                       int32_t linear_layer, TensorDescriptor* matrix,
                                       void** matrix_address, TensorDescriptor* bias,
                                       void** bias_address) {
  if (descriptor == nullptr || pseudo_layer < 0 ||
      pseudo_layer >= descriptor->shape.pseudo_layers()) {
    return kDnnBadParam;
  }
  const RnnShape& shape = descriptor->shape;
  describe(rnn_matrix(shape, pseudo_layer, linear_layer), descriptor->type, weights, matrix,
           matrix_address);
  describe(rnn_bias(shape, pseudo_layer, linear_layer), descriptor->type, weights, bias,
           bias_address);
  return kDnnSuccess;
}
DNN_EXPORT int cudnnGetRNNTempSpaceSizes(DnnHandle*, const RnnDescriptor* descriptor, int mode,
                                         const RnnDataDescriptor* data, size_t* work,
                                         size_t* reserve) {
  if (descriptor == nullptr || data == nullptr) return kDnnBadParam;
  const RnnSpaces spaces =
      rnn_spaces(descriptor->shape, data->longest_sequence, data->batch, mode == 1);
  note_assumed_size("cuDNN: temporary spaces of a recurrent network",
                    spaces.work_bytes + spaces.reserve_bytes);
  if (work != nullptr) *work = spaces.work_bytes;
  if (reserve != nullptr) *reserve = spaces.reserve_bytes;
  return kDnnSuccess;
}
