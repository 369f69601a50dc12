// Call stacks of a training loop -> who asked: which phase of a step, which module, for what.
//
// A stack is read by names of frames alone; the first rule that fits decides the act:
//   workspace    a native function with "orkspace" or getCurrentCUDABlasHandle in its name, or the
//                innermost frame that is not the recorder's or PyTorch's lies in cuBLAS, cuDNN, …
//   optimizer    a Python frame of a file below torch/optim/, or `…step` of a class whose name says
//                optimizer (Adam, SGD, Lion, …Optim…)
//   backward     a native frame of torch::autograd::Engine, or a Python frame of
//                torch/autograd/__init__.py
//   apply        Module._apply: model.to(), .cuda(), .half()
//   init         a Python frame `__init__` or `reset_parameters` of a class, or from_pretrained,
//                load_state_dict
//   forward      a Python frame of Module._call_impl, or a function named `forward`
//   plain        none of these
// The module is told by the Python frames named `CLASS.forward`, outermost first: instances of a
// class are not told apart. The line is that of the innermost of them. (Frames of snapshots name no
// class: then the file's name stands for it.)
//
// Threads: one at a time. Ownership: borrows the symbolizer. Errors: none; a stack without frames
// is `plain`.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "symbolize/symbolizer.h"

namespace fragscope::diagnose {

enum class Act : uint8_t { plain, forward, backward, optimizer, apply, init, workspace };

struct StackRole {
  Act act = Act::plain;
  bool told = false;         // there are frames
  bool in_backward = false;  // … whatever the act: a workspace of the backward pass is one
  bool copies = false;       // Tensor.to and its kin: native _to_copy, copy_
  std::string module;        // "GPT/Block/Linear"; empty: none
  std::string file;          // of the innermost forward
  int line = 0;
};

// Of frames as the symbolizer gives them: Python first, both innermost first.
StackRole role_of(const std::vector<symbolize::Frame>& frames);

// The library that a native stack came from: "libcublas", "libnccl", …, "libtorch_cuda" for
// PyTorch's own calls beside its allocator; "CUDA" when there is nothing but the runtime, "the
// program" otherwise.
std::string library_of(const std::vector<symbolize::Frame>& frames);

// Remembers the roles of stacks.
class StackRoles {
 public:
  // nullptr: every stack is `plain`.
  explicit StackRoles(symbolize::Symbolizer* symbols) : symbols_(symbols) {}
  const StackRole& of(uint32_t stack, uint64_t seq);
  std::string library(uint32_t stack, uint64_t seq);

 private:
  symbolize::Symbolizer* symbols_;
  std::unordered_map<uint32_t, StackRole> known_;
};

}  // namespace fragscope::diagnose
