// How much host memory did the process keep page-locked through CUDA, who held it when it was most,
// and how much of it was PyTorch's host allocator?
//
// Counts cudaHostAlloc/cudaMallocHost and cudaHostRegister; the end of a context ends what was
// allocated (not registered) on its device. Units: bytes. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "event/event.h"
#include "metrics/gauge.h"
#include "replay/process_facts.h"

namespace fragscope::metrics {

// What one call stack holds page-locked.
struct PinnedHolder {
  uint32_t stack = kNoStack;  // kNoStack: recorded without one
  uint64_t peak_bytes = 0;    // when the process held most
  uint64_t peak_count = 0;    // allocations and registrations then
  uint64_t final_bytes = 0;
  uint64_t last_seq = 0;    // newest of its calls, for looking addresses up
  bool torch_host = false;  // of PyTorch's host allocator
};

// PyTorch's host allocator gets power-of-two blocks from CUDA: the request that made one was more
// than half of it.
struct TorchHostBytes {
  Gauge held;          // blocks that it holds, in use or cached
  Gauge most_padding;  // of these: what of the requests that made them may be rounding, at most
};

class PinnedBytes {
 public:
  // `facts` outlives the object.
  explicit PinnedBytes(const replay::ProcessFacts& facts);

  void feed(const Event& event);
  const Gauge& gauge() const { return gauge_; }
  // Absent: without native stacks it cannot be told whose memory is whose.
  const std::optional<TorchHostBytes>& torch_host() const { return torch_host_; }
  // By bytes at the peak, then at the end, most first.
  std::vector<PinnedHolder> holders() const;

 private:
  struct Allocation {
    uint64_t size = 0;
    int32_t device = 0;
    bool registered = false;
    uint64_t context = kUnknown;
    uint32_t stack = kNoStack;
    bool torch_host = false;
  };
  struct Held {
    uint64_t bytes = 0;
    uint64_t count = 0;
    uint64_t last_seq = 0;
    bool torch_host = false;
  };
  void begin(const Event& event);
  void end(uint64_t address);
  void forget(const Allocation& allocation);
  void end_context(const Event& event);
  bool is_torch_host(const Event& event) const;
  void keep_peak();

  const replay::ProcessFacts& facts_;
  bool any_size_ = false;  // of torch's blocks, by the release
  std::unordered_map<uint64_t, Allocation> live_;
  Gauge gauge_;
  std::optional<TorchHostBytes> torch_host_;
  std::map<uint32_t, Held> by_stack_;
  std::map<uint32_t, Held> at_peak_;
  bool at_new_peak_ = false;  // at_peak_ is yet to be taken
};

}  // namespace fragscope::metrics
