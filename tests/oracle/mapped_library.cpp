#include <link.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/oracle/library_target.h"

namespace fragscope::oracle {
namespace {

// The build-id among the notes of one segment of a mapped file.
std::string build_id_in(const char* notes, size_t size) {
  for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes + at, sizeof header);
    const size_t name = at + sizeof header;
    const size_t data = name + (header.n_namesz + 3u) / 4 * 4;
    if (data + header.n_descsz > size) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4) {
      std::string hex;
      for (size_t i = 0; i < header.n_descsz; ++i) {
        char pair[3];
        std::snprintf(pair, sizeof pair, "%02x", static_cast<unsigned char>(notes[data + i]));
        hex += pair;
      }
      return hex;
    }
    at = data + (header.n_descsz + 3u) / 4 * 4;
  }
  return {};
}

int visit(dl_phdr_info* info, size_t, void* out) {
  const std::string path = info->dlpi_name;
  if (path.find("libc10_cuda") == std::string::npos) return 0;
  auto& library = *static_cast<MappedLibrary*>(out);
  library.path = path;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    const std::string id = build_id_in(notes, header.p_memsz);
    if (!id.empty()) library.build_id = id;
  }
  return 1;
}

}  // namespace

MappedLibrary mapped_library() {
  MappedLibrary library;
  dl_iterate_phdr(visit, &library);
  return library;
}

}  // namespace fragscope::oracle
