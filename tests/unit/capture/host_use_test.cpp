#include "capture/host_use.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tests/support/catch.h"

using namespace fragscope::capture;

TEST_CASE("a process's share of memory, and what the machine has left") {
  CHECK(parse_pss("Rss:  100 kB\nPss:                  42 kB\nPss_Anon:   7 kB\n") == 42u * 1024);
  CHECK_FALSE(parse_pss("Rss:  100 kB\nPss_Anon:   7 kB\n"));
  CHECK_FALSE(parse_pss("Pss:  many\n"));
  CHECK_FALSE(parse_pss(""));
  CHECK(parse_available("MemTotal: 9 kB\nMemAvailable:   5 kB\n") == 5u * 1024);
}

TEST_CASE("files of shared memory that a process maps, each once") {
  const char* const maps =
      "7f0000000000-7f0000002000 rw-s 00000000 00:1a 11   /dev/shm/a b\n"
      "7f0000010000-7f0000011000 rw-s 00004000 00:1a 11   /dev/shm/a b\n"
      "7f0000020000-7f0000021000 rw-s 00000000 00:1a 12   /dev/shm/torch_7_1 (deleted)\n"
      "7f0000030000-7f0000031000 rw-s 00000000 00:1b 12   /dev/shmem/other\n"
      "7f0000040000-7f0000041000 r-xp 00000000 08:01 99   /usr/lib/libc.so.6\n"
      "7f0000050000-7f0000051000 rw-p 00000000 00:00 0 \n"
      "not a line\n";
  const auto files = parse_mapped_files(maps, "/dev/shm");
  REQUIRE(files.size() == 2);
  CHECK(files[0].path == "/dev/shm/a b");
  CHECK_FALSE(files[0].unlinked);
  CHECK(files[0].mapped_end == 0x5000);
  CHECK(files[1].path == "/dev/shm/torch_7_1");
  CHECK(files[1].unlinked);
  CHECK(files[1].mapped_end == 0x1000);
}

TEST_CASE("a tree has this process's children and theirs") {
  int ready[2];
  int done[2];
  REQUIRE(::pipe(ready) == 0);
  REQUIRE(::pipe(done) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(done[1]);
    const pid_t grandchild = ::fork();
    char byte = 0;
    if (grandchild != 0 && ::write(ready[1], &grandchild, sizeof grandchild) < 0) ::_exit(1);
    while (::read(done[0], &byte, 1) > 0) {
    }
    if (grandchild != 0) ::waitpid(grandchild, nullptr, 0);
    ::_exit(0);
  }
  pid_t grandchild = 0;
  REQUIRE(::read(ready[0], &grandchild, sizeof grandchild) == sizeof grandchild);
  const auto tree = process_tree(static_cast<uint32_t>(::getpid()));
  const auto place = [&](pid_t pid) {
    return std::find(tree.begin(), tree.end(), static_cast<uint32_t>(pid)) - tree.begin();
  };
  CHECK(place(::getpid()) == 0);
  CHECK(place(child) < place(grandchild));
  CHECK(place(grandchild) < static_cast<long>(tree.size()));
  CHECK(resident_bytes(static_cast<uint32_t>(child)).value_or(0) > 0);
  const auto without =
      process_tree(static_cast<uint32_t>(::getpid()), {static_cast<uint32_t>(child)});
  CHECK(without == std::vector<uint32_t>{static_cast<uint32_t>(::getpid())});
  ::close(done[1]);
  ::waitpid(child, nullptr, 0);
  CHECK_FALSE(resident_bytes(static_cast<uint32_t>(child)));
}
