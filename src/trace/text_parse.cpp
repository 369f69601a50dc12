// Text -> traces (text_events.h).
#include <limits>

#include "base/bytes.h"
#include "event/event_names.h"
#include "event/frame.h"
#include "trace/text_events.h"
#include "trace/text_tokens.h"
#include "trace/trace_writer.h"

namespace fragscope::trace {
namespace {

// What is wrong with the present line.
using Problem = std::optional<std::string>;

template <typename T>
bool number(const std::string& text, T& out) {
  if constexpr (std::is_signed_v<T>) {
    const auto value = parse_signed(text);
    if (!value || *value < std::numeric_limits<T>::min() || *value > std::numeric_limits<T>::max())
      return false;
    out = static_cast<T>(*value);
  } else {
    const auto value = parse_number(text);
    if (!value || *value > std::numeric_limits<T>::max()) return false;
    out = static_cast<T>(*value);
  }
  return true;
}

bool size(const std::string& text, uint64_t& out) {
  if (number(text, out)) return true;
  const auto value = parse_size(text);
  if (value) out = *value;
  return value.ok();
}

bool parse_exit(const std::string& text, ProcessExit& exit) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const bool has_code = colon != std::string::npos;
  if (has_code && !number(text.substr(colon + 1), exit.code)) return false;
  if (kind == "exited") exit.kind = ExitKind::exited;
  if (kind == "signaled") exit.kind = ExitKind::signaled;
  if (kind == "vanished") exit.kind = ExitKind::vanished;
  if (kind == "running") exit.kind = ExitKind::running;
  const bool wants_code = kind == "exited" || kind == "signaled";
  return wants_code ? has_code : !has_code && (kind == "vanished" || kind == "running");
}

class TextParser {
 public:
  TextParser() {
    process_.pid = 1;
    process_.exit.kind = ExitKind::vanished;
  }

  Problem line(std::string_view text) {
    const size_t start = text.find_first_not_of(" \t\r");
    if (start == std::string_view::npos || text[start] == '#') return std::nullopt;
    auto tokens = split_line(text);
    if (!tokens) return "a quoted value does not end, or has an unknown escape";
    tokens_ = std::move(*tokens);
    const std::string& word = tokens_.front().value;
    if (word == "process") return process_line();
    if (Problem problem = start_writer()) return problem;
    if (word == "property") return property_line();
    if (word == "api" || word == "text") return name_line(word == "api");
    if (word == "stack") return stack_line();
    if (word == "python") return python_line();
    if (word == "module") return module_line();
    if (word == "calls") return calls_line();
    return event_line();
  }

  Problem finish() {
    if (Problem problem = start_writer()) return problem;
    return problem_of(sealed_ ? writer_->seal(process_, calls_) : writer_->flush());
  }

  std::vector<std::byte> bytes() const { return sink_.bytes(); }

 private:
  static Problem problem_of(const Status& status) {
    if (status.ok()) return std::nullopt;
    return status.error().text;
  }

  Problem start_writer() {
    if (writer_) return std::nullopt;
    auto writer = TraceWriter::start(sink_, process_);
    if (!writer) return writer.error().text;
    writer_.emplace(std::move(writer).value());
    return std::nullopt;
  }

  Problem process_line() {
    if (writer_) return "`process` has to be the first line";
    for (size_t i = 1; i < tokens_.size(); ++i) {
      const auto& [key, has_key, value, quoted] = tokens_[i];
      uint32_t flag = 0;
      bool good = true;
      if (key == "pid") {
        good = number(value, process_.pid);
      } else if (key == "start_ticks") {
        good = number(value, process_.start_ticks);
      } else if (key == "realtime_ns") {
        good = number(value, process_.realtime_ns);
      } else if (key == "monotonic_ns") {
        good = number(value, process_.monotonic_ns);
      } else if (key == "program") {
        process_.program = value;
      } else if (key == "shim_version") {
        process_.shim_version = value;
      } else if (key == "sealed") {
        good = number(value, flag) && flag <= 1;
        sealed_ = flag == 1;
      } else if (key == "exit") {
        good = parse_exit(value, process_.exit);
      } else if (key == "dropped") {
        good = number(value, process_.dropped_events);
      } else if (key == "torn") {
        good = number(value, process_.torn_records);
      } else {
        return "unknown field '" + (has_key ? key : value) + "' of process";
      }
      if (!good) return "'" + value + "' is no value for " + key;
    }
    return std::nullopt;
  }

  Problem property_line() {
    if (tokens_.size() != 2 || !tokens_[1].has_key) return "expected: property KEY=VALUE";
    return problem_of(writer_->add_property(tokens_[1].key, tokens_[1].value));
  }

  Problem calls_line() {
    if (tokens_.size() != 2 || !tokens_[1].has_key ||
        !number(tokens_[1].value, calls_[tokens_[1].key])) {
      return "expected: calls NAME=COUNT";
    }
    return std::nullopt;
  }

  Problem name_line(bool is_api) {
    uint32_t id = 0;
    const bool good = tokens_.size() == 3 && number(tokens_[1].value, id) && !tokens_[2].has_key &&
                      (!is_api || id <= UINT16_MAX);
    if (!good) return is_api ? "expected: api ID NAME" : "expected: text ID TEXT";
    return is_api ? define(api_ids_, next_api_, static_cast<uint16_t>(id), tokens_[2].value)
                  : define(text_ids_, next_text_, id, tokens_[2].value);
  }

  template <typename Id>
  Problem define(std::map<std::string, Id>& ids, Id& next, Id id, const std::string& name) {
    ids.emplace(name, id);
    if (id >= next) next = static_cast<Id>(id + 1);
    if constexpr (sizeof(Id) == sizeof(uint16_t))
      return problem_of(writer_->add_api_name(id, name));
    return problem_of(writer_->add_text(id, name));
  }

  static bool pool_of(const std::string& text, Event& event) {
    const size_t comma = text.find(',');
    PoolName pool;
    if (comma == std::string::npos || !number(text.substr(0, comma), pool.first) ||
        !number(text.substr(comma + 1), pool.second) || !pack_pool(pool, event.text)) {
      return false;
    }
    event.flags |= kFlagPool;
    return true;
  }

  Problem stack_line() {
    uint32_t id = 0;
    if (tokens_.size() < 2 || !number(tokens_[1].value, id)) return "expected: stack ID ADDRESS…";
    std::vector<uint64_t> frames(tokens_.size() - 2);
    for (size_t i = 0; i < frames.size(); ++i) {
      const std::string& text = tokens_[i + 2].value;
      uint32_t python = 0;
      if (text.starts_with("py") && number(text.substr(2), python)) {
        frames[i] = kPythonFrame | python;
      } else if (!number(text, frames[i])) {
        return "'" + text + "' is no address";
      }
    }
    return problem_of(writer_->add_stack(id, frames));
  }

  Problem python_line() {
    PythonFrame frame;
    uint32_t id = 0;
    const char* expected = "expected: python ID FUNCTION FILE [line=N] [first_line=N]";
    if (tokens_.size() < 4 || !number(tokens_[1].value, id)) return expected;
    frame.function = tokens_[2].value;
    frame.file = tokens_[3].value;
    for (size_t i = 4; i < tokens_.size(); ++i) {
      int32_t* const out = tokens_[i].key == "line"         ? &frame.line
                           : tokens_[i].key == "first_line" ? &frame.first_line
                                                            : nullptr;
      if (out == nullptr || !number(tokens_[i].value, *out)) return expected;
    }
    return problem_of(writer_->add_python_frame(id, frame));
  }

  Problem module_line() {
    Module module;
    const char* expected = "expected: module START-END FILE_OFFSET PATH [build_id=HEX] [seq=N]";
    if (tokens_.size() < 4 || tokens_[3].has_key) return expected;
    const std::string& range = tokens_[1].value;
    const size_t dash = range.find('-');
    if (dash == std::string::npos || !number(range.substr(0, dash), module.start) ||
        !number(range.substr(dash + 1), module.end) ||
        !number(tokens_[2].value, module.file_offset)) {
      return expected;
    }
    module.path = tokens_[3].value;
    for (size_t i = 4; i < tokens_.size(); ++i) {
      if (tokens_[i].key == "build_id") {
        module.build_id = tokens_[i].value;
      } else if (tokens_[i].key != "seq" || !number(tokens_[i].value, module.first_seq)) {
        return expected;
      }
    }
    return problem_of(writer_->add_module(module));
  }

  Problem event_line() {
    Event event;
    event.pid = process_.pid;
    event.time_ns = last_time_;
    event.seq = last_seq_ + 1;
    const Token& first = tokens_.front();
    if (first.has_key || (first.value != "-" && !number(first.value, event.seq))) {
      return "'" + first.value + "' is neither an event number nor a known word";
    }
    for (size_t i = 1; i < tokens_.size(); ++i) {
      if (Problem problem = event_field(tokens_[i], event)) return problem;
    }
    if (event.kind == EventKind::none) return "the kind of the event is missing";
    last_time_ = event.time_ns;
    last_seq_ = event.seq;
    return problem_of(writer_->add_event(event));
  }

  Problem event_field(const Token& token, Event& event) {
    if (!token.has_key) {
      const auto kind = kind_from_name(token.value);
      if (!kind) return "'" + token.value + "' is no kind of event";
      if (event.kind != EventKind::none) return "two kinds in one event";
      event.kind = *kind;
      return std::nullopt;
    }
    if (token.key == "api") return name_field(token, api_ids_, next_api_, event.api);
    if (token.key == "pool") {
      if (pool_of(token.value, event)) return std::nullopt;
      return "'" + token.value + "' is no pool (expected: FIRST,SECOND)";
    }
    if (token.key == "text") return name_field(token, text_ids_, next_text_, event.text);
    if (token.key == "result" && token.value == "pending") {
      event.result = kResultPending;
      return std::nullopt;
    }
    const auto good = number_field(token, event);
    if (!good) return "unknown field '" + token.key + "'";
    if (!*good) return "'" + token.value + "' is no value for " + token.key;
    return std::nullopt;
  }

  // Nothing: no such field.
  static std::optional<bool> number_field(const Token& token, Event& event) {
    const std::string& key = token.key;
    const std::string& value = token.value;
    if (key == "t") return number(value, event.time_ns);
    if (key == "tid") return number(value, event.tid);
    if (key == "device") return number(value, event.device);
    if (key == "stream") return number(value, event.stream);
    if (key == "address") return number(value, event.address);
    if (key == "size") return size(value, event.size);
    if (key == "requested") return size(value, event.requested);
    if (key == "result") return number(value, event.result);
    if (key == "aux") return size(value, event.aux);
    if (key == "aux2") return size(value, event.aux2);
    if (key == "stack") return number(value, event.stack);
    if (key == "flags") {
      uint32_t flags = 0;
      const bool good = number(value, flags);
      event.flags |= flags;  // a pool may have come before
      return good;
    }
    return std::nullopt;
  }

  template <typename Id>
  Problem name_field(const Token& token, std::map<std::string, Id>& ids, Id& next, Id& out) {
    if (!token.quoted && token.value.substr(0, 1) == "#") {
      if (number(token.value.substr(1), out)) return std::nullopt;
      return "'" + token.value + "' is no value for " + token.key;
    }
    const auto found = ids.find(token.value);
    if (found != ids.end()) {
      out = found->second;
      return std::nullopt;
    }
    if (next == 0) return "too many names";
    out = next;
    return define(ids, next, out, token.value);
  }

  ProcessInfo process_;
  bool sealed_ = true;
  MemorySink sink_;
  std::optional<TraceWriter> writer_;
  std::vector<Token> tokens_;
  std::map<std::string, uint16_t> api_ids_;
  std::map<std::string, uint32_t> text_ids_;
  std::map<std::string, uint64_t> calls_;
  uint16_t next_api_ = 1;  // 0: used up
  uint32_t next_text_ = 1;
  uint64_t last_time_ = 0;
  uint64_t last_seq_ = 0;
};

}  // namespace

Result<TraceReader> parse_text_trace(std::string_view text, const std::string& name) {
  TextParser parser;
  uint64_t number_of_line = 0;
  const auto error = [&](const std::string& problem) {
    return Error{ErrorCode::kDamaged, name + ":" + std::to_string(number_of_line) + ": " + problem};
  };
  while (!text.empty()) {
    ++number_of_line;
    const size_t end = text.find('\n');
    if (Problem problem = parser.line(text.substr(0, end))) return error(*problem);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  if (Problem problem = parser.finish()) return error(*problem);
  return TraceReader::open_bytes(parser.bytes(), name);
}

}  // namespace fragscope::trace
