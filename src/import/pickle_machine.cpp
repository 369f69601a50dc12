#include "import/pickle_machine.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace fragscope::imported {
namespace {

// Codes of the opcodes (pickle protocol, Python's pickletools).
enum Op : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kNone = 'N',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinFloat = 'G',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinString = 'T',
  kShortBinString = 'U',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinBytes8 = 0x8e,
  kByteArray8 = 0x96,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kList = 'l',
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyDict = '}',
  kDict = 'd',
  kSetItem = 's',
  kSetItems = 'u',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
  kBinGet = 'h',
  kLongBinGet = 'j',
  kProto = 0x80,
  kFrame = 0x95,
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kInst = 'i',
  kObj = 'o',
  kReduce = 'R',
  kBuild = 'b',
  kNewObj = 0x81,
  kNewObjEx = 0x92,
  kExt1 = 0x82,
  kExt2 = 0x83,
  kExt4 = 0x84,
  kPersId = 'P',
  kBinPersId = 'Q',
};

constexpr uint8_t kNewestProtocol = 5;
constexpr uint64_t kLongestName = 512;
// Picklers number their memo entries one after the other; a gap beyond this is no pickler's.
constexpr uint64_t kLargestMemoGap = 1 << 16;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string hex_byte(uint8_t code) {
  const char* digits = "0123456789abcdef";
  return {'0', 'x', digits[code >> 4], digits[code & 15]};
}

// One line, printable, of bounded length.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out += c >= ' ' && c < 0x7f ? c : '?';
  return text.size() > 80 ? out + "…" : out;
}

const char* class_opcode_name(uint8_t code) {
  switch (code) {
    case kInst:
      return "creates an object of a class (INST)";
    case kObj:
      return "creates an object of a class (OBJ)";
    case kReduce:
      return "calls a function (REDUCE)";
    case kBuild:
      return "sets the state of an object (BUILD)";
    case kNewObj:
    case kNewObjEx:
      return "creates an object of a class (NEWOBJ)";
    case kExt1:
    case kExt2:
    case kExt4:
      return "asks for a registered class (EXT)";
    case kPersId:
    case kBinPersId:
      return "refers to an object outside the file (PERSID)";
    default:
      return nullptr;
  }
}

}  // namespace

PickleMachine::Step PickleMachine::fail(ErrorCode code, const std::string& what) {
  if (!error_) {
    error_ =
        Error{code, name_ + ": " + what + " at byte " + std::to_string(opcode_at_), opcode_at_};
  }
  return Step::failed;
}

PickleMachine::Step PickleMachine::cut() { return damaged("the pickle is cut"); }

bool PickleMachine::read_bytes(uint64_t count, std::string_view& bytes) {
  if (count == 0) {
    bytes = {};
    return true;
  }
  const auto taken = in_.take(count);
  bytes = text_of(taken);
  return taken.size() == count;
}

bool PickleMachine::read_line(std::string& line) {
  for (char c = 0; line.size() < kLongestName && read(c) && c != '\n';) line += c;
  return !line.empty();
}

PickleMachine::Step PickleMachine::push(Value value) {
  if (stack_.size() == stack_.capacity()) {
    const size_t grown = std::max<size_t>(stack_.capacity(), 64);
    if (budget_.spend(grown * sizeof(Value))) stack_.reserve(stack_.capacity() + grown);
  }
  if (!budget_.exceeded()) stack_.push_back(value);
  return Step::next;
}

bool PickleMachine::pop(Value& value) {
  if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) {
    damaged("the pickle takes from an empty stack");
    return false;
  }
  value = stack_.back();
  stack_.pop_back();
  return true;
}

std::optional<size_t> PickleMachine::pop_mark() {
  if (marks_.empty()) {
    damaged("the pickle ends a group that was not begun");
    return std::nullopt;
  }
  const size_t first = marks_.back();
  marks_.pop_back();
  return first;
}

// --- scalars ------------------------------------------------------------------------------------

PickleMachine::Step PickleMachine::push_text(uint64_t length) {
  std::string_view text;
  if (!read_bytes(length, text)) return cut();
  return push(Value::of(Tag::text, texts_.intern(text, budget_)));
}

// Little-endian two's complement of any length.
PickleMachine::Step PickleMachine::push_long(uint64_t length) {
  std::string_view bytes;
  if (!read_bytes(length, bytes)) return cut();
  if (length == 0) return push(values_.integer(0));
  const bool negative = (static_cast<uint8_t>(bytes.back()) & 0x80) != 0;
  const char filler = negative ? '\xff' : '\0';
  while (bytes.size() > 8 && bytes.back() == filler) bytes.remove_suffix(1);
  if (bytes.size() > 8) return push(Value::of(Tag::huge, 0));
  uint64_t value = negative ? ~uint64_t{0} : 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  const bool fits = negative == (static_cast<int64_t>(value) < 0);
  if (negative && !fits) return push(Value::of(Tag::huge, 0));
  return push(negative ? values_.integer(static_cast<int64_t>(value))
                       : values_.unsigned_integer(value));
}

PickleMachine::Step PickleMachine::step_scalar(uint8_t code) {
  uint8_t byte = 0;
  uint16_t half = 0;
  uint32_t word = 0;
  uint64_t wide = 0;
  switch (code) {
    case kNone:
      return push({});
    case kNewTrue:
      return push(Value::of(Tag::boolean, 1));
    case kNewFalse:
      return push(Value::of(Tag::boolean, 0));
    case kBinInt:
      return read(word) ? push(values_.integer(static_cast<int32_t>(word))) : cut();
    case kBinInt1:
      return read(byte) ? push(values_.integer(byte)) : cut();
    case kBinInt2:
      return read(half) ? push(values_.integer(half)) : cut();
    case kLong1:
      return read(byte) ? push_long(byte) : cut();
    case kLong4:
      return read(word) ? push_long(word) : cut();
    case kBinFloat:
      if (!read(wide)) return cut();
      return push(values_.real(std::bit_cast<double>(__builtin_bswap64(wide))));
    case kShortBinUnicode:
    case kShortBinString:
    case kShortBinBytes:
      return read(byte) ? push_text(byte) : cut();
    case kBinUnicode:
    case kBinString:
    case kBinBytes:
      return read(word) ? push_text(word) : cut();
    case kBinUnicode8:
    case kBinBytes8:
    case kByteArray8:
      return read(wide) ? push_text(wide) : cut();
    default:
      return refuse(code);
  }
}

// --- containers ---------------------------------------------------------------------------------

Value PickleMachine::collected(Value value, std::optional<uint32_t> key) {
  if (!value.is_container()) return value;
  const uint32_t* memo = values_.memo_of(value);
  if (!memo) return Value::of(Tag::gone, 0);
  const uint32_t index = *memo;
  const Value part = collector_.collect(value, key);
  if (part == value || index == ValueStore::kManyMemos) return part;
  if (index < memo_.size()) memo_[index] = part;
  values_.release(value);
  return part;
}

// Parts that follow each other are one run.
void PickleMachine::append_item(std::vector<Value>& items, Value item) {
  const bool is_run = item.tag() >= Tag::entry && item.tag() <= Tag::annotation;
  if (is_run && !items.empty() && items.back().tag() == item.tag()) {
    const Value last = items.back();
    if (last.id() + last.count() == item.id() && last.count() < kLongestRun) {
      items.back() = Value::run(last.tag(), last.id(), last.count() + 1);
      return;
    }
  }
  values_.append(items, item);
}

PickleMachine::Step PickleMachine::append_from(size_t first) {
  if (first == 0 || first > stack_.size()) return damaged("the pickle appends to nothing");
  const Value list = stack_[first - 1];
  if (list.tag() != Tag::list) return damaged("the pickle appends to what is no list");
  std::vector<Value>* items = values_.items(list);
  for (size_t i = first; i < stack_.size(); ++i) {
    Value item = stack_[i];
    if (item.is_container()) {
      item = collected(item, std::nullopt);
      items = values_.items(list);  // it may have been given back, or moved
    }
    if (!items) return damaged("the pickle appends to a list that is finished");
    append_item(*items, item);
  }
  stack_.resize(first);
  return Step::next;
}

PickleMachine::Step PickleMachine::set_items_from(size_t first) {
  if (first == 0 || first > stack_.size()) return damaged("the pickle sets items of nothing");
  const Value dict = stack_[first - 1];
  if (dict.tag() != Tag::dict) return damaged("the pickle sets items of what is no dictionary");
  if ((stack_.size() - first) % 2 != 0) return damaged("the pickle sets a key without a value");
  for (size_t i = first; i < stack_.size(); i += 2) {
    const Value key = stack_[i];
    std::optional<uint32_t> name;
    if (key.tag() == Tag::text) name = static_cast<uint32_t>(key.payload());
    const Value item = collected(stack_[i + 1], name);
    std::vector<Value>* items = values_.items(dict);
    if (!items) return damaged("the pickle sets items of a dictionary that is finished");
    values_.append(*items, key);
    values_.append(*items, item);
  }
  stack_.resize(first);
  return Step::next;
}

PickleMachine::Step PickleMachine::push_tuple(size_t count) {
  const size_t lowest = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() < lowest + count) return damaged("the pickle takes from an empty stack");
  const Value tuple = values_.new_container(Tag::tuple);
  const size_t first = stack_.size() - count;
  for (size_t i = first; i < stack_.size(); ++i) {
    const Value item = collected(stack_[i], std::nullopt);
    std::vector<Value>* items = values_.items(tuple);
    if (items) values_.append(*items, item);
  }
  stack_.resize(first);
  return push(tuple);
}

PickleMachine::Step PickleMachine::step_container(uint8_t code) {
  switch (code) {
    case kEmptyList:
      return push(values_.new_container(Tag::list));
    case kEmptyDict:
      return push(values_.new_container(Tag::dict));
    case kEmptyTuple:
      return push_tuple(0);
    case kTuple1:
      return push_tuple(1);
    case kTuple2:
      return push_tuple(2);
    case kTuple3:
      return push_tuple(3);
    case kAppend:
      if (stack_.size() < 2 || (!marks_.empty() && marks_.back() + 2 > stack_.size())) {
        return damaged("the pickle appends to nothing");
      }
      return append_from(stack_.size() - 1);
    case kSetItem:
      if (stack_.size() < 3 || (!marks_.empty() && marks_.back() + 3 > stack_.size())) {
        return damaged("the pickle sets items of nothing");
      }
      return set_items_from(stack_.size() - 2);
    default:
      break;
  }
  const auto first = pop_mark();
  if (!first) return Step::failed;
  switch (code) {
    case kAppends:
      return append_from(*first);
    case kSetItems:
      return set_items_from(*first);
    case kTuple:
      return push_tuple(stack_.size() - *first);
    default:
      break;  // kList, kDict: the container comes below its items
  }
  const bool is_list = code == kList;
  stack_.insert(stack_.begin() + static_cast<ptrdiff_t>(*first),
                values_.new_container(is_list ? Tag::list : Tag::dict));
  return is_list ? append_from(*first + 1) : set_items_from(*first + 1);
}

// --- memo ---------------------------------------------------------------------------------------

PickleMachine::Step PickleMachine::put_memo(uint64_t index) {
  if (stack_.empty()) return damaged("the pickle remembers nothing");
  if (index > memo_.size() + kLargestMemoGap) {
    return damaged("the pickle remembers out of order (entry " + std::to_string(index) + ")");
  }
  if (index >= memo_.size()) {
    if (!budget_.spend((index + 1 - memo_.size()) * sizeof(Value))) return Step::next;
    memo_.resize(index + 1, Value::of(Tag::gone, 0));
  }
  const Value value = stack_.back();
  memo_[index] = value;
  if (uint32_t* memo = value.is_container() ? values_.memo_of(value) : nullptr) {
    const bool first = *memo == ValueStore::kNoMemo && index < ValueStore::kManyMemos;
    *memo = first ? static_cast<uint32_t>(index) : ValueStore::kManyMemos;
  }
  return Step::next;
}

PickleMachine::Step PickleMachine::get_memo(uint64_t index) {
  if (index >= memo_.size()) {
    return damaged("the pickle refers to entry " + std::to_string(index) +
                   " of its memo, which is not there,");
  }
  return push(memo_[index]);
}

PickleMachine::Step PickleMachine::step_memo(uint8_t code) {
  uint8_t byte = 0;
  uint32_t word = 0;
  switch (code) {
    case kMemoize:
      return put_memo(memo_.size());
    case kBinPut:
      return read(byte) ? put_memo(byte) : cut();
    case kLongBinPut:
      return read(word) ? put_memo(word) : cut();
    case kBinGet:
      return read(byte) ? get_memo(byte) : cut();
    default:
      return read(word) ? get_memo(word) : cut();  // kLongBinGet
  }
}

// --- everything ---------------------------------------------------------------------------------

PickleMachine::Step PickleMachine::refuse(uint8_t code) {
  const char* suffix = "; a snapshot holds plain data only, nothing of this file was run:";
  if (code == kGlobal) {
    std::string module, name;
    if (!read_line(module) || !read_line(name)) return cut();
    return fail(ErrorCode::kForeign,
                "the pickle asks for " + shown(module) + "." + shown(name) + suffix);
  }
  if (code == kStackGlobal) {
    std::string name = "a class";
    if (stack_.size() >= 2 && stack_.back().tag() == Tag::text &&
        stack_[stack_.size() - 2].tag() == Tag::text) {
      name = shown(texts_[static_cast<uint32_t>(stack_[stack_.size() - 2].payload())]) + "." +
             shown(texts_[static_cast<uint32_t>(stack_.back().payload())]);
    }
    return fail(ErrorCode::kForeign, "the pickle asks for " + name + suffix);
  }
  if (const char* what = class_opcode_name(code)) {
    return fail(ErrorCode::kForeign, std::string("the pickle ") + what + suffix);
  }
  return damaged("opcode " + hex_byte(code) + " is none of a snapshot's");
}

PickleMachine::Step PickleMachine::step() {
  opcode_at_ = in_.offset();
  uint8_t code = 0;
  Value value;
  if (!read(code)) return cut();
  if (code == kLongBinGet || code == kBinGet) return step_memo(code);  // most of every snapshot
  switch (code) {
    case kMark:
      if (marks_.size() == marks_.capacity() &&
          !budget_.spend(std::max<size_t>(marks_.capacity(), 64) * sizeof(size_t))) {
        return Step::next;
      }
      marks_.push_back(stack_.size());
      return Step::next;
    case kStop:
      return Step::stop;
    case kPop:
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
        return Step::next;
      }
      return pop(value) ? Step::next : Step::failed;
    case kPopMark:
      if (const auto first = pop_mark()) {
        stack_.resize(std::min(*first, stack_.size()));
        return Step::next;
      }
      return Step::failed;
    case kDup:
      if (!pop(value)) return Step::failed;
      push(value);
      return push(value);
    case kProto: {
      uint8_t version = 0;
      if (!read(version)) return cut();
      if (version <= kNewestProtocol) return Step::next;
      return fail(ErrorCode::kNewerVersion,
                  "pickle protocol " + std::to_string(version) + " is not known (up to 5 are)");
    }
    case kFrame: {
      uint64_t length = 0;
      if (!read(length)) return cut();
      return length <= in_.remaining() ? Step::next : cut();
    }
    case kEmptyList:
    case kAppend:
    case kAppends:
    case kList:
    case kEmptyTuple:
    case kTuple:
    case kTuple1:
    case kTuple2:
    case kTuple3:
    case kEmptyDict:
    case kDict:
    case kSetItem:
    case kSetItems:
      return step_container(code);
    case kBinPut:
    case kLongBinPut:
    case kMemoize:
    case kBinGet:
    case kLongBinGet:
      return step_memo(code);
    default:
      return step_scalar(code);
  }
}

Result<Value> PickleMachine::run() {
  Step last = Step::next;
  while (last == Step::next) {
    last = step();
    if (budget_.exceeded()) {
      last = damaged("the pickle builds far more data than its size can hold");
    }
  }
  if (last == Step::failed) return *error_;
  if (stack_.size() != 1 || !marks_.empty()) {
    damaged("the pickle ends with other than one value");
    return *error_;
  }
  return stack_.back();
}

}  // namespace fragscope::imported
