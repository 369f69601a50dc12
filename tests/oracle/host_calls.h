// cudaHostAlloc and its relatives under the list's control: addresses that the model predicts, a
// record of the calls, and a background thread that runs when it is told to.
#pragma once

#include <cstdint>
#include <vector>

#include "model/host_memory.h"

namespace fragscope::oracle {

std::vector<model::HostCall> take_host_calls();

// The address that the list's results show for a pointer of the allocator: pointers that were
// registered came from malloc and get one of the model's addresses.
uint64_t shown_host_address(uint64_t pointer);

// Waits until the background thread has begun to sleep (after it was started).
void await_background();
// Lets the background thread run one round; nothing if it has not been started.
void run_background();
// From now on it runs freely, as at the end of the process.
void release_background();

}  // namespace fragscope::oracle
