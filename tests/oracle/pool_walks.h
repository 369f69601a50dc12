// Walks of PyTorch's own map of private pools, compiled from the release's headers.
#pragma once

namespace fragscope::oracle {

// One line for each walk of tests/support/pool_walk.h, on stdout.
void print_pool_walks();

}  // namespace fragscope::oracle
