// Writes a pickle of plain data (protocol 2: every Python and TorchScript reads it) to a file.
//
// What is in a dictionary or list is written between begin_…() and end_…(), keys and values in
// turn. A text is written once and then named by the pickle's memo; so is what stands between
// memoize() and a later use of its number by recall().
//
// Threads: one at a time. Errors: good() is false once something could not be written.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_map>

namespace fragscope::imported {

class PickleWriter {
 public:
  // Borrows `out`, a binary stream.
  explicit PickleWriter(std::ostream& out);

  void begin_dict();
  void end_dict() { put('u'); }
  void begin_list();
  void end_list() { put('e'); }
  void text(std::string_view value);
  void number(uint64_t value);
  void number(int value) { number_signed(value); }
  void number_signed(int64_t value);
  void real(double value);
  void boolean(bool value) { put(value ? '\x88' : '\x89'); }
  void pair(uint64_t first, uint64_t second);
  // A number under which the object written last can be written again by recall().
  uint32_t memoize();
  void recall(uint32_t memo);
  // After the one object that the pickle is.
  void finish() { put('.'); }
  bool good() const { return out_.good(); }

 private:
  void put(char code) { out_.put(code); }
  template <typename T>
  void raw(T value);

  std::ostream& out_;
  std::unordered_map<std::string, uint32_t> texts_;
  uint32_t memos_ = 0;
};

}  // namespace fragscope::imported
