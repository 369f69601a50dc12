#include "simcuda/dnn/rnn_layout.h"

namespace fragscope::simcuda {

namespace {

uint64_t count(int64_t value) { return value > 0 ? static_cast<uint64_t>(value) : 0; }

bool is_input(const RnnShape& shape, int64_t linear_layer) { return linear_layer < shape.gates(); }
bool is_projection(const RnnShape& shape, int64_t linear_layer) {
  return linear_layer == 2 * shape.gates();
}

// Rows and columns; the offset is left at 0.
RnnParameter matrix_shape(const RnnShape& shape, int64_t pseudo_layer, int64_t linear_layer) {
  if (linear_layer < 0 || linear_layer >= shape.linear_layers()) return {};
  if (is_projection(shape, linear_layer)) return {shape.projection, shape.hidden, 0};
  if (!is_input(shape, linear_layer)) return {shape.hidden, shape.output(), 0};
  const bool first = pseudo_layer < shape.directions();
  if (first && shape.skip_input) return {};
  return {shape.hidden, first ? shape.input : shape.output() * shape.directions(), 0};
}

RnnParameter bias_shape(const RnnShape& shape, int64_t, int64_t linear_layer) {
  if (linear_layer < 0 || is_projection(shape, linear_layer)) return {};
  const bool wanted = shape.bias == 2 || (shape.bias == 1 && is_input(shape, linear_layer)) ||
                      (shape.bias == 3 && !is_input(shape, linear_layer));
  return wanted ? RnnParameter{shape.hidden, 1, 0} : RnnParameter{};
}

// Elements of all parameters of one kind before (pseudo layer, linear layer).
template <typename Shape>
uint64_t elements_before(const RnnShape& shape, int64_t pseudo_layer, int64_t linear_layer,
                         Shape of) {
  uint64_t elements = 0;
  for (int64_t p = 0; p < shape.pseudo_layers() && p <= pseudo_layer; ++p) {
    const int64_t end = p < pseudo_layer ? shape.linear_layers() : linear_layer;
    for (int64_t i = 0; i < end; ++i) {
      const RnnParameter one = of(shape, p, i);
      elements += count(one.rows) * count(one.columns);
    }
  }
  return elements;
}

}  // namespace

RnnParameter rnn_matrix(const RnnShape& shape, int64_t pseudo_layer, int64_t linear_layer) {
  RnnParameter found = matrix_shape(shape, pseudo_layer, linear_layer);
  found.offset_bytes =
      elements_before(shape, pseudo_layer, linear_layer, matrix_shape) * shape.element_bytes;
  return found;
}

RnnParameter rnn_bias(const RnnShape& shape, int64_t pseudo_layer, int64_t linear_layer) {
  RnnParameter found = bias_shape(shape, pseudo_layer, linear_layer);
  found.offset_bytes = (elements_before(shape, shape.pseudo_layers(), 0, matrix_shape) +
                        elements_before(shape, pseudo_layer, linear_layer, bias_shape)) *
                       shape.element_bytes;
  return found;
}

uint64_t rnn_weight_bytes(const RnnShape& shape) {
  return (elements_before(shape, shape.pseudo_layers(), 0, matrix_shape) +
          elements_before(shape, shape.pseudo_layers(), 0, bias_shape)) *
         shape.element_bytes;
}

RnnSpaces rnn_spaces(const RnnShape& shape, int64_t steps, int64_t batch, bool training) {
  const uint64_t values = count(steps) * count(batch);
  const uint64_t gates = values * count(shape.gates()) * count(shape.hidden) * shape.element_bytes;
  if (!training) return {gates, 0};
  const uint64_t kept_states = shape.cell == RnnCell::kLstm ? 2 : shape.cell == RnnCell::kGru;
  const uint64_t per_layer =
      gates +
      values * (kept_states * count(shape.hidden) + count(shape.output())) * shape.element_bytes;
  const uint64_t masks =
      shape.dropout ? values * count(shape.output() * shape.directions()) * count(shape.layers - 1)
                    : 0;
  return {2 * gates, per_layer * count(shape.pseudo_layers()) + masks};
}

}  // namespace fragscope::simcuda
