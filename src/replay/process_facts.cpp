#include "replay/process_facts.h"

#include <algorithm>
#include <charconv>

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
  if (const auto simulated = to_number(property(prefix + "simulated"))) {
    facts.simulated = *simulated != 0;
  }
  return facts;
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
  facts.unwritten_events = to_number(facts.property("trace.unwritten_events")).value_or(0);
  facts.block_source = to_source(facts.property("block_source"));
  return facts;
}

}  // namespace fragscope::replay
