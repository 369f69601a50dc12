#include "simcuda/dnn/convolution_plan.h"

#include "tests/support/catch.h"

using namespace fragscope::simcuda;

namespace {

constexpr DnnDevice kAmpere{86, 28};
constexpr DnnDevice kVolta{70, 80};

DnnTensor packed(DnnType type, std::vector<int64_t> sizes) {
  DnnTensor tensor{type, std::move(sizes), {}};
  tensor.strides.assign(tensor.sizes.size(), 1);
  for (size_t i = tensor.sizes.size() - 1; i > 0; --i) {
    tensor.strides[i - 1] = tensor.strides[i] * tensor.sizes[i];
  }
  return tensor;
}

DnnTensor channels_last(DnnType type, int64_t n, int64_t c, int64_t h, int64_t w) {
  return {type, {n, c, h, w}, {h * w * c, 1, w * c, c}};
}

ConvolutionProblem three_by_three(ConvolutionKind kind, DnnType type, bool last) {
  const auto make = [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    return last ? channels_last(type, n, c, h, w) : packed(type, {n, c, h, w});
  };
  return {kind, make(8, 16, 32, 32), make(32, 16, 3, 3), make(8, 32, 32, 32)};
}

}  // namespace

TEST_CASE("operands that are not NHWC are copied into the workspace") {
  for (const auto type : {DnnType::kFloat, DnnType::kHalf}) {
    const auto problem = three_by_three(ConvolutionKind::kBackwardData, type, false);
    const auto plans = convolution_plans(problem, kAmpere);
    REQUIRE(plans.size() == 3);
    REQUIRE(plans[0].tensor_cores);
    REQUIRE(plans[0].workspace_bytes == problem.output.bytes() + problem.filter.bytes());
    REQUIRE(plans.back().workspace_bytes == 0);
  }
  const auto forward = three_by_three(ConvolutionKind::kForward, DnnType::kHalf, false);
  REQUIRE(convolution_plans(forward, kAmpere)[0].workspace_bytes ==
          forward.input.bytes() + forward.filter.bytes());
}

TEST_CASE("forward in fp32 copies what lies in NCHW, and nothing that lies in NHWC") {
  const auto problem = three_by_three(ConvolutionKind::kForward, DnnType::kFloat, false);
  const auto plans = convolution_plans(problem, kAmpere);
  REQUIRE(plans.size() == 3);
  REQUIRE(plans[0].tensor_cores);
  REQUIRE(plans[0].workspace_bytes == problem.input.bytes() + problem.filter.bytes());
  const auto nhwc = three_by_three(ConvolutionKind::kForward, DnnType::kFloat, true);
  REQUIRE(convolution_plans(nhwc, kAmpere)[0].workspace_bytes == 0);
}

TEST_CASE("the gradient of a 1x1 filter is a product of matrices: nothing is copied") {
  auto problem = three_by_three(ConvolutionKind::kBackwardFilter, DnnType::kFloat, false);
  problem.filter = packed(DnnType::kFloat, {32, 16, 1, 1});
  // One tile; the sum over 8*32*32 has 16 parts of at least 512 products.
  CHECK(convolution_plans(problem, kAmpere)[0].workspace_bytes == 16 * 32 * 16 * sizeof(float));
  problem.kind = ConvolutionKind::kForward;
  // Forward: the input's copy, and with it the filter's.
  CHECK(convolution_plans(problem, kAmpere)[0].workspace_bytes ==
        problem.input.bytes() + problem.filter.bytes());
  problem = three_by_three(ConvolutionKind::kForward, DnnType::kFloat, true);
  problem.filter = packed(DnnType::kFloat, {32, 16, 1, 1});  // the same as NHWC
  CHECK(convolution_plans(problem, kAmpere)[0].workspace_bytes == 0);
}

TEST_CASE("the copy of an image in fp32 has four channels") {
  const ConvolutionProblem stem{ConvolutionKind::kForward, packed(DnnType::kFloat, {2, 3, 8, 8}),
                                packed(DnnType::kFloat, {64, 3, 7, 7}),
                                packed(DnnType::kFloat, {2, 64, 4, 4})};
  const auto plans = convolution_plans(stem, kAmpere);
  REQUIRE(plans.size() == 3);
  REQUIRE(plans[0].workspace_bytes == 2 * 64 * 16 + 64 * 49 * 16);
  REQUIRE(plans[1].workspace_bytes == 768);  // 3*7*7 offsets, rounded to 256 bytes
}

TEST_CASE("the largest workspace holds every other, and the matrix of patches for gradients") {
  for (const bool last : {false, true}) {
    for (const auto type : {DnnType::kFloat, DnnType::kHalf}) {
      for (const auto kind : {ConvolutionKind::kForward, ConvolutionKind::kBackwardData,
                              ConvolutionKind::kBackwardFilter}) {
        const auto problem = three_by_three(kind, type, last);
        const uint64_t most = largest_workspace(problem, kAmpere);
        const uint64_t copies =
            problem.input.bytes() + problem.filter.bytes() + problem.output.bytes();
        for (const auto& plan : convolution_plans(problem, kAmpere)) {
          CHECK(plan.workspace_bytes <= most + problem.filter.bytes());
        }
        const uint64_t patches = 8 * 32 * 32 * 16 * 9 * bytes_of(type);
        CHECK(most >= copies + (kind == ConvolutionKind::kForward ? 0 : patches));
      }
    }
  }
  CHECK(largest_workspace({}, kAmpere) == 0);
}

TEST_CASE("NHWC operands with aligned channels need no workspace") {
  const auto problem = three_by_three(ConvolutionKind::kForward, DnnType::kHalf, true);
  REQUIRE(convolution_plans(problem, kAmpere)[0].workspace_bytes == 0);
}

TEST_CASE("channels are rounded up to 16 bytes in the copy") {
  ConvolutionProblem stem{ConvolutionKind::kForward, channels_last(DnnType::kHalf, 2, 3, 8, 8),
                          channels_last(DnnType::kHalf, 64, 3, 7, 7),
                          channels_last(DnnType::kHalf, 2, 64, 4, 4)};
  // 2x8x8 and 64x7x7 pixels of 8 channels, two bytes each.
  REQUIRE(convolution_plans(stem, kAmpere)[0].workspace_bytes == 2 * 64 * 16 + 64 * 49 * 16);
}

TEST_CASE("the gradient of a filter keeps one partial filter per part of its sum") {
  const auto problem = three_by_three(ConvolutionKind::kBackwardFilter, DnnType::kHalf, true);
  // One row of tiles, two columns: 28 multiprocessors serve 14 parts of the sum over 8*32*32.
  REQUIRE(convolution_plans(problem, kAmpere)[0].workspace_bytes ==
          14 * problem.filter.elements() * 4);
}

TEST_CASE("types without tensor cores use the plans without transformation") {
  const auto plans =
      convolution_plans(three_by_three(ConvolutionKind::kForward, DnnType::kFloat, false), kVolta);
  REQUIRE(plans.size() == 2);
  REQUIRE_FALSE(plans[0].tensor_cores);
  REQUIRE(plans[0].workspace_bytes == 768);  // 16*3*3 offsets, rounded to 256 bytes
}

TEST_CASE("grouped convolutions have the direct plan alone") {
  for (const int64_t per_group : {1, 2, 4}) {
    for (const auto kind : {ConvolutionKind::kForward, ConvolutionKind::kBackwardData,
                            ConvolutionKind::kBackwardFilter}) {
      const ConvolutionProblem grouped{kind, packed(DnnType::kFloat, {1, 8, 4, 4}),
                                       packed(DnnType::kFloat, {8, per_group, 3, 3}),
                                       packed(DnnType::kFloat, {1, 8, 4, 4})};
      const auto plans = convolution_plans(grouped, kAmpere);
      REQUIRE(plans.size() == 1);
      REQUIRE(plans[0].workspace_bytes == 0);
    }
  }
}

TEST_CASE("an empty problem needs no workspace") {
  const auto nothing = convolution_plans({}, kAmpere);
  REQUIRE(nothing.back().workspace_bytes == 0);
  REQUIRE(nothing.front().workspace_bytes == 0);
}
