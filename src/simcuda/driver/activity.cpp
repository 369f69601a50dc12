// What profilers are told of device work (activity.h). When a piece of work begins and ends is an
// assumption, as all time of a simulated device is: it follows what its stream was given before,
// and not before its launch; a kernel takes kernel_us, all else (and a kernel without it) the
// microsecond for which an operation counts.
#include "simcuda/activity.h"

#include <algorithm>

#include "simcuda/driver/driver_state.h"

namespace fragscope::simcuda {

ActivityTap g_activity_tap{nullptr};

namespace {

// CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind
enum CopyKind : uint8_t { kToDevice = 1, kToHost = 2, kOnDevice = 8, kOnHost = 9, kPeer = 10 };
enum MemoryKind : uint8_t { kPageable = 1, kPinned = 2, kDeviceMemory = 3, kManaged = 5 };

template <typename Blocks>
bool lies_in(const Blocks& blocks, uint64_t address) {
  return block_around(blocks, address) != blocks.end();
}

MemoryKind memory_kind(DriverState& state, uint64_t address) {
  if (is_device_address(address)) return kDeviceMemory;
  if (lies_in(state.managed_blocks, address)) return kManaged;
  return lies_in(state.host_blocks, address) ? kPinned : kPageable;
}

CopyKind copy_kind(const Device* target, const Device* source) {
  if (target == nullptr) return source == nullptr ? kOnHost : kToHost;
  if (source == nullptr) return kToDevice;
  return source == target ? kOnDevice : kPeer;
}

void report(const ActivitySink& sink, CUstream_st& stream, DeviceWork& work, uint64_t start_ns,
            uint64_t duration_ns) {
  work.device = static_cast<uint32_t>(stream.context->device->ordinal);
  work.context = static_cast<uint32_t>(stream.context->id);
  work.stream = static_cast<uint32_t>(stream.id);
  work.start_ns = std::max(start_ns, stream.reported_until_ns);
  work.end_ns = work.start_ns + duration_ns;
  stream.reported_until_ns = work.end_ns;
  sink.work(work);
}

DeviceWork kernel_work(const KernelShape& shape) {
  DeviceWork work;
  work.kind = DeviceWork::Kind::kKernel;
  work.asynchronous = true;
  work.name = shape.name;
  for (int i = 0; i < 3; ++i) {
    work.grid[i] = shape.grid[i];
    work.block[i] = shape.block[i];
  }
  work.dynamic_shared_bytes = shape.dynamic_shared_bytes;
  return work;
}

const ActivitySink* sink_now() { return g_activity_tap.load(std::memory_order_acquire); }

}  // namespace

void report_kernel(DriverState& state, CUstream_st& stream, const KernelShape& shape,
                   uint64_t start_ns) {
  const ActivitySink* sink = sink_now();
  if (sink == nullptr) return;
  DeviceWork work = kernel_work(shape);
  report(*sink, stream, work, start_ns, operation_ns(state));
}

void report_graph(DriverState& state, CUstream_st& stream, const CUgraphExec_st& exec,
                  uint64_t start_ns) {
  const ActivitySink* sink = sink_now();
  if (sink == nullptr || exec.kernels.empty()) return;
  // A graph keeps its stream busy as one kernel does.
  const uint64_t duration = std::max<uint64_t>(operation_ns(state) / exec.kernels.size(), 1);
  for (const auto& kernel : exec.kernels) {
    DeviceWork work = kernel_work(kernel->shape);
    work.graph_node = kernel->id;
    work.graph = exec.id;
    report(*sink, stream, work, start_ns, duration);
  }
}

void report_copy(DriverState& state, CUstream_st& stream, uint64_t to, uint64_t from,
                 uint64_t bytes, bool asynchronous) {
  const ActivitySink* sink = sink_now();
  if (sink == nullptr) return;
  Device* target = device_of_address(state, to);
  Device* source = device_of_address(state, from);
  DeviceWork work;
  work.copy_kind = copy_kind(target, source);
  work.kind = work.copy_kind == kPeer ? DeviceWork::Kind::kPeerCopy : DeviceWork::Kind::kCopy;
  work.asynchronous = asynchronous;
  work.source = memory_kind(state, from);
  work.target = memory_kind(state, to);
  work.bytes = bytes;
  if (work.copy_kind == kPeer) {
    work.source_device = static_cast<uint32_t>(source->ordinal);
    work.target_device = static_cast<uint32_t>(target->ordinal);
    work.source_context = static_cast<uint32_t>(source->primary.id);
    work.target_context = static_cast<uint32_t>(target->primary.id);
  }
  report(*sink, stream, work, next_start_ns(stream), kOperationNs);
}

void report_fill(DriverState& state, CUstream_st& stream, uint64_t address, uint64_t bytes,
                 unsigned value, bool asynchronous) {
  const ActivitySink* sink = sink_now();
  if (sink == nullptr) return;
  DeviceWork work;
  work.kind = DeviceWork::Kind::kFill;
  work.asynchronous = asynchronous;
  work.target = memory_kind(state, address);
  work.bytes = bytes;
  work.value = value;
  report(*sink, stream, work, next_start_ns(stream), kOperationNs);
}

}  // namespace fragscope::simcuda

// Private to our own CUPTI and runtime: where a sink is installed. Lives as long as the process.
extern "C" __attribute__((visibility("default"))) fragscope::simcuda::ActivityTap*
fragscope_sim_activity_tap() {
  return &fragscope::simcuda::g_activity_tap;
}
