#include "tools/snapshot_file.h"

#include <string>
#include <unordered_map>

#include "import/pickle_writer.h"

namespace fragscope::tools {
namespace {

using model::AllocatorConfig;
using replay::DeviceState;
using replay::StateEntry;
using replay::StateOrigin;

class SnapshotFile {
 public:
  SnapshotFile(std::ostream& out, const replay::ProcessState& state,
               const trace::ProcessInfo& process, symbolize::Symbolizer& symbolizer)
      : pickle_(out), state_(state), process_(process), symbolizer_(symbolizer) {}

  void write() {
    pickle_.begin_dict();
    write_segments();
    write_traces();
    if (since(3)) write_settings();
    if (since(5)) empty_list("external_annotations");
    if (since(14)) {
      empty_list("host_segments");
      empty_list("host_traces");
    }
    pickle_.end_dict();
    pickle_.finish();
  }

 private:
  bool since(int minor) const { return state_.profile.minor >= minor; }

  void field(std::string_view key, uint64_t value) {
    pickle_.text(key);
    pickle_.number(value);
  }
  void field(std::string_view key, std::string_view value) {
    pickle_.text(key);
    pickle_.text(value);
  }
  void flag(std::string_view key, bool value) {
    pickle_.text(key);
    pickle_.boolean(value);
  }
  // -1: there is no such limit.
  void limit(std::string_view key, std::optional<uint64_t> value) {
    pickle_.text(key);
    pickle_.number_signed(value ? static_cast<int64_t>(*value) : -1);
  }
  void pool_id(std::string_view key, model::PoolId pool) {
    pickle_.text(key);
    pickle_.pair(pool.first, pool.second);
  }
  void empty_list(std::string_view key) {
    pickle_.text(key);
    pickle_.begin_list();
    pickle_.end_list();
  }

  // --- stacks -----------------------------------------------------------------------------------

  void write_frame(const symbolize::Frame& frame) {
    pickle_.begin_dict();
    field("name", frame.function.empty() ? symbolize::frame_text(frame) : frame.function);
    field("filename", frame.file.empty() ? frame.module : frame.file);
    pickle_.text("line");
    pickle_.number(frame.line);
    pickle_.end_dict();
  }

  void write_frames(const StateOrigin* origin) {
    pickle_.text("frames");
    const uint32_t stack = origin != nullptr ? origin->stack : kNoStack;
    const auto known = stacks_.find(stack);
    if (stack != kNoStack && known != stacks_.end()) return pickle_.recall(known->second);
    pickle_.begin_list();
    if (stack != kNoStack) {
      for (const auto& frame : symbolizer_.resolve_stack(stack, origin->seq)) write_frame(frame);
    }
    pickle_.end_list();
    if (stack != kNoStack) stacks_[stack] = pickle_.memoize();
  }

  static const StateOrigin* origin_at(const std::unordered_map<uint64_t, StateOrigin>& origins,
                                      uint64_t address) {
    const auto found = origins.find(address);
    return found != origins.end() ? &found->second : nullptr;
  }

  // --- segments ---------------------------------------------------------------------------------

  void write_block(const DeviceState& device, const model::BlockSnapshot& block) {
    pickle_.begin_dict();
    field("address", block.address);
    field("size", block.size);
    field("requested_size", block.requested_size);
    const StateOrigin* origin = nullptr;
    switch (block.state) {
      case model::BlockState::kAllocated:
        field("state", "active_allocated");
        origin = origin_at(device.blocks, block.address);
        break;
      case model::BlockState::kPendingFree:
        // PyTorch's own word, of all releases.
        field("state", "active_pending_free");
        origin = origin_at(device.blocks, block.address);
        break;
      case model::BlockState::kInactive:
        field("state", "inactive");
        break;
    }
    write_frames(origin);
    pickle_.end_dict();
  }

  void write_segment(const DeviceState& device, const model::SegmentSnapshot& segment) {
    pickle_.begin_dict();
    field("device", static_cast<uint64_t>(device.device));
    field("address", segment.address);
    field("total_size", segment.total_size);
    field("allocated_size", segment.allocated_size);
    field("active_size", segment.active_size);
    field("requested_size", segment.requested_size);
    field("stream", segment.stream);
    field("segment_type", segment.kind == model::PoolKind::kLarge ? "large" : "small");
    pool_id("segment_pool_id", segment.pool);
    flag("is_expandable", segment.is_expandable);
    write_frames(origin_at(device.ranges, segment.address));
    pickle_.text("blocks");
    pickle_.begin_list();
    for (const model::BlockSnapshot& block : segment.blocks) write_block(device, block);
    pickle_.end_list();
    pickle_.end_dict();
  }

  void write_segments() {
    pickle_.text("segments");
    pickle_.begin_list();
    for (const DeviceState& device : state_.devices) {
      for (const model::SegmentSnapshot& segment : device.segments) write_segment(device, segment);
    }
    pickle_.end_list();
  }

  // --- traces -----------------------------------------------------------------------------------

  uint64_t time_us(const StateOrigin& origin) const {
    return (process_.realtime_ns + origin.time_ns - process_.monotonic_ns) / 1000;
  }

  void write_entry(const StateEntry& entry) {
    pickle_.begin_dict();
    field("action", model::trace_action_name(entry.action));
    field(entry.action == model::TraceAction::kOom ? "device_free" : "addr", entry.address);
    field("size", entry.size);
    field("stream", entry.stream);
    if (since(2)) field("time_us", time_us(entry.origin));
    if (since(8)) field("compile_context", "N/A");
    if (since(10)) field("user_metadata", "");
    if (since(11)) pool_id("pool_id", entry.pool);
    write_frames(&entry.origin);
    pickle_.end_dict();
  }

  // One list a device; the devices in between have none.
  void write_traces() {
    pickle_.text("device_traces");
    pickle_.begin_list();
    int32_t next = 0;
    for (const DeviceState& device : state_.devices) {
      for (; next < device.device; ++next) {
        pickle_.begin_list();
        pickle_.end_list();
      }
      pickle_.begin_list();
      for (const StateEntry& entry : device.trace) write_entry(entry);
      pickle_.end_list();
      ++next;
    }
    pickle_.end_list();
  }

  // --- settings ---------------------------------------------------------------------------------

  void write_settings() {
    const AllocatorConfig& config = state_.config;
    const bool split_limit = config.max_split_size != model::kUnlimitedSplit;
    pickle_.text("allocator_settings");
    pickle_.begin_dict();
    field("PYTORCH_CUDA_ALLOC_CONF", config.text);
    limit("max_split_size", split_limit ? std::optional(config.max_split_size) : std::nullopt);
    pickle_.text("garbage_collection_threshold");
    pickle_.real(config.garbage_collection_threshold);
    flag("expandable_segments", config.expandable_segments);
    field("pinned_num_register_threads", config.pinned_num_register_threads);
    flag("release_lock_on_cudamalloc", config.release_lock_on_cudamalloc);
    flag("pinned_use_cuda_host_register", config.pinned_use_cuda_host_register);
    if (since(9)) {
      flag("graph_capture_record_stream_reuse", config.graph_capture_record_stream_reuse);
    }
    if (since(13)) {
      limit("max_round_threshold", config.pinned_max_round_threshold);
      limit("max_cached_size", config.pinned_max_cached_size);
    }
    pickle_.text("roundup_power2_divisions");
    pickle_.begin_dict();
    for (size_t i = 0; i < model::kRoundupEntries; ++i) {
      field(std::to_string(uint64_t{1} << i), config.roundup_power2_divisions[i]);
    }
    pickle_.end_dict();
    pickle_.end_dict();
  }

  imported::PickleWriter pickle_;
  const replay::ProcessState& state_;
  const trace::ProcessInfo& process_;
  symbolize::Symbolizer& symbolizer_;
  std::unordered_map<uint32_t, uint32_t> stacks_;  // by id: their memo
};

}  // namespace

void write_snapshot_file(std::ostream& out, const replay::ProcessState& state,
                         const trace::ProcessInfo& process, symbolize::Symbolizer& symbolizer) {
  SnapshotFile(out, state, process, symbolizer).write();
}

}  // namespace fragscope::tools
