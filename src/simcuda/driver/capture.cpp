// Stream capture: which stream belongs to which capture, and which calls it forbids.
#include "simcuda/driver/driver_state.h"

namespace fragscope::simcuda {

namespace {

thread_local CUstreamCaptureMode t_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// Whether a capture forbids the calling thread an unsafe call (CUDA programming guide, "prohibited
// operations": relaxed threads are never stopped; a capture begun relaxed stops nobody; global
// captures stop every thread in global mode).
bool forbids(const Capture& capture) {
  if (t_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == thread_number()) return true;
  return t_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode, CUgraph graph,
               const CUgraphNode* dependencies, size_t count) {
  return with_context([&](DriverState& state, CUctx_st& context) {
    const CUstream stream = find_stream(state, &context, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream == &context.legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    auto capture = std::make_unique<Capture>();
    capture->id = state.next_id++;
    capture->mode = mode;
    capture->origin = stream;
    capture->thread = thread_number();
    capture->own_graph = graph == nullptr;
    if (graph == nullptr) {
      auto made = std::make_unique<CUgraph_st>();
      graph = made.get();
      state.graphs.emplace(graph, std::move(made));
    }
    capture->graph = graph;
    capture->streams.insert(stream);
    stream->capture = capture.get();
    stream->tail.assign(dependencies, dependencies + count);
    state.captures.emplace(capture->id, std::move(capture));
    return CUDA_SUCCESS;
  });
}

// Every stream that joined must have been joined back: its last nodes are among the origin's
// ancestors. Checked for the streams' tails only.
bool all_joined(const Capture& capture) {
  std::set<CUgraphNode> reached;
  std::vector<CUgraphNode> open(capture.origin->tail);
  while (!open.empty()) {
    const CUgraphNode node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
  }
  for (const CUstream stream : capture.streams) {
    for (const CUgraphNode node : stream->tail) {
      if (reached.count(node) == 0) return false;
    }
  }
  return true;
}

CUresult info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, size_t* count) {
  return with_context([&](DriverState& state, CUctx_st& context) {
    const CUstream stream = find_stream(state, &context, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Capture* capture = stream->capture;
    *status = capture == nullptr     ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    const bool active = *status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id != nullptr) *id = active ? capture->id : 0;
    if (graph != nullptr) *graph = active ? capture->graph : nullptr;
    if (dependencies != nullptr) *dependencies = active ? stream->tail.data() : nullptr;
    if (count != nullptr) *count = active ? stream->tail.size() : 0;
    return CUDA_SUCCESS;
  });
}

CUresult update(CUstream handle, CUgraphNode* nodes, size_t count, unsigned flags) {
  return with_context([&](DriverState& state, CUctx_st& context) {
    const CUstream stream = find_stream(state, &context, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (nodes == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->tail.clear();
    stream->tail.insert(stream->tail.end(), nodes, nodes + count);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult refuse_in_capture(DriverState& state) {
  bool refused = false;
  for (const auto& [id, capture] : state.captures) {
    if (!forbids(*capture)) continue;
    capture->invalidated = true;
    refused = true;
  }
  return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

bool capture_node(DriverState&, CUstream stream, CUgraphNodeType type, CUgraphNode* node) {
  if (stream->capture == nullptr) return false;
  auto made = std::make_unique<CUgraphNode_st>();
  made->graph = stream->capture->graph;
  made->type = type;
  made->dependencies = stream->tail;
  stream->tail.assign(1, made.get());
  if (node != nullptr) *node = made.get();
  stream->capture->graph->nodes.push_back(std::move(made));
  return true;
}

}  // namespace fragscope::simcuda

using namespace fragscope::simcuda;

extern "C" {

CUresult CUDAAPI cuStreamBeginCapture(CUstream stream) {
  return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, nullptr, 0);
}
CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, mode, nullptr, nullptr, 0);
}
CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                             const CUgraphNode* dependencies,
                                             const CUgraphEdgeData*, size_t count,
                                             CUstreamCaptureMode mode) {
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return begin(stream, mode, graph, dependencies, count);
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return with_context([&](DriverState& state, CUctx_st& context) {
    const CUstream stream = find_stream(state, &context, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *graph = nullptr;
    Capture* capture = stream->capture;
    if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_number()) {
      return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    const bool joined = all_joined(*capture);
    const bool failed = capture->invalidated || !joined;
    for (const CUstream member : capture->streams) {
      member->capture = nullptr;
      member->tail.clear();
    }
    if (!failed) *graph = capture->graph;
    if (failed && capture->own_graph) state.graphs.erase(capture->graph);
    const bool invalidated = capture->invalidated;
    state.captures.erase(capture->id);
    if (!failed) return CUDA_SUCCESS;
    return invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  });
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return info(stream, status, nullptr, nullptr, nullptr, nullptr);
}
CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status,
                                        cuuint64_t* id) {
  return info(stream, status, id, nullptr, nullptr, nullptr);
}
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status,
                                           cuuint64_t* id, CUgraph* graph,
                                           const CUgraphNode** dependencies, size_t* count) {
  return info(stream, status, id, graph, dependencies, count);
}
CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status,
                                           cuuint64_t* id, CUgraph* graph,
                                           const CUgraphNode** dependencies,
                                           const CUgraphEdgeData** edges, size_t* count) {
  if (edges != nullptr) *edges = nullptr;  // all edges are plain
  return info(stream, status, id, graph, dependencies, count);
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes,
                                                   size_t count, unsigned int flags) {
  return update(stream, nodes, count, flags);
}
CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes,
                                                      const CUgraphEdgeData*, size_t count,
                                                      unsigned int flags) {
  return update(stream, nodes, count, flags);
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, t_mode);
  return CUDA_SUCCESS;
}

}  // extern "C"
