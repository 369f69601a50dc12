#include "simcuda/answers.h"

#include <cstring>

#include "tests/support/catch.h"

using namespace fragscope::simcuda;

namespace {

double as_float(uint64_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// What a read of `bytes` gets after a kernel with these arguments; -1: zeros.
int64_t after(Answers& answers, const AnswerTable& table, const char* kernel, size_t bytes,
              std::vector<void*> arguments = {}) {
  answers.launched(table.find(kernel), arguments.empty() ? nullptr : arguments.data());
  const auto answer = answers.read(bytes);
  return answer ? static_cast<int64_t>(answer->bits) : -1;
}

constexpr const char* kAll =
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIbNS0_14func_wrapper_tIbZZZNS0_15and_"
    "kernel_"
    "cudaERNS_14TensorIteratorE";
constexpr const char* kMask =
    "_ZN3cub6detail18DeviceReduceKernelINS_10transform_iteratorI9NonZeroOpIbE";
constexpr const char* kRest = "_ZN3cub6detail28DeviceReduceSingleTileKernelIPiS1_E";

}  // namespace

TEST_CASE("health checks get healthy answers") {
  const AnswerTable table;
  Answers answers;
  CHECK(after(answers, table, kAll, 1) == 1);
  CHECK(after(answers, table, "x14or_kernel_cudaE", 1) == 0);
  CHECK(after(answers, table, kAll, 8) == -1);  // another size than the kernel's result
  CHECK(after(answers, table, "anything", 1) == -1);
  CHECK(as_float(static_cast<uint64_t>(after(answers, table, "amp_update_scale_cuda", 4))) ==
        65536);
}

TEST_CASE("losses fall and stay positive") {
  const AnswerTable table;
  Answers answers;
  double last = 3;
  for (int i = 0; i < 100; ++i) {
    const double loss =
        as_float(static_cast<uint64_t>(after(answers, table, "nll_loss_forward_x", 4)));
    CHECK(loss < last);
    CHECK(loss > 1);
    last = loss;
  }
}

TEST_CASE("sizes that depend on data follow from a kernel's number of items") {
  const AnswerTable table;
  Answers answers;
  uint32_t items = 1000;
  std::vector<void*> arguments(8, &items);
  CHECK(after(answers, table, kMask, 4, arguments) == 500);
  CHECK(after(answers, table, kRest, 4) == 500);  // the second pass of the same sum
  CHECK(after(answers, table, kAll, 4) == -1);
  CHECK(after(answers, table, kRest, 4) == -1);
  CHECK(after(answers, table, "DeviceSelectSweepKernel", 8, arguments) == 1000);
  CHECK(after(answers, table, kMask, 4) == 0);  // arguments that cannot be seen
}

TEST_CASE("a stop flag is what the program has just filled in") {
  const AnswerTable table;
  Answers answers;
  const char* fill = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIbEEE";
  const char* compare = "_ZN13AUnaryFunctorIllbN16CompareEqFunctorIlEEE";
  bool value = false;
  std::vector<void*> arguments(2, &value);
  answers.launched(table.find(fill), arguments.data());
  CHECK(after(answers, table, compare, 1) == 0);
  value = true;
  answers.launched(table.find(fill), arguments.data());
  CHECK(after(answers, table, compare, 1) == 1);
  for (int i = 0; i < 40; ++i) answers.launched(nullptr, nullptr);
  CHECK(after(answers, table, compare, 1) == 0);
}

TEST_CASE("a user's rows come first") {
  AnswerTable table;
  REQUIRE(table.add("# rows\n\nand_kernel_cuda 1 int:0\n NonZeroOp 4 items:0.125 2 # eighth\n", "f")
              .ok());
  Answers answers;
  CHECK(after(answers, table, kAll, 1) == 0);
  uint32_t items = 1000;
  CHECK(after(answers, table, kMask, 4, std::vector<void*>(8, &items)) == 125);
}

TEST_CASE("rows that mean nothing are refused with their line") {
  for (const char* row :
       {"a", "a 1", "a 3 int:1", "a 4 items:0.5", "a 4 int:1 2", "a 1 real:1", "a 4 items:-1 2",
        "a 4 items:1 99", "a 4 int:x", "a 4 int:", "a 4 what:1"}) {
    AnswerTable table;
    const auto added = table.add(std::string("# first\n") + row, "file");
    INFO(row);
    REQUIRE_FALSE(added.ok());
    CHECK(added.error().text.find("file:2: ") == 0);
  }
}
