// Golden command lists (tests/golden/model): the model gives the recorded answer under every
// release that the file names. FRAGSCOPE_UPDATE_GOLDEN=1 writes the answers of the first one.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "model/command_runner.h"
#include "tests/support/catch.h"
#include "tests/support/golden_commands.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string answer(const test::GoldenFile& golden, VersionProfile profile) {
  const auto list = parse_commands(golden.commands, "golden");
  REQUIRE(list.ok());
  const auto config = parse_config(golden.settings, profile);
  REQUIRE(config.ok());
  const auto target = make_model_target(list.value(), config.value(), profile,
                                        list.value().capacity.value_or(kDefaultDeviceMemory));
  return test::annotate(golden, run_commands(list.value(), *target), profile);
}

std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(FRAGSCOPE_TEST_DATA "/model")) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("golden command lists") {
  const auto files = golden_files();
  REQUIRE(files.size() >= 10);
  for (const auto& path : files) {
    const std::string recorded = read_text(path);
    const test::GoldenFile golden = test::read_golden(recorded);
    REQUIRE_FALSE(golden.versions.empty());
    if (std::getenv("FRAGSCOPE_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(path) << answer(golden, version_profile(golden.versions[0]));
      continue;
    }
    for (const std::string& version : golden.versions) {
      const ProfileMatch match = find_version_profile(version);
      REQUIRE(match.exact);
      INFO(path.filename().string() << " under torch " << version);
      CHECK(answer(golden, *match.profile) == recorded);
    }
  }
}

TEST_CASE("golden lists notice a changed split rule") {
  size_t noticed = 0;
  for (const auto& path : golden_files()) {
    const std::string recorded = read_text(path);
    const test::GoldenFile golden = test::read_golden(recorded);
    for (const SplitRule rule : {SplitRule::kMutatedAtOneMiB, SplitRule::kMutatedNeverLarge}) {
      VersionProfile changed = version_profile(golden.versions[0]);
      changed.split_rule = rule;
      if (answer(golden, changed) != recorded) ++noticed;
    }
  }
  CHECK(noticed >= 4);
}
