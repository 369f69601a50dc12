#include "replay/client_calls.h"

#include <algorithm>

namespace fragscope::replay {
namespace {

bool has(OpSpan ops, BlockOpKind kind) {
  return std::any_of(ops.begin(), ops.end(), [&](const BlockOp& op) { return op.kind == kind; });
}

}  // namespace

void ClientCalls::feed(const BlockOp& op) {
  if (op.kind == BlockOpKind::segment_refused) {  // another plane: it may come in between
    window_.push_back(op);
    return;
  }
  if (held_free_ && settle_held_free(&op)) return;
  switch (op.kind) {
    case BlockOpKind::alloc:
    case BlockOpKind::oom:
      call(op);
      return;
    case BlockOpKind::free_requested:
      settle_window();
      held_free_ = op;
      return;
    case BlockOpKind::block_size:
      sink_.on_block_size(op);
      return;
    default:
      window_.push_back(op);
  }
}

// True: `next` was the held free's own completion.
bool ClientCalls::settle_held_free(const BlockOp* next) {
  const BlockOp free = *held_free_;
  held_free_.reset();
  const bool at_once =
      next && next->kind == BlockOpKind::free_completed && next->address == free.address;
  if (at_once) {
    sink_.on_free(free);
  } else {
    sink_.on_free_pending(free);
  }
  return at_once;
}

// How many ops at the start of the window belong to an empty_cache().
size_t ClientCalls::empty_cache_length() const {
  size_t length = 0;
  for (size_t i = 0; i < window_.size(); ++i) {
    const BlockOpKind kind = window_[i].kind;
    if (kind == BlockOpKind::segment_refused || kind == BlockOpKind::segment_alloc) break;
    if (kind == BlockOpKind::segment_free) length = i + 1;
  }
  return length;
}

void ClientCalls::call(const BlockOp& op) {
  const size_t emptied = empty_cache_length();
  const OpSpan window(window_);
  if (emptied > 0) sink_.on_empty_cache(window.first(emptied));
  if (op.kind == BlockOpKind::alloc) {
    sink_.on_alloc(op, window.subspan(emptied));
  } else {
    sink_.on_oom(op, window.subspan(emptied));
  }
  window_.clear();
}

// A client call that allocates nothing follows, or the end.
void ClientCalls::settle_window() {
  if (window_.empty()) return;
  const OpSpan window(window_);
  if (has(window, BlockOpKind::segment_free)) {
    sink_.on_empty_cache(window);
  } else if (has(window, BlockOpKind::free_completed)) {
    sink_.on_completions(window);
  } else if (has(window, BlockOpKind::segment_alloc)) {
    return;  // its block may follow: a free of another thread came in between
  }
  window_.clear();
}

void ClientCalls::finish() {
  if (held_free_) settle_held_free(nullptr);
  settle_window();
  window_.clear();
}

}  // namespace fragscope::replay
