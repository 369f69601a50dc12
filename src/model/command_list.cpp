#include "model/command_list.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/bytes.h"
#include "model/rounding.h"

namespace fragscope::model {
namespace {

constexpr auto kWords = std::to_array<std::pair<CommandKind, std::string_view>>({
    {CommandKind::kAlloc, "alloc"},
    {CommandKind::kFree, "free"},
    {CommandKind::kRecordStream, "record_stream"},
    {CommandKind::kWork, "work"},
    {CommandKind::kComplete, "complete"},
    {CommandKind::kEmptyCache, "empty_cache"},
    {CommandKind::kSettings, "settings"},
    {CommandKind::kFraction, "fraction"},
    {CommandKind::kBeginPool, "begin_pool"},
    {CommandKind::kEndPool, "end_pool"},
    {CommandKind::kCreatePool, "create_pool"},
    {CommandKind::kReleasePool, "release_pool"},
    {CommandKind::kBeginCapture, "begin_capture"},
    {CommandKind::kEndCapture, "end_capture"},
    {CommandKind::kCheckpoint, "checkpoint"},
    {CommandKind::kRestore, "restore"},
    {CommandKind::kResetPeakStats, "reset_peak_stats"},
    {CommandKind::kResetAccumulatedStats, "reset_accumulated_stats"},
    {CommandKind::kHostAlloc, "host_alloc"},
    {CommandKind::kHostFree, "host_free"},
    {CommandKind::kHostRecord, "host_record"},
    {CommandKind::kHostEmptyCache, "host_empty_cache"},
    {CommandKind::kHostBackground, "host_background"},
    {CommandKind::kHostBeginPool, "host_begin_pool"},
    {CommandKind::kHostEndPool, "host_end_pool"},
    {CommandKind::kHostReleasePool, "host_release_pool"},
    {CommandKind::kHostResetPeakStats, "host_reset_peak_stats"},
    {CommandKind::kHostResetAccumulatedStats, "host_reset_accumulated_stats"},
});

using Words = std::vector<std::string_view>;
constexpr const char* kBlanks = " \t\r";

Words cut_words(std::string_view line) {
  Words words;
  size_t at = 0;
  for (;;) {
    const size_t begin = line.find_first_not_of(kBlanks, at);
    if (begin == std::string_view::npos || line[begin] == '#') return words;
    at = std::min(line.find_first_of(kBlanks, begin), line.size());
    words.push_back(line.substr(begin, at - begin));
  }
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value{};
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  if (error != std::errc{} || end != text.end()) return std::nullopt;
  return value;
}

// "3" is (0, 3), a MemPool; "3.0" is (3, 0), a graph's pool.
std::optional<PoolId> parse_pool(std::string_view text) {
  const size_t dot = text.find('.');
  PoolId id;
  const auto second = parse_number(dot == text.npos ? text : text.substr(dot + 1));
  if (!second) return std::nullopt;
  id.second = *second;
  if (dot != text.npos) {
    const auto first = parse_number(text.substr(0, dot));
    if (!first) return std::nullopt;
    id.first = *first;
  }
  if (id.is_default()) return std::nullopt;
  return id;
}

class Parser {
 public:
  explicit Parser(const std::string& name) : name_(name) {}

  Result<CommandList> run(std::string_view text) {
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(end == text.npos ? text.size() : end + 1);
      ++line_;
      Command command;
      command.line = line_;
      command.device = device_;
      std::string problem = parse_line(line, command);
      if (problem.empty()) continue;
      return Error{ErrorCode::kInvalidArgument,
                   name_ + ":" + std::to_string(line_) + ": " + problem};
    }
    return std::move(list_);
  }

 private:
  std::string parse_line(std::string_view line, Command& command) {
    const Words words = cut_words(line);
    if (words.empty()) return {};
    if (words[0] == "device") return choose_device(words);
    if (words[0] == "capacity") return set_capacity(words);
    for (const auto& [kind, word] : kWords) {
      if (word != words[0]) continue;
      command.kind = kind;
      std::string problem = parse_arguments(words, line, command);
      if (problem.empty()) list_.commands.push_back(command);
      list_.uses_host |= is_host_command(kind);
      return problem;
    }
    return "unknown command '" + std::string(words[0]) + "'";
  }

  std::string parse_arguments(const Words& words, std::string_view line, Command& command) {
    switch (command.kind) {
      case CommandKind::kAlloc:
      case CommandKind::kHostAlloc:
        return parse_alloc(words, command);
      case CommandKind::kFree:
      case CommandKind::kHostFree:
        return parse_free(words, command);
      case CommandKind::kRecordStream:
      case CommandKind::kHostRecord:
        return parse_record(words, command);
      case CommandKind::kWork:
      case CommandKind::kComplete:
        if (words.size() != 2) return std::string(words[0]) + " wants STREAM";
        return parse_stream(words[1], command);
      case CommandKind::kSettings:
        return parse_settings(words, line, command);
      case CommandKind::kFraction:
        return parse_fraction(words, command);
      case CommandKind::kBeginPool:
      case CommandKind::kEndPool:
      case CommandKind::kCreatePool:
      case CommandKind::kReleasePool:
      case CommandKind::kHostBeginPool:
      case CommandKind::kHostEndPool:
      case CommandKind::kHostReleasePool:
        return parse_pool_command(words, command);
      case CommandKind::kCheckpoint:
        return parse_checkpoint(words, command);
      case CommandKind::kRestore:
        return parse_restore(words, command);
      case CommandKind::kEmptyCache:
      case CommandKind::kBeginCapture:
      case CommandKind::kEndCapture:
      case CommandKind::kResetPeakStats:
      case CommandKind::kResetAccumulatedStats:
      case CommandKind::kHostEmptyCache:
      case CommandKind::kHostBackground:
      case CommandKind::kHostResetPeakStats:
      case CommandKind::kHostResetAccumulatedStats:
        return words.size() == 1 ? "" : std::string(words[0]) + " takes no arguments";
    }
    return {};
  }

  std::string choose_device(const Words& words) {
    const auto number = words.size() == 2 ? parse_number(words[1]) : std::nullopt;
    if (!number || *number >= kMaxCommandDevices) return "device wants a number from 0 to 7";
    device_ = static_cast<int>(*number);
    list_.devices = std::max(list_.devices, device_ + 1);
    return {};
  }

  std::string set_capacity(const Words& words) {
    if (words.size() != 2) return "capacity wants SIZE";
    if (!list_.commands.empty()) return "capacity must come before all commands";
    const Result<uint64_t> size = parse_size(words[1]);
    if (!size) return size.error().text;
    if (size.value() == 0) return "capacity must not be 0";
    list_.capacity = size.value();
    return {};
  }

  std::string parse_alloc(const Words& words, Command& command) {
    if (words.size() != 3 && words.size() != 4)
      return std::string(words[0]) + " wants ID SIZE [STREAM]";
    const Result<uint64_t> size = parse_size(words[2]);
    if (!size) return size.error().text;
    if (size.value() > kMaxRequest) return "more than 1 EiB";
    command.size = size.value();
    command.stream = 0;
    if (words.size() == 4) {
      std::string problem = parse_stream(words[3], command);
      if (!problem.empty()) return problem;
    }
    const std::string id(words[1]);
    const auto [at, fresh] = ids_.try_emplace(id, static_cast<uint32_t>(list_.ids.size()));
    if (fresh) {
      list_.ids.push_back(id);
      live_.push_back({});
    }
    command.id = at->second;
    if (live_[command.id]) return "'" + id + "' is allocated already";
    if (!fresh && !list_.checkpoints.empty()) {
      return "'" + id + "' was used before: behind a checkpoint every ID is a new one";
    }
    live_[command.id] = {device_, is_host_command(command.kind)};
    return {};
  }

  std::string parse_checkpoint(const Words& words, Command& command) {
    if (words.size() != 3) return "checkpoint wants NAME POOL";
    const auto pool = parse_pool(words[2]);
    if (!pool) return "a pool is N or N.M and not 0, not '" + std::string(words[2]) + "'";
    const std::string name(words[1]);
    if (find_checkpoint(name) != list_.checkpoints.size())
      return "there is a checkpoint '" + name + "'";
    command.pool = *pool;
    command.checkpoint = static_cast<uint32_t>(list_.checkpoints.size());
    list_.checkpoints.push_back(name);
    checkpoints_.push_back({device_, *pool, live_});
    return {};
  }

  // What was allocated at the checkpoint may be again; what has been allocated since may be gone.
  std::string parse_restore(const Words& words, Command& command) {
    if (words.size() != 2) return "restore wants NAME";
    const std::string name(words[1]);
    const size_t index = find_checkpoint(name);
    if (index == list_.checkpoints.size()) return "there is no checkpoint '" + name + "'";
    const Checkpoint& checkpoint = checkpoints_[index];
    command.checkpoint = static_cast<uint32_t>(index);
    command.device = checkpoint.device;
    command.pool = checkpoint.pool;
    for (size_t id = 0; id < checkpoint.live.size(); ++id) {
      if (!live_[id]) live_[id] = checkpoint.live[id];
    }
    return {};
  }

  size_t find_checkpoint(const std::string& name) const {
    const auto& all = list_.checkpoints;
    return static_cast<size_t>(std::find(all.begin(), all.end(), name) - all.begin());
  }

  // The live allocation named `word`; it decides the command's device.
  std::string find_live(std::string_view word, Command& command) {
    const auto at = ids_.find(std::string(word));
    if (at == ids_.end() || !live_[at->second]) {
      return "'" + std::string(word) + "' is not allocated";
    }
    command.id = at->second;
    const Live& live = *live_[at->second];
    const bool host = is_host_command(command.kind);
    if (live.host != host) {
      return "'" + std::string(word) + (host ? "' is device memory" : "' is host memory");
    }
    // Host memory belongs to no device: the streams named with it do.
    if (!host) command.device = live.device;
    return {};
  }

  std::string parse_free(const Words& words, Command& command) {
    if (words.size() != 2) return std::string(words[0]) + " wants ID";
    std::string problem = find_live(words[1], command);
    if (problem.empty()) live_[command.id].reset();
    return problem;
  }

  std::string parse_record(const Words& words, Command& command) {
    if (words.size() != 3) return std::string(words[0]) + " wants ID STREAM";
    std::string problem = find_live(words[1], command);
    return problem.empty() ? parse_stream(words[2], command) : problem;
  }

  std::string parse_stream(std::string_view word, Command& command) {
    const auto number = parse_number(word);
    if (!number || *number > kMaxCommandStream) {
      return "a stream is a number from 0 to " + std::to_string(kMaxCommandStream);
    }
    command.stream = *number;
    return {};
  }

  std::string parse_settings(const Words& words, std::string_view line, Command& command) {
    // Everything behind the word, inner blanks included: PyTorch's parsers differ on them.
    const size_t begin = static_cast<size_t>(words[0].data() - line.data()) + words[0].size();
    line.remove_prefix(begin);
    const size_t first = line.find_first_not_of(' ');
    const size_t last = line.find_last_not_of(" \r");
    if (first != line.npos) command.settings = line.substr(first, last - first + 1);
    return {};
  }

  std::string parse_fraction(const Words& words, Command& command) {
    if (words.size() != 2) return "fraction wants a number";
    const std::string text(words[1]);
    char* end = nullptr;
    command.fraction = std::strtod(text.c_str(), &end);
    return *end == '\0' ? "" : "fraction wants a number, not '" + text + "'";
  }

  std::string parse_pool_command(const Words& words, Command& command) {
    const std::string word(words[0]);
    if (words.size() < 2) return word + " wants POOL";
    const auto pool = parse_pool(words[1]);
    if (!pool) return "a pool is N or N.M and not 0, not '" + std::string(words[1]) + "'";
    command.pool = *pool;
    for (size_t i = 2; i < words.size(); ++i) {
      const bool begins =
          command.kind == CommandKind::kBeginPool || command.kind == CommandKind::kHostBeginPool;
      if (begins && i == 2) {
        std::string problem = parse_stream(words[i], command);
        if (!problem.empty()) return problem;
      } else if (command.kind == CommandKind::kCreatePool && words[i] == "use_on_oom") {
        command.use_on_oom = true;
      } else if (command.kind == CommandKind::kCreatePool && words[i] == "no_split") {
        command.no_split = true;
      } else {
        return word + ": unexpected '" + std::string(words[i]) + "'";
      }
    }
    return {};
  }

  const std::string& name_;
  CommandList list_;
  std::map<std::string, uint32_t> ids_;
  struct Live {
    int device = 0;
    bool host = false;
  };
  std::vector<std::optional<Live>> live_;  // of each id
  struct Checkpoint {
    int device = 0;
    PoolId pool;
    std::vector<std::optional<Live>> live;
  };
  std::vector<Checkpoint> checkpoints_;
  uint32_t line_ = 0;
  int device_ = 0;
};

std::string pool_text(PoolId id) {
  if (id.first == 0) return std::to_string(id.second);
  return std::to_string(id.first) + "." + std::to_string(id.second);
}

std::string fraction_text(double fraction) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, fraction);
  return error == std::errc{} ? std::string(buffer, end) : "1";
}

std::string format_command(const Command& command, const CommandList& list) {
  std::string line(command_word(command.kind));
  switch (command.kind) {
    case CommandKind::kEmptyCache:
    case CommandKind::kBeginCapture:
    case CommandKind::kEndCapture:
    case CommandKind::kResetPeakStats:
    case CommandKind::kResetAccumulatedStats:
    case CommandKind::kHostEmptyCache:
    case CommandKind::kHostBackground:
    case CommandKind::kHostResetPeakStats:
    case CommandKind::kHostResetAccumulatedStats:
      break;  // nothing behind the word
    case CommandKind::kAlloc:
    case CommandKind::kHostAlloc:
      line += " " + list.ids[command.id] + " " + std::to_string(command.size);
      if (*command.stream != 0) line += " " + std::to_string(*command.stream);
      break;
    case CommandKind::kFree:
    case CommandKind::kHostFree:
      line += " " + list.ids[command.id];
      break;
    case CommandKind::kRecordStream:
    case CommandKind::kHostRecord:
      line += " " + list.ids[command.id];
      [[fallthrough]];
    case CommandKind::kWork:
    case CommandKind::kComplete:
      line += " " + std::to_string(*command.stream);
      break;
    case CommandKind::kSettings:
      line += " " + command.settings;
      break;
    case CommandKind::kFraction:
      line += " " + fraction_text(command.fraction);
      break;
    case CommandKind::kBeginPool:
    case CommandKind::kEndPool:
    case CommandKind::kCreatePool:
    case CommandKind::kReleasePool:
    case CommandKind::kHostBeginPool:
    case CommandKind::kHostEndPool:
    case CommandKind::kHostReleasePool:
      line += " " + pool_text(command.pool);
      if (command.stream) line += " " + std::to_string(*command.stream);
      if (command.use_on_oom) line += " use_on_oom";
      if (command.no_split) line += " no_split";
      break;
    case CommandKind::kCheckpoint:
      line += " " + list.checkpoints[command.checkpoint] + " " + pool_text(command.pool);
      break;
    case CommandKind::kRestore:
      line += " " + list.checkpoints[command.checkpoint];
  }
  return line;
}

}  // namespace

std::string_view command_word(CommandKind kind) {
  for (const auto& [candidate, word] : kWords) {
    if (candidate == kind) return word;
  }
  return "unknown";
}

Result<CommandList> parse_commands(std::string_view text, const std::string& name) {
  return Parser(name).run(text);
}

std::string format_commands(const CommandList& list) {
  std::string text;
  if (list.capacity) text += "capacity " + std::to_string(*list.capacity) + "\n";
  int device = 0;
  for (const Command& command : list.commands) {
    if (command.device != device) {
      device = command.device;
      text += "device " + std::to_string(device) + "\n";
    }
    text += format_command(command, list) + "\n";
  }
  return text;
}

}  // namespace fragscope::model
