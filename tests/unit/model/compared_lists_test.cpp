// The model's answers to random lists that were compared with the released libraries: for each
// release and family of settings that tests/oracle/coverage.tsv notes without a difference, one of
// those very lists (tests/golden/oracle/compared.tsv: release, family, seed, fingerprint of the
// answer). A change of an answer fails here without the libraries; whether it is right, they tell:
// run `tests/oracle/fuzz --cover 100000` on that family, then FRAGSCOPE_UPDATE_GOLDEN=1 writes the
// file anew from what is noted as compared.
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "model/command_runner.h"
#include "tests/support/answer_digest.h"
#include "tests/support/catch.h"
#include "tests/support/list_options.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

const std::string kFolder = FRAGSCOPE_TEST_DATA "/oracle";

struct Family {
  std::string settings;
  test::ListOptions options;
};

std::vector<std::vector<std::string>> rows_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string>& row = rows.emplace_back();
    for (size_t at = 0; at <= line.size();) {
      const size_t end = std::min(line.find('\t', at), line.size());
      row.push_back(line.substr(at, end - at));
      at = end + 1;
    }
  }
  return rows;
}

std::map<std::string, Family> read_families() {
  std::map<std::string, Family> families;
  for (const auto& row : rows_of(kFolder + "/families.tsv")) {
    REQUIRE(row.size() == 5);
    Family& family = families[row[0]];
    family.settings = row[3];
    std::istringstream text(row[4]);
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    for (size_t i = 0; i < words.size(); ++i) {
      REQUIRE(test::take_list_option(words, i, family.options));
    }
  }
  return families;
}

ListResult run_model(const CommandList& list, const AllocatorConfig& config,
                     const VersionProfile& profile, uint64_t memory) {
  return run_commands(list, *make_model_target(list, config, profile, memory));
}

// As tests/oracle/main.cpp compares: without what PyTorch answers from freed memory.
ListResult answer(const Family& family, const VersionProfile& profile, uint64_t seed) {
  auto list =
      parse_commands(test::join_lines(test::make_list(family.options, profile, seed)), "list");
  const auto config = parse_config(family.settings, profile);
  REQUIRE(list.ok());
  REQUIRE(config.ok());
  const uint64_t memory = test::memory_of_list(seed);
  ListResult result = run_model(list.value(), config.value(), profile, memory);
  if (!result.undefined_from_line) return result;
  std::erase_if(list.value().commands,
                [&](const Command& c) { return c.line >= *result.undefined_from_line; });
  return run_model(list.value(), config.value(), profile, memory);
}

// 16 hexadecimal digits.
std::string fingerprint(const std::vector<std::string>& lines) {
  uint64_t hash = 0xcbf2'9ce4'8422'2325ull;
  for (const std::string& line : lines) {
    for (const char c : line + "\n") {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x0000'0100'0000'01b3ull;
    }
  }
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string fingerprint(const Family& family, const std::string& release, uint64_t seed) {
  const ProfileMatch match = find_version_profile(release);
  REQUIRE(match.exact);
  return fingerprint(test::normal_lines(answer(family, *match.profile, seed), *match.profile));
}

// The seeds go round, so that every capacity of the lists has its turn.
void write_compared(const std::map<std::string, Family>& families) {
  std::ofstream file(kFolder + "/compared.tsv");
  uint64_t turn = 0;
  for (const auto& row : rows_of(FRAGSCOPE_TEST_DATA "/../oracle/coverage.tsv")) {
    const bool differs = row[5] != "0";
    const uint64_t lists = std::stoull(row[4]);
    if (differs || lists < 5) continue;
    const uint64_t seed = std::stoull(row[3]) + turn++ % 5;
    file << row[0] << '\t' << row[1] << '\t' << seed << '\t'
         << fingerprint(families.at(row[1]), row[0], seed) << '\n';
  }
}

}  // namespace

TEST_CASE("lists that were compared with the libraries keep their answers") {
  const auto families = read_families();
  if (std::getenv("FRAGSCOPE_UPDATE_GOLDEN") != nullptr) write_compared(families);
  const auto rows = rows_of(kFolder + "/compared.tsv");
  for (const auto& row : rows) {
    REQUIRE(row.size() == 4);
    INFO("torch " << row[0] << ", family '" << row[1] << "', seed " << row[2]);
    CHECK(fingerprint(families.at(row[1]), row[0], std::stoull(row[2])) == row[3]);
  }
  CHECK(rows.size() >= 400);
}
