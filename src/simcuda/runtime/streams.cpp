// Streams, events, capture and graphs: straight to the driver.
#include "simcuda/runtime/runtime_internal.h"

using namespace fragscope::simcuda;

namespace {

// A callback of the runtime's type behind the driver's; one use.
struct Callback {
  cudaStreamCallback_t function;
  void* data;
};
void CUDA_CB run_callback(CUstream stream, CUresult result, void* data) {
  const Callback callback = *static_cast<Callback*>(data);
  delete static_cast<Callback*>(data);
  callback.function(stream, as_runtime(result), callback.data);
}

CUresult capture_info(const DriverCalls& calls, cudaStream_t stream,
                      cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
                      const cudaGraphNode_t** dependencies, size_t* count) {
  cuuint64_t number = 0;
  const CUresult result =
      calls.cuStreamGetCaptureInfo_v3(stream, reinterpret_cast<CUstreamCaptureStatus*>(status),
                                      &number, graph, dependencies, nullptr, count);
  if (id != nullptr) *id = number;
  return result;
}

CUresult instantiate(const DriverCalls& calls, cudaGraphExec_t* exec, cudaGraph_t graph,
                     unsigned long long flags) {
  return calls.cuGraphInstantiateWithFlags(exec, graph, flags);
}

CUresult add_node(const DriverCalls& calls, cudaGraphNode_t* node, cudaGraph_t graph,
                  const cudaGraphNode_t* before, size_t count, cudaGraphNodeParams* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (parameters->type == cudaGraphNodeTypeConditional) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphNodeParams plain{};
  plain.type = static_cast<CUgraphNodeType>(parameters->type);
  return calls.cuGraphAddNode_v2(node, graph, before, nullptr, count, &plain);
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}
cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags,
                                                   int priority) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuStreamCreateWithPriority(stream, flags, priority);
  });
}
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuStreamDestroy_v2(stream); });
}
cudaError_t CUDARTAPI cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuStreamGetPriority(stream, priority); });
}
cudaError_t CUDARTAPI cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuStreamGetFlags(stream, flags); });
}
cudaError_t CUDARTAPI cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuStreamGetId(stream, id); });
}
cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuStreamQuery(stream); });
}
cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuStreamSynchronize(stream); });
}
cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                          unsigned int flags) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuStreamWaitEvent(stream, event, flags); });
}
cudaError_t CUDARTAPI cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function,
                                            void* data, unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto* callback = new Callback{function, data};
    const CUresult result = calls.cuStreamAddCallback(stream, run_callback, callback, flags);
    if (result != CUDA_SUCCESS) delete callback;
    return result;
  });
}
cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuLaunchHostFunc(stream, function, data); });
}
cudaError_t CUDARTAPI cudaStreamAttachMemAsync(cudaStream_t stream, void* address, size_t bytes,
                                               unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuStreamAttachMemAsync(stream, as_device(address), bytes, flags);
  });
}

cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuEventCreate(event, flags); });
}
cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuEventDestroy_v2(event); });
}
cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuEventRecord(event, stream); });
}
cudaError_t CUDARTAPI cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                               unsigned int flags) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuEventRecordWithFlags(event, stream, flags); });
}
cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuEventQuery(event); });
}
cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuEventSynchronize(event); });
}
cudaError_t CUDARTAPI cudaEventElapsedTime(float* milliseconds, cudaEvent_t start,
                                           cudaEvent_t end) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuEventElapsedTime(milliseconds, start, end); });
}

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuStreamBeginCapture_v2(stream, static_cast<CUstreamCaptureMode>(mode));
  });
}
cudaError_t CUDARTAPI cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                                    const cudaGraphNode_t* before,
                                                    const cudaGraphEdgeData*, size_t count,
                                                    cudaStreamCaptureMode mode) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuStreamBeginCaptureToGraph(stream, graph, before, nullptr, count,
                                             static_cast<CUstreamCaptureMode>(mode));
  });
}
cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuStreamEndCapture(stream, graph); });
}
cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status));
  });
}
cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call([&](const DriverCalls& calls) {
    return calls.cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode));
  });
}

#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                               unsigned long long* id, cudaGraph_t* graph,
                                               const cudaGraphNode_t** dependencies,
                                               const cudaGraphEdgeData** edges, size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return call_bound([&](const DriverCalls& calls) {
    return capture_info(calls, stream, status, id, graph, dependencies, count);
  });
}
cudaError_t CUDARTAPI cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                          cudaGraphNode_t* nodes,
                                                          const cudaGraphEdgeData*, size_t count,
                                                          unsigned int flags) {
#else
cudaError_t CUDARTAPI cudaStreamGetCaptureInfo_v2(cudaStream_t stream,
                                                  cudaStreamCaptureStatus* status,
                                                  unsigned long long* id, cudaGraph_t* graph,
                                                  const cudaGraphNode_t** dependencies,
                                                  size_t* count) {
  return call_bound([&](const DriverCalls& calls) {
    return capture_info(calls, stream, status, id, graph, dependencies, count);
  });
}
cudaError_t CUDARTAPI cudaStreamGetCaptureInfo_v3(cudaStream_t stream,
                                                  cudaStreamCaptureStatus* status,
                                                  unsigned long long* id, cudaGraph_t* graph,
                                                  const cudaGraphNode_t** dependencies,
                                                  const cudaGraphEdgeData** edges, size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}
cudaError_t CUDARTAPI cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                          cudaGraphNode_t* nodes, size_t count,
                                                          unsigned int flags) {
#endif
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuStreamUpdateCaptureDependencies_v2(stream, nodes, nullptr, count, flags);
  });
}

cudaError_t CUDARTAPI cudaGraphCreate(cudaGraph_t* graph, unsigned int flags) {
  return call([&](const DriverCalls& calls) { return calls.cuGraphCreate(graph, flags); });
}
cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
  return call([&](const DriverCalls& calls) { return calls.cuGraphDestroy(graph); });
}
cudaError_t CUDARTAPI cudaGraphClone(cudaGraph_t* out, cudaGraph_t graph) {
  return call([&](const DriverCalls& calls) { return calls.cuGraphClone(out, graph); });
}
cudaError_t CUDARTAPI cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                            const cudaGraphNode_t* before, size_t count) {
  return call([&](const DriverCalls& calls) {
    return calls.cuGraphAddEmptyNode(node, graph, before, count);
  });
}
#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                       const cudaGraphNode_t* before, const cudaGraphEdgeData*,
                                       size_t count, cudaGraphNodeParams* parameters) {
#else
cudaError_t CUDARTAPI cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                       const cudaGraphNode_t* before, size_t count,
                                       cudaGraphNodeParams* parameters) {
#endif
  return call([&](const DriverCalls& calls) {
    return add_node(calls, node, graph, before, count, parameters);
  });
}
cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return call([&](const DriverCalls& calls) { return calls.cuGraphGetNodes(graph, nodes, count); });
}
cudaError_t CUDARTAPI cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes,
                                            size_t* count) {
  return call(
      [&](const DriverCalls& calls) { return calls.cuGraphGetRootNodes(graph, nodes, count); });
}
cudaError_t CUDARTAPI cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return call([&](const DriverCalls& calls) {
    return calls.cuGraphNodeGetType(node, reinterpret_cast<CUgraphNodeType*>(type));
  });
}
#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                                   cudaGraphEdgeData*, size_t* count) {
#else
cudaError_t CUDARTAPI cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                                   size_t* count) {
#endif
  return call([&](const DriverCalls& calls) {
    return calls.cuGraphNodeGetDependencies_v2(node, nodes, nullptr, count);
  });
}
cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                           unsigned long long flags) {
  return call([&](const DriverCalls& calls) { return instantiate(calls, exec, graph, flags); });
}
cudaError_t CUDARTAPI cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                    unsigned long long flags) {
  return call([&](const DriverCalls& calls) { return instantiate(calls, exec, graph, flags); });
}
cudaError_t CUDARTAPI cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                          cudaGraphExecUpdateResultInfo* about) {
  return call([&](const DriverCalls& calls) {
    if (about == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *about = {};
    CUgraphExecUpdateResultInfo result{};
    return calls.cuGraphExecUpdate_v2(exec, graph, &result);
  });
}
cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return call([&](const DriverCalls& calls) { return calls.cuGraphExecDestroy(exec); });
}
cudaError_t CUDARTAPI cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuGraphUpload(exec, stream); });
}
cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuGraphLaunch(exec, stream); });
}
cudaError_t CUDARTAPI cudaUserObjectCreate(cudaUserObject_t* object, void* data,
                                           cudaHostFn_t destroy, unsigned int references,
                                           unsigned int flags) {
  return call([&](const DriverCalls& calls) {
    return calls.cuUserObjectCreate(object, data, destroy, references, flags);
  });
}
cudaError_t CUDARTAPI cudaUserObjectRetain(cudaUserObject_t object, unsigned int count) {
  return call([&](const DriverCalls& calls) { return calls.cuUserObjectRetain(object, count); });
}
cudaError_t CUDARTAPI cudaUserObjectRelease(cudaUserObject_t object, unsigned int count) {
  return call([&](const DriverCalls& calls) { return calls.cuUserObjectRelease(object, count); });
}
cudaError_t CUDARTAPI cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                                unsigned int count, unsigned int flags) {
  return call([&](const DriverCalls& calls) {
    return calls.cuGraphRetainUserObject(graph, object, count, flags);
  });
}
cudaError_t CUDARTAPI cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                                 unsigned int count) {
  return call([&](const DriverCalls& calls) {
    return calls.cuGraphReleaseUserObject(graph, object, count);
  });
}

}  // extern "C"
