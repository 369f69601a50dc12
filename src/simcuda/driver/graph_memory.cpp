// Memory of allocation nodes. As the programming guide has it: an address is fixed when the node is
// made, memory stands behind it from the first launch (or upload) of the executable graph on, and
// stays until the graph memory is trimmed while nothing of it is in use. Assumed: every allocation
// has pages of its own, while the vendor's driver may share them between graphs.
#include "base/bytes.h"
#include "simcuda/driver/driver_state.h"

using namespace fragscope;

namespace fragscope::simcuda {

CUresult make_graph_block(DriverState& state, Device& device, size_t bytes, CUdeviceptr* out) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > kLargestRequest) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t whole = round_up(bytes, model::kDevicePage);
  const auto address = device.memory.reserve_range(whole);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  state.graph_blocks[*address] = {&device, whole, false, false};
  *out = *address;
  return CUDA_SUCCESS;
}

namespace {

void note_figures(CUmemPoolHandle_st& pool) {
  pool.reserved_high = std::max<cuuint64_t>(pool.reserved_high, pool.reserved);
  pool.used_high = std::max<cuuint64_t>(pool.used_high, pool.used);
}

}  // namespace

CUresult back_graph_blocks(DriverState& state, const std::vector<CUdeviceptr>& addresses) {
  for (const CUdeviceptr address : addresses) {
    const auto found = state.graph_blocks.find(address);
    if (found == state.graph_blocks.end() || found->second.backed) continue;
    GraphBlock& block = found->second;
    if (!block.device->book.charge(block.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    block.backed = true;
    state.mappings[address] = {block.bytes, 0};
    block.device->graph_pool.reserved += block.bytes;
    note_figures(block.device->graph_pool);
  }
  return CUDA_SUCCESS;
}

void use_graph_block(DriverState& state, CUdeviceptr address, bool used) {
  const auto found = state.graph_blocks.find(address);
  if (found == state.graph_blocks.end() || found->second.used == used) return;
  GraphBlock& block = found->second;
  block.used = used;
  block.device->graph_pool.used += used ? block.bytes : -block.bytes;
  note_figures(block.device->graph_pool);
}

bool free_graph_block(DriverState& state, CUdeviceptr address, CUresult& result) {
  const auto found = state.graph_blocks.find(address);
  if (found == state.graph_blocks.end()) return false;
  result = found->second.used ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  use_graph_block(state, address, false);
  return true;
}

void trim_graph_memory(DriverState& state, Device& device) {
  for (auto& [address, block] : state.graph_blocks) {
    if (block.device != &device || !block.backed || block.used) continue;
    block.backed = false;
    state.mappings.erase(address);
    device.book.refund(block.bytes);
    device.graph_pool.reserved -= block.bytes;
  }
}

void forget_graph_memory(DriverState& state, Device& device) {
  for (auto& [address, block] : state.graph_blocks) {
    if (block.device == &device) use_graph_block(state, address, false);
  }
  trim_graph_memory(state, device);
}

}  // namespace fragscope::simcuda

using namespace fragscope::simcuda;

namespace {

// A node with which the graph allocates or frees `address`.
CUresult add_node(DriverState& state, CUgraphNode* out, CUgraph handle,
                  const CUgraphNode* dependencies, size_t count, CUgraphNodeType type,
                  CUdeviceptr address) {
  const bool listed = dependencies != nullptr || count == 0;
  if (out == nullptr || !listed || state.graphs.count(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  auto node = std::make_unique<CUgraphNode_st>();
  node->graph = handle;
  node->type = type;
  node->address = address;
  node->dependencies.assign(dependencies, dependencies + count);
  *out = node.get();
  handle->nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

CUresult allocate(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                  CUDA_MEM_ALLOC_NODE_PARAMS* about) {
  return with_state([&](DriverState& state) -> CUresult {
    const bool listed = dependencies != nullptr || count == 0;
    if (about == nullptr || out == nullptr || !listed || state.graphs.count(graph) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (about->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    Device* const device = device_at(state, about->poolProps.location.id);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const CUresult made = make_graph_block(state, *device, about->bytesize, &about->dptr);
    if (made != CUDA_SUCCESS) return made;
    return add_node(state, out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                    about->dptr);
  });
}

CUresult release(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                 CUdeviceptr address) {
  return with_state([&](DriverState& state) -> CUresult {
    if (state.graph_blocks.count(address) == 0) return CUDA_ERROR_INVALID_VALUE;
    return add_node(state, out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_MEM_FREE, address);
  });
}

}  // namespace

namespace fragscope::simcuda {

CUresult add_memory_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                         size_t count, CUgraphNodeParams* parameters) {
  if (parameters->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    return cuGraphAddMemFreeNode(out, graph, dependencies, count, parameters->free.dptr);
  }
  auto* const about = reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(&parameters->alloc);
  static_assert(sizeof *about == sizeof parameters->alloc);
  return cuGraphAddMemAllocNode(out, graph, dependencies, count, about);
}

}  // namespace fragscope::simcuda

extern "C" {

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph,
                                        const CUgraphNode* dependencies, size_t count,
                                        CUDA_MEM_ALLOC_NODE_PARAMS* about) {
  const CUresult result = allocate(out, graph, dependencies, count, about);
  write_books("cuGraphAddMemAllocNode", result == CUDA_SUCCESS ? about->dptr : 0,
              about != nullptr ? about->bytesize : 0, result);
  return result;
}

CUresult CUDAAPI cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph,
                                       const CUgraphNode* dependencies, size_t count,
                                       CUdeviceptr address) {
  const CUresult result = release(out, graph, dependencies, count, address);
  write_books("cuGraphAddMemFreeNode", address, 0, result);
  return result;
}

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice ordinal) {
  const CUresult result = with_state([&](DriverState& state) {
    Device* const device = device_at(state, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    trim_graph_memory(state, *device);
    return CUDA_SUCCESS;
  });
  write_books("cuDeviceGraphMemTrim", 0, 0, result);
  return result;
}

}  // extern "C"
