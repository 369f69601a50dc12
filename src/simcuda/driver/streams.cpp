// Streams and events. Work is done the moment it is issued, or takes time (kernel_time.cpp). With a
// configured latency of events the first queries after a record answer "not ready". A
// synchronisation completes what it waits for and nothing else.
#include <algorithm>

#include "simcuda/driver/driver_state.h"

namespace fragscope::simcuda {

namespace {

void complete_event(CUevent event) {
  event->queries_left = 0;
  if (event->stream != nullptr) event->stream->pending.erase(event);
  event->stream = nullptr;
}

// Events of one stream complete in order, so everything recorded before a complete one is complete.
void complete_event_and_earlier(CUevent event) {
  const CUstream stream = event->stream;
  if (stream != nullptr) {
    const std::set<CUevent> pending = stream->pending;
    for (const CUevent other : pending) {
      if (other->tick <= event->tick) complete_event(other);
    }
  }
  complete_event(event);
}

CUevent find_event(DriverState& state, CUevent handle) {
  return state.events.count(handle) != 0 ? handle : nullptr;
}

CUresult create_stream(CUstream* out, unsigned flags, int priority) {
  return with_context([&](DriverState& state, CUctx_st& context) {
    if (out == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    auto stream = std::make_unique<CUstream_st>();
    stream->context = &context;
    stream->flags = flags;
    stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    stream->id = state.next_id++;
    *out = stream.get();
    state.streams.emplace(*out, std::move(stream));
    return CUDA_SUCCESS;
  });
}

template <typename Body>
CUresult with_stream(CUstream handle, Body body) {
  return with_context([&](DriverState& state, CUctx_st& context) -> CUresult {
    const CUstream stream = find_stream(state, &context, handle);
    return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(state, context, *stream);
  });
}

CUresult invalidate(Capture& capture) {
  capture.invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void record(DriverState& state, CUctx_st& context, CUstream_st& stream, CUevent event) {
  complete_event(event);
  event->recorded = true;
  event->tick = ++context.device->tick;
  event->due_ns = stream.busy_until_ns;
  if (event->shared) state.ledger->set_event(*event->shared, event->due_ns);
  event->capture_id = 0;
  event->nodes.clear();
  if (stream.capture != nullptr) {
    event->capture_id = stream.capture->id;
    event->nodes = stream.tail;
  } else if (state.config.event_latency_queries != 0) {
    event->queries_left = state.config.event_latency_queries;
    event->stream = &stream;
    stream.pending.insert(event);
  }
}

// A stream that waits for an event recorded in a capture joins that capture.
CUresult join_capture(DriverState& state, CUstream_st& stream, const CUevent_st& event) {
  const auto found = state.captures.find(event.capture_id);
  if (found == state.captures.end()) return CUDA_SUCCESS;  // that capture is over
  Capture& capture = *found->second;
  if (stream.capture != nullptr && stream.capture != &capture) {
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (stream.capture == nullptr) stream.tail.clear();
  stream.capture = &capture;
  capture.streams.insert(&stream);
  for (const CUgraphNode node : event.nodes) {
    bool there = false;
    for (const CUgraphNode other : stream.tail) there |= other == node;
    if (!there) stream.tail.push_back(node);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUstream find_stream(DriverState& state, CUcontext context, CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return &context->legacy;
  if (handle == CU_STREAM_PER_THREAD) {
    auto& stream = context->per_thread[thread_number()];
    if (stream == nullptr) {
      stream = std::make_unique<CUstream_st>();
      stream->context = context;
      stream->id = state.next_id++;
    }
    return stream.get();
  }
  return state.streams.count(handle) != 0 ? handle : nullptr;
}

void for_each_stream(DriverState& state, Device& device,
                     const std::function<void(CUstream)>& visit) {
  const auto visit_context = [&](CUctx_st& context) {
    visit(&context.legacy);
    for (const auto& [thread, stream] : context.per_thread) visit(stream.get());
  };
  visit_context(device.primary);
  for (const auto& [handle, context] : state.contexts) {
    if (context->device == &device) visit_context(*context);
  }
  for (const auto& [handle, stream] : state.streams) {
    if (stream->context->device == &device) visit(stream.get());
  }
}

void complete_stream(CUstream stream) {
  const std::set<CUevent> pending = std::move(stream->pending);
  stream->pending.clear();
  for (const CUevent event : pending) complete_event(event);
}

void synchronize_device(DriverState& state, Device& device) {
  if (state.config.event_latency_queries != 0) {
    for_each_stream(state, device, [](CUstream stream) { complete_stream(stream); });
  }
  trim_to_threshold(state, device);
}

}  // namespace fragscope::simcuda

using namespace fragscope::simcuda;

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned int flags) {
  return create_stream(stream, flags, 0);
}
CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  return create_stream(stream, flags, priority);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream handle) {
  return with_state([&](DriverState& state) {
    const auto found = state.streams.find(handle);
    if (found == state.streams.end()) return CUDA_ERROR_INVALID_HANDLE;
    complete_stream(handle);
    if (handle->capture != nullptr) {
      handle->capture->streams.erase(handle);
      if (handle->capture->origin == handle) state.captures.erase(handle->capture->id);
    }
    state.streams.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetPriority(CUstream handle, int* priority) {
  return with_stream(handle, [&](DriverState&, CUctx_st&, CUstream_st& stream) {
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream.priority;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  return with_stream(handle, [&](DriverState&, CUctx_st&, CUstream_st& stream) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream.flags;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuStreamGetId(CUstream handle, unsigned long long* id) {
  return with_stream(handle, [&](DriverState&, CUctx_st&, CUstream_st& stream) {
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *id = stream.id;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return with_stream(handle, [&](DriverState&, CUctx_st&, CUstream_st& stream) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = stream.context;
    return CUDA_SUCCESS;
  });
}
#if CUDA_VERSION >= 12080
CUresult CUDAAPI cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return with_stream(handle, [&](DriverState&, CUctx_st&, CUstream_st& stream) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = stream.context->device->ordinal;
    return CUDA_SUCCESS;
  });
}
#endif

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
  return with_stream(handle, [&](DriverState& state, CUctx_st&, CUstream_st& stream) {
    if (stream.capture != nullptr) return invalidate(*stream.capture);
    bool ready = is_past(state, stream.busy_until_ns);
    if (stream.pending.empty()) return ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    const std::set<CUevent> pending = stream.pending;
    for (const CUevent event : pending) {
      if (event->queries_left > 0) --event->queries_left;
      if (event->queries_left > 0) {
        ready = false;
      } else {
        complete_event(event);
      }
    }
    return ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
  await_stream(handle);
  return with_stream(handle, [&](DriverState& state, CUctx_st& context, CUstream_st& stream) {
    if (stream.capture != nullptr) return invalidate(*stream.capture);
    complete_stream(&stream);
    trim_to_threshold(state, *context.device);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags) {
  return with_stream(handle, [&](DriverState& state, CUctx_st&, CUstream_st& stream) -> CUresult {
    if (find_event(state, event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0 &&
        capture_node(state, &stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT)) {
      return CUDA_SUCCESS;
    }
    if (event->capture_id != 0) return join_capture(state, stream, *event);
    if (stream.capture != nullptr && event->recorded) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    stream.busy_until_ns = std::max(stream.busy_until_ns, due_of(state, *event));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventCreate(CUevent* out, unsigned int flags) {
  return with_context([&](DriverState& state, CUctx_st& context) {
    const bool timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    if (out == nullptr || flags > 7 || ((flags & CU_EVENT_INTERPROCESS) != 0 && timed)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto event = std::make_unique<CUevent_st>();
    event->context = &context;
    event->flags = flags;
    *out = event.get();
    state.events.emplace(*out, std::move(event));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent event) {
  return with_state([&](DriverState& state) {
    if (find_event(state, event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    complete_event(event);
    if (event->shared && !event->opened) state.ledger->unshare_event(*event->shared);
    state.events.erase(event);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned int flags) {
  return with_stream(handle, [&](DriverState& state, CUctx_st& context, CUstream_st& stream) {
    if (find_event(state, event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const bool external = (flags & CU_EVENT_RECORD_EXTERNAL) != 0;
    if (external && capture_node(state, &stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD)) {
      event->recorded = true;
      return CUDA_SUCCESS;
    }
    record(state, context, stream, event);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult CUDAAPI cuEventQuery(CUevent event) {
  return with_state([&](DriverState& state) -> CUresult {
    if (find_event(state, event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture_id != 0 && state.captures.count(event->capture_id) != 0) {
      state.captures[event->capture_id]->invalidated = true;
      return CUDA_ERROR_CAPTURED_EVENT;
    }
    const CUresult refused = refuse_in_capture(state);
    if (refused != CUDA_SUCCESS) return refused;
    if (event->queries_left > 0) {
      --event->queries_left;
      return CUDA_ERROR_NOT_READY;
    }
    if (!is_past(state, due_of(state, *event))) return CUDA_ERROR_NOT_READY;
    complete_event_and_earlier(event);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  await_event(event);
  return with_state([&](DriverState& state) -> CUresult {
    if (find_event(state, event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult refused = refuse_in_capture(state);
    if (refused != CUDA_SUCCESS) return refused;
    complete_event_and_earlier(event);
    trim_to_threshold(state, *event->context->device);
    return CUDA_SUCCESS;
  });
}

// Device time is counted in operations, a microsecond each (kernels: kernel_us if it is
// configured), so that runs repeat exactly.
CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return with_state([&](DriverState& state) {
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (const CUevent event : {start, end}) {
      if (find_event(state, event) == nullptr || !event->recorded ||
          (event->flags & CU_EVENT_DISABLE_TIMING) != 0) {
        return CUDA_ERROR_INVALID_HANDLE;
      }
      if (event->queries_left > 0 || !is_past(state, event->due_ns)) return CUDA_ERROR_NOT_READY;
    }
    *milliseconds =
        static_cast<float>(static_cast<double>(end->tick) - static_cast<double>(start->tick)) /
        1000.0F;
    return CUDA_SUCCESS;
  });
}
#if CUDA_VERSION >= 12080
CUresult CUDAAPI cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime(milliseconds, start, end);
}
#endif

// Host functions run at once: all earlier work of the stream is done. The lock is not held.
CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  bool captured = false;
  const CUresult result =
      with_stream(handle, [&](DriverState& state, CUctx_st&, CUstream_st& stream) {
        if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
        CUgraphNode node = nullptr;
        captured = capture_node(state, &stream, CU_GRAPH_NODE_TYPE_HOST, &node);
        if (captured) {
          node->host_function = function;
          node->host_data = data;
        }
        return CUDA_SUCCESS;
      });
  if (result == CUDA_SUCCESS && !captured) function(data);
  return result;
}

CUresult CUDAAPI cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data,
                                     unsigned int) {
  const CUresult result = with_stream(handle, [&](DriverState&, CUctx_st&, CUstream_st& stream) {
    if (callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return stream.capture != nullptr ? invalidate(*stream.capture) : CUDA_SUCCESS;
  });
  if (result == CUDA_SUCCESS) callback(handle, CUDA_SUCCESS, data);
  return result;
}

CUresult CUDAAPI cuStreamAttachMemAsync(CUstream handle, CUdeviceptr, size_t, unsigned int) {
  return with_stream(handle, [](DriverState&, CUctx_st&, CUstream_st&) { return CUDA_SUCCESS; });
}

}  // extern "C"
