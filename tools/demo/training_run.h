// A transformer's training loop as its allocator sees it: the sizes, order and lifetimes of its
// tensors. Nothing is computed with them.
//
// Batches come sorted by length, as a length-bucketing sampler delivers them, and each layer keeps
// the hidden states of the last positions of every batch (a recurrence memory). These small,
// long-lived tensors are what pins the large segments of earlier, shorter batches.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/demo/tensor_memory.h"

namespace fragscope::demo {

struct ModelShape {
  uint64_t layers = 20;
  uint64_t batch = 8;
  uint64_t heads = 16;
  uint64_t width = 1024;
  uint64_t vocabulary = 1024;  // of bytes and byte pairs
  uint64_t memory_positions = 80;
};

// Positions per sequence, step by step.
inline constexpr std::array<uint64_t, 15> kLengths{256, 288, 320, 352, 384, 416, 448, 480,
                                                   512, 544, 576, 608, 633, 633, 633};

class TrainingRun {
 public:
  // `memory` outlives the run. What is still held at the end stays allocated.
  TrainingRun(const ModelShape& shape, TensorMemory& memory) : shape_(shape), memory_(memory) {}

  // Weights, gradients and the two moments of AdamW, all in float32. False: out of memory.
  bool build();
  // Forward and backward pass of one batch. False: out of memory.
  bool step(uint64_t length);

 private:
  bool take(uint64_t bytes, std::vector<uint64_t>& into);
  bool forward_layer(uint64_t length);

  ModelShape shape_;
  TensorMemory& memory_;
  std::vector<uint64_t> parameters_;
  std::vector<uint64_t> activations_;  // of the step under way, in order of allocation
  std::vector<uint64_t> memories_;     // one per layer and batch
};

}  // namespace fragscope::demo
