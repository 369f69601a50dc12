// The bytes of a device at one moment, by what holds them.
//
// Units: bytes. Threads: pure functions. What the trace does not tell is absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

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
  uint64_t private_pool = 0;            // of a private pool that the request was not for
  uint64_t expandable = 0;              // free bytes of mapped pages
  uint64_t idle = 0;                    // segments in which nothing lives
  std::optional<uint64_t> outside;      // other device memory of this process
  std::optional<uint64_t> context;      // of this process
  std::optional<uint64_t> device_free;  // what the device had left
  std::optional<uint64_t> elsewhere;    // other processes, and what the driver keeps

  uint64_t stranded() const {
    return split_rests + other_stream + other_pool + private_pool + expandable + idle;
  }
  uint64_t reserved() const { return live + pending + stranded(); }
};

// Why free or freed memory of the allocator could not serve a request.
enum class Stranded : uint8_t {
  split_rests,   // pieces between live blocks, each too small
  other_stream,  // pieces of other streams
  other_pool,    // pieces of the other pool kind (small against large requests)
  private_pool,  // memory of a private pool (CUDA graph, MemPool) that the request was not for
  pending,       // freed, waiting for events of other streams
  expandable,    // rests of mapped pages of expandable segments
  idle,          // whole segments that the allocator did not give back
};
std::string_view stranded_name(Stranded kind);      // "split_remnants", "other_stream", …
std::string_view stranded_sentence(Stranded kind);  // "pieces that belong to other streams"

// The largest of them; `pending` only where it alone was missing (see trace_verdict.h).
Stranded largest_stranded(const MemorySplit& split);

// Which free pieces a request may use.
struct RequestKind {
  bool small = false;              // it belongs to the pool of requests up to 1 MiB
  std::optional<uint64_t> stream;  // absent: unknown, then every stream's pieces count as its own
  std::optional<uint32_t> pool;    // packed PoolName; absent: unknown, pools are not told apart
};

MemorySplit split_memory(const metrics::Scene& scene, const RequestKind& request,
                         const replay::DeviceFacts& device);

// Segments of 2 MiB serve requests up to 1 MiB, and nothing else does.
bool is_small_pool(const metrics::LayoutSegment& segment);

// The segment belongs to another private pool than the request, or the other way round.
bool is_foreign_pool(const metrics::LayoutSegment& segment, const RequestKind& request);

}  // namespace fragscope::diagnose
