// What one device's client asked of its allocator, decoded once and replayed many times: 16 bytes a
// call, allocations by number instead of by address.
//
// A recording says what an allocator did and what its client asked; only the latter is here. Every
// backend (replay/backend.h) runs on it, and one list serves all configurations of a sweep, read by
// many threads.
//
// Blocks that were there when recording began are requested first, by their recorded addresses;
// cached memory of then is not there.
//
// Units: bytes; streams are handles of the recording. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "model/stats.h"
#include "replay/client_calls.h"

namespace fragscope::replay {

enum class CallKind : uint8_t {
  alloc,        // `bytes` into `slot`
  refused,      // the recorded allocator failed on `bytes`: asked for, given back at once
  free,         // `slot`
  free_later,   // `slot` is freed by the client while another stream uses it …
  complete,     // … and is not used any more
  empty_cache,  // torch.cuda.empty_cache()
};

struct Call {
  uint64_t bytes = 0;
  uint32_t slot = 0;
  uint16_t origin = 0;  // index into CallList::origins
  CallKind kind = CallKind::alloc;
};
static_assert(sizeof(Call) == 16);

// From which stream and for which pool a call was made.
struct CallOrigin {
  uint64_t stream = 0;
  model::PoolId pool = {};
  bool operator==(const CallOrigin&) const = default;
};

struct CallList {
  std::vector<Call> calls;
  std::vector<uint64_t> seqs;  // of each call's event, if they were kept; else empty
  std::vector<CallOrigin> origins;
  uint32_t slots = 0;        // number of slots; a slot is used again after its block has ended
  uint64_t allocations = 0;  // calls of kind alloc
  size_t start_calls = 0;    // the first ones: blocks that were there when recording began
  uint64_t unusable = 0;     // requests whose size the recording does not tell
  bool sizes_known = true;   // every request came with the client's own size
};

// Builds the list of one device from its ops. A block whose address is handed out again before its
// free was seen ends there.
class CallListBuilder {
 public:
  // `with_seqs`: 8 bytes more a call, to tell later which event a call was.
  explicit CallListBuilder(bool with_seqs) : with_seqs_(with_seqs), calls_(*this) {}
  CallListBuilder(const CallListBuilder&) = delete;
  CallListBuilder& operator=(const CallListBuilder&) = delete;

  void feed(const BlockOp& op) {
    if (op.at_start) {
      feed_start(op);
    } else {
      calls_.feed(op);
    }
  }
  void feed_freed(const BlockOp& op) { calls_.feed_freed(op); }
  // After the last op.
  CallList finish();

 private:
  friend class ClientCalls<CallListBuilder>;
  struct Live {
    uint32_t slot = 0;
    bool pending = false;
  };
  void on_alloc(const BlockOp& op, OpSpan own);
  void on_oom(const BlockOp& op, OpSpan own);
  void on_empty_cache(OpSpan own);
  void on_completions(OpSpan own) { complete(own); }
  void on_free(const BlockOp& op);
  void on_free_pending(const BlockOp& op);
  void on_block_size(const BlockOp&) {}

  void feed_start(const BlockOp& op);
  void add(CallKind kind, const BlockOp& op, uint32_t slot, uint64_t bytes = 0);
  void complete(OpSpan own);
  void end_live(const BlockOp& op);
  uint16_t origin_of(const BlockOp& op);

  bool with_seqs_;
  ClientCalls<CallListBuilder> calls_;
  CallList list_;
  std::unordered_map<uint64_t, Live> live_;  // by recorded address
  std::vector<uint32_t> unused_slots_;
};

}  // namespace fragscope::replay
