#include "tools/python_torch.h"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tools/subprocess.h"

namespace fragscope::tools {
namespace fs = std::filesystem;
namespace {

// Prints what is needed and imports nothing of torch; an interpreter without torch prints nothing.
constexpr const char* kProbe = R"(
import importlib.util, os, re, sys
spec = importlib.util.find_spec("torch")
if spec is not None and spec.origin:
    root = os.path.dirname(spec.origin)
    print("directory=" + root)
    with open(os.path.join(root, "version.py")) as file:
        text = file.read()
    for name in ("__version__", "cuda"):
        match = re.search(r"^" + name + r"\b[^=\n]*=\s*'([^']*)'", text, re.M)
        print(name + "=" + (match.group(1) if match else ""))
)";

constexpr uint64_t kMaxNoteBytes = 1 << 20;

std::map<std::string, std::string> parse_lines(const std::string& text) {
  std::map<std::string, std::string> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) values[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return values;
}

// The wheels that torch needs lie beside it: nvidia/cu13 (CUDA 13), nvidia/cuda_runtime (CUDA 12);
// triton brings crt/host_defines.h, which the CUDA 12 wheels leave out.
std::vector<std::string> wheel_headers(const std::string& torch_directory) {
  std::vector<std::string> found;
  const fs::path site = fs::path(torch_directory).parent_path();
  for (const char* part :
       {"nvidia/cu13", "nvidia/cuda_runtime", "nvidia/cuda_nvcc", "triton/backends/nvidia"}) {
    const fs::path include = site / part / "include";
    std::error_code ignored;
    if (fs::is_directory(include, ignored)) found.push_back(include);
  }
  return found;
}

std::string hex(const unsigned char* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

constexpr size_t align4(size_t value) { return (value + 3) & ~size_t{3}; }

// The descriptor of NT_GNU_BUILD_ID in the bytes of a note segment.
std::string build_id_in(const std::string& notes) {
  size_t at = 0;
  while (notes.size() - at >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note{};
    std::memcpy(&note, notes.data() + at, sizeof note);
    const size_t name = at + sizeof note;
    const size_t value = name + align4(note.n_namesz);
    if (value > notes.size() || notes.size() - value < note.n_descsz) return {};
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(notes.data() + name, "GNU", 4) == 0) {
      return hex(reinterpret_cast<const unsigned char*>(notes.data()) + value, note.n_descsz);
    }
    at = value + align4(note.n_descsz);
    if (at > notes.size()) return {};
  }
  return {};
}

bool read_at(std::ifstream& file, uint64_t offset, void* out, size_t bytes) {
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(static_cast<char*>(out), static_cast<std::streamsize>(bytes));
  return file.good();
}

}  // namespace

Result<std::string> read_build_id(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::kNotFound, fmt::format("{}: cannot be read", path)};
  Elf64_Ehdr header{};
  if (!read_at(file, 0, &header, sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
    return Error{ErrorCode::kForeign, fmt::format("{}: not a 64-bit ELF file", path)};
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!read_at(file, header.e_phoff + i * sizeof segment, &segment, sizeof segment)) break;
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNoteBytes) continue;
    std::string notes(segment.p_filesz, '\0');
    if (!read_at(file, segment.p_offset, notes.data(), notes.size())) break;
    const std::string id = build_id_in(notes);
    if (!id.empty()) return id;
  }
  return Error{ErrorCode::kNotFound, fmt::format("{}: has no build-id", path)};
}

Result<std::optional<TorchInstall>> find_torch(const std::string& python) {
  const auto answer = run_helper({python, "-c", kProbe}, helper_environment());
  if (!answer.ok()) return answer.error();
  if (answer->exit_code != 0) {
    return Error{ErrorCode::kDamaged, fmt::format("{}: cannot tell which torch it would import "
                                                  "(exit code {})",
                                                  python, answer->exit_code)};
  }
  auto values = parse_lines(answer->out);
  if (values["directory"].empty()) return std::optional<TorchInstall>();
  TorchInstall torch{python,
                     values["directory"],
                     values["__version__"],
                     values["cuda"],
                     {},
                     wheel_headers(values["directory"])};
  if (torch.cuda.empty()) return std::optional(torch);
  const auto id = read_build_id(torch.directory + "/lib/libc10_cuda.so");
  if (!id.ok()) return id.error();
  torch.build_id = id.value();
  return std::optional(torch);
}

}  // namespace fragscope::tools
