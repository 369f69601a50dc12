#include "enforce/plan.h"

#include <charconv>
#include <optional>

namespace fragscope::enforce {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxRequests = 50'000'000;
constexpr uint32_t kMaxStreams = 4096;

Error damaged(const std::string& what, size_t at) {
  return {ErrorCode::kInvalidArgument, "not a plan that can be followed: " + what, at};
}

// As much of JSON as a plan file has: members that are asked for, everything else is skipped.
class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : text_(text) {}

  size_t at() const { return at_; }
  bool failed() const { return failed_; }
  void fail() { failed_ = true; }

  bool take(char expected) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }
  void expect(char expected) {
    if (!take(expected)) fail();
  }
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }

  std::string_view string() {
    expect('"');
    const size_t start = at_;
    while (!failed_ && at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) {
      fail();
      return {};
    }
    return text_.substr(start, at_++ - start);
  }

  uint64_t number() {
    skip_space();
    uint64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [rest, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    const bool whole =
        rest == text_.data() + text_.size() || (*rest != '.' && *rest != 'e' && *rest != 'E');
    if (error != std::errc{} || !whole) fail();
    at_ += static_cast<size_t>(rest - begin);
    return value;
  }

  // nullopt: null.
  std::optional<uint64_t> number_or_null() {
    skip_space();
    if (!text_.substr(at_).starts_with("null")) return number();
    at_ += 4;
    return std::nullopt;
  }

  // Calls member(name) for each member of an object; it takes the value.
  template <typename Member>
  void object(Member member) {
    expect('{');
    if (failed_ || take('}')) return;
    do {
      const std::string_view name = string();
      expect(':');
      if (!failed_) member(name);
    } while (!failed_ && take(','));
    expect('}');
  }

  template <typename Element>
  void array(Element element) {
    expect('[');
    if (failed_ || take(']')) return;
    do element();
    while (!failed_ && take(','));
    expect(']');
  }

  void skip_value(int depth = 0) {
    skip_space();
    if (depth > kMaxDepth || at_ >= text_.size()) return fail();
    switch (text_[at_]) {
      case '{':
        return object([&](std::string_view) { skip_value(depth + 1); });
      case '[':
        return array([&] { skip_value(depth + 1); });
      case '"':
        static_cast<void>(string());
        return;
      default:
        return skip_word();
    }
  }

 private:
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  void skip_word() {
    const size_t start = at_;
    while (at_ < text_.size() &&
           std::string_view(" \n\r\t,]}:").find(text_[at_]) == std::string_view::npos) {
      ++at_;
    }
    if (at_ == start) fail();
  }

  std::string_view text_;
  size_t at_ = 0;
  bool failed_ = false;
};

PlannedRequest parse_request(JsonCursor& json) {
  PlannedRequest request;
  json.object([&](std::string_view name) {
    if (name == "size") {
      request.size = json.number();
    } else if (name == "offset") {
      request.offset = json.number_or_null().value_or(kUnplanned);
    } else if (name == "stream") {
      const uint64_t stream = json.number();
      if (stream >= kMaxStreams) json.fail();
      request.stream = static_cast<uint32_t>(stream);
    } else {
      json.skip_value();
    }
  });
  return request;
}

}  // namespace

Status check_plan(const Plan& plan) {
  if (plan.arena_bytes > kMaxArenaBytes) return damaged("its arena is larger than any device", 0);
  if (plan.loop_start > plan.requests.size()) return damaged("its step starts after its end", 0);
  for (size_t i = 0; i < plan.requests.size(); ++i) {
    const PlannedRequest& request = plan.requests[i];
    const auto wrong = [&](const char* what) {
      return damaged("request " + std::to_string(i) + " " + what, 0);
    };
    if (request.stream >= kMaxStreams) return wrong("names a stream that cannot be");
    if (request.size == 0 || request.size % kPlanGranularity != 0) {
      return wrong("has a size that is no multiple of 512");
    }
    if (request.offset == kUnplanned) continue;
    if (request.offset % kPlanGranularity != 0) return wrong("has an offset that is not aligned");
    if (request.size > plan.arena_bytes || request.offset > plan.arena_bytes - request.size) {
      return wrong("reaches out of the arena");
    }
  }
  return Done{};
}

Result<Plan> parse_plan(std::string_view text) {
  JsonCursor json(text);
  Plan plan;
  std::optional<uint64_t> version;
  std::optional<uint64_t> loop_start;
  json.object([&](std::string_view name) {
    if (name == "fragscope_plan") {
      version = json.number();
    } else if (name == "arena_bytes") {
      plan.arena_bytes = json.number();
    } else if (name == "loop_start") {
      loop_start = json.number();
    } else if (name == "requests") {
      json.array([&] {
        plan.requests.push_back(parse_request(json));
        if (plan.requests.size() > kMaxRequests) json.fail();
      });
    } else {
      json.skip_value();
    }
  });
  if (json.failed() || !json.at_end()) return damaged("bad JSON", json.at());
  if (!version) {
    return Error{ErrorCode::kForeign, "not a plan of fragscope (no member \"fragscope_plan\")"};
  }
  if (*version > kPlanVersion) {
    return Error{ErrorCode::kNewerVersion, "a plan of version " + std::to_string(*version) +
                                               ", this build follows up to " +
                                               std::to_string(kPlanVersion)};
  }
  plan.loop_start = loop_start.value_or(0);
  if (const Status fits = check_plan(plan); !fits) return fits.error();
  return plan;
}

}  // namespace fragscope::enforce
