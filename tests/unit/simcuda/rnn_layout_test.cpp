#include "simcuda/dnn/rnn_layout.h"

#include "tests/support/catch.h"

using namespace fragscope::simcuda;

namespace {

RnnShape lstm() {
  RnnShape shape;
  shape.cell = RnnCell::kLstm;
  shape.bidirectional = true;
  shape.input = 32;
  shape.hidden = 64;
  shape.layers = 2;
  return shape;
}

// Every parameter follows the one before it, and the last ends where the space does.
void check_gapless(const RnnShape& shape) {
  uint64_t at = 0;
  for (auto* of : {&rnn_matrix, &rnn_bias}) {
    for (int64_t p = 0; p < shape.pseudo_layers(); ++p) {
      for (int64_t i = 0; i < shape.linear_layers(); ++i) {
        const RnnParameter one = of(shape, p, i);
        REQUIRE(one.offset_bytes == at);
        at += static_cast<uint64_t>(one.rows * one.columns) * shape.element_bytes;
      }
    }
  }
  REQUIRE(at == rnn_weight_bytes(shape));
}

}  // namespace

TEST_CASE("weight space of networks has neither gaps nor overlaps") {
  RnnShape shape = lstm();
  check_gapless(shape);
  shape.projection = 16;
  check_gapless(shape);
  shape.cell = RnnCell::kGru;
  shape.projection = shape.hidden;
  shape.bias = 0;
  shape.element_bytes = 2;
  check_gapless(shape);
  shape.skip_input = true;
  shape.bias = 1;
  check_gapless(shape);
}

TEST_CASE("weight space holds what the network's parameters hold") {
  // torch.nn.LSTM(32, 64, 2, bidirectional=True): 149,504 parameters.
  REQUIRE(rnn_weight_bytes(lstm()) == 149504 * 4);
  const RnnParameter second = rnn_matrix(lstm(), 2, 0);
  REQUIRE(second.rows == 64);
  REQUIRE(second.columns == 128);  // both directions of the first layer
}

TEST_CASE("temporary spaces: inference keeps nothing, training every step") {
  const RnnShape shape = lstm();
  REQUIRE(rnn_spaces(shape, 10, 4, false).reserve_bytes == 0);
  const uint64_t one_layer = 10ULL * 4 * (4 + 2 + 1) * 64 * 4;
  REQUIRE(rnn_spaces(shape, 10, 4, true).reserve_bytes == 4 * one_layer);
  RnnShape dropping = shape;
  dropping.dropout = true;
  REQUIRE(rnn_spaces(dropping, 10, 4, true).reserve_bytes == 4 * one_layer + 10 * 4 * 128);
}
