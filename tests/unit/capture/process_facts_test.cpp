// What the collector asks of /proc and of mapped files.
#include <elf.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "capture/build_id.h"
#include "capture/log_to_trace.h"
#include "capture/process_state.h"
#include "tests/support/catch.h"

using namespace fragscope;
using capture::parse_module;
using capture::parse_proc_stat;
using capture::process_is_alive;
using capture::read_build_id;

namespace {

const char* const kStat =
    "4242 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 0 987654321 19 20\n";

std::string stat_text(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  return {std::istreambuf_iterator<char>(in), {}};
}

// A 64-bit ELF file with one note segment.
std::string elf_with_note(const std::string& name, uint32_t type, const std::string& content) {
  Elf64_Ehdr elf{};
  std::memcpy(elf.e_ident, ELFMAG, SELFMAG);
  elf.e_ident[EI_CLASS] = ELFCLASS64;
  elf.e_phoff = sizeof elf;
  elf.e_phentsize = sizeof(Elf64_Phdr);
  elf.e_phnum = 1;
  std::string padded_name = name + '\0';
  const Elf64_Nhdr note{static_cast<uint32_t>(padded_name.size()),
                        static_cast<uint32_t>(content.size()), type};
  padded_name.resize((padded_name.size() + 3) / 4 * 4);
  std::string notes(reinterpret_cast<const char*>(&note), sizeof note);
  notes += padded_name + content;
  Elf64_Phdr segment{};
  segment.p_type = PT_NOTE;
  segment.p_offset = sizeof elf + sizeof segment;
  segment.p_filesz = notes.size();
  segment.p_align = 4;
  return std::string(reinterpret_cast<const char*>(&elf), sizeof elf) +
         std::string(reinterpret_cast<const char*>(&segment), sizeof segment) + notes;
}

}  // namespace

TEST_CASE("the numbers of a process in a container, outermost first") {
  using capture::parse_pids;
  CHECK(parse_pids("Name:\ta\nNSpid:\t4711\t17\t1\nNSpgid:\t4711\t1\n") ==
        std::vector<uint32_t>{4711, 17, 1});
  CHECK(parse_pids("Name:\ta\nNSpid:\t4711\n") == std::vector<uint32_t>{4711});
  CHECK(parse_pids("Name:\ta\n").empty());
  CHECK(parse_pids("\nNSpid:\tx\n").empty());
  const auto own = static_cast<uint32_t>(::getpid());
  CHECK(capture::pids_of(own).front() == own);
  const auto stat = capture::read_proc_stat(own);
  REQUIRE(stat);
  CHECK(capture::pid_here(own, stat->start_ticks) == own);
  CHECK_FALSE(capture::pid_here(own, stat->start_ticks + 1));
}

TEST_CASE("/proc/PID/stat: the name may hold anything") {
  const auto stat = parse_proc_stat(kStat);
  REQUIRE(stat);
  CHECK(stat->state == 'R');
  CHECK(stat->threads == 17);
  CHECK(stat->start_ticks == 987654321);
  CHECK_FALSE(parse_proc_stat(""));
  CHECK_FALSE(parse_proc_stat("1 (a"));
  CHECK_FALSE(parse_proc_stat("1 (a) R 1 2 3"));
  CHECK_FALSE(parse_proc_stat("1 (a) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 x 0 5"));
}

TEST_CASE("pid and start time name a process; zombies are gone") {
  const auto self = static_cast<uint32_t>(::getpid());
  const auto own = parse_proc_stat(stat_text(::getpid()));
  REQUIRE(own);
  CHECK(process_is_alive(self, own->start_ticks));
  CHECK(process_is_alive(self, 0));
  CHECK_FALSE(process_is_alive(self, own->start_ticks + 1));  // the pid was used again
  CHECK_FALSE(process_is_alive(4'100'000'000, 0));

  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::pause();
  const auto stat = parse_proc_stat(stat_text(child));
  REQUIRE(stat);
  CHECK(process_is_alive(static_cast<uint32_t>(child), stat->start_ticks));
  ::kill(child, SIGKILL);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(parse_proc_stat(stat_text(child))->state == 'Z');
  CHECK_FALSE(process_is_alive(static_cast<uint32_t>(child), stat->start_ticks));
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK_FALSE(process_is_alive(static_cast<uint32_t>(child), stat->start_ticks));
}

TEST_CASE("a process whose main thread alone has ended is alive") {
  int to_parent[2];
  REQUIRE(::pipe(to_parent) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::thread([fd = to_parent[1]] {
      while (parse_proc_stat(stat_text(::getpid()))->state != 'Z') std::this_thread::yield();
      static_cast<void>(::write(fd, "x", 1) == 1);
      ::pause();
    }).detach();
    ::syscall(SYS_exit, 0);  // of this thread alone
  }
  char byte = 0;
  REQUIRE(::read(to_parent[0], &byte, 1) == 1);
  CHECK(process_is_alive(static_cast<uint32_t>(child), 0));
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  ::close(to_parent[0]);
  ::close(to_parent[1]);
}

TEST_CASE("build-ids") {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("fs-elf-" + std::to_string(::getpid()));
  std::filesystem::create_directory(dir);
  const std::string path = dir / "a.so";
  const auto id_of = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
    return read_build_id(path);
  };
  const std::string id("\x01\xab\xff\x00\x7f", 5);
  const std::string good = elf_with_note("GNU", NT_GNU_BUILD_ID, id);
  CHECK(id_of(good) == "01abff007f");
  CHECK(read_build_id(path, UINT64_MAX) == "01abff007f");
  CHECK(read_build_id(path, 1'000'000'000).empty());  // changed since 1970
  CHECK(id_of(elf_with_note("GNU", NT_GNU_ABI_TAG, id)).empty());
  CHECK(id_of(elf_with_note("XYZ", NT_GNU_BUILD_ID, id)).empty());
  CHECK(id_of("").empty());
  CHECK(id_of("text").empty());
  for (size_t length = 0; length < good.size(); ++length) {
    CHECK(id_of(good.substr(0, length)).empty());
  }
  for (size_t at = sizeof(Elf64_Ehdr); at < good.size(); ++at) {
    std::string hostile = good;
    hostile[at] = '\xff';
    id_of(hostile);  // any answer, no crash
  }
  std::filesystem::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(read_build_id(path).empty());
  CHECK(read_build_id("relative").empty());
  CHECK(read_build_id("").empty());
  CHECK(read_build_id(dir).empty());
  std::filesystem::remove_all(dir);
}

TEST_CASE("module lines of the shim") {
  const auto module = parse_module("7f00-7fa0 1000 /lib/with blank.so");
  REQUIRE(module);
  CHECK(module->start == 0x7f00);
  CHECK(module->end == 0x7fa0);
  CHECK(module->file_offset == 0x1000);
  CHECK(module->path == "/lib/with blank.so");
  for (const char* text :
       {"", "7f00", "7f00-", "7f00-7fa0", "7f00-7fa0 10", "7f00-7fa0 10 ", "7fa0-7f00 0 /x",
        "x-y 0 /x", "7f00-7fa0  /x", "-1-5 0 /x", "10000000000000000-20000000000000000 0 /x"}) {
    INFO(text);
    CHECK_FALSE(parse_module(text));
  }
}
