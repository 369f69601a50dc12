#include "enforce/fork_guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"

namespace fragscope {
namespace {

TEST_CASE("a forked child has none of its parent's state and makes its own") {
  enforce::ForkGuard guard;
  int parents = 0;
  int childs = 0;
  CHECK(guard.get() == nullptr);
  CHECK(guard.set(&parents) == &parents);
  CHECK(guard.set(&childs) == &parents);  // the first one stays
  const pid_t child = fork();
  if (child == 0) {
    const bool fresh = guard.get() == nullptr && guard.set(&childs) == &childs;
    _exit(fresh && guard.get() == &childs ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(guard.get() == &parents);
}

}  // namespace
}  // namespace fragscope
