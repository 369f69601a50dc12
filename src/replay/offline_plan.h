// An offline plan: all lifetimes are known, so each block gets its place before the program starts
// (dynamic storage allocation). No allocator can need less than the live peak; how near a plan
// comes to it says how much of a program's reserved memory is fragmentation that could be avoided
// at all.
//
// The problem is NP-hard. Blocks are placed one after another at the lowest address that is free
// during their whole life, in several orders (longest life first is optimal where lives nest, as
// forward and backward passes do); the best plan is kept. Sizes are multiples of 512 bytes, as
// device addresses are. Same input, same plan.
//
// Units: bytes. Threads: values. Errors: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fragscope::replay {

// A block lives for the allocations numbered birth … death - 1 (its own is number `birth`): two
// blocks share no memory if one's birth lies in the other's life.
struct PlannedBlock {
  uint64_t size = 0;
  uint32_t birth = 0;
  uint32_t death = 0;  // above birth
};

struct OfflinePlan {
  uint64_t live_peak = 0;         // lower bound of every allocator
  uint64_t height = 0;            // what the plan needs
  std::vector<uint64_t> offsets;  // of each block, in the order of the input
};

OfflinePlan plan_offline(std::span<const PlannedBlock> blocks);

}  // namespace fragscope::replay
