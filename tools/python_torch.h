// Which PyTorch a Python interpreter would import, found without importing it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fragscope::tools {

struct TorchInstall {
  std::string python;
  std::string directory;             // …/site-packages/torch
  std::string version;               // "2.15.0+cu132"
  std::string cuda;                  // "13.2"; empty: a build without CUDA
  std::string build_id;              // of libc10_cuda.so, lower-case hex; empty without CUDA
  std::vector<std::string> include;  // directories with CUDA's headers that came with the wheels
};

// nullopt: this interpreter has no torch. Errors: kNotFound when the interpreter does not start,
// kDamaged when its torch is not what a torch looks like.
// Source: torch/version.py of the wheels.
Result<std::optional<TorchInstall>> find_torch(const std::string& python);

// The GNU build-id note of an ELF file as lower-case hex. kForeign: not ELF-64; kNotFound: no file
// or no note.
Result<std::string> read_build_id(const std::string& path);

}  // namespace fragscope::tools
