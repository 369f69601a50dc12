// Result<T>: a value or one error. The only error type that passes between folders of src/.
//
// Ownership: values are held by value. Threads: as safe as T. Errors carry a code (what a caller
// may decide on), a text for people (one line, names the file/option and what to do) and, where
// there is one, the byte offset of the damage.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace fragscope {

enum class ErrorCode {
  kInvalidArgument,  // an option or argument of ours is wrong
  kNotFound,         // a file, directory or device is not there
  kPermission,       // it is there, but may not be read or written
  kDamaged,          // checksum, length or content is impossible
  kForeign,          // not one of our files
  kNewerVersion,     // ours, but written by a newer version
  kNoSpace,          // the disk, tmpfs or a resource limit refuses to grow
  kUnsupported,      // this build or machine cannot do it
  kInternal,         // a bug of ours
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string text;
  std::optional<uint64_t> offset{};  // bytes from the start of the file named in `text`
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

// Success or an error, without a value.
struct Done {};
using Status = Result<Done>;

}  // namespace fragscope
