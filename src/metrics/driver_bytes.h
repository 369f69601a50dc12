// How much memory did the process hold, by CUDA's own calls, and of what sort?
//
// `total` counts device memory: cudaMalloc and its kin, stream-ordered blocks, texels of arrays,
// allocation nodes of instantiated graphs, and physical memory of the VMM calls until it is
// released and unmapped. Beside it, not in it: managed memory (on the device or not, as its pages
// go), reserved address space and mappings; memory of other processes and APIs (shared_memory.h);
// what the policy of --enforce serves from its segments.
//
// A free is found by its address, whichever call made it. The end of a context ends what it had,
// the reset of a device all of the device's. Stream-ordered blocks outlive the destruction of their
// pool until they are freed, as CUDA documents. Units: bytes. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "event/event.h"
#include "metrics/gauge.h"

namespace fragscope::metrics {

struct DriverAccounts {
  Gauge total;
  Gauge plain;           // cudaMalloc, pitched
  Gauge stream_ordered;  // cudaMallocAsync, from pools
  Gauge arrays;
  Gauge graphs;
  Gauge physical;  // cuMemCreate
  Gauge managed;   // not in total
  Gauge reserved;  // address space; not in total
  Gauge mapped;    // cuMemMap; not in total
};

class DriverBytes {
 public:
  void feed(const Event& event);

  // By device ordinal; only devices that had an allocation.
  const std::map<int32_t, DriverAccounts>& devices() const { return devices_; }
  // Device memory that the process holds of a device now.
  uint64_t total_now(int32_t device) const;

 private:
  using Account = Gauge DriverAccounts::*;

  struct Allocation {
    uint64_t size = 0;
    int32_t device = 0;
    Account account = nullptr;
    uint64_t context = kUnknown;
  };
  struct Physical {
    uint64_t size = 0;
    int32_t device = 0;
    uint32_t references = 1;
    uint32_t maps = 0;
    bool imported = false;  // another process's
  };
  struct Mapping {
    uint64_t size = 0;
    uint64_t handle = 0;
    int32_t device = 0;
  };
  struct GraphBlock {
    uint64_t address = 0;
    uint64_t size = 0;
    int32_t device = 0;
  };

  void begin(const Event& event, Account account, uint64_t size, uint64_t context);
  void end(uint64_t address);
  void rise(int32_t device, Account account, uint64_t bytes, uint64_t seq);
  void fall(int32_t device, Account account, uint64_t bytes);
  void feed_virtual(const Event& event);
  void feed_graph(const Event& event);
  void begin_physical(const Event& event, bool imported);
  void retain(const Event& event);
  void release(uint64_t handle);
  void drop_if_unused(uint64_t handle);
  void map(const Event& event);
  void unmap(const Event& event);
  void instantiate(const Event& event);
  void end_instance(uint64_t exec);
  void end_context(const Event& event);
  void end_device(int32_t device);
  uint64_t resolved(uint64_t handle) const;

  std::unordered_map<uint64_t, Allocation> live_;
  std::unordered_map<uint64_t, Physical> physical_;  // by handle
  std::unordered_map<uint64_t, uint64_t> aliases_;   // retained handle -> the one it stands for
  std::map<uint64_t, Mapping> mappings_;             // by address
  std::unordered_map<uint64_t, std::pair<uint64_t, int32_t>> ranges_;  // reserved: bytes, device
  std::unordered_map<uint64_t, std::vector<GraphBlock>> graph_nodes_;  // by graph
  std::unordered_map<uint64_t, std::vector<GraphBlock>> instances_;    // by executable graph
  std::map<int32_t, DriverAccounts> devices_;
};

}  // namespace fragscope::metrics
