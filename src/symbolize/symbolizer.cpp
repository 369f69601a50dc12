#include "symbolize/symbolizer.h"

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <unordered_map>

#include "symbolize/elf_file.h"

namespace fragscope::symbolize {
namespace {

std::string base_name(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
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
  explicit State(const trace::TraceTables& trace_tables) : tables(trace_tables) {}

  const trace::Module* module_at(uint64_t address, uint64_t seq) const;
  ElfFile& file_of(const trace::Module& module);
  Frame resolve(uint64_t return_address, uint64_t seq);

  const trace::TraceTables& tables;
  std::map<std::string, ElfFile> files;  // by path and build-id
  std::unordered_map<uint64_t, std::pair<const trace::Module*, Frame>> known;
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
  ElfFile& file = files.emplace(key, ElfFile(module.path)).first->second;
  if (!file.problem().empty()) {
    warnings.push_back(module.path + ": " + file.problem() + "; its frames have no names");
  } else if (!module.build_id.empty() && module.build_id != file.build_id()) {
    warnings.push_back(module.path +
                       ": is another build than the recorded one; its frames have no names");
    file.set_nameless();
  }
  return file;
}

Frame Symbolizer::State::resolve(uint64_t return_address, uint64_t seq) {
  Frame frame;
  frame.address = return_address;
  if (return_address == 0) return frame;
  const uint64_t address = return_address - 1;
  const trace::Module* module = module_at(address, seq);
  if (!module) return frame;
  if (const auto at = known.find(return_address); at != known.end() && at->second.first == module) {
    return at->second.second;
  }
  frame.module = module->path;
  const uint64_t file_offset = address - module->start + module->file_offset;
  frame.offset = file_offset + 1;
  if (module->path.empty() || module->path[0] != '/') return frame;  // [vdso], deleted, anonymous
  ElfFile& file = file_of(*module);
  if (const auto virtual_address = file.address_of(file_offset)) {
    frame.offset = *virtual_address + 1;
    const ElfFile::Place place = file.place_of(*virtual_address);
    frame.function = demangled(place.function);
    frame.file = place.file;
    frame.line = place.line;
  }
  known[return_address] = {module, frame};
  return frame;
}

Symbolizer::Symbolizer(const trace::TraceTables& tables)
    : state_(std::make_unique<State>(tables)) {}
Symbolizer::Symbolizer(Symbolizer&&) noexcept = default;
Symbolizer& Symbolizer::operator=(Symbolizer&&) noexcept = default;
Symbolizer::~Symbolizer() = default;

std::vector<Frame> Symbolizer::resolve(std::span<const uint64_t> frames, uint64_t seq) {
  std::vector<Frame> result;
  result.reserve(frames.size());
  for (const uint64_t address : frames) result.push_back(state_->resolve(address, seq));
  return result;
}

std::vector<Frame> Symbolizer::resolve_stack(uint32_t stack, uint64_t seq) {
  if (stack == kNoStack) return {};
  const auto at = state_->tables.stacks.find(stack);
  if (at == state_->tables.stacks.end()) return {};
  return resolve(at->second, seq);
}

const std::vector<std::string>& Symbolizer::warnings() const { return state_->warnings; }

std::string frame_text(const Frame& frame) {
  if (frame.module.empty()) return hex_text(frame.address);
  if (frame.function.empty()) return base_name(frame.module) + "+" + hex_text(frame.offset);
  const std::string function = without_parameters(frame.function);
  if (frame.file.empty()) return function + " [" + base_name(frame.module) + "]";
  return function + " (" + base_name(frame.file) + ":" + std::to_string(frame.line) + ")";
}

}  // namespace fragscope::symbolize
