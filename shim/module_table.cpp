#include "shim/module_table.h"

#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "shim/elf_lookup.h"

namespace fragscope::shim {
namespace {

struct LoaderCounters {
  uint64_t adds;
  uint64_t subs;
};

LoaderCounters loader_counters() {
  LoaderCounters counters{};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        *static_cast<LoaderCounters*>(data) = {info->dlpi_adds, info->dlpi_subs};
        return 1;
      },
      &counters);
  return counters;
}

// The next space-separated word of `rest`, which loses it.
std::string_view take_word(std::string_view& rest) {
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const size_t length = rest.find(' ') == std::string_view::npos ? rest.size() : rest.find(' ');
  const std::string_view word = rest.substr(0, length);
  rest.remove_prefix(length);
  return word;
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

uintptr_t start_of(std::string_view range) {
  uintptr_t start = 0;
  std::from_chars(range.data(), range.data() + range.size(), start, 16);
  return start;
}

std::string_view without_leading_zeros(std::string_view digits) {
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  return digits;
}

}  // namespace

bool ModuleTable::refresh(log::LogWriter& writer) noexcept {
  const LoaderCounters now = loader_counters();
  if (now.subs == subs_.load(std::memory_order_relaxed) &&
      now.adds == adds_.load(std::memory_order_relaxed)) {
    return false;
  }
  if (scanning_.exchange(true, std::memory_order_acquire)) return true;
  scan(writer);
  adds_.store(now.adds, std::memory_order_relaxed);
  subs_.store(now.subs, std::memory_order_relaxed);
  scanning_.store(false, std::memory_order_release);
  return true;
}

void ModuleTable::scan(log::LogWriter& writer) noexcept {
  const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  now_ ^= 1;
  counts_[now_] = 0;
  char buffer[8192];  // longer lines (paths beyond 4 KiB do not exist) cannot occur
  size_t filled = 0;
  for (;;) {
    const ssize_t count = ::read(fd, buffer + filled, sizeof buffer - filled);
    if (count <= 0) break;
    filled += static_cast<size_t>(count);
    size_t start = 0;
    while (const void* end = std::memchr(buffer + start, '\n', filled - start)) {
      const size_t length = static_cast<size_t>(static_cast<const char*>(end) - buffer) - start;
      on_line(buffer + start, length, writer);
      start += length + 1;
    }
    std::memmove(buffer, buffer + start, filled - start);
    filled -= start;
    if (filled == sizeof buffer) break;
  }
  ::close(fd);
}

// 7f12a4000000-7f12a4195000 r-xp 00026000 08:01 1234   /usr/lib/libc.so.6
void ModuleTable::on_line(const char* line, size_t length, log::LogWriter& writer) noexcept {
  std::string_view rest(line, length);
  const std::string_view range = take_word(rest);
  const std::string_view permissions = take_word(rest);
  const std::string_view offset = without_leading_zeros(take_word(rest));
  static_cast<void>(take_word(rest));  // device
  static_cast<void>(take_word(rest));  // inode
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  if (permissions.size() < 3 || permissions[2] != 'x' || rest.empty()) return;
  if (rest.front() != '/' && rest != "[vdso]") return;

  const uint64_t hash = hash_of({line, length});
  if (counts_[now_] == kMaxModules) return;
  lines_[now_][counts_[now_]++] = hash;
  const uint64_t* const before = lines_[now_ ^ 1];
  if (std::find(before, before + counts_[now_ ^ 1], hash) != before + counts_[now_ ^ 1]) return;

  char id[65] = "";
  build_id(object_of(reinterpret_cast<const void*>(start_of(range))), id);
  const std::string_view id_text(id);
  char text[4352];
  char* out = text;
  const size_t total = range.size() + offset.size() + id_text.size() + rest.size() + 4;
  if (total > sizeof text) return;
  for (const std::string_view part : {range, std::string_view(" "), offset, std::string_view(" "),
                                      std::string_view(id_text.empty() ? "" : "="), id_text,
                                      std::string_view(id_text.empty() ? "" : " "), rest}) {
    std::memcpy(out, part.data(), part.size());
    out += part.size();
  }
  writer.write_blob(log::BlobKind::module, ++next_id_,
                    std::string_view(text, static_cast<size_t>(out - text)));
}

}  // namespace fragscope::shim
