#include "report/stack_lines.h"

#include <algorithm>
#include <string_view>

namespace fragscope::report {
namespace {

using symbolize::Frame;

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_interpreter(const Frame& frame) {
  if (frame.module.empty()) {
    return symbolize::framework_of_function(frame.function) == "the interpreter";
  }
  const std::string_view name = base_name(frame.module);
  return name.starts_with("libpython") || name.starts_with("python");
}

// Native frames of a snapshot have names and no modules.
bool is_plumbing_function(std::string_view function) {
  for (const std::string_view start :
       {"torch::unwind::", "torch::CapturedTraceback::", "torch::cuda::", "gather_with_cpp",
        "c10::cuda::CUDACachingAllocator::"}) {
    if (function.starts_with(start)) return true;
  }
  return false;
}

bool is_plumbing(const Frame& frame) {
  if (frame.module.empty()) return is_plumbing_function(frame.function);
  const std::string_view module = frame.module;
  for (const std::string_view start :
       {"libfragscope", "libcudart", "libcuda.so", "libc10_cuda", "libc10.so"}) {
    if (base_name(module).starts_with(start)) return true;
  }
  return false;
}

// "torch", "transformers", "the standard library"; "libtorch_cuda.so".
std::string family(const Frame& frame) {
  if (!frame.python && frame.module.empty()) {
    return std::string(symbolize::framework_of_function(frame.function));
  }
  if (!frame.python) return std::string(base_name(frame.module));
  for (const std::string_view marker : {"/site-packages/", "/dist-packages/"}) {
    const size_t found = frame.file.rfind(marker);
    if (found == std::string::npos) continue;
    const std::string rest = frame.file.substr(found + marker.size());
    return rest.substr(0, rest.find('/'));
  }
  return "the standard library";
}

// Behind the run of frameworks' frames, all of Python or all native, that `at` begins.
size_t end_of_fold(const std::vector<Frame>& frames, size_t at) {
  size_t end = at;
  while (end < frames.size() && frames[end].python == frames[at].python &&
         symbolize::is_framework(frames[end]) && family(frames[end]) == family(frames[at])) {
    ++end;
  }
  return end;
}

std::vector<Frame> shown(std::vector<Frame> frames) {
  // A snapshot mixes them, the native ones innermost.
  std::stable_partition(frames.begin(), frames.end(),
                        [](const Frame& frame) { return frame.python; });
  const auto native =
      std::find_if(frames.begin(), frames.end(), [](const Frame& frame) { return !frame.python; });
  auto first =
      std::find_if(native, frames.end(), [](const Frame& frame) { return !is_plumbing(frame); });
  if (first == frames.end() && native == frames.begin()) first = native;
  auto last = frames.end();
  if (native != frames.begin()) {
    last = std::find_if(first, frames.end(), is_interpreter);
  }
  std::vector<Frame> result(frames.begin(), native);
  result.insert(result.end(), first, last);
  return result;
}

}  // namespace

std::vector<std::string> StackLines::lines(uint32_t stack, uint64_t seq) const {
  if (!symbols_) return {};
  const std::vector<Frame> frames = shown(symbols_->resolve_stack(stack, seq));
  std::vector<std::string> result;
  size_t at = 0;
  while (at < frames.size() && result.size() < style_.frames) {
    const size_t end = style_.fold ? end_of_fold(frames, at) : at;
    if (end > at + 1) {
      result.push_back("… " + std::to_string(end - at) + " frames of " + family(frames[at]));
      at = end;
    } else {
      result.push_back(symbolize::frame_text(frames[at++]));
    }
  }
  if (at < frames.size()) result.push_back("… " + std::to_string(frames.size() - at) + " more");
  return result;
}

}  // namespace fragscope::report
