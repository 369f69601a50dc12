#include "simcuda/answers.h"

#include <array>
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
  int64_t bits = 0;
  return answers.read(&bits, bytes) != nullptr ? bits : -1;
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

namespace {

constexpr const char* kSum = "_ZN2at6native13reduce_kernelILi512EZNS0_11sum_functorIlllEclE";
constexpr const char* kMaskAsIntegers = "ZNS0_27converting_copy_kernel_cudaIblEEvRNS_18Tensor";
constexpr const char* kCompare =
    "_ZN2at6native29vectorized_elementwise_kernelILi2ENS0_13BinaryFunctorIffbNS0_"
    "16CompareEqFunctorIf";

struct Reduction {
  int64_t ops, identity;
  int element_bytes, inputs, outputs;
};

}  // namespace

TEST_CASE("sums of a mask agree with its selection, one for each output") {
  const AnswerTable table;
  Answers answers;
  Reduction reduction{0, 0, 8, 100, 3};
  std::vector<void*> arguments{&reduction};
  answers.launched(table.find(kMaskAsIntegers), nullptr);
  answers.launched(table.find(kSum), arguments.data());
  std::array<int64_t, 3> sums{};
  REQUIRE(answers.read(sums.data(), sizeof sums) != nullptr);
  CHECK(sums == std::array<int64_t, 3>{50, 50, 50});
  CHECK(answers.read(sums.data(), 8) == nullptr);  // not the outputs
  CHECK(answers.read(sums.data(), 16) == nullptr);
  answers.launched(table.find(kSum), arguments.data());
  CHECK(answers.read(sums.data(), sizeof sums) == nullptr);  // of what is no mask
}

TEST_CASE("the longest of a mask's counts has all items, with what is added to it") {
  const char* longest = "13reduce_kernelILi512E_func_wrapper_tIlNS0_13MaxNanFunctorIlEEEE";
  const char* add = "vectorized_elementwise_kernelILi2ENS0_21CUDAFunctorOnSelf_addIlEE";
  const AnswerTable table;
  Answers answers;
  Reduction reduction{0, 0, 8, 100, 3};
  std::vector<void*> arguments{&reduction};
  int count = 1;
  std::array<int64_t, 2> number{5, 1};
  std::vector<void*> added{&count, number.data()};
  answers.launched(table.find(kMaskAsIntegers), nullptr);
  answers.launched(table.find(kSum), arguments.data());
  CHECK(after(answers, table, longest, 8, arguments) == 100);
  CHECK(after(answers, table, add, 8, added) == 105);
  CHECK(after(answers, table, longest, 8, arguments) == -1);  // of what is no count
  answers.launched(table.find(kSum), arguments.data());       // nor is this one
  CHECK(after(answers, table, longest, 8, arguments) == -1);
  CHECK(after(answers, table, add, 8, added) == 1);  // a counter
}

TEST_CASE("norms are positive and become small") {
  const AnswerTable table;
  Answers answers;
  const char* norm = "_ZN13reduce_kernelILi512ENS0_8ReduceOpIfNS0_10NormTwoOpsIfffLb1EEE";
  float last = 1;
  for (int i = 0; i < 200; ++i) {
    const double value = as_float(static_cast<uint64_t>(after(answers, table, norm, 4)));
    CHECK(value == (i < 100 ? last / 2 : last));
    last = static_cast<float>(value);
  }
  CHECK(last > 0);
  CHECK(last < 1e-30);
}

TEST_CASE("what is compared with itself is known, counted too") {
  const AnswerTable table;
  for (int not_equal = 0; not_equal < 2; ++not_equal) {
    Answers answers;
    std::array<uint64_t, 3> addresses{0x1000, 0x2000, 0x2000};
    int count = 100;
    std::vector<void*> arguments{&count, &not_equal, addresses.data()};
    CHECK(after(answers, table, kCompare, 1, arguments) == 1 - not_equal);
    Reduction reduction{0, 0, 8, 100, 1};
    answers.launched(table.find(kMaskAsIntegers), nullptr);
    CHECK(after(answers, table, kSum, 8, {&reduction}) == (not_equal == 0 ? 100 : 0));
    addresses[1] = 0x3000;
    CHECK(after(answers, table, kCompare, 1, arguments) == -1);
  }
}

TEST_CASE("all of a single value in range, which is a copy, is true") {
  const AnswerTable table;
  Answers answers;
  const char* above = "compare_scalar_kernelIfEEvRNS_18TensorIteratorBase";
  CHECK(after(answers, table, above, 1) == -1);  // `if x > 3`
  answers.copied(1);
  int64_t all = 0;
  REQUIRE(answers.read(&all, 1) != nullptr);
  CHECK(all == 1);
  CHECK(after(answers, table, above, 1) == -1);
  answers.launched(table.find("BinaryFunctorIbbbNS0_16BitwiseOrFunctorIbEEE"), nullptr);
  CHECK(answers.read(&all, 1) == nullptr);  // `if a or b`
  answers.copied(1);
  CHECK(answers.read(&all, 1) != nullptr);
}

TEST_CASE("a nested tensor's sizes are lengths of half the rows and the width") {
  const AnswerTable table;
  Answers answers;
  struct {
    int64_t ops, identity[2];
    int element_bytes, inputs, outputs;
  } first_unset{0, {0, 0}, 8, 51, 2};
  std::vector<void*> arguments{&first_unset};
  answers.launched(table.find("13reduce_kernelILi512ELi1ENS0_8ReduceOpIiNS0_9ArgMinOpsIiEEjl"),
                   arguments.data());
  answers.launched(table.find("anything"), nullptr);
  int count = 2;
  int64_t width = 256;
  std::vector<void*> fill{&count, &width};
  CHECK(after(answers, table,
              "vectorized_elementwise_kernelILi2ENS0_11FillFunctorIlEESt5arrayIPcLm1EELb0EEEv", 8,
              fill) == 256);
  answers.launched(table.find("CatArrayBatchedCopyINS1_10OpaqueTypeILj8EEEjLi2ELi64E"), nullptr);
  std::array<int64_t, 4> sizes{};
  REQUIRE(answers.read(sizes.data(), sizeof sizes) != nullptr);
  CHECK(sizes == std::array<int64_t, 4>{25, 256, 25, 256});
  CHECK(answers.read(sizes.data(), 8) == nullptr);
}

TEST_CASE("bins hold all items, repeats add up to one each, counters count") {
  const AnswerTable table;
  Answers answers;
  int items = 10;
  std::vector<void*> arguments(8, &items);
  answers.launched(table.find("_ZN2at4cuda17kernelHistogram1DIlllLi1E"), arguments.data());
  std::array<int64_t, 4> bins{};
  REQUIRE(answers.read(bins.data(), sizeof bins) != nullptr);
  CHECK(bins == std::array<int64_t, 4>{2, 3, 2, 3});
  CHECK(after(answers, table, "cub6detail4scan16DeviceScanKernelI", 8, arguments) == 10);
  const char* add =
      "vectorized_elementwise_kernelILi2ENS0_21CUDAFunctorOnSelf_addIlEESt5arrayIPcLm2E";
  CHECK(after(answers, table, add, 8) == 1);
  CHECK(after(answers, table, add, 8) == 2);
}

TEST_CASE("a conversion keeps what it converts") {
  const AnswerTable table;
  Answers answers;
  answers.launched(table.find("ReduceOpIN3c108BFloat16ENS0_7MeanOpsIS4_ffS4_E"), nullptr);
  uint16_t narrow = 0;
  REQUIRE(answers.read(&narrow, sizeof narrow) != nullptr);
  CHECK(as_float(static_cast<uint64_t>(narrow) << 16) == 2);
  CHECK(after(answers, table, "ReduceOpIfNS0_7MeanOpsIffffE", 8) == -1);  // another value
  answers.launched(table.find("ReduceOpIN3c108BFloat16ENS0_7MeanOpsIS4_ffS4_E"), nullptr);
  CHECK(as_float(static_cast<uint64_t>(
            after(answers, table, "converting_copy_kernel_cudaIN3c108BFloat16EfE", 4))) == 1.5F);
  answers.written();  // and what the host wrote would be converted next
  CHECK(after(answers, table, "converting_copy_kernel_cudaIN3c108BFloat16EfE", 4) == -1);
  CHECK(after(answers, table, kAll, 1) == 1);
  CHECK(after(answers, table, "direct_copy_kernel_cudaERNS_18TensorIteratorBaseE", 1) == -1);
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
        "a 4 items:1 99", "a 4 int:x", "a 4 int:", "a 4 what:1", "a 1 falling", "a 8 spread",
        "a 8 count:1", "a 8 rising 1", "a 8 items:1 1+", "a 8 items:1 1+4096"}) {
    AnswerTable table;
    const auto added = table.add(std::string("# first\n") + row, "file");
    INFO(row);
    REQUIRE_FALSE(added.ok());
    CHECK(added.error().text.find("file:2: ") == 0);
  }
}
