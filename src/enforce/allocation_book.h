// What a process holds of the memory that is limited: which call took how much, so that the end of
// each allocation gives back exactly that. The live twin of metrics/driver_bytes.h, with the same
// rules.
//
// A free is found by its address, whichever call made it. Physical memory of the VMM calls counts
// until its last handle is released and its last mapping is gone. The end of a context ends what it
// had, the reset of a device all of the device's primary context and its stream-ordered and
// physical memory. Imported memory is another process's and counts nothing here.
//
// Units: bytes. Threads: one at a time. Errors: none; what is not known is nobody's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "enforce/account.h"

namespace fragscope::enforce {

inline constexpr uint64_t kNoContext = 0;

struct Holding {
  int purse = 0;
  uint64_t bytes = 0;
  uint64_t context = kNoContext;  // that ends it; kNoContext: the device's end alone does
};

class AllocationBook {
 public:
  explicit AllocationBook(Account& account) : account_(account) {}

  // `bytes` of the account, taken for a call that has succeeded.
  void begin(uint64_t address, const Holding& holding);
  // Out of the book, for a free that is under way: end_taken() when it succeeds, else put_back().
  // In between nobody else can free the address or be given it under the old name.
  std::optional<Holding> take_out(uint64_t address);
  void end_taken(const Holding& holding);
  void put_back(uint64_t address, const Holding& holding);

  // Physical memory goes by ids of the book: a driver may use a handle again at once.
  void begin_physical(uint64_t handle, int purse, uint64_t bytes);
  void begin_imported(uint64_t handle);
  // A further reference to what is mapped at `mapped`, which may come under a handle of its own.
  void retain(uint64_t handle, uint64_t mapped);
  // The memory behind a handle, asked before its release; 0: nobody's. release() when that is done.
  uint64_t physical_of(uint64_t handle) const;
  void release(uint64_t physical);
  void map(uint64_t address, uint64_t bytes, uint64_t handle);
  void unmap(uint64_t address, uint64_t bytes);

  void end_context(uint64_t context);
  // `is_own(context)`: a context that the program made itself; those outlive the primary one.
  void end_device(int purse, bool (*is_own)(const void* self, uint64_t context), const void* self);

  size_t holdings() const { return live_.size() + physical_.size(); }

 private:
  struct Physical {
    int purse = 0;
    uint64_t bytes = 0;
    uint32_t references = 1;
    uint32_t maps = 0;
    bool imported = false;
  };
  struct Mapping {
    uint64_t bytes = 0;
    uint64_t physical = 0;  // id
  };

  void drop_if_unused(uint64_t id);

  Account& account_;
  std::unordered_map<uint64_t, Holding> live_;       // by address
  std::unordered_map<uint64_t, Physical> physical_;  // by id
  std::unordered_map<uint64_t, uint64_t> handles_;   // handle -> id; the id may be gone
  std::map<uint64_t, Mapping> mappings_;             // by address
  uint64_t next_id_ = 1;
};

}  // namespace fragscope::enforce
