#include "replay/process_facts.h"

#include <algorithm>
#include <charconv>

#include "base/bytes.h"

namespace fragscope::replay {
namespace {

std::optional<uint64_t> to_number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  uint64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return value;
}

std::optional<BlockSource> to_source(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  for (const BlockSource source : {BlockSource::none, BlockSource::report, BlockSource::snapshot,
                                   BlockSource::api, BlockSource::adaptor}) {
    if (*text == block_source_name(source)) return source;
  }
  return std::nullopt;
}

}  // namespace

std::string_view block_source_name(BlockSource source) {
  switch (source) {
    case BlockSource::none:
      return "none";
    case BlockSource::report:
      return "report";
    case BlockSource::snapshot:
      return "snapshot";
    case BlockSource::api:
      return "api";
    case BlockSource::adaptor:
      return "adaptor";
  }
  return "none";
}

std::string_view exit_kind_name(trace::ExitKind kind) {
  switch (kind) {
    case trace::ExitKind::running:
      return "running";
    case trace::ExitKind::exited:
      return "exited";
    case trace::ExitKind::signaled:
      return "signaled";
    case trace::ExitKind::vanished:
      return "vanished";
  }
  return "vanished";
}

std::optional<std::string> ProcessFacts::property(const std::string& key) const {
  const auto at = properties.find(key);
  if (at == properties.end()) return std::nullopt;
  return at->second;
}

DeviceFacts ProcessFacts::device(int32_t index) const {
  const std::string prefix = "device." + std::to_string(index) + ".";
  DeviceFacts facts;
  facts.name = property(prefix + "name");
  facts.uuid = property(prefix + "uuid");
  facts.total_bytes = to_number(property(prefix + "total_bytes"));
  facts.context_bytes = to_number(property(prefix + "context_bytes"));
  facts.card_bytes = to_number(property(prefix + "card_bytes"));
  // A cap counts what the program allocates: the context takes from it only what the card has not
  // got beside it.
  if (facts.card_bytes && facts.total_bytes && facts.context_bytes) {
    const uint64_t card = *facts.card_bytes - std::min(*facts.card_bytes, *facts.context_bytes);
    facts.context_bytes = *facts.total_bytes - std::min(*facts.total_bytes, card);
  }
  if (const auto simulated = to_number(property(prefix + "simulated"))) {
    facts.simulated = *simulated != 0;
  }
  return facts;
}

std::vector<std::string> limits_in_force(const std::map<std::string, std::string>& properties) {
  std::vector<std::string> list;
  const auto of = [&](const char* key) -> std::optional<std::string> {
    const auto at = properties.find(key);
    return at == properties.end() ? std::nullopt : std::optional(at->second);
  };
  const bool shared = of("limit.scope") == "run";
  const std::string whose = shared ? " for all processes of the run together" : "";
  if (const auto bytes = to_number(of("limit.memory_bytes"))) {
    list.push_back("device memory was capped at " + format_size(*bytes) + whose +
                   " (--memory-limit), whatever the card has");
  }
  if (const auto bytes = to_number(of("limit.pinned_bytes"))) {
    list.push_back("pinned memory was capped at " + format_size(*bytes) + whose +
                   " (--pinned-limit)");
  }
  if (const auto calls = of("limit.oom_at")) {
    list.push_back("device allocation calls " + *calls + " failed on purpose (--oom-at)");
  }
  if (const auto rate = of("limit.fail_rate")) {
    list.push_back("device allocation calls failed on purpose (--fail-rate " + *rate + ")");
  }
  if (const auto problem = of("limit.problem")) {
    list.push_back("the limits could not be enforced as asked: " + *problem);
  }
  return list;
}

ProcessFacts facts_of(const trace::ProcessInfo& process, const trace::TraceTables* tables) {
  ProcessFacts facts;
  facts.pid = process.pid;
  facts.program = process.program;
  facts.exit = process.exit;
  facts.sealed = process.sealed;
  facts.event_count = process.event_count;
  facts.dropped_events = process.dropped_events;
  facts.torn_records = process.torn_records;
  facts.properties = process.properties;
  if (tables != nullptr) {
    facts.api_names.insert(tables->api_names.begin(), tables->api_names.end());
    facts.api_calls = tables->api_calls;
  }
  facts.block_source = to_source(facts.property("block_source"));
  return facts;
}

}  // namespace fragscope::replay
