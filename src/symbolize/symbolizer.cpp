#include "symbolize/symbolizer.h"

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <unordered_map>

#include "event/frame.h"
#include "symbolize/elf_file.h"

namespace fragscope::symbolize {
namespace {

std::string base_name(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// "/usr/lib/python3/site-packages/torch/nn/modules/linear.py" -> "torch/nn/modules/linear.py",
// "/data/run/train.py" -> "train.py".
std::string short_path(const std::string& path) {
  for (const char* const marker : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = path.rfind(marker);
    if (at != std::string::npos) return path.substr(at + 15);
  }
  return base_name(path);
}

// Snapshots hold native frames by name as well: "", "??", "/src/c10/Exception.cpp".
bool is_native_source(const std::string& file, const std::string& function) {
  if (file.empty()) return !function.empty() && function[0] != '<';  // "<module>" of text
  if (file == "??") return true;
  for (const char* const end : {".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".cu", ".cuh", ".S"}) {
    if (file.ends_with(end)) return true;
  }
  return file.find(".so") != std::string::npos && !file.ends_with(".py");
}

std::string hex_text(uint64_t value) {
  std::string text;
  for (uint64_t rest = value; rest != 0 || text.empty(); rest >>= 4) {
    text.insert(text.begin(), "0123456789abcdef"[rest & 15]);
  }
  return "0x" + text;
}

// "at::empty(c10::ArrayRef<long>) const" -> "at::empty": without the parameters, which make lines
// of hundreds of characters. "(anonymous namespace)" and "operator()" stay.
std::string without_parameters(const std::string& function) {
  int depth = 0;  // inside < >
  for (size_t i = 0; i < function.size(); ++i) {
    if (function[i] == '<') ++depth;
    if (function[i] == '>' && (i == 0 || function[i - 1] != '-')) --depth;
    if (function[i] != '(' || depth > 0) continue;
    if (function.compare(i, 11, "(anonymous ") == 0) continue;
    if (i >= 8 && function.compare(i - 8, 10, "operator()") == 0) {
      ++i;
      continue;
    }
    return function.substr(0, i);
  }
  return function;
}

std::string demangled(const std::string& name) {
  if (name.compare(0, 2, "_Z") != 0) return name;
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return result;
}

}  // namespace

struct Symbolizer::State {
  State(const trace::TraceTables& trace_tables, Places file_places)
      : tables(trace_tables), places(std::move(file_places)) {}

  const trace::Module* module_at(uint64_t address, uint64_t seq) const;
  ElfFile& file_of(const trace::Module& module);
  void resolve(uint64_t frame, uint64_t seq, std::vector<Frame>& out);
  Frame python_frame(uint32_t id) const;
  std::vector<Frame> native_frames(uint64_t return_address, const trace::Module& module);

  const trace::TraceTables& tables;
  Places places;
  std::map<std::string, ElfFile> files;  // by path and build-id
  struct Known {
    size_t module = SIZE_MAX;  // index: the list may grow and move
    std::vector<Frame> frames;
  };
  std::unordered_map<uint64_t, Known> known;  // by return address
  std::vector<std::string> warnings;
};

// The newest entry that covers the address and was there at `seq`; else the first later one (the
// module list may be read a little after the stack).
const trace::Module* Symbolizer::State::module_at(uint64_t address, uint64_t seq) const {
  const trace::Module* best = nullptr;
  const trace::Module* later = nullptr;
  for (const trace::Module& module : tables.modules) {
    if (address < module.start || address >= module.end) continue;
    if (module.first_seq <= seq) {
      if (!best || module.first_seq >= best->first_seq) best = &module;
    } else if (!later || module.first_seq < later->first_seq) {
      later = &module;
    }
  }
  return best ? best : later;
}

ElfFile& Symbolizer::State::file_of(const trace::Module& module) {
  const std::string key = module.path + '\n' + module.build_id;
  const auto known_file = files.find(key);
  if (known_file != files.end()) return known_file->second;
  ElfFile& file = files.emplace(key, ElfFile(places.sysroot + module.path, places)).first->second;
  if (!file.problem().empty()) {
    warnings.push_back(module.path + ": " + file.problem() + "; its frames have no names");
  } else if (!module.build_id.empty() && module.build_id != file.build_id()) {
    warnings.push_back(module.path +
                       ": is another build than the recorded one; its frames have no names");
    file.set_nameless();
  }
  return file;
}

Frame Symbolizer::State::python_frame(uint32_t id) const {
  Frame frame;
  frame.python = true;
  const auto at = tables.python_frames.find(id);
  if (at == tables.python_frames.end()) return frame;
  frame.python = !is_native_source(at->second.file, at->second.function);
  frame.function = at->second.function;
  frame.file = at->second.file;
  frame.line = at->second.line > 0 ? at->second.line : at->second.first_line;
  return frame;
}

std::vector<Frame> Symbolizer::State::native_frames(uint64_t return_address,
                                                    const trace::Module& module) {
  Frame frame;
  frame.address = return_address;
  frame.module = module.path;
  const uint64_t file_offset = return_address - 1 - module.start + module.file_offset;
  frame.offset = file_offset + 1;
  if (module.path.empty() || module.path[0] != '/') return {frame};  // [vdso]
  ElfFile& file = file_of(module);
  const auto virtual_address = file.address_of(file_offset);
  if (!virtual_address) return {frame};
  frame.offset = *virtual_address + 1;
  std::vector<Frame> frames;
  for (const ElfFile::Place& place : file.places_of(*virtual_address)) {
    frame.function = demangled(place.function);
    frame.file = place.file;
    frame.line = place.line;
    frame.inlined = true;
    frames.push_back(frame);
  }
  if (frames.empty()) frames.push_back(frame);
  frames.back().inlined = false;
  return frames;
}

void Symbolizer::State::resolve(uint64_t frame, uint64_t seq, std::vector<Frame>& out) {
  if (is_python_frame(frame)) {
    out.push_back(python_frame(python_frame_id(frame)));
    return;
  }
  const trace::Module* module = frame != 0 ? module_at(frame - 1, seq) : nullptr;
  if (!module) {
    Frame unknown;
    unknown.address = frame;
    out.push_back(unknown);
    return;
  }
  Known& entry = known[frame];
  const auto index = static_cast<size_t>(module - tables.modules.data());
  if (entry.module != index) entry = {index, native_frames(frame, *module)};
  out.insert(out.end(), entry.frames.begin(), entry.frames.end());
}

Symbolizer::Symbolizer(const trace::TraceTables& tables, Places places)
    : state_(std::make_unique<State>(tables, std::move(places))) {}
Symbolizer::Symbolizer(Symbolizer&&) noexcept = default;
Symbolizer& Symbolizer::operator=(Symbolizer&&) noexcept = default;
Symbolizer::~Symbolizer() = default;

std::vector<Frame> Symbolizer::resolve(std::span<const uint64_t> frames, uint64_t seq) {
  std::vector<Frame> result;
  result.reserve(frames.size());
  for (const uint64_t frame : frames) state_->resolve(frame, seq, result);
  return result;
}

std::vector<Frame> Symbolizer::resolve_stack(uint32_t stack, uint64_t seq) {
  if (stack == kNoStack) return {};
  const auto at = state_->tables.stacks.find(stack);
  if (at == state_->tables.stacks.end()) return {};
  return resolve(at->second, seq);
}

const std::vector<std::string>& Symbolizer::warnings() const { return state_->warnings; }

std::string_view framework_of_function(const std::string& function) {
  // "at::TensorBase at::detail::_empty<long>": what is returned stands in front of a template.
  std::string name = without_parameters(function);
  int depth = 0;
  for (size_t at = name.size(); at > 0; --at) {
    const char c = name[at - 1];
    depth += c == '>' || c == ')' ? 1 : c == '<' || c == '(' ? -1 : 0;
    if (c != ' ' || depth != 0) continue;
    name.erase(0, at);
    break;
  }
  struct Prefix {
    const char* start;
    const char* framework;
  };
  static constexpr Prefix kPrefixes[] = {
      {"at::", "PyTorch"},
      {"c10::", "PyTorch"},
      {"torch::", "PyTorch"},
      {"THP", "PyTorch"},
      {"dynamo_", "PyTorch"},
      {"Py", "the interpreter"},
      {"_Py", "the interpreter"},
      {"pyrun_", "the interpreter"},
      {"pymain_", "the interpreter"},
      {"run_eval_code", "the interpreter"},
      {"run_mod", "the interpreter"},
      {"slot_tp_", "the interpreter"},
      {"cfunction_", "the interpreter"},
      {"method_vectorcall", "the interpreter"},
      {"object_vacall", "the interpreter"},
      {"type_call", "the interpreter"},
      {"std::", "the C library"},
      {"__libc_", "the C library"},
      {"_start", "the C library"},
      {"__clone", "the C library"},
      {"clone", "the C library"},
      {"start_thread", "the C library"},
      {"pthread_", "the C library"},
      {"execute_native_thread_routine", "the C library"},
  };
  for (const Prefix& prefix : kPrefixes) {
    if (name.starts_with(prefix.start)) return prefix.framework;
  }
  return {};
}

bool is_framework(const Frame& frame) {
  if (frame.python) {
    const std::string& file = frame.file;
    if (file.starts_with("<frozen ")) return true;
    for (const char* const part : {"/site-packages/", "/dist-packages/", "/lib/python3."}) {
      if (file.find(part) != std::string::npos) return true;
    }
    return false;
  }
  if (frame.module.empty()) return !framework_of_function(frame.function).empty();
  const std::string name = base_name(frame.module);
  for (const char* const start :
       {"libfragscope", "libcudart", "libcuda.so", "libc10", "libtorch", "libpython", "python",
        "libc.so", "libc-", "libm.so", "libpthread", "libstdc++", "libgcc_s", "ld-linux", "libffi",
        "_ctypes", "[vdso]"}) {
    if (name.starts_with(start)) return true;
  }
  return frame.module.find("/site-packages/") != std::string::npos;
}

std::string frame_text(const Frame& frame) {
  if (frame.python) {
    if (frame.function.empty() && frame.file.empty()) return "<unknown Python frame>";
    return frame.function + " (" + short_path(frame.file) + ":" + std::to_string(frame.line) + ")";
  }
  if (frame.module.empty() && frame.function.empty()) return hex_text(frame.address);
  if (frame.module.empty()) {  // known by name
    const std::string function = without_parameters(frame.function);
    if (frame.file.empty() || frame.file == "??") return function;
    return function + " (" + base_name(frame.file) + ":" + std::to_string(frame.line) + ")";
  }
  if (frame.function.empty()) return base_name(frame.module) + "+" + hex_text(frame.offset);
  const std::string function = without_parameters(frame.function);
  if (frame.file.empty()) return function + " [" + base_name(frame.module) + "]";
  return function + " (" + base_name(frame.file) + ":" + std::to_string(frame.line) + ")";
}

}  // namespace fragscope::symbolize
