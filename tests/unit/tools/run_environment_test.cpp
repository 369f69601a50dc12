#include "tools/run_environment.h"

#include "tests/support/catch.h"

using namespace fragscope::tools;

namespace {

const Installation kInstallation = {"/opt/fs/lib/libfragscope.so", "/opt/fs/lib/fragscope/sim", ""};
const std::vector<std::string> kStandIns = {"/opt/fs/lib/fragscope/sim/libcudart.so.13"};

}  // namespace

TEST_CASE("the recorder comes first, then the user's preload, then the stand-ins") {
  const Environment target = target_environment({"LD_PRELOAD=libx.so /y.so", "HOME=/h"},
                                                kInstallation, {true, true, kStandIns});
  CHECK(get_variable(target, "LD_PRELOAD") ==
        "/opt/fs/lib/libfragscope.so:libx.so:/y.so:/opt/fs/lib/fragscope/sim/libcudart.so.13");
  CHECK(get_variable(target, "LD_LIBRARY_PATH") == "/opt/fs/lib/fragscope/sim");
  CHECK(get_variable(target, "HOME") == "/h");
}

TEST_CASE("the stand-ins' directory comes before the user's libraries") {
  const Environment target =
      target_environment({"LD_LIBRARY_PATH=/usr/mine"}, kInstallation, {false, true, kStandIns});
  CHECK(get_variable(target, "LD_LIBRARY_PATH") == "/opt/fs/lib/fragscope/sim:/usr/mine");
}

TEST_CASE("a run inside a run does not preload twice and records into its own places") {
  const Environment outer =
      target_environment({"LD_PRELOAD=libx.so"}, kInstallation, {true, true, kStandIns});
  Environment user = outer;
  set_variable(user, "FRAGSCOPE_LOG_DIR", "/outer");
  const Environment inner = target_environment(user, kInstallation, {true, true, kStandIns});
  CHECK(get_variable(inner, "LD_PRELOAD") == get_variable(outer, "LD_PRELOAD"));
  CHECK_FALSE(get_variable(inner, "FRAGSCOPE_LOG_DIR"));
}

TEST_CASE("without recorder and simulation nothing is preloaded that the user did not") {
  CHECK_FALSE(
      get_variable(target_environment({}, kInstallation, {false, false, {}}), "LD_PRELOAD"));
  CHECK(get_variable(target_environment({"LD_PRELOAD=a.so"}, kInstallation, {false, false, {}}),
                     "LD_PRELOAD") == "a.so");
}

TEST_CASE("a variable is found by its whole name") {
  const Environment environment = {"PATHS=1", "PATH=2", "EMPTY="};
  CHECK(get_variable(environment, "PATH") == "2");
  CHECK(get_variable(environment, "EMPTY") == "");
  CHECK_FALSE(get_variable(environment, "PAT"));
}
