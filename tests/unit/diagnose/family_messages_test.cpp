// Messages of every family (golden/diagnose/families.jsonl: text, verdicts that are right, figures
// as printed) under every kind of damage. The labels follow the arithmetic of the README: what a
// text does not decide has several right verdicts, and none of them with high confidence.
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/oom_message.h"
#include "diagnose/verdict.h"
#include "tests/support/catch.h"

using namespace fragscope::diagnose;
using Json = nlohmann::json;

namespace {

std::vector<Json> labelled() {
  std::ifstream file(std::string(FRAGSCOPE_TEST_DATA) + "/diagnose/families.jsonl");
  std::vector<Json> out;
  for (std::string line; std::getline(file, line);) out.push_back(Json::parse(line));
  return out;
}

// "1.72 GiB": the bytes and half of the last printed digit.
std::pair<double, double> printed(const std::string& text) {
  const size_t space = text.find(' ');
  const std::string number = text.substr(0, space);
  const std::string unit = text.substr(space + 1);
  const double scale = unit == "GiB"   ? std::pow(2, 30)
                       : unit == "MiB" ? std::pow(2, 20)
                       : unit == "KiB" ? std::pow(2, 10)
                                       : 1;
  const size_t dot = number.find('.');
  const double digits = dot == std::string::npos ? 0 : static_cast<double>(number.size() - dot - 1);
  return {std::stod(number) * scale, scale * std::pow(10, -digits) / 2 + (scale > 1 ? 1 : 0)};
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

// Breaks the text every `width` characters; each line begins with `prefix` and ends with `end`.
std::string broken(const std::string& text, size_t width, const std::string& prefix,
                   const std::string& end = "\n") {
  std::string out = prefix;
  size_t column = 0;
  for (const char c : text) {
    if (c == '\n' || column == width) {
      out += end + prefix;
      column = 0;
    }
    if (c == '\n') continue;
    out.push_back(c);
    ++column;
  }
  return out + end;
}

// `change` applied to the character between a digit and a digit or unit.
std::string between_digits(std::string text, char from, const std::string& to, bool before_unit) {
  for (size_t at = 1; at + 2 < text.size(); ++at) {
    const bool unit = std::string("KMG").find(text[at + 1]) != std::string::npos &&
                      (text[at + 2] == 'i' || text[at + 2] == 'B');
    const bool digits = isdigit(text[at + 1]) != 0 && isdigit(text[at + 2]) != 0 &&
                        (at + 3 == text.size() || isdigit(text[at + 3]) == 0);
    if (text[at] != from || isdigit(text[at - 1]) == 0 || !(before_unit ? unit : digits)) continue;
    text.replace(at, 1, to);
    at += to.size();
  }
  return text;
}

struct Damage {
  const char* name;
  std::function<std::string(const std::string&)> apply;
};

std::string among_noise(const std::string& text) {
  std::string log;
  for (int i = 0; i < 300; ++i)
    log += "step " + std::to_string(i) + " loss 0.31 lr 1.0e-4 4.2it/s\n";
  return log + text + "\n" + log;
}

std::string html(const std::string& text) {
  std::string out = replaced(text, "\"", "&quot;");
  out = replaced(out, " >> ", " &gt;&gt; ");
  out = replaced(out, "\n", "<br/>\n");
  return "<pre class=\"log\"><span style=\"color:#fff\">" + replaced(out, " ", "&nbsp;") +
         "</span></pre>";
}

const std::vector<Damage>& damages() {
  using S = const std::string&;
  static const std::vector<Damage> list = {
      {"none", [](S t) { return t; }},
      {"terminal", [](S t) { return broken(t, 37, ""); }},
      {"narrow terminal", [](S t) { return broken(t, 13, "  "); }},
      {"carriage returns", [](S t) { return broken(t, 60, "", "\r\n"); }},
      {"rank", [](S t) { return broken(t, 61, "[rank3]: "); }},
      {"logger", [](S t) { return broken(t, 73, "2031-05-07 11:22:33,456 ERROR "); }},
      {"container", [](S t) { return broken(t, 90, "2031-05-07T11:22:33.123456789Z stderr F "); }},
      {"syslog", [](S t) { return broken(t, 80, "May  7 11:22:33 node7 python[4711]: "); }},
      {"mpirun", [](S t) { return broken(t, 80, "[1,3]<stderr>:"); }},
      {"glog", [](S t) { return broken(t, 80, "E0507 11:22:33.000000 4711 run.cc:12] "); }},
      {"compose", [](S t) { return broken(t, 66, "trainer-1  | "); }},
      {"srun", [](S t) { return broken(t, 55, "12: "); }},
      {"quoted mail", [](S t) { return broken(t, 58, "> > "); }},
      {"colours",
       [](S t) { return "\x1b[1;31m" + replaced(t, " of ", " \x1b[33mof\x1b[0m ") + "\x1b[0m\n"; }},
      {"escaped colours",
       [](S t) { return "\\u001b[31m" + replaced(t, "\n", "\\n") + "\\x1b[0m"; }},
      {"JSON log",
       [](S t) {
         return Json{{"level", "error"}, {"msg", t}}.dump();
       }},
      {"lower case",
       [](std::string t) {
         for (char& c : t) c = static_cast<char>(tolower(c));
         return t;
       }},
      {"no space before units", [](S t) { return between_digits(t, ' ', "", true); }},
      {"hard spaces", [](S t) { return replaced(t, " ", "\xc2\xa0"); }},
      {"decimal commas", [](S t) { return between_digits(t, '.', ",", false); }},
      {"SI names of units",
       [](S t) { return replaced(replaced(replaced(t, "GiB", "GB"), "MiB", "MB"), "KiB", "KB"); }},
      {"HTML", html},
      {"Markdown", [](S t) { return "```\n**" + replaced(t, "GiB", "`GiB`") + "**\n```\n"; }},
      {"repeated", [](S t) { return t + "\nretrying\n" + t + "\n"; }},
      {"noise", among_noise},
  };
  return list;
}

bool is_right(const Json& label, const Explanation& explanation) {
  const auto& verdicts = label.at("verdicts");
  return std::find(verdicts.begin(), verdicts.end(), verdict_name(explanation.verdict)) !=
         verdicts.end();
}

void check_figures(const Json& label, const OomFacts& facts, bool whole) {
  if (label.at("fields").is_null()) return;
  for (size_t i = 0; i < kFieldCount; ++i) {
    const std::string name(field_name(static_cast<Field>(i)));
    INFO(name);
    const auto& figure = facts.figures[i];
    if (!label.at("fields").contains(name)) {
      CHECK_FALSE(figure.has_value());
      continue;
    }
    if (whole) CHECK(figure.has_value());
    if (!figure) continue;
    const auto [value, half] = printed(label.at("fields").at(name).get<std::string>());
    CHECK(std::abs(static_cast<double>(figure->bytes) - value) <= half);
  }
  if (label.contains("device") && whole) CHECK(facts.device_index == label.at("device"));
}

}  // namespace

TEST_CASE("every family under every damage: verdict and figures") {
  const auto labels = labelled();
  REQUIRE(labels.size() >= 150);
  for (const Damage& damage : damages()) {
    for (const Json& label : labels) {
      const std::string text = damage.apply(label.at("message"));
      INFO(damage.name << "\n" << text);
      const MessageScan scan = scan_message(text, label.value("context", ""));
      CHECK(scan.message);
      if (!scan.message) continue;
      const Explanation explanation = explain(scan);
      INFO(verdict_name(explanation.verdict));
      CHECK(is_right(label, explanation));
      check_figures(label, *scan.message, true);
    }
  }
}

// Where words end a text may be cut: what is left is read exactly or not at all, and what the
// missing part would have decided is not claimed with high confidence.
TEST_CASE("every family cut at every word") {
  for (const Json& label : labelled()) {
    const std::string whole = label.at("message");
    if (whole.find("[rank1]") != whole.npos || whole.find("retrying") != whole.npos) continue;
    for (size_t at = whole.find(' '); at != std::string::npos; at = whole.find(' ', at + 1)) {
      const std::string text = whole.substr(0, at);
      INFO(text);
      const MessageScan scan = scan_message(text, label.value("context", ""));
      if (!scan.message) continue;
      const Explanation explanation = explain(scan);
      INFO(verdict_name(explanation.verdict));
      CHECK((is_right(label, explanation) || explanation.confidence != Confidence::kHigh));
      check_figures(label, *scan.message, false);
    }
  }
}
