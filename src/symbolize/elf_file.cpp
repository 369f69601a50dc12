#include "symbolize/elf_file.h"

#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <gelf.h>
#include <unistd.h>

#include <cstring>

namespace fragscope::symbolize {
namespace {

// Local debug files only: the library's standard search may ask servers.
Dwfl_Callbacks callbacks() {
  Dwfl_Callbacks result{};
  result.find_elf = dwfl_build_id_find_elf;
  result.find_debuginfo = dwfl_build_id_find_debuginfo;
  result.section_address = dwfl_offline_section_address;
  return result;
}

std::string hex_of(const void* bytes, size_t count) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += "0123456789abcdef"[at[i] >> 4];
    text += "0123456789abcdef"[at[i] & 15];
  }
  return text;
}

}  // namespace

struct ElfFile::State {
  Dwfl_Callbacks calls = callbacks();
  Dwfl* dwfl = nullptr;
  Dwfl_Module* module = nullptr;
  Elf* elf = nullptr;
  GElf_Addr bias = 0;

  ~State() {
    if (dwfl) dwfl_end(dwfl);
  }
};

ElfFile::ElfFile(const std::string& path) : state_(std::make_unique<State>()) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    problem_ = std::strerror(errno);
    return;
  }
  state_->dwfl = dwfl_begin(&state_->calls);
  if (state_->dwfl) {
    state_->module = dwfl_report_offline(state_->dwfl, path.c_str(), path.c_str(), file);
  }
  if (!state_->module) {
    close(file);  // not taken over
    problem_ = "is no ELF file";
    return;
  }
  dwfl_report_end(state_->dwfl, nullptr, nullptr);
  state_->elf = dwfl_module_getelf(state_->module, &state_->bias);
  if (!state_->elf) {
    problem_ = "is no readable ELF file";
    return;
  }
  const void* id = nullptr;
  const ssize_t length = dwelf_elf_gnu_build_id(state_->elf, &id);
  if (length > 0) build_id_ = hex_of(id, static_cast<size_t>(length));
}

ElfFile::ElfFile(ElfFile&&) noexcept = default;
ElfFile& ElfFile::operator=(ElfFile&&) noexcept = default;
ElfFile::~ElfFile() = default;

std::optional<uint64_t> ElfFile::address_of(uint64_t file_offset) const {
  if (!problem_.empty()) return std::nullopt;
  size_t count = 0;
  if (elf_getphdrnum(state_->elf, &count) != 0) return std::nullopt;
  for (size_t i = 0; i < count; ++i) {
    GElf_Phdr header;
    if (!gelf_getphdr(state_->elf, static_cast<int>(i), &header)) continue;
    if (header.p_type != PT_LOAD || file_offset < header.p_offset) continue;
    if (file_offset - header.p_offset >= header.p_filesz) continue;
    return file_offset - header.p_offset + header.p_vaddr;
  }
  return std::nullopt;
}

ElfFile::Place ElfFile::place_of(uint64_t address) {
  Place place;
  if (!problem_.empty() || nameless_) return place;
  const GElf_Addr biased = address + state_->bias;
  GElf_Off offset = 0;
  GElf_Sym symbol;
  const char* name =
      dwfl_module_addrinfo(state_->module, biased, &offset, &symbol, nullptr, nullptr, nullptr);
  // A symbol without a size is taken only for what lies close behind it.
  if (name && (symbol.st_size != 0 || offset < 4096)) place.function = name;
  if (Dwfl_Line* line = dwfl_module_getsrc(state_->module, biased)) {
    int number = 0;
    if (const char* file = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr)) {
      place.file = file;
      place.line = number;
    }
  }
  return place;
}

}  // namespace fragscope::symbolize
