// The ops of one device, sorted into what the client asked of its allocator (input of a replay) and
// what the allocator did on its own (to be predicted).
//
// The calls of a device come one after another (its allocator has one lock), so everything between
// two client calls belongs to the second one, except a release of cached segments that no refused
// allocation preceded: that was torch.cuda.empty_cache(), which leaves no event of its own.
// A block whose free_completed follows its free_requested at once had no other stream's use; any
// other one was kept by a use that ends with its free_completed.
//
// Threads: one at a time. Ownership: borrows the sink.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "replay/block_ops.h"

namespace fragscope::replay {

using OpSpan = std::span<const BlockOp>;

class CallSink {
 public:
  virtual ~CallSink() = default;
  // `own`: what the allocator did inside the call, in order (free_completed, segment_…).
  virtual void on_alloc(const BlockOp& op, OpSpan own) = 0;
  virtual void on_oom(const BlockOp& op, OpSpan own) = 0;
  virtual void on_empty_cache(OpSpan own) = 0;
  // Completions that no call of the list explains: a release with nothing to release.
  virtual void on_completions(OpSpan own) = 0;
  virtual void on_free(const BlockOp& op) = 0;
  virtual void on_free_pending(const BlockOp& op) = 0;
  virtual void on_block_size(const BlockOp& op) = 0;
};

class ClientCalls {
 public:
  explicit ClientCalls(CallSink& sink) : sink_(sink) {}
  void feed(const BlockOp& op);
  // After the last op.
  void finish();

 private:
  bool settle_held_free(const BlockOp* next);
  void settle_window();
  size_t empty_cache_length() const;
  void call(const BlockOp& op);

  CallSink& sink_;
  std::vector<BlockOp> window_;  // the allocator's own acts since the last client call
  std::optional<BlockOp> held_free_;
};

}  // namespace fragscope::replay
