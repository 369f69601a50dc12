// Symbols of this very test program, mapped as a recorded process would have mapped it.
#include "symbolize/symbolizer.h"

#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "event/frame.h"
#include "symbolize/elf_file.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::symbolize;

namespace symbolizer_test {

// Returns the address behind its own call: a return address inside caller().
__attribute__((noinline)) uint64_t here() {
  return reinterpret_cast<uint64_t>(__builtin_return_address(0));
}
constexpr int kCallLine = __LINE__ + 2;
__attribute__((noinline)) uint64_t caller() {
  const uint64_t address = here();  // kCallLine
  asm volatile("" ::: "memory");    // no tail call
  return address;
}

// The call is inlined into outer(): one address, two functions.
constexpr int kInlineLine = __LINE__ + 2;
__attribute__((always_inline)) inline uint64_t inlined() {
  return here();  // kInlineLine
}
constexpr int kOuterLine = __LINE__ + 2;
__attribute__((noinline)) uint64_t outer() {
  const uint64_t address = inlined();  // kOuterLine
  asm volatile("" ::: "memory");
  return address;
}

}  // namespace symbolizer_test

namespace {

std::string own_path() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  REQUIRE(length > 0);
  return std::string(path, static_cast<size_t>(length));
}

// The executable segment of this program.
trace::Module own_module() {
  trace::Module module;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        auto& found = *static_cast<trace::Module*>(out);
        for (int i = 0; i < info->dlpi_phnum && found.end == 0; ++i) {
          const auto& header = info->dlpi_phdr[i];
          if (header.p_type != PT_LOAD || !(header.p_flags & PF_X)) continue;
          found.start = info->dlpi_addr + header.p_vaddr;
          found.end = found.start + header.p_memsz;
          found.file_offset = header.p_offset;
        }
        return 1;  // the first object is the program
      },
      &module);
  module.path = own_path();
  module.build_id = ElfFile(module.path).build_id();
  module.first_seq = 1;
  return module;
}

}  // namespace

TEST_CASE("a return address is named after the call before it, with its line") {
  trace::TraceTables tables;
  tables.modules = {own_module()};
  const uint64_t address = symbolizer_test::caller();
  tables.stacks[4] = {address};
  Symbolizer symbolizer(tables);
  const std::vector<Frame> frames = symbolizer.resolve_stack(4, 10);
  REQUIRE(frames.size() == 1);
  CHECK(frames[0].address == address);
  CHECK(frames[0].module == own_path());
  CHECK(frames[0].function == "symbolizer_test::caller()");
  CHECK(frames[0].file.find("symbolizer_test.cpp") != std::string::npos);
  CHECK(frames[0].line == symbolizer_test::kCallLine);
  CHECK(frame_text(frames[0]) == "symbolizer_test::caller (symbolizer_test.cpp:" +
                                     std::to_string(symbolizer_test::kCallLine) + ")");
  CHECK(symbolizer.warnings().empty());
  CHECK(symbolizer.resolve_stack(kNoStack, 10).empty());
  CHECK(symbolizer.resolve_stack(5, 10).empty());
}

TEST_CASE("a frame is one line without the function's parameters") {
  const auto text = [](const std::string& function) {
    Frame frame;
    frame.module = "/usr/lib/libx.so";
    frame.function = function;
    return frame_text(frame);
  };
  CHECK(text("at::empty(c10::ArrayRef<long>, int) const") == "at::empty [libx.so]");
  CHECK(text("a::(anonymous namespace)::f(int)") == "a::(anonymous namespace)::f [libx.so]");
  CHECK(text("a::operator()(int) const") == "a::operator() [libx.so]");
  CHECK(text("f<void (int)>(int)") == "f<void (int)> [libx.so]");
  CHECK(text("main") == "main [libx.so]");
  CHECK(text("odd)>(") == "odd)> [libx.so]");
}

TEST_CASE("a return address that is the first one of the next function belongs to the last") {
  trace::TraceTables tables;
  tables.modules = {own_module()};
  Symbolizer symbolizer(tables);
  const uint64_t start = reinterpret_cast<uint64_t>(&symbolizer_test::caller);
  const auto frames = symbolizer.resolve(std::vector<uint64_t>{start, start + 1}, 1);
  CHECK(frames[0].function != "symbolizer_test::caller()");
  CHECK(frames[1].function == "symbolizer_test::caller()");
}

TEST_CASE("a file that is another build than the recorded one gives no names") {
  trace::TraceTables tables;
  tables.modules = {own_module()};
  tables.modules[0].build_id = "00112233";
  Symbolizer symbolizer(tables);
  const auto frames = symbolizer.resolve(std::vector<uint64_t>{symbolizer_test::caller()}, 1);
  CHECK(frames[0].function.empty());
  CHECK(frames[0].offset != 0);
  const std::string text = frame_text(frames[0]);
  CHECK(text.find("test_symbolize+0x") == 0);
  REQUIRE(symbolizer.warnings().size() == 1);
  CHECK(symbolizer.warnings()[0].find("another build") != std::string::npos);
}

TEST_CASE("files that are gone or no ELF files are told once") {
  const std::string junk = "symbolizer_test_junk";
  std::ofstream(junk) << "no ELF file";
  char directory[4096];
  REQUIRE(getcwd(directory, sizeof directory));
  trace::TraceTables tables;
  tables.modules = {own_module(), own_module()};
  tables.modules[0] = {0x1000, 0x2000, 0, 1, "/nowhere/libgone.so", ""};
  tables.modules[1] = {0x2000, 0x3000, 0x400, 1, std::string(directory) + "/" + junk, ""};
  Symbolizer symbolizer(tables);
  const auto frames = symbolizer.resolve(std::vector<uint64_t>{0x1101, 0x1201, 0x2001, 0x9999}, 1);
  CHECK(frame_text(frames[0]) == "libgone.so+0x101");
  CHECK(frame_text(frames[1]) == "libgone.so+0x201");
  CHECK(frame_text(frames[2]) == "symbolizer_test_junk+0x401");
  CHECK(frame_text(frames[3]) == "0x9999");
  REQUIRE(symbolizer.warnings().size() == 2);
  CHECK(symbolizer.warnings()[0].find("/nowhere/libgone.so: ") == 0);
  CHECK(symbolizer.warnings()[1].find("is no ELF file") != std::string::npos);
  std::remove(junk.c_str());
}

TEST_CASE("an address is looked up in the module that was there at the time") {
  trace::TraceTables tables;
  tables.modules.push_back({0x1000, 0x3000, 0, 1, "/nowhere/first.so", ""});
  tables.modules.push_back({0x2000, 0x4000, 0, 50, "/nowhere/second.so", ""});
  Symbolizer symbolizer(tables);
  const std::vector<uint64_t> address = {0x2801};
  CHECK(frame_text(symbolizer.resolve(address, 49)[0]) == "first.so+0x1801");
  CHECK(frame_text(symbolizer.resolve(address, 50)[0]) == "second.so+0x801");
  CHECK(frame_text(symbolizer.resolve(address, 49)[0]) == "first.so+0x1801");
  const std::vector<uint64_t> only_later = {0x3801};
  CHECK(frame_text(symbolizer.resolve(only_later, 2)[0]) == "second.so+0x1801");
}

TEST_CASE("inlined functions are frames of their own, innermost first") {
  trace::TraceTables tables;
  tables.modules = {own_module()};
  tables.stacks[1] = {symbolizer_test::outer()};
  Symbolizer symbolizer(tables);
  const std::vector<Frame> frames = symbolizer.resolve_stack(1, 10);
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].function == "symbolizer_test::inlined()");
  CHECK(frames[0].line == symbolizer_test::kInlineLine);
  CHECK(frames[0].inlined);
  CHECK(frames[1].function == "symbolizer_test::outer()");
  CHECK(frames[1].line == symbolizer_test::kOuterLine);
  CHECK_FALSE(frames[1].inlined);
  CHECK(frames[0].address == frames[1].address);
}

TEST_CASE("Python frames are named by the trace") {
  trace::TraceTables tables;
  tables.python_frames[7] = {"Net.forward", "/opt/lib/site-packages/torch/nn/linear.py", 41, 30};
  tables.python_frames[8] = {"main", "/data/run/train.py", 0, 12};
  tables.stacks[1] = {kPythonFrame | 7, kPythonFrame | 8, kPythonFrame | 9};
  Symbolizer symbolizer(tables);
  const std::vector<Frame> frames = symbolizer.resolve_stack(1, 10);
  REQUIRE(frames.size() == 3);
  CHECK(frame_text(frames[0]) == "Net.forward (torch/nn/linear.py:41)");
  CHECK(frame_text(frames[1]) == "main (train.py:12)");  // unknown line: the function's first
  CHECK(frame_text(frames[2]) == "<unknown Python frame>");
  CHECK(is_framework(frames[0]));
  CHECK_FALSE(is_framework(frames[1]));
}

TEST_CASE(
    "native frames that a snapshot knows by name are told from Python's, and whose they are") {
  trace::TraceTables tables;
  tables.python_frames[1] = {"at::TensorBase at::detail::_empty_generic<long>(c10::Allocator*)", "",
                             0, 0};
  tables.python_frames[2] = {"forward", "/data/net.py", 3, 1};
  tables.python_frames[3] = {"_PyEval_EvalFrameDefault", "??", 0, 0};
  tables.python_frames[4] = {"at::Tensor my::op(at::Tensor)", "/data/op.cu", 9, 0};
  tables.python_frames[5] = {"<module>", "", 1, 1};
  for (uint64_t id = 1; id <= 5; ++id) tables.stacks[1].push_back(kPythonFrame | id);
  Symbolizer symbolizer(tables);
  const std::vector<Frame> frames = symbolizer.resolve_stack(1, 1);
  REQUIRE(frames.size() == 5);
  const std::vector<bool> python = {false, true, false, false, true};
  const std::vector<bool> framework = {true, false, true, false, false};
  for (size_t i = 0; i < frames.size(); ++i) {
    INFO(i);
    CHECK(frames[i].python == python[i]);
    CHECK(is_framework(frames[i]) == framework[i]);
  }
  CHECK(framework_of_function(frames[0].function) == "PyTorch");
  CHECK(framework_of_function(frames[2].function) == "the interpreter");
  CHECK(framework_of_function("__libc_start_main") == "the C library");
  CHECK(framework_of_function("c10::(anonymous namespace)::f(int)") == "PyTorch");
}

TEST_CASE("one address means what was mapped there at the time") {
  trace::TraceTables tables;
  trace::Module first{0x1000, 0x2000, 0, 1, "/lib/first.so", ""};
  trace::Module second{0x1000, 0x2000, 0, 10, "/lib/second.so", ""};
  trace::Module again = first;
  again.first_seq = 20;
  tables.modules = {first, second, again};
  tables.stacks[1] = {0x1100};
  Symbolizer symbolizer(tables);
  CHECK(symbolizer.resolve_stack(1, 5).at(0).module == "/lib/first.so");
  CHECK(symbolizer.resolve_stack(1, 15).at(0).module == "/lib/second.so");
  CHECK(symbolizer.resolve_stack(1, 25).at(0).module == "/lib/first.so");
}

TEST_CASE("files of the recorded machine below a sysroot, debug files in other places") {
  const std::string root = "/proc/" + std::to_string(getpid()) + "/root";
  trace::TraceTables tables;
  tables.modules = {own_module()};
  tables.stacks[1] = {symbolizer_test::caller()};
  Symbolizer there(tables, {root, {"/usr/lib/debug"}, false});
  CHECK(there.resolve_stack(1, 10).at(0).function == "symbolizer_test::caller()");
  Symbolizer nowhere(tables, {"/proc/self/task", {}, false});
  CHECK(nowhere.resolve_stack(1, 10).at(0).function.empty());
  REQUIRE(nowhere.warnings().size() == 1);
}
