#include "capture/build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace fragscope::capture {
namespace {

constexpr uint64_t kMaxNoteBytes = 1 << 20;
constexpr size_t kMaxBuildIdBytes = 64;

bool read_at(int fd, uint64_t offset, void* out, size_t bytes) {
  if (offset > INT64_MAX) return false;
  return ::pread(fd, out, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

std::string to_hex(const unsigned char* bytes, size_t count) {
  static const char digits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += digits[bytes[i] >> 4];
    out += digits[bytes[i] & 15];
  }
  return out;
}

// One PT_NOTE segment: entries of header, name, content, each padded to `align`.
std::string build_id_in(const std::vector<unsigned char>& notes, uint64_t align) {
  const auto padded = [align](uint64_t size) { return (size + align - 1) / align * align; };
  uint64_t at = 0;
  while (at + sizeof(Elf64_Nhdr) <= notes.size()) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data() + at, sizeof note);
    const uint64_t name = at + sizeof note;
    const uint64_t content = name + padded(note.n_namesz);
    if (content > notes.size() || note.n_descsz > notes.size() - content) return {};
    const bool is_gnu = note.n_namesz == 4 && std::memcmp(notes.data() + name, "GNU", 4) == 0;
    if (is_gnu && note.n_type == NT_GNU_BUILD_ID) {
      return to_hex(notes.data() + content, std::min<size_t>(note.n_descsz, kMaxBuildIdBytes));
    }
    at = content + padded(note.n_descsz);
  }
  return {};
}

std::string build_id_of(int fd) {
  Elf64_Ehdr elf;
  if (!read_at(fd, 0, &elf, sizeof elf)) return {};
  if (std::memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0) return {};
  if (elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_phentsize != sizeof(Elf64_Phdr)) return {};
  for (uint64_t i = 0; i < elf.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(fd, elf.e_phoff + i * sizeof segment, &segment, sizeof segment)) return {};
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNoteBytes) continue;
    std::vector<unsigned char> notes(segment.p_filesz);
    if (!read_at(fd, segment.p_offset, notes.data(), notes.size())) continue;
    std::string id = build_id_in(notes, segment.p_align == 8 ? 8 : 4);
    if (!id.empty()) return id;
  }
  return {};
}

}  // namespace

std::string read_build_id(const std::string& path, uint64_t unchanged_since_ns) {
  // The path comes from another process: nothing that could block or has side effects is opened.
  struct stat info {};
  if (path.empty() || path[0] != '/' || ::stat(path.c_str(), &info) != 0) return {};
  const auto changed_ns = static_cast<uint64_t>(info.st_ctim.tv_sec) * 1'000'000'000 +
                          static_cast<uint64_t>(info.st_ctim.tv_nsec);
  if (!S_ISREG(info.st_mode) || changed_ns > unchanged_since_ns) return {};
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return {};
  std::string id = build_id_of(fd);
  ::close(fd);
  return id;
}

}  // namespace fragscope::capture
