// A framework that tells its blocks through fragscope_api.h.
#include <cstdio>

#include "shim/fragscope_api.h"
#include "shim_fake.h"

int main() {
  fragscope_mark("too early");  // nothing is recorded before the first memory call
  void* segment = nullptr;
  cudaMalloc(&segment, 2 << 20);
  const auto address = reinterpret_cast<uint64_t>(segment);
  fragscope_segment_alloc(0, 0, address, 2 << 20);
  fragscope_mark("step 1");
  fragscope_block_alloc(0, 7, address, 512, 100, 512, 2 << 20);
  fragscope_block_free(0, 7, address);
  fragscope_oom(0, 0, 5000, FRAGSCOPE_UNKNOWN);
  fragscope_segment_map(0, 3, 0x9000000, 4 << 20);
  fragscope_segment_unmap(0, 3, 0x9200000, 2 << 20);
  fragscope_segment_free(0, 0, address, 2 << 20);
  cudaFree(segment);
  std::puts("done");
}
