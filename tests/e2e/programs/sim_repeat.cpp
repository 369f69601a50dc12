// Calls with addresses of the host in them, for a log that must be the same in every run.
// `calls SEED`: random allocations of pinned and managed memory, registrations of the heap's,
// contexts, graphs, pools and arrays. `taken`: what lies where pinned memory would go is passed
// over. `threads`: one allocates pinned, one device memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sim_check.h"

namespace {

constexpr uint64_t kHostWindow = 0x5000'0000'0000;

struct Block {
  void* at;
  enum { kPinned, kManaged, kRegistered } kind;
};

void drop(const Block& block) {
  switch (block.kind) {
    case Block::kPinned:
      OK(cudaFreeHost(block.at));
      break;
    case Block::kManaged:
      OK(cudaFree(block.at));
      break;
    case Block::kRegistered:
      OK(cudaHostUnregister(block.at));
      std::free(block.at);
  }
}

Block take(std::mt19937& random) {
  const size_t bytes = 1 + random() % (3u << 20);
  Block block{nullptr, Block::kPinned};
  switch (random() % 3) {
    case 0:
      OK(cudaHostAlloc(&block.at, bytes, cudaHostAllocPortable));
      break;
    case 1:
      OK(cudaMallocManaged(&block.at, bytes, cudaMemAttachGlobal));
      block.kind = Block::kManaged;
      break;
    default:
      block.at = std::malloc(bytes);
      OK(cudaHostRegister(block.at, bytes, 0));
      block.kind = Block::kRegistered;
  }
  std::memset(block.at, 1, bytes);
  return block;
}

void handles() {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaMemPool_t pool = nullptr;
  cudaArray_t array = nullptr;
  cudaMemPoolProps about{};
  about.allocType = cudaMemAllocationTypePinned;
  about.location = {cudaMemLocationTypeDevice, {0}};
  const cudaChannelFormatDesc format{32, 0, 0, 0, cudaChannelFormatKindFloat};
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaMemPoolCreate(&pool, &about));
  OK(cudaMallocArray(&array, &format, 64, 64, 0));
  OK(cudaFreeArray(array));
  OK(cudaMemPoolDestroy(pool));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
}

void calls(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Block> blocks;
  auto foreign = std::make_unique<char[]>(100);
  // Misplaces the heap, as other libraries and settings would.
  const std::unique_ptr<char[]> shift(new char[static_cast<size_t>(::getpid() % 64 + 1) * 4096]);
  for (int i = 0; i < 300; ++i) {
    if (!blocks.empty() && random() % 3 == 0) {
      const size_t victim = random() % blocks.size();
      drop(blocks[victim]);
      blocks.erase(blocks.begin() + static_cast<long>(victim));
    } else {
      blocks.push_back(take(random));
    }
    if (i % 50 == 0) handles();
  }
  CHECK_CODE(cudaFreeHost(foreign.get()), cudaErrorInvalidValue);
  CHECK_CODE(cudaHostUnregister(foreign.get()), cudaErrorHostMemoryNotRegistered);
  cudaGetLastError();
  for (const Block& block : blocks) drop(block);
}

// A page in the way costs no more than the place of one request; the place is not tried again.
void taken() {
  void* const wall = ::mmap(reinterpret_cast<void*>(kHostWindow + 8192), 4096, PROT_READ,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(wall == reinterpret_cast<void*>(kHostWindow + 8192));
  char *small = nullptr, *large = nullptr, *next = nullptr, *again = nullptr, *much = nullptr;
  OK(cudaMallocHost(reinterpret_cast<void**>(&small), 4096));
  OK(cudaMallocHost(reinterpret_cast<void**>(&large), 3 * 4096));
  OK(cudaMallocHost(reinterpret_cast<void**>(&next), 100));
  CHECK(reinterpret_cast<uint64_t>(small) == kHostWindow);
  CHECK(large == small + 4 * 4096);
  CHECK(next == large + 3 * 4096);
  std::memset(large, 7, 3 * 4096);
  void* device = nullptr;
  OK(cudaHostGetDevicePointer(&device, large + 5, 0));
  CHECK(device == large + 5);
  OK(cudaFreeHost(large));
  OK(cudaMallocHost(reinterpret_cast<void**>(&again), 2 * 4096));
  CHECK(again == large);
  CHECK(again[0] == 0 && again[2 * 4096 - 1] == 0);
  CHECK_CODE(cudaMallocHost(reinterpret_cast<void**>(&much), SIZE_MAX / 4),
             cudaErrorMemoryAllocation);
}

void threads() {
  OK(cudaFree(nullptr));
  std::thread pinned([] {
    for (int i = 1; i < 200; ++i) {
      void* at = nullptr;
      OK(cudaMallocHost(&at, static_cast<size_t>(i) * 1000));
      if (i % 3 == 0) OK(cudaFreeHost(at));
    }
  });
  for (int i = 1; i < 200; ++i) {
    void* at = nullptr;
    OK(cudaMalloc(&at, static_cast<size_t>(i) * 1000));
    if (i % 4 == 0) OK(cudaFree(at));
  }
  pinned.join();
}

}  // namespace

int main(int count, char** words) {
  const std::string mode = count > 1 ? words[1] : "";
  if (mode == "calls" && count == 3) calls(static_cast<unsigned>(std::atoi(words[2])));
  if (mode == "taken") taken();
  if (mode == "threads") threads();
  return g_failures;
}
