// Weight space and temporary spaces of recurrent networks, as the stand-in of cuDNN lays them out.
//
// Weight space: first the matrices, layer by layer (a layer and direction is one pseudo layer), in
// the order of the linear layers that the public API names (inputs of the gates, then their
// recurrent matrices, then the projection), each row-major and without gaps; then all biases in the
// same order. That order and the sizes are what callers can observe.
//
// Temporary spaces are assumed: the reserve space holds what the backward pass needs of every step
// (gates, cell state and its tanh of an LSTM; gates and the recurrent part of the new gate of a
// GRU; output), and a byte mask per dropped value; the work space holds the gates of one pseudo
// layer's whole sequence, and in training their gradients too. Pure.
#pragma once

#include <cstdint>

namespace fragscope::simcuda {

enum class RnnCell : int { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };  // cudnnRNNMode_t

struct RnnShape {
  RnnCell cell = RnnCell::kTanh;
  int bias = 2;  // cudnnRNNBiasMode_t: 0 none, 1 input, 2 both, 3 recurrent
  bool bidirectional = false;
  bool skip_input = false;
  bool dropout = false;
  int64_t input = 0;
  int64_t hidden = 0;
  int64_t projection = 0;  // equal to hidden: none
  int64_t layers = 1;
  uint64_t element_bytes = 4;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t gates() const { return cell == RnnCell::kLstm ? 4 : cell == RnnCell::kGru ? 3 : 1; }
  bool projects() const { return projection > 0 && projection != hidden; }
  int64_t output() const { return projects() ? projection : hidden; }
  int64_t pseudo_layers() const { return layers * directions(); }
  int64_t linear_layers() const { return 2 * gates() + (projects() ? 1 : 0); }
};

// One matrix or bias; rows 0: the network has none there.
struct RnnParameter {
  int64_t rows = 0;
  int64_t columns = 0;
  uint64_t offset_bytes = 0;
};

RnnParameter rnn_matrix(const RnnShape& shape, int64_t pseudo_layer, int64_t linear_layer);
RnnParameter rnn_bias(const RnnShape& shape, int64_t pseudo_layer, int64_t linear_layer);
uint64_t rnn_weight_bytes(const RnnShape& shape);

struct RnnSpaces {
  uint64_t work_bytes;
  uint64_t reserve_bytes;
};
RnnSpaces rnn_spaces(const RnnShape& shape, int64_t steps, int64_t batch, bool training);

}  // namespace fragscope::simcuda
