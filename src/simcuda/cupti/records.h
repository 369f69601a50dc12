// Activity records as clients read them: cupti_activity.h of CUPTI 12.4 (CUDA 12) and 13.2 (CUDA
// 13). Newer versions of a record only append, so that a client built with an older header finds
// its fields. All are packed and a multiple of 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fragscope::simcuda::cupti {

// CUpti_ActivityKind
enum Kind : uint32_t {
  kMemcpy = 1,
  kMemset = 2,
  kKernel = 3,
  kDriver = 4,
  kRuntime = 5,
  kConcurrentKernel = 10,
  kOverhead = 17,
  kPeerCopy = 22,
  kExternalCorrelation = 39,
};
inline constexpr uint32_t kMostKinds = 64;

#define CUPTI_RECORD __attribute__((__packed__, aligned(8)))

// CUpti_ActivityKernel9, of 13 CUpti_ActivityKernel11.
struct CUPTI_RECORD KernelRecord {
  uint32_t kind;
  uint8_t cache_config;
  uint8_t shared_memory_config;
  uint16_t registers_per_thread;
  uint32_t global_cache_requested, global_cache_executed;
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3];
  int32_t block[3];
  int32_t static_shared, dynamic_shared;
  uint32_t local_per_thread, local_total;
  uint32_t correlation;
  int64_t grid_id;
  const char* name;
  void* reserved;
  uint64_t queued, submitted;  // 0: unknown
  uint8_t launch_type;
  uint8_t carveout_is_requested, carveout_requested;
  uint8_t padding;
  uint32_t shared_executed;
  uint64_t graph_node;
  uint32_t shared_limit_config;
  uint32_t graph;
  void* access_policy;
  uint32_t channel, channel_type;
  uint32_t cluster[3];
  uint32_t cluster_scheduling;
  uint64_t local_total_v2;
  uint32_t cluster_most, clusters_active;
#if FRAGSCOPE_CUPTI_MAJOR >= 13
  uint8_t device_launched;
  uint8_t padding3[7];
  int32_t priority;
  uint32_t padding4;
#endif
};
static_assert(offsetof(KernelRecord, start) == 16 && offsetof(KernelRecord, device) == 40);
static_assert(offsetof(KernelRecord, grid) == 52 && offsetof(KernelRecord, correlation) == 92);
static_assert(offsetof(KernelRecord, name) == 104 && offsetof(KernelRecord, graph_node) == 144);
static_assert(offsetof(KernelRecord, cluster) == 176 &&
              offsetof(KernelRecord, clusters_active) == 204);
static_assert(sizeof(KernelRecord) == (FRAGSCOPE_CUPTI_MAJOR >= 13 ? 224 : 208));

// CUpti_ActivityMemcpy5, of 13 CUpti_ActivityMemcpy6.
struct CUPTI_RECORD CopyRecord {
  uint32_t kind;
  uint8_t copy_kind, source, target, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream;
  uint32_t correlation, runtime_correlation;
  uint32_t pad;
  void* reserved;
  uint64_t graph_node;
  uint32_t graph, channel, channel_type;
  uint8_t device_launched;  // of 12: padding
  uint8_t pad2[3];
#if FRAGSCOPE_CUPTI_MAJOR >= 13
  uint64_t copies;
#endif
};
static_assert(offsetof(CopyRecord, bytes) == 8 && offsetof(CopyRecord, device) == 32);
static_assert(offsetof(CopyRecord, correlation) == 44 && offsetof(CopyRecord, graph_node) == 64);
static_assert(sizeof(CopyRecord) == (FRAGSCOPE_CUPTI_MAJOR >= 13 ? 96 : 88));

// CUpti_ActivityMemcpyPtoP4
struct CUPTI_RECORD PeerCopyRecord {
  uint32_t kind;
  uint8_t copy_kind, source, target, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream;
  uint32_t source_device, source_context, target_device, target_context;
  uint32_t correlation;
  void* reserved;
  uint64_t graph_node;
  uint32_t graph, channel, channel_type;
};
static_assert(offsetof(PeerCopyRecord, correlation) == 60 &&
              offsetof(PeerCopyRecord, graph_node) == 72);
static_assert(sizeof(PeerCopyRecord) == 96);

// CUpti_ActivityMemset4
struct CUPTI_RECORD FillRecord {
  uint32_t kind;
  uint32_t value;
  uint64_t bytes, start, end;
  uint32_t device, context, stream;
  uint32_t correlation;
  uint16_t flags, memory_kind;
  uint32_t pad;
  void* reserved;
  uint64_t graph_node;
  uint32_t graph, channel, channel_type;
  uint8_t device_launched;
  uint8_t pad2[3];
};
static_assert(offsetof(FillRecord, correlation) == 44 && offsetof(FillRecord, graph_node) == 64);
static_assert(sizeof(FillRecord) == 88);

// CUpti_ActivityAPI
struct CUPTI_RECORD ApiRecord {
  uint32_t kind;
  uint32_t callback_id;
  uint64_t start, end;
  uint32_t process, thread;
  uint32_t correlation;
  uint32_t result;
};
static_assert(offsetof(ApiRecord, correlation) == 32 && sizeof(ApiRecord) == 40);

// CUpti_ActivityExternalCorrelation
struct CUPTI_RECORD ExternalRecord {
  uint32_t kind;
  uint32_t external_kind;
  uint64_t external;
  uint32_t correlation;
  uint32_t reserved;
};
static_assert(sizeof(ExternalRecord) == 24);

// 0: no record of ours.
constexpr size_t record_bytes(uint32_t kind) {
  switch (kind) {
    case kKernel:
    case kConcurrentKernel:
      return sizeof(KernelRecord);
    case kMemcpy:
      return sizeof(CopyRecord);
    case kPeerCopy:
      return sizeof(PeerCopyRecord);
    case kMemset:
      return sizeof(FillRecord);
    case kDriver:
    case kRuntime:
      return sizeof(ApiRecord);
    case kExternalCorrelation:
      return sizeof(ExternalRecord);
    default:
      return 0;
  }
}

}  // namespace fragscope::simcuda::cupti
