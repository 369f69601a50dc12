// Graphs are lists of nodes. Launching one runs its host functions and, as any kernel, ends the
// life of stored values; memory figures of a graph are those of the allocations around it.
#include <algorithm>

#include "simcuda/driver/driver_state.h"

using namespace fragscope::simcuda;

namespace {

CUgraph find_graph(DriverState& state, CUgraph graph) {
  return state.graphs.count(graph) != 0 ? graph : nullptr;
}

// Adds a node; `prepare` fills it in.
CUresult add_node(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, size_t count,
                  CUgraphNodeType type) {
  return with_state([&](DriverState& state) {
    const CUgraph graph = find_graph(state, handle);
    if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto node = std::make_unique<CUgraphNode_st>();
    node->graph = graph;
    node->type = type;
    node->dependencies.assign(dependencies, dependencies + count);
    *out = node.get();
    graph->nodes.push_back(std::move(node));
    return CUDA_SUCCESS;
  });
}

// The two-call protocol: null asks for the count.
CUresult list_nodes(const std::vector<CUgraphNode>& nodes, CUgraphNode* out, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out != nullptr) {
    for (size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? nodes[i] : nullptr;
  }
  *count = out == nullptr ? nodes.size() : std::min(*count, nodes.size());
  return CUDA_SUCCESS;
}

CUresult dependencies_of(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return with_state([&](DriverState&) {
    return node == nullptr ? CUDA_ERROR_INVALID_VALUE : list_nodes(node->dependencies, out, count);
  });
}

CUresult dependents_of(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return with_state([&](DriverState&) {
    if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> found;
    for (const auto& other : node->graph->nodes) {
      const auto& list = other->dependencies;
      if (std::find(list.begin(), list.end(), node) != list.end()) found.push_back(other.get());
    }
    return list_nodes(found, out, count);
  });
}

CUresult add_dependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                          size_t count) {
  return with_state([&](DriverState& state) {
    if (find_graph(state, handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) to[i]->dependencies.push_back(from[i]);
    return CUDA_SUCCESS;
  });
}

CUresult edges_of(CUgraph handle, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return with_state([&](DriverState& state) {
    const CUgraph graph = find_graph(state, handle);
    if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    size_t found = 0;
    for (const auto& node : graph->nodes) {
      for (const CUgraphNode before : node->dependencies) {
        if (from != nullptr && to != nullptr && found < *count) {
          from[found] = before;
          to[found] = node.get();
        }
        ++found;
      }
    }
    *count = from == nullptr ? found : std::min(*count, found);
    return CUDA_SUCCESS;
  });
}

void fill_exec(CUgraphExec_st& exec, const CUgraph_st& graph) {
  exec.host_calls.clear();
  exec.allocates.clear();
  exec.frees.clear();
  exec.kernels.clear();
  exec.has_kernels = false;
  for (const auto& node : graph.nodes) {
    if (node->kernel != nullptr) exec.kernels.push_back(node->kernel);
    exec.has_kernels |= node->type == CU_GRAPH_NODE_TYPE_KERNEL;
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) exec.allocates.push_back(node->address);
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE) exec.frees.push_back(node->address);
    if (node->host_function == nullptr) continue;
    exec.host_calls.push_back({node->host_function, node->host_data});
  }
}

CUfunction function_of(const CUDA_KERNEL_NODE_PARAMS& about) {
  return about.func != nullptr ? about.func : reinterpret_cast<CUfunction>(about.kern);
}
CUfunction function_of(const CUDA_KERNEL_NODE_PARAMS_v3& about) {
  return about.func != nullptr ? about.func : reinterpret_cast<CUfunction>(about.kern);
}

template <typename Parameters>
CUresult add_kernel_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, size_t count,
                         const Parameters& about) {
  const CUresult added = add_node(out, graph, before, count, CU_GRAPH_NODE_TYPE_KERNEL);
  const CUfunction function = function_of(about);
  if (added != CUDA_SUCCESS || function == nullptr) return added;
  return with_state([&](DriverState& state) {
    const KernelShape shape{function->name.c_str(),
                            {about.gridDimX, about.gridDimY, about.gridDimZ},
                            {about.blockDimX, about.blockDimY, about.blockDimZ},
                            about.sharedMemBytes};
    (*out)->kernel = std::make_shared<NodeKernel>(shape, state.next_graph_number++);
    return CUDA_SUCCESS;
  });
}

bool has_memory_nodes(const CUgraph_st& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  });
}

// As documented, a graph with memory nodes has at most one executable graph at a time.
CUresult instantiate(const char* call, CUgraphExec* out, CUgraph handle) {
  const CUresult result = with_state([&](DriverState& state) {
    const CUgraph graph = find_graph(state, handle);
    if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (has_memory_nodes(*graph) && graph->instances > 0) return CUDA_ERROR_NOT_SUPPORTED;
    auto exec = std::make_unique<CUgraphExec_st>();
    fill_exec(*exec, *graph);
    exec->id = static_cast<uint32_t>(state.next_graph_number++);
    if (has_memory_nodes(*graph)) {
      exec->source = graph;
      ++graph->instances;
    }
    *out = exec.get();
    state.graph_execs.emplace(*out, std::move(exec));
    return CUDA_SUCCESS;
  });
  write_books(call, result == CUDA_SUCCESS ? reinterpret_cast<uint64_t>(*out) : 0, 0, result);
  return result;
}

CUresult update_exec(CUgraphExec handle, CUgraph graph_handle) {
  return with_state([&](DriverState& state) {
    const CUgraph graph = find_graph(state, graph_handle);
    if (graph == nullptr || state.graph_execs.count(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
    fill_exec(*handle, *graph);
    return CUDA_SUCCESS;
  });
}

// Takes references away; the destructor to call afterwards, without the lock.
CUgraphExec_st::HostCall release_object(DriverState& state, CUuserObject object, unsigned count) {
  const auto found = state.user_objects.find(object);
  if (found == state.user_objects.end()) return {nullptr, nullptr};
  object->references -= std::min(count, object->references);
  if (object->references != 0) return {nullptr, nullptr};
  const CUgraphExec_st::HostCall call{object->destroy, object->data};
  state.user_objects.erase(found);
  return call;
}

void run(const CUgraphExec_st::HostCall& call) {
  if (call.function != nullptr) call.function(call.data);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGraphCreate(CUgraph* out, unsigned int) {
  return with_state([&](DriverState& state) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto graph = std::make_unique<CUgraph_st>();
    *out = graph.get();
    state.graphs.emplace(*out, std::move(graph));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle) {
  std::vector<CUgraphExec_st::HostCall> calls;
  const CUresult result = with_state([&](DriverState& state) {
    if (find_graph(state, handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& [object, count] : handle->user_objects) {
      calls.push_back(release_object(state, object, count));
    }
    state.graphs.erase(handle);
    return CUDA_SUCCESS;
  });
  write_books("cuGraphDestroy", reinterpret_cast<uint64_t>(handle), 0, result);
  for (const auto& call : calls) run(call);
  return result;
}

CUresult CUDAAPI cuGraphClone(CUgraph* out, CUgraph handle) {
  return with_state([&](DriverState& state) {
    const CUgraph graph = find_graph(state, handle);
    if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (has_memory_nodes(*graph)) return CUDA_ERROR_NOT_SUPPORTED;  // as documented
    auto copy = std::make_unique<CUgraph_st>();
    std::map<CUgraphNode, CUgraphNode> twin;
    for (const auto& node : graph->nodes) {
      copy->nodes.push_back(std::make_unique<CUgraphNode_st>(*node));
      copy->nodes.back()->graph = copy.get();
      twin[node.get()] = copy->nodes.back().get();
    }
    for (const auto& node : copy->nodes) {
      for (CUgraphNode& before : node->dependencies) before = twin[before];
    }
    *out = copy.get();
    state.graphs.emplace(*out, std::move(copy));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                     size_t count) {
  return add_node(out, graph, before, count, CU_GRAPH_NODE_TYPE_EMPTY);
}
CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                         size_t count, const CUDA_KERNEL_NODE_PARAMS* about) {
  if (about == nullptr) return add_node(out, graph, before, count, CU_GRAPH_NODE_TYPE_KERNEL);
  return add_kernel_node(out, graph, before, count, *about);
}
CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                    size_t count, const CUDA_HOST_NODE_PARAMS* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult added = add_node(out, graph, before, count, CU_GRAPH_NODE_TYPE_HOST);
  if (added != CUDA_SUCCESS) return added;
  (*out)->host_function = parameters->fn;
  (*out)->host_data = parameters->userData;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                size_t count, CUgraphNodeParams* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
      parameters->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    return add_memory_node(out, graph, before, count, parameters);
  }
  if (parameters->type == CU_GRAPH_NODE_TYPE_KERNEL) {
    return add_kernel_node(out, graph, before, count, parameters->kernel);
  }
  return add_node(out, graph, before, count, parameters->type);
}
CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                   const CUgraphEdgeData*, size_t count,
                                   CUgraphNodeParams* parameters) {
  return cuGraphAddNode(out, graph, before, count, parameters);
}
CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from,
                                        const CUgraphNode* to, size_t count) {
  return add_dependencies(graph, from, to, count);
}
CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from,
                                           const CUgraphNode* to, const CUgraphEdgeData*,
                                           size_t count) {
  return add_dependencies(graph, from, to, count);
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  return with_state([&](DriverState& state) {
    const CUgraph graph = find_graph(state, handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> nodes;
    for (const auto& node : graph->nodes) nodes.push_back(node.get());
    return list_nodes(nodes, out, count);
  });
}
CUresult CUDAAPI cuGraphGetRootNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  return with_state([&](DriverState& state) {
    const CUgraph graph = find_graph(state, handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> nodes;
    for (const auto& node : graph->nodes) {
      if (node->dependencies.empty()) nodes.push_back(node.get());
    }
    return list_nodes(nodes, out, count);
  });
}
CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return edges_of(graph, from, to, count);
}
CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                                    CUgraphEdgeData*, size_t* count) {
  return edges_of(graph, from, to, count);
}
CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return dependencies_of(node, out, count);
}
CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData*,
                                               size_t* count) {
  return dependencies_of(node, out, count);
}
CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return dependents_of(node, out, count);
}
CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* out,
                                                 CUgraphEdgeData*, size_t* count) {
  return dependents_of(node, out, count);
}
CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long) {
  return instantiate("cuGraphInstantiateWithFlags", out, graph);
}
CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  parameters->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  parameters->hErrNode_out = nullptr;
  return instantiate("cuGraphInstantiateWithParams", out, graph);
}
CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node,
                                       char* log, size_t log_bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes > 0) *log = '\0';
  return instantiate("cuGraphInstantiate_v2", out, graph);
}
CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                      CUgraphExecUpdateResultInfo* about) {
  if (about == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *about = {};
  return update_exec(exec, graph);
}
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec) {
  const CUresult result = with_state([&](DriverState& state) {
    const auto found = state.graph_execs.find(exec);
    if (found == state.graph_execs.end()) return CUDA_ERROR_INVALID_VALUE;
    const CUgraph source = find_graph(state, exec->source);
    if (source != nullptr && source->instances > 0) --source->instances;
    for (const CUdeviceptr address : exec->allocates) use_graph_block(state, address, false);
    state.graph_execs.erase(found);
    return CUDA_SUCCESS;
  });
  write_books("cuGraphExecDestroy", reinterpret_cast<uint64_t>(exec), 0, result);
  return result;
}
CUresult CUDAAPI cuGraphUpload(CUgraphExec exec, CUstream) {
  return with_state([&](DriverState& state) {
    if (state.graph_execs.count(exec) == 0) return CUDA_ERROR_INVALID_VALUE;
    return back_graph_blocks(state, exec->allocates);
  });
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  std::vector<CUgraphExec_st::HostCall> calls;
  const CUresult result = with_context([&](DriverState& state, CUctx_st& context) -> CUresult {
    if (state.graph_execs.count(exec) == 0) return CUDA_ERROR_INVALID_VALUE;
    const CUstream stream = find_stream(state, &context, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (capture_node(state, stream, CU_GRAPH_NODE_TYPE_GRAPH)) return CUDA_SUCCESS;
    const CUresult backed = back_graph_blocks(state, exec->allocates);
    if (backed != CUDA_SUCCESS) return backed;
    for (const CUdeviceptr address : exec->allocates) use_graph_block(state, address, true);
    for (const CUdeviceptr address : exec->frees) use_graph_block(state, address, false);
    calls = exec->host_calls;
    return launch_graph(state, *stream, *exec);
  });
  for (const auto& call : calls) run(call);
  return result;
}

CUresult CUDAAPI cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy,
                                    unsigned int references, unsigned int) {
  return with_state([&](DriverState& state) {
    if (out == nullptr || destroy == nullptr || references == 0) return CUDA_ERROR_INVALID_VALUE;
    auto object = std::make_unique<CUuserObject_st>();
    *object = {{}, destroy, data, references};
    *out = object.get();
    state.user_objects.emplace(*out, std::move(object));
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuUserObjectRetain(CUuserObject object, unsigned int count) {
  return with_state([&](DriverState& state) {
    if (state.user_objects.count(object) == 0) return CUDA_ERROR_INVALID_VALUE;
    object->references += count;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned int count) {
  CUgraphExec_st::HostCall call{nullptr, nullptr};
  const CUresult result = with_state([&](DriverState& state) {
    if (state.user_objects.count(object) == 0) return CUDA_ERROR_INVALID_VALUE;
    call = release_object(state, object, count);
    return CUDA_SUCCESS;
  });
  run(call);
  return result;
}
CUresult CUDAAPI cuGraphRetainUserObject(CUgraph handle, CUuserObject object, unsigned int count,
                                         unsigned int flags) {
  return with_state([&](DriverState& state) {
    if (find_graph(state, handle) == nullptr || state.user_objects.count(object) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) object->references += count;
    handle->user_objects.emplace_back(object, count);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph handle, CUuserObject object, unsigned int count) {
  CUgraphExec_st::HostCall call{nullptr, nullptr};
  const CUresult result = with_state([&](DriverState& state) {
    if (find_graph(state, handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (auto held = handle->user_objects.begin(); held != handle->user_objects.end(); ++held) {
      if (held->first != object || held->second < count) continue;
      held->second -= count;
      if (held->second == 0) handle->user_objects.erase(held);
      call = release_object(state, object, count);
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
  run(call);
  return result;
}

}  // extern "C"
