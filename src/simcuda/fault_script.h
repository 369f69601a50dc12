// Errors by script: the n-th call of a function fails, a device is lost, a call takes long. The
// text of `fragscope run --sim-script FILE`, one row a line, blank lines and '#' comments aside:
//
//   FUNCTION CALL ACTION VALUE       cudaMalloc 3 fail CUDA_ERROR_OUT_OF_MEMORY
//                                    cudaLaunchKernel 100 lost CUDA_ERROR_ECC_UNCORRECTABLE
//                                    cudaMemcpyAsync 5+ slow 20
//
//   FUNCTION  of the driver without suffix, or of the runtime where fault_points.def names it
//   CALL      counted from 1 over all threads of a process; "5+": the fifth and every later one
//   ACTION    fail: that call answers the error and does nothing
//             lost: that call and all later calls of any function answer the error
//             slow: that call takes so many milliseconds longer
//
// Pure but for read_faults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fragscope::simcuda {

struct FaultRow {
  enum class Action { kFail, kLost, kSlow };
  std::string point;  // as the driver's entry points call it
  uint64_t call = 1;
  bool later_too = false;
  Action action = Action::kFail;
  std::string error;  // enumerator of CUresult
  uint64_t milliseconds = 0;
};

// The point of a function's name; cudaMalloc, cuMemAlloc_v2 and cuMemAlloc are all "cuMemAlloc".
std::string fault_point(std::string_view function);

Result<std::vector<FaultRow>> parse_faults(std::string_view text, const std::string& source);
Result<std::vector<FaultRow>> read_faults(const std::string& path);

// Counts the calls of one process. Threads: callers lock.
class FaultScript {
 public:
  explicit FaultScript(std::vector<FaultRow> rows) : rows_(std::move(rows)) {}

  // The row that this call of `point` meets; null: none.
  const FaultRow* next(std::string_view point);

 private:
  std::vector<FaultRow> rows_;
  std::vector<uint64_t> calls_;  // by row
  const FaultRow* lost_ = nullptr;
};

}  // namespace fragscope::simcuda
