// What the shim knows of the calling thread. Plain data in the static TLS block: no constructor, no
// destructor, no allocation, usable from signal handlers and after TLS destructors ran.
#pragma once

#include <cstdint>

#include "log/log_writer.h"

namespace fragscope::shim {

// An alloc entry of torch's trace tracker that waits for the report of the same block, which comes
// next on this thread, under the same lock.
struct HeldAlloc {
  bool valid;
  int32_t device;
  uint64_t address;
  uint64_t requested;
  uint64_t stream;
  uint32_t pool;  // packed PoolName
  bool pool_known;
};

// The event of a call that has not returned yet.
struct OpenEvent {
  log::LogWriter::Ticket ticket;
  uint64_t session;  // id; 0 = none
};

struct ThreadState {
  uintptr_t outer_frame;  // stack address of the outermost hooked call; 0 outside of any
  bool in_shim;           // our own code is running: what it calls is nobody's event
  uint32_t tid;           // valid while tid_session is the session's id (a fork changes both)
  uint64_t tid_session;
  uint32_t walk_memory;  // which one of stack_walk.cpp's, from 1; 0: not chosen yet
  HeldAlloc held;
  OpenEvent open;
};

extern constinit thread_local ThreadState t_state __attribute__((tls_model("initial-exec")));

}  // namespace fragscope::shim
