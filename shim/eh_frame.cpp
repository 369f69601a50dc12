#include "shim/eh_frame.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "shim/checked_memory.h"

namespace fragscope::shim {
namespace {

// Numbers of the x86-64 ABI.
constexpr uint64_t kBasePointer = 6;
constexpr uint64_t kStackPointer = 7;
constexpr uint64_t kReturnAddress = 16;

// DW_EH_PE_…
constexpr uint8_t kAbsolute = 0x00;
constexpr uint8_t kUnsigned4 = 0x03;
constexpr uint8_t kPcRelative4 = 0x1b;
constexpr uint8_t kTableRelative4 = 0x3b;

// Tables may lie: what they lead to is read once it is proved that it can be.
class Proof {
 public:
  // False, for good, where something cannot be read.
  bool reads(const void* start, uint64_t bytes) {
    const auto address = reinterpret_cast<uintptr_t>(start);
    if (address + bytes < address) ok_ = false;
    for (uintptr_t page = address & ~(kPageBytes - 1); ok_ && page < address + bytes;
         page += kPageBytes) {
      if (std::find(std::begin(pages_), std::end(pages_), page) != std::end(pages_)) continue;
      ok_ = readable_until(page, page + 1) > page;
      pages_[next_++ % std::size(pages_)] = page;
    }
    return ok_;
  }
  bool ok() const { return ok_; }

 private:
  uintptr_t pages_[8]{};
  size_t next_ = 0;
  bool ok_ = true;
};

// Of what is proved; `ok` ends what is not understood.
struct Cursor {
  const uint8_t* at = nullptr;
  const uint8_t* end = nullptr;
  bool ok = true;

  template <typename T>
  T take() {
    T value{};
    if (end - at < static_cast<ptrdiff_t>(sizeof value)) {
      ok = false;
      at = end;
      return value;
    }
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
    return value;
  }
  void skip(uint64_t bytes) {
    if (bytes > static_cast<uint64_t>(end - at)) {
      ok = false;
      at = end;
    } else {
      at += bytes;
    }
  }
  uint64_t uleb() {
    uint64_t value = 0;
    for (unsigned shift = 0; ok; shift += 7) {
      const auto byte = take<uint8_t>();
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) break;
    }
    return value;
  }
  int64_t sleb() {
    uint64_t value = 0;
    for (unsigned shift = 0; ok;) {
      const auto byte = take<uint8_t>();
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      shift += 7;
      if ((byte & 0x80) != 0) continue;
      if ((byte & 0x40) != 0 && shift < 64) value |= ~uint64_t{0} << shift;
      break;
    }
    return static_cast<int64_t>(value);
  }
};

// A record (CIE or FDE) without its length.
Cursor record_at(const uint8_t* at, Proof& proof) {
  constexpr uint32_t kMost = 1 << 16;  // also leaves out the 64-bit form
  uint32_t length = 0;
  if (!proof.reads(at, sizeof length)) return {at, at, false};
  std::memcpy(&length, at, sizeof length);
  const uint8_t* const start = at + sizeof length;
  if (length > kMost || !proof.reads(start, length)) return {start, start, false};
  return {start, start + length, true};
}

unsigned size_of_encoded(uint8_t encoding) {
  switch (encoding & 0x0f) {
    case 0x00:
    case 0x04:
    case 0x0c:
      return 8;
    case 0x03:
    case 0x0b:
      return 4;
    case 0x02:
    case 0x0a:
      return 2;
    default:
      return 0;
  }
}

struct Common {
  uint64_t code_factor = 1;
  int64_t data_factor = 1;
  uint8_t pointers = kAbsolute;
  bool has_augmentation = false;
  Cursor program;
  bool ok = false;
};

// "zPLR": z = length, P = personality, L = encoding of the language's data, R = of addresses.
bool read_augmentation(Cursor& in, const char* letters, Common& common) {
  if (*letters == '\0') return true;
  if (*letters++ != 'z') return false;
  common.has_augmentation = true;
  const uint64_t length = in.uleb();
  Cursor data{in.at, in.at, true};
  in.skip(length);
  data.end = in.at;
  for (; *letters != '\0'; ++letters) {
    if (*letters == 'R') {
      common.pointers = data.take<uint8_t>();
    } else if (*letters == 'L') {
      data.skip(1);
    } else if (*letters == 'P') {
      const unsigned size = size_of_encoded(data.take<uint8_t>());
      if (size == 0) return false;
      data.skip(size);
    } else {
      return false;  // S: a signal frame; others: not known
    }
  }
  return data.ok;
}

Common read_common(const uint8_t* at, Proof& proof) {
  Common common;
  Cursor in = record_at(at, proof);
  if (in.take<uint32_t>() != 0) return common;
  const auto version = in.take<uint8_t>();
  if (version != 1 && version != 3) return common;
  const char* const letters = reinterpret_cast<const char*>(in.at);
  while (in.ok && in.take<char>() != '\0') {
  }
  common.code_factor = in.uleb();
  common.data_factor = in.sleb();
  const uint64_t return_column = version == 1 ? in.take<uint8_t>() : in.uleb();
  if (!in.ok || return_column != kReturnAddress) return common;
  if (!read_augmentation(in, letters, common)) return common;
  common.program = in;
  common.ok = in.ok;
  return common;
}

struct Place {
  enum class Kind : uint8_t { same, saved, undefined, other };
  Kind kind = Kind::same;
  int64_t offset = 0;  // saved: at CFA + offset
};

struct Row {
  uint64_t cfa_register = kStackPointer;
  int64_t cfa_offset = 0;
  bool cfa_known = false;
  Place bp, sp, ra;

  Place* place_of(uint64_t reg) {
    if (reg == kBasePointer) return &bp;
    if (reg == kStackPointer) return &sp;
    return reg == kReturnAddress ? &ra : nullptr;
  }
};

// Runs call frame instructions up to the row of one address.
class Program {
 public:
  explicit Program(const Common& common) : common_(common) {}

  Row row;

  // Of the common record: what rows go back to.
  bool run_common() {
    const bool ok = run(common_.program, 0, UINT64_MAX);
    initial_ = row;
    return ok;
  }
  // False: something that is not understood. `start`: address of the first row.
  bool run(Cursor in, uint64_t start, uint64_t wanted) {
    location_ = start;
    while (in.ok && in.at < in.end) {
      const auto code = in.take<uint8_t>();
      const uint64_t low = code & 0x3f;
      const bool understood =
          (code >> 6) == 0 ? extended(in, code) : short_form(in, code >> 6, low);
      if (!understood) return false;
      if (location_ > wanted) {
        row = before_;
        return in.ok;
      }
    }
    return in.ok;
  }

 private:
  void advance(uint64_t delta) {
    before_ = row;
    location_ += delta * common_.code_factor;
  }
  void put(uint64_t reg, Place place) {
    if (Place* const known = row.place_of(reg)) *known = place;
  }
  void restore(uint64_t reg) {
    if (Place* const known = row.place_of(reg)) *known = *initial_.place_of(reg);
  }
  int64_t factored(int64_t offset) const {
    return static_cast<int64_t>(static_cast<uint64_t>(offset) *
                                static_cast<uint64_t>(common_.data_factor));
  }

  bool short_form(Cursor& in, unsigned form, uint64_t low) {
    if (form == 1) {
      advance(low);
    } else if (form == 2) {
      put(low, {Place::Kind::saved, factored(static_cast<int64_t>(in.uleb()))});
    } else {
      restore(low);
    }
    return true;
  }

  void define_cfa(uint64_t reg, int64_t offset) {
    row.cfa_register = reg;
    row.cfa_offset = offset;
    row.cfa_known = true;
  }

  bool extended(Cursor& in, uint8_t code);
  bool extended_register(Cursor& in, uint8_t code);

  static constexpr int kMostRemembered = 8;
  const Common& common_;
  Row initial_;
  Row before_;
  Row remembered_[kMostRemembered];
  int depth_ = 0;
  uint64_t location_ = 0;
};

bool Program::extended(Cursor& in, uint8_t code) {
  switch (code) {
    case 0x00:  // DW_CFA_nop
      return true;
    case 0x02:  // advance_loc1, 2, 4
      advance(in.take<uint8_t>());
      return true;
    case 0x03:
      advance(in.take<uint16_t>());
      return true;
    case 0x04:
      advance(in.take<uint32_t>());
      return true;
    case 0x0a:  // remember_state
      if (depth_ == kMostRemembered) return false;
      remembered_[depth_++] = row;
      return true;
    case 0x0b:  // restore_state
      if (depth_ == 0) return false;
      row = remembered_[--depth_];
      return true;
    case 0x0c: {  // def_cfa
      const uint64_t reg = in.uleb();
      define_cfa(reg, static_cast<int64_t>(in.uleb()));
      return true;
    }
    case 0x0d:  // def_cfa_register
      row.cfa_register = in.uleb();
      return true;
    case 0x0e:  // def_cfa_offset
      row.cfa_offset = static_cast<int64_t>(in.uleb());
      return true;
    case 0x0f:  // def_cfa_expression
      row.cfa_known = false;
      in.skip(in.uleb());
      return true;
    case 0x12: {  // def_cfa_sf
      const uint64_t reg = in.uleb();
      define_cfa(reg, factored(in.sleb()));
      return true;
    }
    case 0x13:  // def_cfa_offset_sf
      row.cfa_offset = factored(in.sleb());
      return true;
    case 0x2e:  // GNU_args_size
      static_cast<void>(in.uleb());
      return true;
    default:
      return extended_register(in, code);
  }
}

bool Program::extended_register(Cursor& in, uint8_t code) {
  const uint64_t reg = in.uleb();
  switch (code) {
    case 0x05:  // offset_extended
      put(reg, {Place::Kind::saved, factored(static_cast<int64_t>(in.uleb()))});
      return true;
    case 0x11:  // offset_extended_sf
      put(reg, {Place::Kind::saved, factored(in.sleb())});
      return true;
    case 0x06:  // restore_extended
      restore(reg);
      return true;
    case 0x07:  // undefined
      put(reg, {Place::Kind::undefined, 0});
      return true;
    case 0x08:  // same_value
      put(reg, {Place::Kind::same, 0});
      return true;
    case 0x09:  // register
    case 0x14:  // val_offset
    case 0x15:  // val_offset_sf: one number, signed or not
      static_cast<void>(in.uleb());
      put(reg, {Place::Kind::other, 0});
      return true;
    case 0x10:  // expression
    case 0x16:  // val_expression
      in.skip(in.uleb());
      put(reg, {Place::Kind::other, 0});
      return true;
    default:
      return false;
  }
}

FrameRule rule_of_row(const Row& row) {
  constexpr int64_t kMost = 1 << 20;
  FrameRule rule;
  if (row.ra.kind == Place::Kind::undefined) {
    rule.kind = FrameRule::Kind::outermost;
    return rule;
  }
  const bool is_plain = row.cfa_known && row.ra.kind == Place::Kind::saved && row.ra.offset == -8 &&
                        row.sp.kind == Place::Kind::same && row.cfa_offset > 0 &&
                        row.cfa_offset < kMost;
  const bool bp_is_plain =
      row.bp.kind == Place::Kind::same ||
      (row.bp.kind == Place::Kind::saved && row.bp.offset < 0 && row.bp.offset > -kMost);
  if (!is_plain || !bp_is_plain) return rule;
  if (row.cfa_register != kStackPointer && row.cfa_register != kBasePointer) return rule;
  rule.kind =
      row.cfa_register == kStackPointer ? FrameRule::Kind::from_sp : FrameRule::Kind::from_bp;
  rule.cfa_offset = static_cast<uint32_t>(row.cfa_offset);
  if (row.bp.kind == Place::Kind::saved) rule.bp_offset = static_cast<uint32_t>(-row.bp.offset);
  return rule;
}

// The FDE of `address`, by the sorted table of .eh_frame_hdr: pairs (function, FDE) of 32-bit
// distances from the section's start.
const uint8_t* find_record(const uint8_t* header, uint64_t address, Proof& proof) {
  constexpr size_t kMostHeader = 4 + 8;
  uint32_t count = 0;
  if (!proof.reads(header, kMostHeader + sizeof count)) return nullptr;
  if (header[0] != 1 || header[2] != kUnsigned4 || header[3] != kTableRelative4) return nullptr;
  const unsigned pointer_size = size_of_encoded(header[1]);
  if (pointer_size == 0) return nullptr;
  const uint8_t* const counted = header + 4 + pointer_size;
  std::memcpy(&count, counted, sizeof count);
  const auto* const table = reinterpret_cast<const int32_t*>(counted + sizeof count);
  const auto wanted = static_cast<int64_t>(address - reinterpret_cast<uint64_t>(header));
  uint32_t low = 0;
  uint32_t high = count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const int32_t* const pair = table + size_t{2} * middle;
    if (!proof.reads(pair, 2 * sizeof *pair)) return nullptr;
    if (*pair <= wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == 0 ? nullptr : header + table[size_t{2} * (low - 1) + 1];
}

// Address and size of what the record is about.
bool read_range(Cursor& in, uint8_t encoding, uint64_t& start, uint64_t& size) {
  const auto here = reinterpret_cast<uint64_t>(in.at);
  if (encoding == kPcRelative4) {
    start = here + static_cast<uint64_t>(static_cast<int64_t>(in.take<int32_t>()));
    size = in.take<uint32_t>();
  } else if (encoding == kAbsolute) {
    start = in.take<uint64_t>();
    size = in.take<uint64_t>();
  } else {
    return false;
  }
  return in.ok;
}

FrameRule read_rule(const uint8_t* header, uint64_t address, Proof& proof) {
  const uint8_t* const record = find_record(header, address, proof);
  if (record == nullptr) return {};
  Cursor in = record_at(record, proof);
  const uint8_t* const common_field = in.at;
  const auto back = in.take<uint32_t>();
  if (!in.ok || back == 0) return {};
  const Common common = read_common(common_field - back, proof);
  uint64_t start = 0;
  uint64_t size = 0;
  if (!common.ok || !read_range(in, common.pointers, start, size)) return {};
  if (address < start || address - start >= size) return {};
  if (common.has_augmentation) in.skip(in.uleb());
  Program program(common);
  if (!program.run_common() || !program.run(in, start, address)) return {};
  return rule_of_row(program.row);
}

}  // namespace

#if defined(__x86_64__)

FrameRule read_frame_rule(uintptr_t return_address) noexcept {
  const uint64_t address = return_address - 1;  // of the call: it may be a function's last
  dl_find_object found{};
  if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) return {};
  const auto* const header = static_cast<const uint8_t*>(found.dlfo_eh_frame);
  if (header == nullptr) return {};
  Proof proof;
  FrameRule rule = read_rule(header, address, proof);
  if (!proof.ok()) rule.kind = FrameRule::Kind::broken;
  return rule;
}

#else

FrameRule read_frame_rule(uintptr_t) noexcept { return {}; }

#endif

}  // namespace fragscope::shim
