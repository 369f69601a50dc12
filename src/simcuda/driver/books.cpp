// The log of memory calls that the simulated device answered (`books=FILE`).
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "model/device_memory.h"
#include "simcuda/driver/driver_state.h"
#include "simcuda/driver/host_window.h"

namespace fragscope::simcuda {
namespace {

std::atomic<uint64_t> g_lines{0};
std::atomic<pid_t> g_numbered{0};  // the process that has g_number: not a child of it
std::atomic<size_t> g_number{0};

bool append(const std::string& path, const std::string& line) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool written = ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  ::close(fd);
  return written;
}

// Lines of a file up to the first one that is `line`; 0: none is.
size_t line_number(const std::string& path, const std::string& line) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return 0;
  size_t found = 0;
  char text[64];
  for (size_t number = 1; found == 0 && std::fgets(text, sizeof text, file) != nullptr; ++number) {
    if (line == text) found = number;
  }
  std::fclose(file);
  return found;
}

// Processes are numbered as they come, so that the log does not tell what the system called them:
// that is a line of FILE.pids for each. Of threads that come here at once each may add the line;
// the first one counts.
size_t process_number(const std::string& books) {
  const pid_t self = ::getpid();
  const pid_t before = g_numbered.load(std::memory_order_acquire);
  if (before == self) return g_number;
  const std::string line = std::to_string(self) + "\n";
  const std::string path = books + ".pids";
  if (line_number(path, line) == 0) append(path, line);
  if (before != 0) g_lines = 0;  // a child begins anew
  g_number = line_number(path, line);
  g_numbered.store(self, std::memory_order_release);
  return g_number;
}

// Small numbers are ordinals and handles of physical memory.
bool is_repeatable(uint64_t address) {
  return address <= UINT32_MAX ||
         (address >= model::kDeviceWindowBase && address < kHandleWindowBase + kHandleWindowBytes);
}

std::string address_text(const BookedAddress& booked) {
  if (booked.registration != 0) return "host" + std::to_string(booked.registration);
  if (!is_repeatable(booked.address)) return "host";
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(booked.address));
  return text;
}

}  // namespace

void write_books(const char* call, BookedAddress address, uint64_t bytes, CUresult result) {
  const DriverState* const state = started_state();
  if (state == nullptr || state->config.books.empty()) return;
  const std::string& books = state->config.books;
  const size_t process = process_number(books);
  char line[200];
  std::snprintf(line, sizeof line, "%zu %llu %s %s %llu %d\n", process,
                static_cast<unsigned long long>(g_lines++), call, address_text(address).c_str(),
                static_cast<unsigned long long>(bytes), result);
  append(books, line);
}

}  // namespace fragscope::simcuda
