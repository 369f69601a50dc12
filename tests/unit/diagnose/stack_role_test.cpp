// The rules of stack_role.h, one by one, on frames as PyTorch leaves them.
#include "diagnose/stack_role.h"

#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::diagnose;
using symbolize::Frame;

namespace {

constexpr const char* kSite = "/venv/lib/python3.11/site-packages/";

Frame python(const std::string& function, const std::string& file, int line = 1) {
  Frame frame;
  frame.python = true;
  frame.function = function;
  frame.file = file;
  frame.line = line;
  return frame;
}

Frame native(const std::string& function, const std::string& module) {
  Frame frame;
  frame.address = 1;
  frame.function = function;
  frame.module = module;
  return frame;
}

std::string torch_file(const char* name) { return std::string(kSite) + "torch/" + name; }

const Frame kCall = python("Module._call_impl", torch_file("nn/modules/module.py"));
const Frame kEmpty = native("at::empty_cuda(long)", "/x/libtorch_cuda.so");
const Frame kEngine = native("torch::autograd::Engine::thread_main(x)", "/x/libtorch_cpu.so");

}  // namespace

TEST_CASE("stack role: forward frames name the chain of classes and the innermost line") {
  const StackRole role = role_of({python("Linear.forward", torch_file("nn/modules/linear.py"), 125),
                                  kCall, python("main.<locals>.Net.forward", "/src/app/net.py", 7),
                                  kCall, python("<module>", "/src/app/net.py", 30), kEmpty});
  CHECK(role.act == Act::forward);
  CHECK(role.module == "Net/Linear");
  CHECK(role.line == 125);
  CHECK_FALSE(role.in_backward);
}

TEST_CASE("stack role: the autograd engine is backward, also with a recomputed forward in it") {
  CHECK(role_of({kEmpty, kEngine}).act == Act::backward);
  const StackRole again =
      role_of({python("Block.forward", "/src/app/net.py", 9), kCall, kEmpty, kEngine});
  CHECK(again.act == Act::backward);
  CHECK(again.module == "Block");
}

TEST_CASE("stack role: optimizers are known by their files, others by their names") {
  CHECK(role_of({python("_init_group", torch_file("optim/adam.py"))}).act == Act::optimizer);
  CHECK(role_of({python("MyLion.step", "/src/app/lion.py")}).act == Act::optimizer);
  CHECK(role_of({python("Trainer.step", "/src/app/train.py")}).act == Act::plain);
}

TEST_CASE("stack role: building and moving modules") {
  CHECK(role_of({python("Module._apply", torch_file("nn/modules/module.py")),
                 python("<module>", "/src/app/net.py")})
            .act == Act::apply);
  CHECK(role_of({python("Linear.__init__", torch_file("nn/modules/linear.py")),
                 python("Net.__init__", "/src/app/net.py")})
            .act == Act::init);
  // A helper object that a forward builds is no parameter.
  CHECK(role_of({python("Cache.__init__", "/src/app/net.py"),
                 python("Net.forward", "/src/app/n.py"), kCall})
            .act == Act::forward);
}

TEST_CASE("stack role: workspaces win over the phase they are made in") {
  const StackRole role = role_of(
      {kEmpty, native("at::cuda::getCurrentCUDABlasHandle()", "/x/libtorch_cuda.so"), kEngine});
  CHECK(role.act == Act::workspace);
  CHECK(role.in_backward);
}

TEST_CASE("stack role: a stack without frames says nothing") {
  CHECK(role_of({}).act == Act::plain);
  StackRoles roles(nullptr);
  CHECK(roles.of(5, 1).act == Act::plain);
  CHECK(roles.library(5, 1) == "unknown");
}

TEST_CASE("stack role: the library that asked CUDA") {
  const Frame shim = native("cudaMalloc", "/x/libfragscope.so");
  CHECK(library_of({shim, native("", "/x/libcublas.so.12")}) == "libcublas");
  CHECK(library_of({shim, native("f", "/src/app/app")}) == "the program");
  CHECK(library_of({shim, native("g", "/x/libtorch_cuda.so")}) == "libtorch_cuda");
  CHECK(library_of({shim}) == "CUDA");
}
