// What the trace says of a process beside its events, as plain values for the layers above.
//
// Threads: values. Source of the property keys: src/trace/FORMAT.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "replay/start_order.h"
#include "trace/trace_data.h"
#include "trace/trace_reader.h"

namespace fragscope::replay {

// Where the block plane of a process comes from; the later, the more it knows.
enum class BlockSource : uint8_t {
  none,      // no block plane: the driver's calls only
  report,    // c10 memory reports: block sizes; no requested sizes, streams or completions
  snapshot,  // imported from a snapshot's trace
  api,       // fragscope_api.h: what the program told
  adaptor,   // torch's trace tracker: requested sizes, streams, completions, segments
};
std::string_view block_source_name(BlockSource source);

struct DeviceFacts {
  std::optional<std::string> name;
  std::optional<std::string> uuid;
  std::optional<uint64_t> total_bytes;    // as the program sees it: of the card, or its cap
  std::optional<uint64_t> card_bytes;     // of the card, where a cap hides some of them
  std::optional<uint64_t> context_bytes;  // of this process, taken from total_bytes
  std::optional<bool> simulated;
};

struct ProcessFacts {
  uint32_t pid = 0;
  std::string program;
  trace::ProcessExit exit;
  bool sealed = false;
  uint64_t event_count = 0;
  uint64_t dropped_events = 0;
  uint64_t torn_records = 0;
  uint64_t overwritten_events = 0;          // of a ring: before, and between, what is in the trace
  uint64_t overwritten_before = 0;          // of these: before all that is in the trace
  uint64_t unwritten_events = 0;            // beyond the bound of the trace, after what is in it
  std::optional<BlockSource> block_source;  // as the shim states it; absent: see the events
  std::map<std::string, std::string> properties;
  // From the tables; empty when those were not read.
  std::map<uint16_t, std::string> api_names;
  std::map<std::string, uint64_t> api_calls;  // calls per entry point, reported as events or not
  // Stacks whose innermost native frame lies in PyTorch's CUDA library: who calls CUDA from there
  // for pinned memory is its host allocator. Absent: no native stacks were recorded.
  std::optional<std::unordered_set<uint32_t>> torch_cuda_stacks;
  // By device: what is known of the age of segments that were there when recording began.
  std::map<int32_t, std::vector<SegmentChoice>> start_choices;

  std::optional<std::string> property(const std::string& key) const;
  DeviceFacts device(int32_t index) const;
};

// `tables`: nullptr leaves what comes from them empty or absent.
ProcessFacts facts_of(const trace::ProcessInfo& process,
                      const trace::TraceTables* tables = nullptr);
// Events that newer ones took the place of, which of them, and what that makes of the figures: a
// sentence without a full stop. Only when overwritten_events is not 0.
std::string overwritten_text(const ProcessFacts& facts);
// What the process was held to (src/enforce/CAPS.md), in sentences without a full stop.
std::vector<std::string> limits_in_force(const std::map<std::string, std::string>& properties);
std::string_view exit_kind_name(trace::ExitKind kind);

}  // namespace fragscope::replay
