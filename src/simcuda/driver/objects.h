// What the opaque handles of the driver API point to. Owned by the tables in DriverState; guarded
// by its lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "simcuda/answers.h"
#include "simcuda/driver/cuda_internal.h"
#include "simcuda/driver/host_window.h"
#include "simcuda/ledger.h"
#include "simcuda/overlay.h"

namespace fragscope::simcuda {

struct Device;

// How a kernel was launched. What a math library did has a name alone.
struct KernelShape {
  const char* name = "";
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned dynamic_shared_bytes = 0;
};
// The same for a kernel node, whose function may go before it.
struct NodeKernel {
  NodeKernel(const KernelShape& of, uint64_t number) : name(of.name), shape(of), id(number) {
    shape.name = name.c_str();
  }
  NodeKernel(const NodeKernel&) = delete;
  NodeKernel& operator=(const NodeKernel&) = delete;
  std::string name;
  KernelShape shape;
  uint64_t id;
};

// One stream capture, from begin to end. Streams join it by waiting for an event recorded in it.
struct Capture {
  uint64_t id = 0;
  CUgraph graph = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  CUstream origin = nullptr;
  unsigned thread = 0;
  bool invalidated = false;
  bool own_graph = true;  // false: captured into the caller's graph
  std::set<CUstream> streams;
};

}  // namespace fragscope::simcuda

struct CUstream_st : fragscope::simcuda::PlacedObject {
  CUcontext context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  fragscope::simcuda::Capture* capture = nullptr;
  std::vector<CUgraphNode> tail;   // what the next captured node depends on
  std::set<CUevent> pending;       // recorded here, not yet complete
  uint64_t busy_until_ns = 0;      // CLOCK_MONOTONIC (kernel_time.cpp)
  uint64_t reported_until_ns = 0;  // end of the last work that a profiler was told of
};

struct CUevent_st : fragscope::simcuda::PlacedObject {
  CUcontext context = nullptr;
  unsigned flags = 0;
  CUstream stream = nullptr;  // of the last record, while pending
  bool recorded = false;
  uint64_t queries_left = 0;  // that will still answer "not ready"
  uint64_t tick = 0;          // device clock at the record
  uint64_t due_ns = 0;        // when its stream gets there (kernel_time.cpp)
  std::optional<fragscope::simcuda::Ledger::SharedEvent> shared;  // with other processes
  bool opened = false;                                            // made by another process
  uint64_t capture_id = 0;  // recorded inside this capture, 0: outside
  std::vector<CUgraphNode> nodes;
};

struct CUctx_st : fragscope::simcuda::PlacedObject {
  fragscope::simcuda::Device* device = nullptr;
  unsigned flags = 0;
  bool primary = false;
  bool ended = false;  // destroyed; threads may still have it in their stacks
  uint64_t id = 0;
  CUstream_st legacy;
  std::map<unsigned, std::unique_ptr<CUstream_st>> per_thread;
  std::map<CUlimit, size_t> limits;
};

struct CUgraphNode_st : fragscope::simcuda::PlacedObject {
  CUgraph graph = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::vector<CUgraphNode> dependencies;
  CUhostFn host_function = nullptr;
  void* host_data = nullptr;
  CUdeviceptr address = 0;  // of memory nodes
  std::shared_ptr<const fragscope::simcuda::NodeKernel> kernel;
};

struct CUgraph_st : fragscope::simcuda::PlacedObject {
  unsigned instances = 0;  // executable graphs made of it, while it has memory nodes
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
  std::vector<std::pair<CUuserObject, unsigned>> user_objects;  // references this graph holds
};

struct CUgraphExec_st : fragscope::simcuda::PlacedObject {
  struct HostCall {
    CUhostFn function;
    void* data;
  };
  std::vector<HostCall> host_calls;
  bool has_kernels = false;
  uint32_t id = 0;
  std::vector<std::shared_ptr<const fragscope::simcuda::NodeKernel>> kernels;
  CUgraph source = nullptr;            // of a graph with memory nodes
  std::vector<CUdeviceptr> allocates;  // addresses of its allocation nodes
  std::vector<CUdeviceptr> frees;
};

struct CUuserObject_st : fragscope::simcuda::PlacedObject {
  CUhostFn destroy = nullptr;
  void* data = nullptr;
  unsigned references = 0;
};

struct CUfunc_st {
  std::string name;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  const fragscope::simcuda::AnswerRule* answer = nullptr;
  std::map<CUfunction_attribute, int> attributes;
};

// The function comes first: a CUkernel passed as a CUfunction, which the API allows, is the same
// address.
struct CUkern_st : fragscope::simcuda::PlacedObject {
  CUfunc_st function;
};

struct CUmod_st : fragscope::simcuda::PlacedObject {
  std::map<std::string, std::unique_ptr<CUkern_st>> functions;
  std::map<std::string, CUdeviceptr> globals;
};

struct CUlib_st : fragscope::simcuda::PlacedObject {
  CUmod_st module;
};

struct CUarray_st : fragscope::simcuda::PlacedObject {
  CUcontext context = nullptr;
  uint64_t address = 0;
  CUDA_ARRAY3D_DESCRIPTOR about{};
};

struct CUmipmappedArray_st : fragscope::simcuda::PlacedObject {
  CUcontext context = nullptr;
  uint64_t address = 0;
  std::vector<std::unique_ptr<CUarray_st>> levels;
};

struct CUextMemory_st : fragscope::simcuda::PlacedObject {
  fragscope::simcuda::Device* device = nullptr;
  uint64_t bytes = 0;
};

struct CUmemPoolHandle_st : fragscope::simcuda::PlacedObject {
  fragscope::simcuda::Device* device = nullptr;
  bool ended = false;     // cuMemPoolDestroy was called
  bool imported = false;  // another process's: pointers can be imported from it, nothing allocated
  size_t max_bytes = 0;   // 0: the device's
  std::map<uint64_t, uint64_t> chunks;                           // address -> bytes
  std::map<uint64_t, std::map<uint64_t, uint64_t>> free_blocks;  // by chunk: address -> bytes
  struct Block {
    uint64_t chunk;
    uint64_t bytes;  // rounded
  };
  std::map<uint64_t, Block> live;
  cuuint64_t reserved = 0, reserved_high = 0, used = 0, used_high = 0, release_threshold = 0;
  int reuse_follow_events = 1, reuse_opportunistic = 1, reuse_internal = 1;
};
