// The bytes of a device at one moment, by what holds them.
//
// Units: bytes. Threads: pure functions. What the trace does not tell is absent.
#pragma once

#include <cstdint>
#include <optional>

#include "metrics/scenes.h"
#include "replay/process_facts.h"

namespace fragscope::diagnose {

// Where `total` is known, with `outside` and `device_free`, all of these add up to it: `elsewhere`
// is the rest. Otherwise `elsewhere` is absent.
struct MemorySplit {
  std::optional<uint64_t> total;
  uint64_t live = 0;                    // blocks in the client's hands
  uint64_t pending = 0;                 // freed, waiting for other streams
  uint64_t split_rests = 0;             // free pieces that the request's stream and pool may use
  uint64_t other_stream = 0;            // free pieces of other streams
  uint64_t other_pool = 0;              // of the other pool (requests up to 1 MiB, or above)
  uint64_t expandable = 0;              // free bytes of mapped pages
  uint64_t idle = 0;                    // segments in which nothing lives
  std::optional<uint64_t> outside;      // other device memory of this process
  std::optional<uint64_t> context;      // of this process
  std::optional<uint64_t> device_free;  // what the device had left
  std::optional<uint64_t> elsewhere;    // other processes, and what the driver keeps

  uint64_t stranded() const { return split_rests + other_stream + other_pool + expandable + idle; }
  uint64_t reserved() const { return live + pending + stranded(); }
};

// Which free pieces a request may use.
struct RequestKind {
  bool small = false;              // it belongs to the pool of requests up to 1 MiB
  std::optional<uint64_t> stream;  // absent: unknown, then every stream's pieces count as its own
};

MemorySplit split_memory(const metrics::Scene& scene, const RequestKind& request,
                         const replay::DeviceFacts& device);

// Segments of 2 MiB serve requests up to 1 MiB, and nothing else does.
bool is_small_pool(const metrics::LayoutSegment& segment);

}  // namespace fragscope::diagnose
