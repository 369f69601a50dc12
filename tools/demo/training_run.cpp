#include "tools/demo/training_run.h"

namespace fragscope::demo {
namespace {

constexpr uint64_t kFloat = 4;  // bytes of a float32
constexpr uint64_t kHalf = 2;   // bytes of a bfloat16: activations

}  // namespace

bool TrainingRun::take(uint64_t bytes, std::vector<uint64_t>& into) {
  const std::optional<uint64_t> address = memory_.allocate(bytes);
  if (address) into.push_back(*address);
  return address.has_value();
}

bool TrainingRun::build() {
  const uint64_t square = shape_.width * shape_.width;
  const std::array<uint64_t, 4> matrices{3 * square, square, 4 * square, 4 * square};
  for (uint64_t layer = 0; layer < shape_.layers; ++layer) {
    for (const uint64_t elements : matrices) {
      for (int copy = 0; copy < 4; ++copy) {
        if (!take(elements * kFloat, parameters_)) return false;
      }
    }
  }
  for (int copy = 0; copy < 4; ++copy) {
    if (!take(shape_.vocabulary * shape_.width * kFloat, parameters_)) return false;
  }
  return true;
}

bool TrainingRun::forward_layer(uint64_t length) {
  const uint64_t hidden = shape_.batch * length * shape_.width * kHalf;
  const uint64_t scores = shape_.batch * shape_.heads * length * length * kHalf;
  const uint64_t memory = shape_.batch * shape_.memory_positions * shape_.width * kHalf;
  return take(3 * hidden, activations_) &&  // queries, keys, values
         take(scores, activations_) &&      // attention probabilities
         take(hidden, activations_) &&      // context
         take(memory, memories_) &&         // outlives the step
         take(4 * hidden, activations_) &&  // feed-forward
         take(hidden, activations_);
}

bool TrainingRun::step(uint64_t length) {
  const uint64_t tokens = shape_.batch * length;
  if (!take(tokens * shape_.width * kHalf, activations_)) return false;
  for (uint64_t layer = 0; layer < shape_.layers; ++layer) {
    if (!forward_layer(length)) return false;
  }
  if (!take(tokens * shape_.vocabulary * kHalf, activations_)) return false;
  while (!activations_.empty()) {  // the backward pass needs them last to first
    memory_.release(activations_.back());
    activations_.pop_back();
  }
  return true;
}

}  // namespace fragscope::demo
