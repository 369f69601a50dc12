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

#include <cstddef>
#include <span>
#include <vector>

#include "replay/block_ops.h"

namespace fragscope::replay {

using OpSpan = std::span<const BlockOp>;

// What a sink of ClientCalls has; it may keep the functions private and name ClientCalls a friend.
// `own` is what the allocator did inside the call, in order (free_completed, segment_…).
//
// | function                                   | the client's call                               |
// |--------------------------------------------|-------------------------------------------------|
// | on_alloc(const BlockOp& op, OpSpan own)    | a request that was served                       |
// | on_oom(const BlockOp& op, OpSpan own)      | a request that was refused                      |
// | on_free(const BlockOp& op)                 | a free that completed at once                   |
// | on_free_pending(const BlockOp& op)         | a free that waits for another stream            |
// | on_empty_cache(OpSpan own)                 | torch.cuda.empty_cache()                        |
// | on_completions(OpSpan own)                 | none that is seen: a release that found nothing |
// | on_block_size(const BlockOp& op)           | none: what a report adds about a block          |

// The allocator's own acts since the last client call.
class CallWindow {
 public:
  bool empty() const { return ops_.empty(); }
  void add(const BlockOp& op) { ops_.push_back(op); }
  void clear() { ops_.clear(); }
  OpSpan ops() const { return ops_; }
  bool has(BlockOpKind kind) const;
  // How many ops at the start belong to an empty_cache().
  size_t empty_cache_length() const;

 private:
  std::vector<BlockOp> ops_;
};

template <typename Sink>
class ClientCalls {
 public:
  explicit ClientCalls(Sink& sink) : sink_(sink) {}

  void feed(const BlockOp& op) {
    if (op.kind == BlockOpKind::segment_refused) {  // another plane: it may come in between
      window_.add(op);
      return;
    }
    if (holds_free_ && settle_held_free(&op)) return;
    switch (op.kind) {
      case BlockOpKind::alloc:
      case BlockOpKind::oom:
        call(op);
        return;
      case BlockOpKind::free_requested:
        if (!window_.empty()) settle_window();
        held_free_ = op;
        holds_free_ = true;
        return;
      case BlockOpKind::block_size:
        sink_.on_block_size(op);
        return;
      default:
        window_.add(op);
    }
  }

  // A free_requested whose own completion is the next op.
  void feed_freed(const BlockOp& op) {
    if (holds_free_) settle_held_free(&op);
    if (!window_.empty()) settle_window();
    sink_.on_free(op);
  }

  // After the last op.
  void finish() {
    if (holds_free_) settle_held_free(nullptr);
    settle_window();
    window_.clear();
  }

 private:
  // True: `next` was the held free's own completion.
  bool settle_held_free(const BlockOp* next) {
    holds_free_ = false;
    const bool at_once = next != nullptr && next->kind == BlockOpKind::free_completed &&
                         next->address == held_free_.address;
    if (at_once) {
      sink_.on_free(held_free_);
    } else {
      sink_.on_free_pending(held_free_);
    }
    return at_once;
  }

  void call(const BlockOp& op) {
    OpSpan own;
    if (!window_.empty()) {
      const size_t emptied = window_.empty_cache_length();
      if (emptied > 0) sink_.on_empty_cache(window_.ops().first(emptied));
      own = window_.ops().subspan(emptied);
    }
    if (op.kind == BlockOpKind::alloc) {
      sink_.on_alloc(op, own);
    } else {
      sink_.on_oom(op, own);
    }
    window_.clear();
  }

  // A client call that allocates nothing follows, or the end.
  void settle_window() {
    if (window_.has(BlockOpKind::segment_free)) {
      sink_.on_empty_cache(window_.ops());
    } else if (window_.has(BlockOpKind::free_completed)) {
      sink_.on_completions(window_.ops());
    } else if (window_.has(BlockOpKind::segment_alloc)) {
      return;  // its block may follow: a free of another thread came in between
    }
    window_.clear();
  }

  Sink& sink_;
  CallWindow window_;
  BlockOp held_free_;
  bool holds_free_ = false;
};

}  // namespace fragscope::replay
