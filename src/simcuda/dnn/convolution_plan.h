// The plans that the stand-in of cuDNN offers for a convolution, and the workspace each asks for.
//
// The vendor's choice of kernels is not public, so workspaces are assumed. They follow from what
// the kernels do, never from a model's name:
//
//   tensor_core    implicit GEMM on tensor cores (fp16, bf16 from capability 7.0 and 8.0, TF32 from
//                  8.0). The kernels read NHWC with channels in groups of 16 bytes. What they read
//                  in another layout is transformed: its NHWC copy, channels rounded up, lies in
//                  the workspace. Operands that are NHWC and aligned cost nothing, nor do those of
//                  1x1 filters, a product of matrices in either layout; results are written where
//                  and as they shall lie.
//                  The gradient of the filter is split along its long sum (N*P*Q) over so many
//                  thread blocks as fill the device; each part keeps its own fp32 filter.
//   precomputed    implicit GEMM without tensor cores, with a table of input offsets: four bytes
//                  for each of C*R*S.
//   direct         no workspace. Always there and always last.
//
// Depthwise convolutions (one input channel per group) have the direct plan alone. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace fragscope::simcuda {

// cudnnDataType_t
enum class DnnType : int {
  kFloat = 0,
  kDouble = 1,
  kHalf = 2,
  kInt8 = 3,
  kInt32 = 4,
  kUint8 = 6,
  kBfloat16 = 9,
  kInt64 = 10,
  kBoolean = 11,
  kFp8E4M3 = 12,
  kFp8E5M2 = 13,
};
uint64_t bytes_of(DnnType type);

struct DnnTensor {
  DnnType type = DnnType::kFloat;
  std::vector<int64_t> sizes;    // N, C, spatial…; of a filter K, C per group, spatial…
  std::vector<int64_t> strides;  // in elements; empty: packed in this order

  bool channels_last() const;  // channels are the innermost dimension
  uint64_t elements() const;
  uint64_t bytes() const { return elements() * bytes_of(type); }
};

enum class ConvolutionKind { kForward, kBackwardData, kBackwardFilter };

struct ConvolutionProblem {
  ConvolutionKind kind = ConvolutionKind::kForward;
  DnnTensor input;   // x or dx
  DnnTensor filter;  // w or dw
  DnnTensor output;  // y or dy
};

struct DnnDevice {
  int capability;  // major * 10 + minor
  int multiprocessors;
};

struct ConvolutionPlan {
  const char* name;
  uint64_t workspace_bytes;
  bool tensor_cores;
};

// At least one plan, the preferred one first; the last one's workspace is 0.
std::vector<ConvolutionPlan> convolution_plans(const ConvolutionProblem& problem,
                                               const DnnDevice& device);

}  // namespace fragscope::simcuda
