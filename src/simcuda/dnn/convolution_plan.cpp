#include "simcuda/dnn/convolution_plan.h"

#include <algorithm>

namespace fragscope::simcuda {

namespace {

constexpr uint64_t kAlignment = 256;         // between buffers of a workspace
constexpr uint64_t kChannelGroupBytes = 16;  // what one vector load reads
constexpr uint64_t kTile = 128;              // rows and columns of the result per thread block
constexpr uint64_t kShortestSum = 512;       // fewer products are not split further

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

uint64_t size_at(const DnnTensor& tensor, size_t dimension) {
  const int64_t size = dimension < tensor.sizes.size() ? tensor.sizes[dimension] : 1;
  return size > 0 ? static_cast<uint64_t>(size) : 0;
}

bool on_tensor_cores(DnnType type, int capability) {
  switch (type) {
    case DnnType::kHalf:
      return capability >= 70;
    case DnnType::kBfloat16:
    case DnnType::kFloat:  // as TF32
      return capability >= 80;
    case DnnType::kInt8:
    case DnnType::kUint8:
      return capability >= 75;
    case DnnType::kFp8E4M3:
    case DnnType::kFp8E5M2:
      return capability >= 89;
    default:
      return false;
  }
}

uint64_t padded_channels(const DnnTensor& tensor) {
  const uint64_t group = std::max<uint64_t>(kChannelGroupBytes / bytes_of(tensor.type), 1);
  return round_up(size_at(tensor, 1), group);
}

// Bytes of an NHWC copy of an operand.
uint64_t padded_bytes(const DnnTensor& tensor) {
  const uint64_t channels = size_at(tensor, 1);
  if (channels == 0) return 0;
  const uint64_t pixels = tensor.elements() / channels;
  return round_up(pixels * padded_channels(tensor) * bytes_of(tensor.type), kAlignment);
}

// … which a tensor core kernel needs only of what lies otherwise.
uint64_t transformed_bytes(const DnnTensor& tensor) {
  const bool fits = tensor.channels_last() && padded_channels(tensor) == size_at(tensor, 1);
  return fits ? 0 : padded_bytes(tensor);
}

// Partial filters of a gradient whose sum is shared by several thread blocks.
uint64_t split_sum_bytes(const ConvolutionProblem& problem, const DnnDevice& device) {
  const uint64_t outputs = size_at(problem.filter, 0);
  const uint64_t products = problem.filter.elements() / std::max<uint64_t>(outputs, 1);
  const uint64_t tiles =
      std::max<uint64_t>((outputs + kTile - 1) / kTile * ((products + kTile - 1) / kTile), 1);
  const uint64_t summed =
      problem.output.elements() / std::max<uint64_t>(size_at(problem.output, 1), 1);
  const uint64_t wanted = static_cast<uint64_t>(std::max(device.multiprocessors, 1)) / tiles;
  const uint64_t splits = std::min(wanted, summed / kShortestSum);
  return splits < 2 ? 0 : round_up(splits * problem.filter.elements() * 4, kAlignment);
}

// A filter of one pixel. With any stride the convolution is a product of matrices, in either
// layout.
bool is_pointwise(const DnnTensor& filter) {
  for (size_t i = 2; i < filter.sizes.size(); ++i) {
    if (filter.sizes[i] != 1) return false;
  }
  return true;
}

// The layout of the activations decides: with them the filter is copied, though one of a single
// pixel lies the same in either layout.
uint64_t copies_bytes(const DnnTensor& activations, const DnnTensor& filter) {
  const uint64_t copy = transformed_bytes(activations);
  return copy + (copy > 0 ? padded_bytes(filter) : transformed_bytes(filter));
}

// Operands that are read are transformed; results are written as they shall lie.
uint64_t tensor_core_bytes(const ConvolutionProblem& problem, const DnnDevice& device) {
  switch (problem.kind) {
    case ConvolutionKind::kForward:
      return copies_bytes(problem.input, problem.filter);
    case ConvolutionKind::kBackwardData:
      return copies_bytes(problem.output, problem.filter);
    default: {
      const uint64_t parts = split_sum_bytes(problem, device);
      if (is_pointwise(problem.filter)) return parts;
      return transformed_bytes(problem.input) + transformed_bytes(problem.output) + parts;
    }
  }
}

bool is_grouped(const ConvolutionProblem& problem) {
  return size_at(problem.filter, 1) < size_at(problem.input, 1);
}

bool is_depthwise(const ConvolutionProblem& problem) {
  return is_grouped(problem) && size_at(problem.filter, 1) == 1;
}

// One row for each output pixel: the input under every position of the filter.
uint64_t patch_bytes(const ConvolutionProblem& problem) {
  const uint64_t outputs = std::max<uint64_t>(size_at(problem.output, 1), 1);
  const uint64_t filters = std::max<uint64_t>(size_at(problem.filter, 0), 1);
  return problem.output.elements() / outputs * (problem.filter.elements() / filters) *
         bytes_of(problem.input.type);
}

}  // namespace

uint64_t bytes_of(DnnType type) {
  switch (type) {
    case DnnType::kDouble:
    case DnnType::kInt64:
      return 8;
    case DnnType::kHalf:
    case DnnType::kBfloat16:
      return 2;
    case DnnType::kInt8:
    case DnnType::kUint8:
    case DnnType::kBoolean:
    case DnnType::kFp8E4M3:
    case DnnType::kFp8E5M2:
      return 1;
    default:
      return 4;
  }
}

bool DnnTensor::channels_last() const {
  if (sizes.size() < 2 || strides.size() != sizes.size()) return false;
  if (strides[1] == 1) return true;
  return sizes[1] == 1 && strides.back() == 1;  // one channel: both layouts are the same
}

uint64_t DnnTensor::elements() const {
  uint64_t count = sizes.empty() ? 0 : 1;
  for (const int64_t size : sizes) count *= size > 0 ? static_cast<uint64_t>(size) : 0;
  return count;
}

uint64_t largest_workspace(const ConvolutionProblem& problem, const DnnDevice& device) {
  const uint64_t operands = padded_bytes(problem.input) + padded_bytes(problem.output);
  if (is_depthwise(problem)) return operands;
  const uint64_t copies = operands + padded_bytes(problem.filter);
  if (problem.kind == ConvolutionKind::kForward) return copies;
  const bool summed = problem.kind == ConvolutionKind::kBackwardFilter;
  return copies + patch_bytes(problem) + (summed ? split_sum_bytes(problem, device) : 0);
}

std::vector<ConvolutionPlan> convolution_plans(const ConvolutionProblem& problem,
                                               const DnnDevice& device) {
  std::vector<ConvolutionPlan> plans;
  if (!is_grouped(problem)) {
    if (on_tensor_cores(problem.input.type, device.capability)) {
      plans.push_back({"tensor_core", tensor_core_bytes(problem, device), true});
    }
    const uint64_t outputs = std::max<uint64_t>(size_at(problem.filter, 0), 1);
    plans.push_back(
        {"precomputed", round_up(problem.filter.elements() / outputs * 4, kAlignment), false});
  }
  plans.push_back({"direct", 0, false});
  return plans;
}

}  // namespace fragscope::simcuda
