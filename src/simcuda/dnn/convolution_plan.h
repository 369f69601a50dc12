// The plans that the stand-in of cuDNN offers for a convolution, and the workspace each asks for.
//
// The vendor's choice of kernels is not public, so workspaces are assumed. They follow from what
// the kernels do, never from a model's name:
//
//   tensor_core    implicit GEMM on tensor cores (fp16, bf16 from capability 7.0 and 8.0, TF32 from
//                  8.0). The kernels read NHWC with channels in groups of 16 bytes. What they read
//                  in another layout is transformed: its NHWC copy, channels rounded up, lies in
//                  the workspace, the filter's copy beside that of the activations. Operands that
//                  are NHWC and aligned cost nothing; results are written where and as they shall
//                  lie (kernel names say so: ..._nhwckcrs_nchw_...).
//                  The gradient of the filter is split along its long sum (N*P*Q) over so many
//                  thread blocks as fill the device; each part keeps its own fp32 filter. That of a
//                  1x1 filter is a product of matrices in either layout: its parts alone.
//   precomputed    implicit GEMM without tensor cores, with a table of input offsets: four bytes
//                  for each of C*R*S.
//   direct         no workspace. Always there and always last.
//
// Grouped convolutions, depthwise ones among them, have the direct plan alone: cuDNN has kernels
// that walk the groups in place (conv2d_, dgrad2d_ and wgrad2d_grouped_direct_kernel). Pure.
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

// The most that a plan of the problem may ask for: its gradients as explicit products, with the
// matrix of patches (input pixels under each filter position) and copies of all three operands
// beside it; forward, the copies. Not for choosing a plan: the upper end of what is assumed.
uint64_t largest_workspace(const ConvolutionProblem& problem, const DnnDevice& device);

// At least one plan, the preferred one first; the last one's workspace is 0.
std::vector<ConvolutionPlan> convolution_plans(const ConvolutionProblem& problem,
                                               const DnnDevice& device);

}  // namespace fragscope::simcuda
