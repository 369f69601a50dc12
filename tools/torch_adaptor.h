// Adaptors: small libraries through which the recorder sees PyTorch's blocks with their requested
// sizes and streams. Each is compiled against the headers of one torch and cached under the
// build-id of its libc10_cuda.so, where the shim looks for it.
//
// Several processes may build at one time: a lock file serialises them, a finished library appears
// by rename. Errors are values; without an adaptor the recorder falls back to the report hook.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/installation.h"
#include "tools/python_torch.h"

namespace fragscope::tools {

// FRAGSCOPE_TORCH_ADAPTOR_DIR, else ${XDG_CACHE_HOME:-~/.cache}/fragscope/adaptors.
std::string adaptor_directory();

struct AdaptorRequest {
  const Installation& installation;
  const TorchInstall& torch;
  std::string directory;
  bool rebuild = false;
  std::function<void(const std::string&)> progress;  // one line before slow work; may be empty
};

struct AdaptorBuild {
  std::string path;
  bool built = false;  // false: it was in the cache
};

// Errors: kUnsupported (torch without CUDA or without a trace tracker, no compiler, the compiler
// failed: its first error line is quoted), kNotFound (our source), kPermission, kNoSpace.
Result<AdaptorBuild> ensure_adaptor(const AdaptorRequest& request);

struct CachedAdaptor {
  std::string build_id;
  std::string path;
  std::string torch;  // "2.15.0+cu132"; empty: its note is missing
};
std::vector<CachedAdaptor> list_adaptors(const std::string& directory);

// Removes what list_adaptors() names, and leftovers; returns how many adaptors.
Result<int> clean_adaptors(const std::string& directory);

// $CXX, g++, c++ or clang++, whichever is there first; empty: none.
std::string find_compiler();

}  // namespace fragscope::tools
