#include "model/command_runner.h"

#include <set>
#include <utility>

namespace fragscope::model {
namespace {

class Runner {
 public:
  Runner(const CommandList& list, CommandTarget& target) : list_(list), target_(target) {
    addresses_.resize(list.ids.size());
  }

  CommandResult run(const Command& command) {
    CommandResult result;
    result.command = command;
    result.outcome = "ok";
    switch (command.kind) {
      case CommandKind::kAlloc:
      case CommandKind::kHostAlloc:
        alloc(command, result);
        break;
      case CommandKind::kFree:
      case CommandKind::kRecordStream:
      case CommandKind::kHostFree:
      case CommandKind::kHostRecord:
        use(command, result);
        break;
      case CommandKind::kCheckpoint:
        result.id = list_.checkpoints[command.checkpoint];
        result.message = target_.checkpoint(command.device, command.pool, command.checkpoint);
        kept_.resize(list_.checkpoints.size());
        kept_[command.checkpoint] = addresses_;
        break;
      case CommandKind::kRestore:
        result.id = list_.checkpoints[command.checkpoint];
        restore(command, result);
        break;
      default:
        result.message = other(command);
    }
    if (!result.message.empty() && result.outcome == "ok") result.outcome = "error";
    result.trace = target_.take_trace();
    if (is_host_command(command.kind)) result.host_calls = target_.host().take_calls();
    return result;
  }

 private:
  void alloc(const Command& command, CommandResult& result) {
    const uint64_t stream = *command.stream;
    const AllocReply reply = is_host_command(command.kind)
                                 ? target_.host().alloc(command.device, command.size, stream)
                                 : target_.alloc(command.device, command.size, stream);
    result.id = list_.ids[command.id];
    result.outcome = reply.outcome;
    result.message = reply.message;
    if (reply.outcome != "ok") return;
    addresses_[command.id] = reply.address;
    result.address = reply.address;
    result.block_size = reply.block_size;
  }

  void use(const Command& command, CommandResult& result) {
    result.id = list_.ids[command.id];
    result.address = addresses_[command.id];
    if (!result.address) {
      result.outcome = "skipped";
      return;
    }
    result.message = use(command, *result.address);
    const bool frees = command.kind == CommandKind::kFree || command.kind == CommandKind::kHostFree;
    if (frees) addresses_[command.id].reset();
  }

  // Who held a block at the checkpoint holds it again; what was taken from others is gone.
  void restore(const Command& command, CommandResult& result) {
    CheckpointDelta delta;
    result.message = target_.restore(command.device, command.checkpoint, delta);
    const std::set<uint64_t> freed(delta.freed.begin(), delta.freed.end());
    const std::set<uint64_t> allocated(delta.allocated.begin(), delta.allocated.end());
    for (std::optional<uint64_t>& address : addresses_) {
      if (address && freed.count(*address) != 0) address.reset();
    }
    const auto& kept = kept_[command.checkpoint];
    for (size_t id = 0; id < kept.size(); ++id) {
      if (kept[id] && allocated.count(*kept[id]) != 0) addresses_[id] = kept[id];
    }
  }

  std::string use(const Command& c, uint64_t address) {
    if (c.kind == CommandKind::kFree) return target_.free(c.device, address);
    if (c.kind == CommandKind::kHostFree) return target_.host().free(address);
    if (c.kind == CommandKind::kHostRecord)
      return target_.host().record(c.device, address, *c.stream);
    return target_.record_stream(c.device, address, *c.stream);
  }

  std::string about_host(const Command& c) {
    HostTarget& host = target_.host();
    switch (c.kind) {
      case CommandKind::kHostEmptyCache:
        return host.empty_cache();
      case CommandKind::kHostBackground:
        return host.background();
      case CommandKind::kHostBeginPool:
        return host.begin_pool(c.device, c.pool, c.stream);
      case CommandKind::kHostEndPool:
        return host.end_pool(c.pool);
      case CommandKind::kHostReleasePool:
        return host.release_pool(c.pool);
      case CommandKind::kHostResetPeakStats:
        return host.reset_peak_stats();
      default:
        return host.reset_accumulated_stats();
    }
  }

  std::string other(const Command& c) {
    switch (c.kind) {
      case CommandKind::kWork:
        target_.work(c.device, *c.stream);
        return {};
      case CommandKind::kComplete:
        target_.complete(c.device, *c.stream);
        return {};
      case CommandKind::kEmptyCache:
        return target_.empty_cache();
      case CommandKind::kSettings:
        return target_.settings(c.settings);
      case CommandKind::kFraction:
        return target_.fraction(c.device, c.fraction);
      case CommandKind::kBeginPool:
        return target_.begin_pool(c.device, c.pool, c.stream);
      case CommandKind::kEndPool:
        return target_.end_pool(c.device, c.pool);
      case CommandKind::kCreatePool:
        return target_.create_pool(c.device, c.pool, c.use_on_oom, c.no_split);
      case CommandKind::kReleasePool:
        return target_.release_pool(c.device, c.pool);
      case CommandKind::kBeginCapture:
        return target_.begin_capture(c.device);
      case CommandKind::kEndCapture:
        return target_.end_capture(c.device);
      case CommandKind::kResetPeakStats:
        target_.reset_peak_stats(c.device);
        return {};
      case CommandKind::kResetAccumulatedStats:
        target_.reset_accumulated_stats(c.device);
        return {};
      default:
        return about_host(c);
    }
  }

  const CommandList& list_;
  CommandTarget& target_;
  std::vector<std::optional<uint64_t>> addresses_;
  std::vector<std::vector<std::optional<uint64_t>>> kept_;  // of each checkpoint
};

}  // namespace

ListResult run_commands(const CommandList& list, CommandTarget& target,
                        const std::function<void(const CommandResult&)>& after_each) {
  ListResult result;
  Runner runner(list, target);
  for (const Command& command : list.commands) {
    result.results.push_back(runner.run(command));
    if (!result.undefined_from_line && target.undefined_in_library()) {
      result.undefined_from_line = command.line;
    }
    if (after_each) after_each(result.results.back());
  }
  for (int device = 0; device < list.devices; ++device) {
    result.devices.push_back({device, target.segments(device), target.stats(device)});
  }
  if (list.uses_host) result.host = target.host().stats();
  return result;
}

}  // namespace fragscope::model
