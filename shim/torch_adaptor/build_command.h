// How the torch adaptor is compiled: the one place that knows the flags. For the tools, which run
// the compiler without a shell; the shim only opens the result.
#pragma once

#include <string>
#include <vector>

namespace fragscope {

struct TorchAdaptorBuild {
  std::string compiler = "g++";
  std::string source;        // …/torch_adaptor.cpp, with torch_adaptor.h beside it
  std::string torch;         // directory of the torch package (holds include/ and lib/)
  std::string cuda_include;  // directory of cuda.h and cuda_runtime_api.h of torch's CUDA major
  std::string output;        // <adaptor directory>/<build-id of libc10_cuda.so>.so
  int torch_major = 2;
  int torch_minor = 0;
};

// The adaptor needs attachAllocatorTraceTracker with a device in each entry.
inline bool torch_has_tracker(int major, int minor) {
  return major > 2 || (major == 2 && minor >= 4);
}

inline std::vector<std::string> torch_adaptor_command(const TorchAdaptorBuild& build) {
  const bool at_least_2_14 =  // its headers name std::strong_ordering
      build.torch_major > 2 || (build.torch_major == 2 && build.torch_minor >= 14);
  // Wheels up to 2.6 were built with the old std::string; 2.7 changed it.
  const bool new_abi = build.torch_major > 2 || (build.torch_major == 2 && build.torch_minor >= 7);
  return {
      build.compiler,
      at_least_2_14 ? "-std=c++20" : "-std=c++17",
      "-O2",
      "-fPIC",
      "-shared",
      "-fvisibility=hidden",
      new_abi ? "-D_GLIBCXX_USE_CXX11_ABI=1" : "-D_GLIBCXX_USE_CXX11_ABI=0",
      "-isystem" + build.torch + "/include",
      "-isystem" + build.torch + "/include/torch/csrc/api/include",
      "-isystem" + build.cuda_include,
      build.source,
      "-o",
      build.output,
      "-L" + build.torch + "/lib",
      "-Wl,--allow-shlib-undefined",
      "-lc10",
      "-lc10_cuda",
  };
}

}  // namespace fragscope
