// The simulated driver of one process: devices, contexts and every table of live objects, behind
// one lock. Created by cuInit, never destroyed (calls arrive until the last static destructor).
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "model/device_memory.h"
#include "simcuda/activity.h"
#include "simcuda/driver/objects.h"
#include "simcuda/fault_script.h"
#include "simcuda/sim_config.h"

namespace fragscope::simcuda {

struct Device : PlacedObject {
  Device(int number, int card_number, Ledger& ledger)
      : ordinal(number), card(card_number), book(ledger, card_number), memory(number, book) {}
  int ordinal;  // as this process counts, after CUDA_VISIBLE_DEVICES
  int card;     // as the machine and its ledger count
  LedgerBook book;
  model::DeviceMemory memory;
  Overlay overlay;
  Answers answers;
  CUctx_st primary;
  unsigned primary_references = 0;
  unsigned primary_flags = 0;
  bool context_charged = false;
  CUmemPoolHandle_st default_pool;
  CUmemPoolHandle_st graph_pool;
  CUmemoryPool current_pool = nullptr;
  uint64_t tick = 0;  // operations so far; stands for microseconds
};

// Physical memory of cuMemCreate.
struct Physical {
  Device* device;
  uint64_t bytes;
  unsigned references;
  unsigned mappings;
  CUmemAllocationProp properties;
  bool imported = false;  // charged by the process that made it
};
// cuIpcOpenMemHandle: memory of another process.
struct OpenedMemory {
  uint32_t owner;
  uint64_t address_there;
  unsigned references;
};
// Of an allocation node of a graph.
struct GraphBlock {
  Device* device;
  uint64_t bytes;
  bool backed;  // memory stands behind the address
  bool used;    // allocated by a launch and not freed since
};
struct Allocation {
  uint64_t id;
  CUcontext context;  // whose end is its end
};
struct Mapping {
  uint64_t bytes;
  uint64_t handle;  // 0: a module's variables
};
struct HostBlock {
  uint64_t bytes;
  unsigned flags;
  uint64_t registration;  // of the caller's memory, from 1; 0: allocated here
  uint64_t id;
  CUcontext context;
};
struct ManagedBlock {
  uint64_t bytes;
  uint64_t id;
  CUcontext context;
};

struct DriverState {
  SimConfig config;
  std::unique_ptr<Ledger> ledger;
  AnswerTable answers;
  std::unique_ptr<FaultScript> faults;  // null: none
  std::vector<std::unique_ptr<Device>> devices;
  std::mutex lock;

  uint64_t next_id = 1;
  uint64_t next_graph_number = 1;  // of kernel nodes and executable graphs, for profilers
  std::map<CUcontext, std::unique_ptr<CUctx_st>> contexts;  // not the primary ones
  std::vector<std::unique_ptr<CUctx_st>> ended_contexts;    // destroyed, maybe current somewhere
  std::map<CUstream, std::unique_ptr<CUstream_st>> streams;
  std::map<CUevent, std::unique_ptr<CUevent_st>> events;
  std::map<uint64_t, std::unique_ptr<Capture>> captures;
  std::map<CUgraph, std::unique_ptr<CUgraph_st>> graphs;
  std::map<CUgraphExec, std::unique_ptr<CUgraphExec_st>> graph_execs;
  std::map<CUuserObject, std::unique_ptr<CUuserObject_st>> user_objects;
  std::map<CUmodule, std::unique_ptr<CUmod_st>> modules;
  std::map<CUlibrary, std::unique_ptr<CUlib_st>> libraries;
  std::map<CUmemoryPool, std::unique_ptr<CUmemPoolHandle_st>> pools;
  std::vector<std::unique_ptr<CUmemPoolHandle_st>> ended_pools;  // destroyed, with live blocks
  std::map<uint64_t, CUmemoryPool> pool_blocks;                  // live address -> pool
  std::map<uint64_t, Physical> physical;
  std::map<uint64_t, uint64_t> ranges;  // cuMemAddressReserve: address -> bytes
  std::map<uint64_t, Mapping> mappings;
  HostWindow host_window{kHostWindowBase, kHostWindowBytes};
  std::map<uint64_t, HostBlock> host_blocks;
  uint64_t registrations = 0;  // so far, of the caller's memory
  std::map<uint64_t, ManagedBlock> managed_blocks;
  std::map<uint64_t, Allocation> allocation_ids;  // address -> what the driver allocated as a whole
  std::map<CUarray, std::unique_ptr<CUarray_st>> arrays;
  std::map<CUmipmappedArray, std::unique_ptr<CUmipmappedArray_st>> mipmaps;
  std::map<CUexternalMemory, std::unique_ptr<CUextMemory_st>> external_memory;
  std::map<uint64_t, OpenedMemory> opened;
  std::set<uint64_t> lent_ranges;  // of external memory and imported pointers, freed by their user
  std::map<uint64_t, GraphBlock> graph_blocks;
};

// The state after cuInit. CUDA_ERROR_NOT_INITIALIZED before it and in a forked child.
CUresult ready_state(DriverState*& state);
// Null: no call has started the driver yet.
const DriverState* started_state();
CUresult initialise_driver();

// The context stack of the calling thread; under the lock.
CUcontext current_context();   // null: none, or it was destroyed
CUcontext context_on_top();    // whatever its state
CUresult why_there_is_none();  // of current_context()
void set_current_context(CUcontext context);
bool push_context(CUcontext context);
CUcontext pop_context();
unsigned thread_number();  // small, unique per thread of the process

// An address as the books have it: the same in every run. What lies in no fixed window is the
// program's own and has a name instead.
struct BookedAddress {
  BookedAddress(uint64_t place) : address(place) {}
  BookedAddress(uint64_t place, uint64_t number) : address(place), registration(number) {}
  uint64_t address;
  uint64_t registration = 0;  // of the caller's memory; 0: none, or it was refused
};
// One appended line of the books, when asked for. Not under the lock.
void write_books(const char* call, BookedAddress address, uint64_t bytes, CUresult result);

// Counts the call by name; CUDA_ERROR_NOT_SUPPORTED.
CUresult unsupported_call(const char* name);

// What the script says of this call of the function (fault_script.h): an error, or nothing.
CUresult scripted_fault(DriverState& state, const char* function);

extern ActivityTap g_activity_tap;

// Bodies of API functions: body(state) under the lock, body(state, context) with a current context.
template <typename Body>
CUresult with_state(Body body, const char* function = __builtin_FUNCTION()) noexcept {
  ApiCall call(&g_activity_tap, ApiDomain::kDriver, function);
  DriverState* state = nullptr;
  const CUresult ready = ready_state(state);
  if (ready != CUDA_SUCCESS) return call.ends_with(ready);
  try {
    if (state->faults != nullptr) {
      const CUresult fault = scripted_fault(*state, function);
      if (fault != CUDA_SUCCESS) return call.ends_with(fault);
    }
    const std::lock_guard<std::mutex> guard(state->lock);
    return call.ends_with(body(*state));
  } catch (...) {
    return call.ends_with(CUDA_ERROR_OUT_OF_MEMORY);  // of the host
  }
}

// body() as the exported function of this name, for functions that share a body.
template <typename Body>
CUresult traced(const char* function, Body body) noexcept {
  ApiCall call(&g_activity_tap, ApiDomain::kDriver, function);
  return call.ends_with(body());
}

template <typename Body>
CUresult with_context(Body body, const char* function = __builtin_FUNCTION()) noexcept {
  return with_state(
      [&](DriverState& state) -> CUresult {
        const CUcontext context = current_context();
        if (context == nullptr) return why_there_is_none();
        return body(state, *context);
      },
      function);
}

// --- under the lock ---

Device* device_at(DriverState& state, CUdevice ordinal);  // null: no such device
Device* device_of_address(DriverState& state, uint64_t address);
bool is_device_address(uint64_t address);

// Requests beyond are more than any device has; sizes up to it can be rounded without overflow.
inline constexpr uint64_t kLargestRequest = model::kDeviceWindowBytes / 2;

// [address, address + bytes) lies in memory that exists on a device (allocation or mapping).
bool is_live_device_range(DriverState& state, uint64_t address, uint64_t bytes);

// The context is about to be used: its bytes are charged once per process and device.
CUresult charge_context(DriverState& state, Device& device);

// A call that stream capture forbids. Invalidates the captures in question and says 900.
CUresult refuse_in_capture(DriverState& state);

// Resolves 0, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD and real handles; null: no such stream.
CUstream find_stream(DriverState& state, CUcontext context, CUstream handle);
// All streams of a device that may have pending events.
void for_each_stream(DriverState& state, Device& device,
                     const std::function<void(CUstream)>& visit);
void complete_stream(CUstream stream);
void synchronize_device(DriverState& state, Device& device);
void trim_to_threshold(DriverState& state, Device& device);

// Work reaches a stream. True: it was captured as a node and must not be executed.
bool capture_node(DriverState& state, CUstream stream, CUgraphNodeType type,
                  CUgraphNode* node = nullptr);
CUresult add_memory_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                         size_t count, CUgraphNodeParams* parameters);  // not under the lock
// `rule` and `arguments` of the kernel, where they are known (answers.h).
CUresult launch_on(DriverState& state, CUcontext context, CUstream handle, const KernelShape& shape,
                   const AnswerRule* rule = nullptr, void** arguments = nullptr);
CUresult launch_graph(DriverState& state, CUstream_st& stream, const CUgraphExec_st& exec);

// With kernel_us configured, kernels take time (kernel_time.cpp). Of work that a stream has: a
// kernel more, and when it begins (CLOCK_MONOTONIC); whether it is done.
uint64_t occupy(DriverState& state, CUstream_st& stream);
inline constexpr uint64_t kOperationNs = 1000;
uint64_t operation_ns(const DriverState& state);    // of a kernel
uint64_t next_start_ns(const CUstream_st& stream);  // of what is not a kernel

// For profilers, if there is one (activity.cpp). Work that was done, not captured.
void report_kernel(DriverState& state, CUstream_st& stream, const KernelShape& shape,
                   uint64_t start_ns);
void report_graph(DriverState& state, CUstream_st& stream, const CUgraphExec_st& exec,
                  uint64_t start_ns);
void report_copy(DriverState& state, CUstream_st& stream, uint64_t to, uint64_t from,
                 uint64_t bytes, bool asynchronous);
void report_fill(DriverState& state, CUstream_st& stream, uint64_t address, uint64_t bytes,
                 unsigned value, bool asynchronous);
// Of the last record, also by another process.
uint64_t due_of(DriverState& state, const CUevent_st& event);
bool is_past(const DriverState& state, uint64_t due_ns);
// Returns when the work that is there now is done. Not under the lock; nothing in a capture.
void await_stream(CUstream handle);
void await_event(CUevent event);
void await_context();

CUresult pool_allocate(DriverState& state, CUmemoryPool pool, size_t bytes, CUdeviceptr* out);
bool pool_free(DriverState& state, CUdeviceptr address, CUresult& result);
void pool_trim(DriverState& state, CUmemoryPool pool, uint64_t keep_bytes);

// Memory of graphs (graph_memory.cpp): an address for a node; memory behind addresses; in use or
// not.
CUresult make_graph_block(DriverState& state, Device& device, size_t bytes, CUdeviceptr* out);
CUresult back_graph_blocks(DriverState& state, const std::vector<CUdeviceptr>& addresses);
void use_graph_block(DriverState& state, CUdeviceptr address, bool used);
bool free_graph_block(DriverState& state, CUdeviceptr address, CUresult& result);
void trim_graph_memory(DriverState& state, Device& device);
void forget_graph_memory(DriverState& state, Device& device);

// The block of a map by address (host_blocks, graph_blocks, …) that contains `address`; end():
// none.
template <typename Blocks>
auto block_around(Blocks& blocks, uint64_t address) {
  auto block = blocks.upper_bound(address);
  if (block == blocks.begin()) return blocks.end();
  --block;
  return address - block->first < block->second.bytes ? block : blocks.end();
}

void close_range(DriverState& state, uint64_t address);  // a range that stands for foreign memory

int device_attribute(const SimConfig& config, CUdevice_attribute attribute, int card, bool& known);

}  // namespace fragscope::simcuda
