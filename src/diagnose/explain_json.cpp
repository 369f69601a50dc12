#include "diagnose/explain_json.h"

#include <cstdio>

namespace fragscope::diagnose {
namespace {

// All texts are our own ASCII: quotes and backslashes are all that needs escaping.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  out.push_back('"');
  return out;
}

class ObjectWriter {
 public:
  void raw(std::string_view key, std::string_view value) {
    text_ += text_.empty() ? "" : ", ";
    text_ += quoted(key) + ": ";
    text_ += value;
  }
  void text(std::string_view key, std::string_view value) {
    raw(key, value.empty() ? "null" : quoted(value));
  }
  template <typename T>
  void number(std::string_view key, const std::optional<T>& value) {
    raw(key, value ? std::to_string(*value) : "null");
  }
  void fraction(std::string_view key, const std::optional<double>& value) {
    char buffer[32] = "null";
    if (value) std::snprintf(buffer, sizeof buffer, "%.10g", *value);
    raw(key, buffer);
  }
  void flag(std::string_view key, bool value) { raw(key, value ? "true" : "false"); }
  std::string str() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

template <typename Items, typename Write>
std::string array(const Items& items, Write&& write) {
  std::string out = "[";
  for (const auto& item : items) {
    if (out.size() > 1) out += ", ";
    out += write(item);
  }
  return out + "]";
}

std::string intervals(const OomFacts& facts) {
  ObjectWriter out;
  for (size_t i = 0; i < kFieldCount; ++i) {
    const auto& figure = facts.figures[i];
    if (!figure) continue;
    out.raw(field_name(static_cast<Field>(i)),
            "[" + std::to_string(figure->low) + ", " + std::to_string(figure->high) + "]");
  }
  return out.str();
}

std::string_view backend(Family family) {
  if (family == Family::kAsync) return "cudaMallocAsync";
  return family >= Family::kNative || family == Family::kBareAllocator ? "native" : "";
}

std::string fields(const MessageScan& scan) {
  const OomFacts facts = scan.message.value_or(OomFacts{});
  ObjectWriter out;
  for (size_t i = 0; i < kFieldCount; ++i) {
    const auto& figure = facts.figures[i];
    out.number(field_name(static_cast<Field>(i)),
               figure ? std::optional<uint64_t>(figure->bytes) : std::nullopt);
  }
  out.number("device_index", facts.device_index);
  out.raw("listed_processes", array(facts.listed_processes, [](const ListedProcess& process) {
            return "{\"pid\": " + std::to_string(process.pid) +
                   ", \"bytes\": " + std::to_string(process.in_use.bytes) + "}";
          }));
  out.flag("process_in_use_is_sentinel", facts.process_in_use_is_sentinel);
  out.flag("limit_is_sentinel", facts.limit_is_sentinel);
  out.fraction("memory_fraction", facts.memory_fraction);
  out.fraction("gpu_memory_utilization", facts.gpu_memory_utilization);
  out.number("memlock_kb", facts.memlock_kib);
  out.text("source", scan.message ? family_name(facts.family) : "");
  out.text("backend", backend(facts.family));
  const Wording wording = scan.messages > 0 ? wording_of(facts) : Wording{};
  out.text("wording", wording.letter);
  out.text("torch_versions", wording.torch_versions);
  out.raw("messages", std::to_string(scan.messages));
  out.raw("intervals", intervals(facts));
  return out.str();
}

std::string derived(const Derived& d) {
  ObjectWriter out;
  out.number("reserved_bytes", d.reserved);
  out.number("idle_reserved_bytes", d.idle_reserved);
  out.number("obtainable_bytes", d.obtainable);
  out.number("outside_pytorch_bytes", d.outside_pytorch);
  out.number("other_processes_bytes", d.other_processes);
  out.number("cap_bytes", d.cap);
  out.number("reserved_at_least_bytes", d.reserved_at_least);
  out.number("idle_reserved_at_least_bytes", d.idle_reserved_at_least);
  return out.str();
}

}  // namespace

std::string explanation_json(const MessageScan& scan, const Explanation& explanation) {
  ObjectWriter out;
  out.text("verdict", verdict_name(explanation.verdict));
  out.raw("alternatives", array(explanation.alternatives,
                                [](Verdict verdict) { return quoted(verdict_name(verdict)); }));
  out.raw("fields", fields(scan));
  out.raw("derived", derived(explanation.derived));
  out.text("confidence", confidence_name(explanation.confidence));
  std::string why;
  for (const auto& sentence : explanation.why) why += (why.empty() ? "" : " ") + sentence;
  out.text("why", why);
  out.raw("actions", array(explanation.actions, [](const std::string& s) { return quoted(s); }));
  return out.str();
}

}  // namespace fragscope::diagnose
