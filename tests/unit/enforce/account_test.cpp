// src/enforce/account.h: limits hold, for one process and for several, whatever becomes of them.
#include "enforce/account.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "enforce/process_identity.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::enforce;

namespace {

constexpr DeviceUuid kCard{1, 2, 3};

std::string fresh_path(const char* name) {
  const auto path = std::filesystem::temp_directory_path() /
                    (std::string(name) + "-" + std::to_string(::getpid()) + ".account");
  std::filesystem::remove(path);
  return path.string();
}

// Runs `act` in a child that then waits for its end by a signal.
template <typename Act>
pid_t child_that(Act act) {
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const char done = act() ? 'y' : 'n';
    static_cast<void>(!::write(pipe_ends[1], &done, 1));
    for (;;) ::pause();
  }
  char answer = 0;
  REQUIRE(::read(pipe_ends[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  return pid;
}

}  // namespace

TEST_CASE("a local account gives up to its limit and takes back") {
  LocalAccount account;
  CHECK(account.take(0, 60, 100));
  CHECK_FALSE(account.take(0, 41, 100));
  CHECK(account.take(0, 40, 100));
  CHECK(account.take(1, 100, 100));  // another purse
  account.give_back(0, 10);
  CHECK(account.used(0) == 90);
  CHECK_FALSE(account.take(0, UINT64_MAX, 100));  // no wrap
  account.add(0, 50);
  CHECK(account.used(0) == 140);
  CHECK_FALSE(account.take(0, 0, 100));
}

TEST_CASE("the own process is found in /proc") {
  const ProcessIdentity self = own_identity();
  CHECK(self.pid == static_cast<uint32_t>(::getpid()));
  CHECK(self.start_ticks > 0);
  CHECK(holds_memory(self));
  CHECK_FALSE(holds_memory({self.pid, self.pid_namespace, self.start_ticks + 1}));
  // Of a container nothing is to be seen from another one.
  CHECK(self.pid_namespace != 0);
  CHECK(holds_memory({self.pid, self.pid_namespace + 1, self.start_ticks + 1}));
}

TEST_CASE("processes share an account; what a killed one held comes back, even unreaped") {
  const std::string path = fresh_path("killed");
  auto account = SharedAccount::open(path);
  REQUIRE(account.ok());
  (*account)->name_device(0, kCard);
  REQUIRE((*account)->take(0, 30, 100));
  const pid_t child = child_that([&] {
    (*account)->forget();
    auto own = SharedAccount::open(path);
    (*own)->name_device(5, kCard);  // the same card under another number
    const bool taken = (*own)->take(5, 60, 100);
    static_cast<void>(own->release());  // a killed process gives nothing back itself
    return taken;
  });
  CHECK((*account)->used(0) == 90);
  CHECK_FALSE((*account)->take(0, 20, 100));
  ::kill(child, SIGKILL);
  siginfo_t info;
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK((*account)->take(0, 70, 100));  // a zombie holds nothing
  CHECK((*account)->used(0) == 100);
  ::waitpid(child, nullptr, 0);
  std::filesystem::remove(path);
}

TEST_CASE("a process that dies with the lock leaves it to the next") {
  const std::string path = fresh_path("lock");
  auto account = SharedAccount::open(path);
  REQUIRE(account.ok());
  (*account)->name_device(0, kCard);
  for (int round = 0; round < 20; ++round) {
    const pid_t child = child_that([&] {
      (*account)->forget();
      const pid_t busy = ::fork();
      if (busy != 0) {
        ::kill(busy, SIGKILL);  // wherever it is
        ::waitpid(busy, nullptr, 0);
        return true;
      }
      auto own = SharedAccount::open(path);
      (*own)->name_device(0, kCard);
      for (;;) {
        if ((*own)->take(0, 1, 100)) (*own)->give_back(0, 1);
      }
    });
    CHECK((*account)->take(0, 100, 100));
    (*account)->give_back(0, 100);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  std::filesystem::remove(path);
}

TEST_CASE("cards are told apart by what they are, not by their numbers") {
  const std::string path = fresh_path("cards");
  auto account = SharedAccount::open(path);
  REQUIRE(account.ok());
  (*account)->name_device(0, kCard);
  (*account)->name_device(1, {9});
  CHECK((*account)->take(0, 100, 100));
  CHECK((*account)->take(1, 100, 100));
  CHECK((*account)->take(kPinnedPurse, 100, 100));
  CHECK_FALSE((*account)->take(kPinnedPurse, 1, 100));
  std::filesystem::remove(path);
}

TEST_CASE("files that are no account are refused") {
  const std::string path = fresh_path("foreign");
  std::ofstream(path) << "something else";
  const auto account = SharedAccount::open(path);
  REQUIRE_FALSE(account.ok());
  CHECK(account.error().code == ErrorCode::kForeign);
  CHECK(SharedAccount::open("/nowhere/account").error().code == ErrorCode::kPermission);
  std::filesystem::remove(path);
}
