// Command lists: what to ask of a caching allocator, one command a line. The language of
// `fragscope model`, of golden tests and of the oracle (see COMMANDS.md).
//
// Errors: kInvalidArgument, the text names the list and the line. Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/stats.h"

namespace fragscope::model {

enum class CommandKind : uint8_t {
  kAlloc,
  kFree,
  kRecordStream,
  kWork,
  kComplete,
  kEmptyCache,
  kSettings,
  kFraction,
  kBeginPool,
  kEndPool,
  kCreatePool,
  kReleasePool,
  kBeginCapture,
  kEndCapture,
  kCheckpoint,
  kRestore,
  kResetPeakStats,
  kResetAccumulatedStats,
  kHostAlloc,
  kHostFree,
  kHostRecord,
  kHostEmptyCache,
  kHostBackground,
  kHostBeginPool,
  kHostEndPool,
  kHostReleasePool,
  kHostResetPeakStats,
  kHostResetAccumulatedStats,
};

// Pinned host memory is concerned, not a device.
constexpr bool is_host_command(CommandKind kind) { return kind >= CommandKind::kHostAlloc; }

// The command's word in the language.
std::string_view command_word(CommandKind kind);

struct Command {
  CommandKind kind = CommandKind::kAlloc;
  uint32_t line = 0;  // 1-based
  int device = 0;     // the device chosen by the last `device`
  uint32_t id = 0;    // of commands that name one: index into CommandList::ids
  uint64_t size = 0;  // alloc, host_alloc: bytes
  std::optional<uint64_t> stream;
  double fraction = 1;
  PoolId pool;
  bool use_on_oom = false;
  bool no_split = false;
  uint32_t checkpoint = 0;  // index into CommandList::checkpoints
  std::string settings;
};

struct CommandList {
  std::vector<Command> commands;
  std::vector<std::string> ids;
  std::vector<std::string> checkpoints;  // names
  std::optional<uint64_t> capacity;      // bytes of every device
  int devices = 1;                       // highest device used + 1
  bool uses_host = false;                // has commands about pinned host memory
};

inline constexpr int kMaxCommandDevices = 8;
inline constexpr uint64_t kMaxCommandStream = 63;

// `name` is used in error texts: "list.txt:3: …".
Result<CommandList> parse_commands(std::string_view text, const std::string& name);

// The list as text again; parses to the same list.
std::string format_commands(const CommandList& list);

}  // namespace fragscope::model
