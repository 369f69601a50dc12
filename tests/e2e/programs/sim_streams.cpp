// Streams, events and capture. The argument is the configured event latency in queries.
#include <cstdlib>
#include <thread>

#include "sim_check.h"

namespace {

void events_are_late_by_queries(int latency) {
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t first = nullptr, second = nullptr;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaStreamCreate(&other));
  OK(cudaEventCreateWithFlags(&first, cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&second, cudaEventDisableTiming));
  OK(cudaEventQuery(first));  // never recorded: complete
  OK(cudaEventRecord(first, stream));
  for (int i = 0; i < latency; ++i) CHECK_CODE(cudaEventQuery(first), cudaErrorNotReady);
  OK(cudaEventQuery(first));

  const cudaError_t early = latency > 0 ? cudaErrorNotReady : cudaSuccess;
  OK(cudaEventRecord(first, stream));
  OK(cudaEventRecord(second, other));
  OK(cudaStreamSynchronize(stream));
  OK(cudaEventQuery(first));
  CHECK_CODE(cudaEventQuery(second), early);  // the other stream's is not completed
  OK(cudaEventSynchronize(second));
  OK(cudaEventQuery(second));
  OK(cudaEventRecord(first, stream));
  OK(cudaEventRecord(second, stream));
  OK(cudaEventSynchronize(second));
  OK(cudaEventQuery(first));  // earlier on the same stream
  OK(cudaEventRecord(first, stream));
  OK(cudaDeviceSynchronize());
  OK(cudaStreamQuery(stream));
  OK(cudaEventQuery(first));
  OK(cudaEventDestroy(first));
  OK(cudaEventDestroy(second));
  CHECK_CODE(cudaEventQuery(first), cudaErrorInvalidResourceHandle);
  OK(cudaStreamDestroy(stream));
  OK(cudaStreamDestroy(other));
  CHECK_CODE(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

void device_time_is_counted() {
  const void* kernel = register_kernel("tick");
  cudaEvent_t start = nullptr, end = nullptr;
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  OK(cudaEventRecord(start, nullptr));
  for (int i = 0; i < 9; ++i) {
    OK(cudaLaunchKernel(kernel, dim3(1, 1, 1), dim3(1, 1, 1), nullptr, 0, nullptr));
  }
  OK(cudaEventRecord(end, nullptr));
  OK(cudaEventSynchronize(end));
  float milliseconds = 0;
  OK(cudaEventElapsedTime(&milliseconds, start, end));
  CHECK(milliseconds > 0.0099F && milliseconds < 0.0101F);
}

void count_call(void* counter) { ++*static_cast<int*>(counter); }

cudaStreamCaptureStatus status_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  OK(cudaStreamIsCapturing(stream, &status));
  return status;
}

void capture_records_and_launch_runs() {
  const void* kernel = register_kernel("captured");
  cudaStream_t stream = nullptr, side = nullptr;
  cudaEvent_t fork = nullptr, join = nullptr;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  int calls = 0;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(status_of(stream) == cudaStreamCaptureStatusActive);
  CHECK(status_of(side) == cudaStreamCaptureStatusNone);
  OK(cudaLaunchKernel(kernel, dim3(1, 1, 1), dim3(1, 1, 1), nullptr, 0, stream));
  OK(cudaEventRecord(fork, stream));
  OK(cudaStreamWaitEvent(side, fork, 0));
  CHECK(status_of(side) == cudaStreamCaptureStatusActive);
  OK(cudaLaunchHostFunc(side, count_call, &calls));
  OK(cudaEventRecord(join, side));
  OK(cudaStreamWaitEvent(stream, join, 0));
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(stream, &graph));
  CHECK(status_of(side) == cudaStreamCaptureStatusNone);
  CHECK(calls == 0);
  size_t nodes = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == 2);
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaGraphLaunch(exec, stream));
  CHECK(calls == 2);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaLaunchHostFunc(stream, count_call, &calls));
  CHECK(calls == 3);
}

void unjoined_and_invalid_captures_fail() {
  const void* kernel = register_kernel("unjoined");
  cudaStream_t stream = nullptr, side = nullptr;
  cudaEvent_t fork = nullptr;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamCreate(&side));
  OK(cudaEventCreate(&fork));
  cudaGraph_t graph = nullptr;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  OK(cudaEventRecord(fork, stream));
  OK(cudaStreamWaitEvent(side, fork, 0));
  OK(cudaLaunchKernel(kernel, dim3(1, 1, 1), dim3(1, 1, 1), nullptr, 0, side));
  CHECK_CODE(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
  CHECK(graph == nullptr);

  void* block = nullptr;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK_CODE(cudaMalloc(&block, 1 << 22), cudaErrorStreamCaptureUnsupported);
  CHECK_CODE(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);

  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeGlobal);
  OK(cudaMalloc(&block, 1 << 22));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeRelaxed);
  OK(cudaStreamEndCapture(stream, &graph));
  CHECK_CODE(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
             cudaErrorStreamCaptureUnsupported);
  cudaGetLastError();
}

void captures_stop_other_threads_by_mode() {
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreate(&stream));
  cudaGraph_t graph = nullptr;
  const auto elsewhere = [](cudaError_t expected) {
    std::thread([expected] {
      void* block = nullptr;
      CHECK_CODE(cudaMalloc(&block, 1 << 22), expected);
    }).join();
  };
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  elsewhere(cudaSuccess);
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  elsewhere(cudaErrorStreamCaptureUnsupported);
  CHECK_CODE(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

}  // namespace

int main(int, char** arguments) {
  events_are_late_by_queries(std::atoi(arguments[1]));
  device_time_is_counted();
  if (std::atoi(arguments[1]) > 0) return g_failures;  // what follows does not wait for events
  capture_records_and_launch_runs();
  unjoined_and_invalid_captures_fail();
  captures_stop_other_threads_by_mode();
  return g_failures;
}
