#include "simcuda/fault_script.h"

#include "tests/support/catch.h"

using namespace fragscope::simcuda;

TEST_CASE("names of a function's versions and of the runtime are one point") {
  for (const char* name : {"cudaMalloc", "cuMemAlloc", "cuMemAlloc_v2", "allocate"}) {
    CHECK(fault_point(name) == "cuMemAlloc");
  }
  CHECK(fault_point("cuEventQuery_ptsz") == "cuEventQuery");
}

TEST_CASE("the n-th call fails, once or from then on") {
  auto rows = parse_faults(
      "# a comment\ncudaMalloc 3 fail CUDA_ERROR_OUT_OF_MEMORY\n\ncudaMemcpy 2+ slow 5\n", "f");
  REQUIRE(rows.ok());
  FaultScript script(*rows);
  std::string met;
  for (int i = 0; i < 5; ++i) {
    met += script.next("cuMemAlloc") != nullptr ? 'x' : '.';
    met += script.next("cuMemcpy") != nullptr ? 's' : '.';
  }
  CHECK(met ==
        "...s"
        "xs"
        ".s"
        ".s");
}

TEST_CASE("after a loss every call fails") {
  auto rows = parse_faults("cudaLaunchKernel 2 lost CUDA_ERROR_ECC_UNCORRECTABLE", "f");
  REQUIRE(rows.ok());
  FaultScript script(*rows);
  CHECK(script.next("cuLaunchKernel") == nullptr);
  CHECK(script.next("cuMemAlloc") == nullptr);
  REQUIRE(script.next("cuLaunchKernel") != nullptr);
  REQUIRE(script.next("cuMemAlloc") != nullptr);
  CHECK(script.next("cuMemAlloc")->error == "CUDA_ERROR_ECC_UNCORRECTABLE");
}

TEST_CASE("rows of a fault script that mean nothing are refused") {
  for (const char* row : {"cudaMalloc", "cudaMalloc 0 fail CUDA_ERROR_OUT_OF_MEMORY",
                          "cudaMalloc 1 fail 2", "cudaMalloc x fail CUDA_ERROR_UNKNOWN",
                          "cudaMalloc 1 break CUDA_ERROR_UNKNOWN", "cudaMalloc 1 slow -1",
                          "cudaNoSuch 1 slow 1", "malloc 1 slow 1", "cudaMalloc 1 slow 1 2"}) {
    const auto rows = parse_faults(std::string("\n") + row, "file");
    INFO(row);
    REQUIRE_FALSE(rows.ok());
    CHECK(rows.error().text.find("file:2: ") == 0);
  }
}
