#include "replay/client_calls.h"

#include <algorithm>

namespace fragscope::replay {

bool CallWindow::has(BlockOpKind kind) const {
  return std::any_of(ops_.begin(), ops_.end(), [&](const BlockOp& op) { return op.kind == kind; });
}

size_t CallWindow::empty_cache_length() const {
  size_t length = 0;
  for (size_t i = 0; i < ops_.size(); ++i) {
    const BlockOpKind kind = ops_[i].kind;
    if (kind == BlockOpKind::segment_refused || kind == BlockOpKind::segment_alloc) break;
    if (kind == BlockOpKind::segment_free) length = i + 1;
  }
  return length;
}

}  // namespace fragscope::replay
