// The pickle machine, restricted: protocols 2 to 5, plain data only. What would import, call or
// build an object of a class is refused with its name and place; nothing is ever executed.
//
// As soon as a container is put into another one it is offered to a collector, which may take it
// over (a finished trace entry becomes a compact record). The machine has no recursion; memory is
// bounded by a Budget. Threads: one at a time.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "import/pickle_input.h"
#include "import/plain_value.h"

namespace fragscope::imported {

class PartCollector {
 public:
  virtual ~PartCollector() = default;
  // `value` goes into a dictionary under `key` (a text id), or into a list or tuple (nothing).
  // Returns the part that takes its place, or `value` itself.
  virtual Value collect(Value value, std::optional<uint32_t> key) = 0;
};

class PickleMachine {
 public:
  PickleMachine(PickleInput& input, std::string name, Budget& budget, ValueStore& values,
                TextStore& texts, PartCollector& collector)
      : in_(input),
        name_(std::move(name)),
        budget_(budget),
        values_(values),
        texts_(texts),
        collector_(collector) {}

  // Runs to STOP; the value on top. Errors: kDamaged (cut, impossible), kForeign (classes,
  // calls), kNewerVersion (protocol); each names the file and the byte.
  Result<Value> run();

 private:
  enum class Step : uint8_t { next, stop, failed };

  Step step();
  Step step_container(uint8_t code);
  Step step_memo(uint8_t code);
  Step step_scalar(uint8_t code);
  Step refuse(uint8_t code);
  Step fail(ErrorCode code, const std::string& what);
  Step damaged(const std::string& what) { return fail(ErrorCode::kDamaged, what); }
  Step cut();

  template <typename T>
  bool read(T& value) {
    return in_.read(value);
  }
  bool read_line(std::string& line);
  bool read_bytes(uint64_t count, std::string_view& bytes);
  Step push(Value value);
  Step push_text(uint64_t length);
  Step push_long(uint64_t length);
  Step push_tuple(size_t count);
  Step put_memo(uint64_t index);
  Step get_memo(uint64_t index);
  void append_item(std::vector<Value>& items, Value item);
  Step append_from(size_t first);
  Step set_items_from(size_t first);
  Value collected(Value value, std::optional<uint32_t> key);
  std::optional<size_t> pop_mark();
  bool pop(Value& value);

  PickleInput& in_;
  std::string name_;
  Budget& budget_;
  ValueStore& values_;
  TextStore& texts_;
  PartCollector& collector_;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;
  std::deque<Value> memo_;
  uint64_t opcode_at_ = 0;
  std::optional<Error> error_;
};

}  // namespace fragscope::imported
