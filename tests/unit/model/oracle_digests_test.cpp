// The answers of the released libraries (tests/golden/oracle, written by tests/oracle/digests): the
// model must give the same, line by line, for every release and list.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "model/command_runner.h"
#include "tests/support/answer_digest.h"
#include "tests/support/catch.h"
#include "tests/support/golden_commands.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> answer_lines(const std::string& text, const VersionProfile& profile) {
  const test::GoldenFile golden = test::read_golden(text);
  const auto list = parse_commands(golden.commands, "list");
  const auto config = parse_config(golden.settings, profile);
  REQUIRE(list.ok());
  REQUIRE(config.ok());
  const auto target = make_model_target(list.value(), config.value(), profile,
                                        list.value().capacity.value_or(kDefaultDeviceMemory));
  return test::normal_lines(run_commands(list.value(), *target), profile);
}

void check_release(const fs::path& digests, const VersionProfile& profile) {
  std::ifstream file(digests);
  std::string name;
  std::string recorded;
  size_t lists = 0;
  while (file >> name >> recorded) {
    const std::string text = read_text(digests.parent_path() / "lists" / (name + ".txt"));
    const auto lines = answer_lines(text, profile);
    const std::string digest = test::line_digests(lines);
    size_t same = 0;
    while (same < lines.size() && digest.compare(same * 4, 4, recorded, same * 4, 4) == 0) ++same;
    INFO("torch " << profile.name << ", list " << name
                  << ", first line that differs: " << (same < lines.size() ? lines[same] : ""));
    CHECK(digest == recorded);
    ++lists;
  }
  CHECK(lists >= 10);
}

}  // namespace

TEST_CASE("the model answers as the released libraries did") {
  size_t releases = 0;
  for (const auto& entry : fs::directory_iterator(FRAGSCOPE_TEST_DATA "/oracle")) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() != ".digest") continue;
    const ProfileMatch match = find_version_profile(stem.substr(6));
    REQUIRE(match.exact);
    check_release(entry.path(), *match.profile);
    ++releases;
  }
  CHECK(releases >= 2);
}

TEST_CASE("a changed split rule does not pass as a released library") {
  VersionProfile changed = version_profiles().back();
  changed.split_rule = SplitRule::kMutatedAtOneMiB;
  const std::string text = read_text(FRAGSCOPE_TEST_DATA "/oracle/lists/01.txt");
  const auto right = answer_lines(text, version_profiles().back());
  CHECK(test::line_digests(answer_lines(text, changed)) != test::line_digests(right));
}
