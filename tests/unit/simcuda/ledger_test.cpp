#include "simcuda/ledger.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/bytes.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::simcuda;

namespace {

// A fresh path that is removed at the end.
struct LedgerPath {
  LedgerPath() {
    char pattern[] = "/tmp/fragscope-ledger-XXXXXX";
    directory = ::mkdtemp(pattern);
    path = directory + "/ledger";
  }
  ~LedgerPath() {
    ::unlink(path.c_str());
    ::rmdir(directory.c_str());
  }
  std::string directory;
  std::string path;
};

// Starts a child that charges `bytes` and then waits to be killed.
pid_t tenant(const std::string& path, uint64_t bytes, bool* charged) {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto ledger = Ledger::open(path.c_str(), 1, kGiB);
    const char answer = ledger && (*ledger)->charge(0, bytes) ? 'y' : 'n';
    if (::write(ready[1], &answer, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char answer = 0;
  REQUIRE(::read(ready[0], &answer, 1) == 1);
  ::close(ready[0]);
  ::close(ready[1]);
  *charged = answer == 'y';
  return child;
}

}  // namespace

TEST_CASE("a private ledger charges exactly its capacity") {
  auto ledger = Ledger::open(nullptr, 2, 10);
  REQUIRE(ledger);
  CHECK((*ledger)->charge(0, 10));
  CHECK_FALSE((*ledger)->charge(0, 1));
  CHECK((*ledger)->charge(1, 10));
  (*ledger)->refund(0, 4);
  CHECK_FALSE((*ledger)->charge(0, 5));
  CHECK((*ledger)->charge(0, 4));
  CHECK((*ledger)->used_by_this_process(0) == 10);
}

TEST_CASE("processes share a card and kill -9 gives memory back") {
  const LedgerPath file;
  bool charged = false;
  const pid_t child = tenant(file.path, 700 * kMiB, &charged);
  REQUIRE(charged);
  auto ledger = Ledger::open(file.path.c_str(), 1, kGiB);
  REQUIRE(ledger);
  CHECK((*ledger)->used(0) == 700 * kMiB);
  CHECK((*ledger)->tenants(0).at(0).pid == static_cast<uint32_t>(child));
  CHECK_FALSE((*ledger)->charge(0, 400 * kMiB));
  CHECK((*ledger)->charge(0, 324 * kMiB));
  ::kill(child, SIGKILL);
  siginfo_t about{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &about, WEXITED | WNOWAIT) == 0);
  CHECK((*ledger)->charge(0, 400 * kMiB));  // a zombie holds nothing
  CHECK((*ledger)->used(0) == 724 * kMiB);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("a ledger of another machine is refused") {
  const LedgerPath file;
  REQUIRE(Ledger::open(file.path.c_str(), 1, kGiB));
  CHECK_FALSE(Ledger::open(file.path.c_str(), 2, kGiB));
  CHECK_FALSE(Ledger::open(file.path.c_str(), 1, 2 * kGiB));
  CHECK(Ledger::open(file.path.c_str(), 1, kGiB));
  CHECK_FALSE(Ledger::open((file.path + "/below").c_str(), 1, kGiB));
}

TEST_CASE("events are shared by number and generation until their maker lets go or ends") {
  const LedgerPath file;
  auto maker = Ledger::open(file.path.c_str(), 1, kGiB);
  auto other = Ledger::open(file.path.c_str(), 1, kGiB);
  REQUIRE(maker);
  REQUIRE(other);
  const auto event = (*maker)->share_event();
  REQUIRE(event);
  (*maker)->set_event(*event, 77);
  CHECK((*other)->event_due(*event) == 77);
  (*other)->set_event(*event, 78);  // who opened it may record it
  CHECK((*maker)->event_due(*event) == 78);
  (*maker)->unshare_event(*event);
  CHECK((*other)->event_due(*event) == 0);
  const auto next = (*maker)->share_event();
  REQUIRE(next);
  CHECK(next->number == event->number);
  (*maker)->set_event(*next, 79);
  CHECK((*other)->event_due(*event) == 0);  // an older generation
  CHECK((*other)->event_due({-1, 1}) == 0);
  CHECK((*other)->event_due({1 << 20, 1}) == 0);
}

TEST_CASE("events of a process that ended are free again") {
  const LedgerPath file;
  const pid_t child = ::fork();
  if (child == 0) {
    auto ledger = Ledger::open(file.path.c_str(), 1, kGiB);
    int shared = 0;
    while (ledger && (*ledger)->share_event()) ++shared;
    ::_exit(shared == 4096 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  auto ledger = Ledger::open(file.path.c_str(), 1, kGiB);
  REQUIRE(ledger);
  CHECK((*ledger)->share_event());
}

TEST_CASE("unsupported calls are counted by name") {
  auto ledger = Ledger::open(nullptr, 1, kGiB);
  REQUIRE(ledger);
  (*ledger)->note(Ledger::Kind::kUnsupported, "cuFoo");
  (*ledger)->note(Ledger::Kind::kUnsupported, "cuBar");
  (*ledger)->note(Ledger::Kind::kUnsupported, "cuFoo");
  const auto found = (*ledger)->noted(Ledger::Kind::kUnsupported);
  REQUIRE(found.size() == 2);
  CHECK(found[0].name == "cuFoo");
  CHECK(found[0].times == 2);
  for (int i = 0; i < 500; ++i)
    (*ledger)->note(Ledger::Kind::kUnsupported, std::to_string(i).c_str());
  CHECK((*ledger)->noted(Ledger::Kind::kUnsupported).back().name == "other");
}
