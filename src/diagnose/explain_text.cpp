#include "diagnose/explain_text.h"

#include <algorithm>

#include "base/bytes.h"

namespace fragscope::diagnose {
namespace {

constexpr size_t kColumns = 100;

// Appends `text` behind `lead`, wrapped; following lines are indented as far as `lead` is long.
void wrap(std::string lead, std::string_view text, std::string& out) {
  const std::string indent(lead.size(), ' ');
  std::string line = std::move(lead);
  bool first = true;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    if (!first && line.size() + 1 + space > kColumns) {
      out += line + "\n";
      line = indent;
      first = true;
    }
    line += first ? "" : " ";
    line += text.substr(0, space);
    first = false;
    text.remove_prefix(std::min(text.size(), space + 1));
  }
  out += line + "\n";
}

void row(std::string_view name, const std::string& value, std::string& out) {
  std::string line = "  " + std::string(name);
  line.resize(std::max<size_t>(line.size() + 1, 28), ' ');
  out += line + value + "\n";
}

void figures(const OomFacts& facts, std::string& out) {
  for (size_t i = 0; i < kFieldCount; ++i) {
    const auto& figure = facts.figures[i];
    if (!figure) continue;
    std::string name(field_name(static_cast<Field>(i)));
    name.resize(name.size() - 6);  // "_bytes"
    std::replace(name.begin(), name.end(), '_', ' ');
    row(name, format_size(figure->bytes), out);
  }
  for (const auto& process : facts.listed_processes) {
    row("process " + std::to_string(process.pid), format_size(process.in_use.bytes), out);
  }
  if (facts.device_index) row("device", std::to_string(*facts.device_index), out);
  const Wording wording = wording_of(facts);
  if (!wording.torch_versions.empty()) row("torch", std::string(wording.torch_versions), out);
}

}  // namespace

std::string explanation_text(const MessageScan& scan, const Explanation& explanation) {
  std::string out = "verdict: " + std::string(verdict_name(explanation.verdict)) +
                    " (confidence: " + std::string(confidence_name(explanation.confidence)) + ")\n";
  std::string others;
  for (const Verdict verdict : explanation.alternatives) {
    others += (others.empty() ? "" : ", ") + std::string(verdict_name(verdict));
  }
  if (!others.empty()) out += "or:      " + others + "\n";
  if (scan.messages > 1) {
    out += "the deciding one of " + std::to_string(scan.messages) + " messages in the input\n";
  }
  out += "\nfigures of the message\n";
  const size_t before = out.size();
  if (scan.message) figures(*scan.message, out);
  if (out.size() == before) out += "  none\n";
  out += "\nwhy\n";
  for (const auto& sentence : explanation.why) wrap("  ", sentence, out);
  out += "\nwhat to do\n";
  int number = 0;
  for (const auto& action : explanation.actions) {
    wrap("  " + std::to_string(++number) + ". ", action, out);
  }
  return out;
}

}  // namespace fragscope::diagnose
