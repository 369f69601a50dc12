// The bytes in use on every simulated device of one run, in shared memory: all processes of the run
// charge it, NVML reads it. There is one truth, a figure per process and device; what a device has
// left is its total less the sum over the processes that live.
//
// A robust process-shared mutex, not atomics: capacity must hold across processes (two that charge
// at once may not both get the last page), and a process may die by SIGKILL between any two
// instructions. The kernel hands the lock on then, and because the per-process figures are the only
// state, nothing needs repair. Entries of dead processes (gone, zombie, or the pid with another
// start time) are dropped when a charge does not fit and whenever usage is asked for.
//
// Threads and processes: all members may be called at any time. After a fork the child must not use
// the parent's object (the driver refuses calls there).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/device_memory.h"

namespace fragscope::simcuda {

struct LedgerFile;
struct LedgerEvent;

class Ledger {
 public:
  // `path` null or empty: books of this process alone. Otherwise the file is created (0600) when
  // missing, with `devices` devices of `total_bytes`; an existing one must agree with both.
  static Result<std::unique_ptr<Ledger>> open(const char* path, int devices, uint64_t total_bytes);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  uint64_t total_bytes() const;
  // Starts this process's entry. What the same process used before an exec is given back: its
  // context ended with its old program. charge() does it too, if nobody has.
  void claim();
  bool charge(int device, uint64_t bytes);
  void refund(int device, uint64_t bytes);

  // Bytes in use by all processes, or by this one.
  uint64_t used(int device);
  uint64_t used_by_this_process(int device);

  struct Tenant {
    uint32_t pid;
    uint64_t bytes;
  };
  std::vector<Tenant> tenants(int device);  // processes that hold bytes, by slot

  // What the run relied on beyond the exact books, by name, over all processes. Names beyond the
  // table's 120 of a kind are counted together under "other".
  enum class Kind {
    kUnsupported,  // calls of functions that the stand-ins do not implement
    kAnswer,       // values answered that a kernel would have computed (answers.h)
    kAssumed,      // sizes that a library chose by our formula; `largest` in bytes
  };
  // Frees what processes of other pid namespaces held that are gone: for one who sees them all.
  void drop_gone(const std::function<bool(uint32_t pid, uint64_t start_ticks)>& is_gone);

  // Events that cross processes: when the last record of each is reached, CLOCK_MONOTONIC ns. An
  // event is free again when its maker says so or has ended; whoever still names it then by its
  // number and generation sees it as reached (0).
  struct SharedEvent {
    int number;
    uint32_t generation;
  };
  std::optional<SharedEvent> share_event();  // none: all 4096 belong to live processes
  void unshare_event(const SharedEvent& event);
  void set_event(const SharedEvent& event, uint64_t due_ns);
  uint64_t event_due(const SharedEvent& event);

  struct Noted {
    std::string name;
    uint64_t times;
    uint64_t largest;
  };
  void note(Kind kind, const char* name, uint64_t bytes = 0);
  std::vector<Noted> noted(Kind kind);

 private:
  explicit Ledger(LedgerFile* file) : file_(file) {}
  class Lock;
  int own_slot();
  void drop_dead();
  void drop_events_of_dead();
  LedgerEvent* find_event(const SharedEvent& event);

  LedgerFile* file_;
  int slot_ = -1;
};

// One device of the ledger as the book that places memory.
class LedgerBook final : public model::CapacityBook {
 public:
  LedgerBook(Ledger& ledger, int device) : ledger_(ledger), device_(device) {}
  bool charge(uint64_t bytes) override { return ledger_.charge(device_, bytes); }
  void refund(uint64_t bytes) override { ledger_.refund(device_, bytes); }

 private:
  Ledger& ledger_;
  int device_;
};

}  // namespace fragscope::simcuda
