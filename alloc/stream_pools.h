// Graph pools of torch 2.1 and 2.2, which name the stream that captures and, at the end, nothing
// but it.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>

#include "model/block.h"

namespace fragscope::alloc {

void remember_stream_pool(int device, uint64_t stream, model::PoolId pool);
// The pool that was opened last for the stream, and forgets it.
std::optional<model::PoolId> take_stream_pool(int device, uint64_t stream);

}  // namespace fragscope::alloc
