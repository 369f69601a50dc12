/* What the shim and the torch adaptor (torch_adaptor.cpp) say to each other: plain C data, so that
 * neither the C++ library nor the ABI flag of the user's torch matters to the shim. */
#ifndef FRAGSCOPE_TORCH_ADAPTOR_H
#define FRAGSCOPE_TORCH_ADAPTOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FRAGSCOPE_TORCH_ADAPTOR_VERSION 3u

/* TraceEntry::Action of PyTorch 2.4 and later; the numbers have never changed. */
enum fragscope_torch_action {
  FRAGSCOPE_TORCH_ALLOC = 0,
  FRAGSCOPE_TORCH_FREE_REQUESTED = 1,
  FRAGSCOPE_TORCH_FREE_COMPLETED = 2,
  FRAGSCOPE_TORCH_SEGMENT_ALLOC = 3,
  FRAGSCOPE_TORCH_SEGMENT_FREE = 4,
  FRAGSCOPE_TORCH_SEGMENT_MAP = 5,
  FRAGSCOPE_TORCH_SEGMENT_UNMAP = 6,
  FRAGSCOPE_TORCH_SNAPSHOT = 7,
  FRAGSCOPE_TORCH_OOM = 8, /* address = free bytes of the device, size = rounded request */
  FRAGSCOPE_TORCH_ANNOTATE = 9
};

struct fragscope_torch_entry {
  int32_t action;
  int32_t device;
  uint64_t address;
  uint64_t size; /* bytes: requested (blocks) or of the segment */
  uint64_t stream;
  uint64_t pool_first; /* MempoolId_t; with pool_known (PyTorch 2.8 and later) */
  uint64_t pool_second;
  int32_t pool_known;
};

/* The shim's side. Both are called under the allocator's lock, on the thread that allocates.
 * `settings`: what the allocator was last told (torch.cuda.memory._set_allocator_settings), when
 * that is not what the environment or the last such call said; before the first entry under it. */
struct fragscope_torch_host {
  uint32_t version;
  void (*entry)(const struct fragscope_torch_entry* entry);
  void (*settings)(const char* text, uint64_t bytes);
};

/* The adaptor's side. */
struct fragscope_torch_adaptor {
  uint32_t version;
  const char* torch_version; /* of the headers it was compiled with, "2.6.0" */
};

/* The adaptor's one export: attaches the tracker to every device's allocator. NULL: it could not.
 */
const struct fragscope_torch_adaptor* fragscope_torch_adaptor_start(
    const struct fragscope_torch_host* host);

#ifdef __cplusplus
}
#endif

#endif /* FRAGSCOPE_TORCH_ADAPTOR_H */
