#include "diagnose/stack_role.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace fragscope::diagnose {
namespace {

using symbolize::Frame;

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// "GPT.forward" -> "GPT" and "forward"; locals of functions ("main.<locals>.Net.forward") too.
std::string_view method_of(std::string_view function) {
  return function.substr(function.rfind('.') + 1);
}
std::string_view class_of(std::string_view function) {
  const size_t dot = function.rfind('.');
  if (dot == function.npos) return {};
  function = function.substr(0, dot);
  const std::string_view name = function.substr(function.rfind('.') + 1);
  return name == "<locals>" ? std::string_view{} : name;
}

bool is_optimizer(const Frame& frame) {
  if (has(frame.file, "/torch/optim/")) return true;
  if (method_of(frame.function) != "step") return false;
  const std::string_view name = class_of(frame.function);
  for (const std::string_view word :
       {"Optim", "Adam", "SGD", "Lion", "Adafactor", "Muon", "Lamb", "RMSprop"}) {
    if (has(name, word)) return true;
  }
  return false;
}

bool is_init(const Frame& frame) {
  const std::string_view method = method_of(frame.function);
  return method == "__init__" || method == "reset_parameters" || method == "from_pretrained" ||
         method == "load_state_dict";
}

bool is_forward(const Frame& frame) {
  const std::string_view method = method_of(frame.function);
  return method == "forward" || method == "_call_impl" || method == "_wrapped_call_impl";
}

bool is_vendor_library(std::string_view module) {
  for (const std::string_view start : {"libcublas", "libcudnn", "libcusolver", "libcusparse",
                                       "libcufft", "libnccl", "libnvshmem"}) {
    if (base_name(module).starts_with(start)) return true;
  }
  return false;
}

bool is_runtime(std::string_view module) {
  for (const std::string_view start : {"libfragscope", "libcudart", "libcuda.so"}) {
    if (base_name(module).starts_with(start)) return true;
  }
  return false;
}

bool is_workspace(const Frame& frame) {
  return has(frame.function, "orkspace") || has(frame.function, "getCurrentCUDABlasHandle");
}

bool is_engine(const Frame& frame) {
  return has(frame.function, "torch::autograd::Engine::") ||
         has(frame.function, "torch::autograd::python::PythonEngine::");
}

bool copies(const Frame& frame) {
  return has(frame.function, "_to_copy") || has(frame.function, "at::native::to(") ||
         has(frame.function, "::copy_(");
}

struct Found {
  bool workspace = false;
  bool optimizer = false;
  bool backward = false;
  bool apply = false;
  bool init = false;
  bool forward = false;
};

void look_at_python(const Frame& frame, Found& found) {
  found.optimizer |= is_optimizer(frame);
  found.backward |= has(frame.file, "/torch/autograd/__init__.py");
  found.apply |= method_of(frame.function) == "_apply" && has(frame.file, "/nn/modules/");
  found.init |= is_init(frame);
  found.forward |= is_forward(frame);
}

void take_module(const Frame& frame, StackRole& role) {
  if (method_of(frame.function) != "forward") return;
  std::string_view name = class_of(frame.function);
  if (name.empty()) {  // snapshots name no classes
    name = base_name(frame.file);
    if (name.ends_with(".py")) name.remove_suffix(3);
  }
  if (name.empty()) return;
  if (role.module.empty()) {
    role.file = frame.file;
    role.line = frame.line;
    role.module = name;
  } else {
    role.module = std::string(name) + "/" + role.module;  // frames come innermost first
  }
}

}  // namespace

StackRole role_of(const std::vector<Frame>& frames) {
  StackRole role;
  Found found;
  bool seen_own = false;
  for (const Frame& frame : frames) {
    if (frame.python) {
      look_at_python(frame, found);
      take_module(frame, role);
      continue;
    }
    found.workspace |= is_workspace(frame) || (!seen_own && is_vendor_library(frame.module));
    found.backward |= is_engine(frame);
    role.copies |= copies(frame);
    seen_own |= !symbolize::is_framework(frame);
  }
  role.told = !frames.empty();
  role.in_backward = found.backward;
  if (found.workspace) {
    role.act = Act::workspace;
  } else if (found.optimizer) {
    role.act = Act::optimizer;
  } else if (found.backward) {
    role.act = Act::backward;
  } else if (found.apply) {
    role.act = Act::apply;
  } else if (found.init && !found.forward) {
    role.act = Act::init;
  } else if (found.forward) {
    role.act = Act::forward;
  }
  return role;
}

std::string library_of(const std::vector<Frame>& frames) {
  bool any = false;
  for (const Frame& frame : frames) {
    if (frame.python || frame.module.empty()) continue;
    any = true;
    if (is_runtime(frame.module)) continue;
    const std::string_view name = base_name(frame.module);
    const bool torch = name.starts_with("libtorch") || name.starts_with("libc10");
    if (!torch && !is_vendor_library(frame.module)) return "the program";
    return std::string(name.substr(0, name.find_first_of(".-")));
  }
  return any ? "CUDA" : "the program";
}

const StackRole& StackRoles::of(uint32_t stack, uint64_t seq) {
  const auto at = known_.find(stack);
  if (at != known_.end()) return at->second;
  StackRole role;
  if (symbols_ && stack != kNoStack) role = role_of(symbols_->resolve_stack(stack, seq));
  return known_.emplace(stack, std::move(role)).first->second;
}

std::string StackRoles::library(uint32_t stack, uint64_t seq) {
  if (!symbols_ || stack == kNoStack) return "unknown";
  return library_of(symbols_->resolve_stack(stack, seq));
}

}  // namespace fragscope::diagnose
