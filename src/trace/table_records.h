// What events refer to — stacks, texts, names, modules, Python frames — and properties <-> the
// records of a TABL chunk (FORMAT.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_cursor.h"
#include "trace/trace_data.h"

namespace fragscope::trace {

class TableEncoder {
 public:
  void stack(uint32_t id, std::span<const uint64_t> frames);
  void text(uint32_t id, std::string_view text);
  void api_name(uint16_t id, std::string_view name);
  void module(const Module& module);
  void property(std::string_view key, std::string_view value);
  void python_frame(uint32_t id, const PythonFrame& frame);

  uint32_t records() const { return records_; }
  uint64_t frames() const { return frames_; }
  const std::vector<std::byte>& bytes() const { return out_.data(); }
  void clear();

 private:
  void begin(uint8_t type);

  ByteWriter out_;
  std::vector<uint64_t> last_stack_;
  uint64_t last_frame_ = 0;
  uint64_t frames_ = 0;
  uint32_t records_ = 0;
};

// Adds the records to the tables and properties. False: damaged; what came before it is kept.
bool decode_table(std::span<const std::byte> raw, uint32_t records, TraceTables& tables,
                  std::map<std::string, std::string>& properties);

}  // namespace fragscope::trace
