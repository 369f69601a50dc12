#include <fstream>
#include <sstream>

#include "diagnose/explain_json.h"
#include "diagnose/explain_text.h"
#include "tests/support/catch.h"

using namespace fragscope::diagnose;

namespace {

std::string read_golden(const std::string& name) {
  std::ifstream file(std::string(FRAGSCOPE_TEST_DATA) + "/diagnose/" + name);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

// tests/golden/diagnose/NAME.txt is the input, NAME.json and NAME.out what is printed for it
// (`fragscope explain NAME.txt [--json]`).
TEST_CASE("explanations are printed as approved") {
  for (const std::string name : {"tutorial", "listed_processes", "status_code"}) {
    INFO(name);
    const MessageScan scan = scan_message(read_golden(name + ".txt"));
    REQUIRE(scan.message);
    const Explanation explanation = explain(scan);
    CHECK(explanation_json(scan, explanation) + "\n" == read_golden(name + ".json"));
    CHECK(explanation_text(scan, explanation) == read_golden(name + ".out"));
  }
}

TEST_CASE("without a message every figure is null") {
  const std::string json = explanation_json(MessageScan{}, Explanation{});
  CHECK(json.find("\"verdict\": \"unknown\", \"alternatives\": [], \"fields\": {\"tried_bytes\": "
                  "null, ") == 1);
  CHECK(json.find("\"messages\": 0") != std::string::npos);
  CHECK(json.find("\"derived\": {\"reserved_bytes\": null") != std::string::npos);
}

TEST_CASE("lines of the text stay within 100 columns") {
  for (const std::string name : {"tutorial", "listed_processes", "status_code"}) {
    std::istringstream text(read_golden(name + ".out"));
    for (std::string line; std::getline(text, line);) CHECK(line.size() <= 100);
  }
}
