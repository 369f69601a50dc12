#include "log/log_control.h"

#include <cstring>

#include "tests/unit/log/log_fixture.h"

using namespace fragscope;
using namespace fragscope::log_test;

namespace {

// What the served allocator does with the newest request.
void take(log::LogHeader& header) { header.settings_claimed.store(header.settings_wanted.load()); }
void answer(log::LogHeader& header, const char* problem) {
  std::strcpy(header.settings_answer, problem);
  header.settings_accepted.store(*problem == '\0' ? 1 : 0);
  header.settings_done.store(header.settings_claimed.load());
}

}  // namespace

TEST_CASE("a request for settings gets its own answer, or hears that another replaced it") {
  const TemporaryDirectory directory("control");
  const std::string path = directory.path / "1-1.fslog";
  Log log(path, kSmallRing);
  log::LogHeader& header = *log.writer.header();
  auto control = log::LogControl::open(path);
  REQUIRE(control.ok());
  const auto first = control->request_settings("max_split_size_mb:40");
  REQUIRE(first.ok());
  CHECK_FALSE(control->settings_answer(*first));
  CHECK_FALSE(control->request_settings("max_split_size_mb:50").ok());  // one at a time
  take(header);
  CHECK_FALSE(control->settings_answer(*first));
  answer(header, "");
  const auto second = control->request_settings("nonsense");
  REQUIRE(second.ok());
  REQUIRE(control->settings_answer(*first));  // the second has not been taken
  CHECK(control->settings_answer(*first)->accepted);
  CHECK_FALSE(control->settings_answer(*second));
  take(header);  // and now may be writing its answer
  CHECK(control->settings_answer(*first)->replaced);
  CHECK_FALSE(control->settings_answer(*second));
  answer(header, "unknown");
  CHECK(control->settings_answer(*first)->replaced);
  CHECK_FALSE(control->settings_answer(*first)->accepted);
  REQUIRE(control->settings_answer(*second));
  CHECK_FALSE(control->settings_answer(*second)->replaced);
  CHECK(control->settings_answer(*second)->text == "unknown");
}

TEST_CASE("answers are found beyond the largest number of a request") {
  const TemporaryDirectory directory("control-wrap");
  const std::string path = directory.path / "1-1.fslog";
  Log log(path, kSmallRing);
  log::LogHeader& header = *log.writer.header();
  header.settings_wanted = header.settings_claimed = header.settings_done = UINT32_MAX;
  auto control = log::LogControl::open(path);
  REQUIRE(control.ok());
  const auto number = control->request_settings("max_split_size_mb:40");
  REQUIRE(number.ok());
  CHECK_FALSE(control->settings_answer(*number));
  take(header);
  answer(header, "");
  REQUIRE(control->settings_answer(*number));
  CHECK(control->settings_answer(*number)->accepted);
}
