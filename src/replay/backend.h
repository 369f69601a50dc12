// Backend: an allocator that serves a recorded client's calls (replay/call_list.h). The seam for
// every allocator that a recording can be asked about; PyTorch's word for an allocator that can be
// exchanged.
//
// | name          | what it is                                                                   |
// |---------------|------------------------------------------------------------------------------|
// | torch-2.N     | PyTorch's caching allocator of that release, with settings                    |
// | torch         | the same, of the release that was recorded                                    |
// | cuda          | no caching: each request a cudaMalloc, each free a cudaFree, by               |
// |               | model/device_memory (pages of 2 MiB, small requests share one)               |
// | plan          | an offline plan of all lifetimes: how low an allocator could get at all       |
//
// A new one (stream-ordered pools, BFC, RMM) is a class here and a row in parse_backend().
// Units: bytes. Threads: a backend is constant; run() may be called by many threads at a time.
// Errors: settings are refused when a backend is made, never in run().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/allocator_config.h"
#include "model/caching_allocator.h"
#include "model/device_memory.h"
#include "model/trace_entry.h"
#include "replay/call_list.h"
#include "replay/figures.h"

namespace fragscope::replay {

// Sees what PyTorch's allocator does on a list, entry by entry.
class RunWatch : public model::TraceObserver {
 public:
  virtual void on_call(size_t index) = 0;  // the entries that follow are of this call
};

// The device that a backend runs on.
struct BackendDevice {
  int ordinal = 0;
  // Bytes that the allocator can get, in pages of model::kDevicePage.
  uint64_t capacity = model::LocalCapacity::kUnlimited;
  std::optional<uint64_t> total_bytes;  // what cudaMemGetInfo says; absent: the capacity
  RunWatch* watch = nullptr;            // of torch backends; the others have no entries to show
};

struct BackendRun {
  // `ooms` name the call's event by seq if the list has seqs; time and stack are not filled.
  ReplayFigures figures;
  uint64_t ooms_avoided = 0;                     // recorded refusals that did not come
  std::vector<model::SegmentSnapshot> segments;  // at the end; empty where a backend has none
  // Call when the first request failed, in the recording or here, and the segments then.
  std::optional<size_t> first_oom;
  std::vector<model::SegmentSnapshot> segments_at_oom;
  std::optional<uint64_t> live_peak;  // plan: the lower bound that it is held against
  bool fits = true;                   // plan: the plan needs no more than the capacity
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual BackendRun run(const CallList& list, const BackendDevice& device) const = 0;
  virtual std::string name() const = 0;        // "torch-2.4", "cuda", "plan"
  virtual std::string alloc_conf() const = 0;  // settings, PyTorch's grammar; else empty
};

std::unique_ptr<Backend> torch_backend(const model::VersionProfile& profile,
                                       const model::AllocatorConfig& config);
std::unique_ptr<Backend> cuda_backend();
std::unique_ptr<Backend> plan_backend();

// kInvalidArgument: no such backend, a release before the first known one, settings that the
// release refuses (PyTorch's text) or that the backend does not have. `recorded_version` stands for
// "torch"; releases newer than the newest known are taken as that (model::find_version_profile
// tells).
Result<std::unique_ptr<Backend>> parse_backend(std::string_view name, const std::string& alloc_conf,
                                               const std::string& recorded_version);

}  // namespace fragscope::replay
