#include "symbolize/elf_file.h"

#include <dwarf.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <gelf.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace fragscope::symbolize {
namespace {

// The library's standard search may ask servers: it is used only when they were asked for.
Dwfl_Callbacks callbacks(bool may_ask_servers) {
  Dwfl_Callbacks result{};
  result.find_elf = dwfl_build_id_find_elf;
  result.find_debuginfo =
      may_ask_servers ? dwfl_standard_find_debuginfo : dwfl_build_id_find_debuginfo;
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

std::string name_of(Dwarf_Die* die) {
  Dwarf_Attribute attribute;
  const char* name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute));
  if (!name) name = dwarf_diename(die);
  return name ? name : "";
}

// `place` moves to the line of the call.
void go_to_call(Dwarf_Die* inlined, ElfFile::Place& place) {
  Dwarf_Die unit;
  Dwarf_Files* files = nullptr;
  size_t count = 0;
  Dwarf_Attribute attribute;
  Dwarf_Word number = 0;
  place.file.clear();
  place.line = 0;
  if (!dwarf_diecu(inlined, &unit, nullptr, nullptr) ||
      dwarf_getsrcfiles(&unit, &files, &count) != 0) {
    return;
  }
  if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &number) == 0) {
    if (const char* file = dwarf_filesrc(files, number, nullptr, nullptr)) place.file = file;
  }
  if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &number) == 0) {
    place.line = static_cast<int>(number);
  }
}

// Functions inlined at the address, innermost first; `place` is left at the outermost's call.
std::vector<ElfFile::Place> inlined_at(Dwfl_Module* module, Dwarf_Addr address,
                                       ElfFile::Place& place) {
  std::vector<ElfFile::Place> places;
  Dwarf_Addr bias = 0;
  Dwarf_Die* unit = dwfl_module_addrdie(module, address, &bias);
  Dwarf_Die* scopes = nullptr;
  if (!unit || dwarf_getscopes(unit, address - bias, &scopes) <= 0) return places;
  Dwarf_Die innermost = scopes[0];
  std::free(scopes);
  scopes = nullptr;
  const int count = dwarf_getscopes_die(&innermost, &scopes);
  for (int i = 0; i < count && dwarf_tag(&scopes[i]) != DW_TAG_subprogram; ++i) {
    if (dwarf_tag(&scopes[i]) != DW_TAG_inlined_subroutine) continue;
    place.function = name_of(&scopes[i]);
    places.push_back(place);
    go_to_call(&scopes[i], place);
  }
  place.function.clear();
  std::free(scopes);
  return places;
}

}  // namespace

struct ElfFile::State {
  Dwfl_Callbacks calls{};
  std::string debug_path;
  char* debug_path_text = nullptr;
  Dwfl* dwfl = nullptr;
  Dwfl_Module* module = nullptr;
  Elf* elf = nullptr;
  GElf_Addr bias = 0;

  ~State() {
    if (dwfl) dwfl_end(dwfl);
  }
};

ElfFile::ElfFile(const std::string& path, const Places& places)
    : state_(std::make_unique<State>()) {
  state_->calls = callbacks(places.debuginfod);
  state_->debug_path = "/usr/lib/debug";
  if (!places.sysroot.empty()) state_->debug_path += ":" + places.sysroot + "/usr/lib/debug";
  for (const std::string& extra : places.debug_paths) state_->debug_path += ":" + extra;
  state_->debug_path_text = state_->debug_path.data();
  state_->calls.debuginfo_path = &state_->debug_path_text;
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

std::vector<ElfFile::Place> ElfFile::places_of(uint64_t address) {
  if (!problem_.empty() || nameless_) return {};
  const GElf_Addr biased = address + state_->bias;
  Place place;
  if (Dwfl_Line* line = dwfl_module_getsrc(state_->module, biased)) {
    int number = 0;
    if (const char* file = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr)) {
      place.file = file;
      place.line = number;
    }
  }
  std::vector<Place> places = inlined_at(state_->module, biased, place);
  GElf_Off offset = 0;
  GElf_Sym symbol;
  const char* name =
      dwfl_module_addrinfo(state_->module, biased, &offset, &symbol, nullptr, nullptr, nullptr);
  // A symbol without a size is taken only for what lies close behind it.
  if (name && (symbol.st_size != 0 || offset < 4096)) place.function = name;
  places.push_back(std::move(place));
  return places;
}

}  // namespace fragscope::symbolize
