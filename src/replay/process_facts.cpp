#include "replay/process_facts.h"

#include <algorithm>
#include <charconv>

#include "base/bytes.h"
#include "event/frame.h"

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

bool is_torch_cuda(const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  return name == "libtorch_cuda.so" || name == "libc10_cuda.so" || name == "libtorch_cuda_cu.so" ||
         name == "libtorch_cuda_cpp.so";
}

// These libraries are never unloaded, so where they were mapped once they stay.
std::unordered_set<uint32_t> torch_cuda_stacks(const trace::TraceTables& tables) {
  std::vector<const trace::Module*> modules;
  for (const trace::Module& module : tables.modules) {
    if (is_torch_cuda(module.path)) modules.push_back(&module);
  }
  std::unordered_set<uint32_t> stacks;
  if (modules.empty()) return stacks;
  for (const auto& [id, frames] : tables.stacks) {
    const auto innermost = std::find_if_not(frames.begin(), frames.end(), is_python_frame);
    if (innermost == frames.end() || *innermost == 0) continue;
    const uint64_t call = *innermost - 1;  // a return address may be the first byte behind
    if (std::any_of(modules.begin(), modules.end(), [&](const trace::Module* module) {
          return call >= module->start && call < module->end;
        })) {
      stacks.insert(id);
    }
  }
  return stacks;
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
    list.push_back("device allocation calls " + *calls +
                   " fail on purpose, where the program gets that far (--oom-at)");
  }
  if (const auto rate = of("limit.fail_rate")) {
    list.push_back("device allocation calls fail on purpose with a probability of " + *rate +
                   " (--fail-rate)");
  }
  if (const auto problem = of("limit.problem")) {
    list.push_back("the limits could not be enforced as asked: " + *problem);
  }
  if (const auto problem = of("enforce.problem")) {
    list.push_back("the settings could not be enforced as asked: " + *problem);
  }
  if (const auto problem = of("enforce_plan_problem")) {
    list.push_back("the plan was not followed: " + *problem);
  }
  return list;
}

std::string overwritten_text(const ProcessFacts& facts) {
  const uint64_t between =
      facts.overwritten_events - std::min(facts.overwritten_events, facts.overwritten_before);
  const std::string start = std::to_string(facts.overwritten_events) +
                            " events were overwritten by newer ones (--ring): ";
  if (between == 0) {
    return start +
           "the recording begins in the middle of the run; figures are of what was allocated "
           "since, "
           "peaks are lower bounds";
  }
  return start + std::to_string(between) +
         " of them between recorded ones, which the recorder read too late; allocations and frees "
         "are missing, figures may be too low or too high";
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
    const auto recorded = facts.property("stacks");
    if (recorded == "both" || recorded == "native") {
      facts.torch_cuda_stacks = torch_cuda_stacks(*tables);
    }
  }
  facts.overwritten_events = to_number(facts.property("log.overwritten_events")).value_or(0);
  const std::string gaps = facts.property("log.gaps").value_or("");
  if (gaps.starts_with("0:")) {
    facts.overwritten_before = to_number(gaps.substr(2, gaps.find(' ') - 2)).value_or(0);
  }
  facts.unwritten_events = to_number(facts.property("trace.unwritten_events")).value_or(0);
  facts.block_source = to_source(facts.property("block_source"));
  return facts;
}

}  // namespace fragscope::replay
