// Descriptors of cuDNN's older, function-per-operation API.
#pragma once

#include <cstdint>

#include "simcuda/dnn/convolution_plan.h"

namespace fragscope::simcuda {

struct TensorDescriptor {
  DnnTensor tensor;
};
struct FilterDescriptor {
  DnnTensor tensor;
  int format = 0;  // cudnnTensorFormat_t: 0 NCHW, 1 NHWC
};
struct PlainDescriptor {};  // of what is set and never read here

struct DropoutDescriptor {
  float probability = 0;
};

}  // namespace fragscope::simcuda
