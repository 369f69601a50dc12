// Runs command lists against an allocator: the model, or (in the oracle) the real library. Both
// answer through CommandTarget, so that their results can be compared field by field.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/allocator_config.h"
#include "model/caching_allocator.h"
#include "model/command_list.h"
#include "model/host_memory.h"
#include "model/host_stats.h"
#include "model/stats.h"
#include "model/trace_entry.h"
#include "model/version_profile.h"

namespace fragscope::model {

// Bytes of a device when neither the list nor the caller says.
inline constexpr uint64_t kDefaultDeviceMemory = 80 * kGiB;

struct AllocReply {
  std::string outcome;  // "ok", "null", "oom", "rejected", "error"
  uint64_t address = 0;
  std::optional<uint64_t> block_size;  // of the block that was given
  std::string message;                 // of an error: PyTorch's text, one line
};

// What a list can ask of pinned host memory. Texts: empty is success.
class HostTarget {
 public:
  virtual ~HostTarget() = default;
  // STREAM is the current stream while the request is made.
  virtual AllocReply alloc(int device, uint64_t size, uint64_t stream) = 0;
  virtual std::string free(uint64_t address) = 0;
  virtual std::string record(int device, uint64_t address, uint64_t stream) = 0;
  virtual std::string empty_cache() = 0;
  virtual std::string background() = 0;
  virtual std::string begin_pool(int device, PoolId id, std::optional<uint64_t> stream) = 0;
  virtual std::string end_pool(PoolId id) = 0;
  virtual std::string release_pool(PoolId id) = 0;
  virtual std::string reset_peak_stats() = 0;
  virtual std::string reset_accumulated_stats() = 0;
  virtual std::vector<HostCall> take_calls() = 0;  // since the last time
  virtual HostStats stats() = 0;
};

// Everything a list can ask for. Texts: empty is success, else PyTorch's error, one line.
class CommandTarget {
 public:
  virtual ~CommandTarget() = default;
  virtual AllocReply alloc(int device, uint64_t size, uint64_t stream) = 0;
  virtual std::string free(int device, uint64_t address) = 0;
  virtual std::string record_stream(int device, uint64_t address, uint64_t stream) = 0;
  virtual void work(int device, uint64_t stream) = 0;
  virtual void complete(int device, uint64_t stream) = 0;
  virtual std::string empty_cache() = 0;
  virtual std::string settings(const std::string& text) = 0;
  virtual std::string fraction(int device, double fraction) = 0;
  virtual std::string begin_pool(int device, PoolId id, std::optional<uint64_t> stream) = 0;
  virtual std::string end_pool(int device, PoolId id) = 0;
  virtual std::string create_pool(int device, PoolId id, bool use_on_oom, bool no_split) = 0;
  virtual std::string release_pool(int device, PoolId id) = 0;
  // A graph capture of the current stream, which stands for every stream of the list.
  virtual std::string begin_capture(int device) = 0;
  virtual std::string end_capture(int device) = 0;
  // The pool's state is kept as number `checkpoint`, and put back; see CheckpointDelta.
  virtual std::string checkpoint(int device, PoolId id, uint32_t checkpoint) = 0;
  virtual std::string restore(int device, uint32_t checkpoint, CheckpointDelta& delta) = 0;
  virtual void reset_peak_stats(int device) = 0;
  virtual void reset_accumulated_stats(int device) = 0;

  // Entries since the last call, all devices, in order.
  struct Entry {
    int device = 0;
    TraceEntry entry{};
  };
  virtual std::vector<Entry> take_trace() = 0;
  virtual std::vector<SegmentSnapshot> segments(int device) = 0;
  virtual DeviceStats stats(int device) = 0;

  virtual HostTarget& host() = 0;
  // PyTorch itself would be reading freed memory by now (CachingAllocator).
  virtual bool undefined_in_library() = 0;
};

struct CommandResult {
  Command command;
  std::string id;       // as in the list; empty for commands without one
  std::string outcome;  // of AllocReply, or "ok", "skipped" (its allocation failed), "error"
  std::optional<uint64_t> address;
  std::optional<uint64_t> block_size;
  std::string message;
  std::vector<CommandTarget::Entry> trace;
  std::vector<HostCall> host_calls;  // of commands about host memory
};

struct DeviceResult {
  int device = 0;
  std::vector<SegmentSnapshot> segments;
  DeviceStats stats;
};

struct ListResult {
  std::vector<CommandResult> results;
  std::vector<DeviceResult> devices;
  // The first command after which PyTorch's behaviour is undefined.
  std::optional<uint32_t> undefined_from_line;
  std::optional<HostStats> host;  // if the list has commands about host memory
};

// `after_each`, if there is one, sees every result right after its command.
ListResult run_commands(const CommandList& list, CommandTarget& target,
                        const std::function<void(const CommandResult&)>& after_each = {});

// The model of pinned host memory; `devices` know how far the work of streams is and outlive it.
class ModelHostTarget : public HostTarget {
 public:
  virtual void set_config(const AllocatorConfig& config) = 0;
};
std::unique_ptr<ModelHostTarget> make_model_host(
    const AllocatorConfig& config, const VersionProfile& profile,
    std::function<CachingAllocator&(int device)> devices);

class ModelTarget : public CommandTarget {
 public:
  virtual const CachingAllocator& allocator(int device) const = 0;
};

// The model as a target: `device_memory` bytes per device; `config` as from the environment.
std::unique_ptr<ModelTarget> make_model_target(const CommandList& list,
                                               const AllocatorConfig& config,
                                               const VersionProfile& profile,
                                               uint64_t device_memory);

}  // namespace fragscope::model
