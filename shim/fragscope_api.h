/* fragscope_api.h: for frameworks with an allocator of their own. Tells FragScope, when it records
 * this process, which blocks the allocator hands out.
 *
 * Plain C99 and C++, header only, nothing to link (glibc before 2.34: -ldl). When no recorder is
 * preloaded every call is one load and one branch. The recorder is looked for once per source file
 * that uses this header, at the first call.
 *
 * Units: bytes; addresses and stream handles are the process's own values as integers. A value that
 * the caller does not know is FRAGSCOPE_UNKNOWN, never 0.
 * Threads: every function may be called by any number of threads and from under the allocator's own
 * lock; none waits for another thread, none fails, none changes errno.
 * Order: call block_alloc after the block was taken and block_free before it can be taken again,
 * under the lock that orders the two, else two threads' events may swap.
 */
#ifndef FRAGSCOPE_API_H
#define FRAGSCOPE_API_H

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FRAGSCOPE_API_VERSION 1u
#define FRAGSCOPE_UNKNOWN UINT64_MAX

/* What the recorder answers to fragscope_get_api(). New members are only ever appended; `size`
 * says how many bytes the recorder knows. */
struct fragscope_api {
  uint32_t size;
  uint32_t version;
  int (*active)(void);
  void (*block_alloc)(int32_t device, uint64_t stream, uint64_t address, uint64_t size,
                      uint64_t requested, uint64_t allocated_after, uint64_t reserved_after);
  void (*block_free_requested)(int32_t device, uint64_t stream, uint64_t address);
  void (*block_free_completed)(int32_t device, uint64_t stream, uint64_t address);
  void (*segment_alloc)(int32_t device, uint64_t stream, uint64_t address, uint64_t size);
  void (*segment_free)(int32_t device, uint64_t stream, uint64_t address, uint64_t size);
  void (*oom)(int32_t device, uint64_t stream, uint64_t requested, uint64_t device_free);
  void (*mark)(const char* text);
  /* since 0.2 */
  void (*range_push)(const char* text);
  void (*range_pop)(void);
  /* since 0.3: for allocators that carry out settings. property(): a fact of the run, "key",
   * "value" (at most some 500 bytes); key "enforce" says who serves. take_settings(): what was
   * asked for from outside, once, as a NUL-terminated text (at most 1001 bytes); 0 when there is
   * nothing, else the number for answer_settings(), which says whether they hold now or (`problem`)
   * why not. */
  void (*property)(const char* key, const char* value);
  uint32_t (*take_settings)(char* text, size_t bytes);
  void (*answer_settings)(uint32_t number, int accepted, const char* problem);
  /* since 0.4 */
  void (*segment_map)(int32_t device, uint64_t stream, uint64_t address, uint64_t size);
  void (*segment_unmap)(int32_t device, uint64_t stream, uint64_t address, uint64_t size);
};

/* Internal: the recorder's table, or NULL. */
static inline const struct fragscope_api* fragscope_find_(void) {
  static const struct fragscope_api* found;
  static int searched;
  if (!__atomic_load_n(&searched, __ATOMIC_ACQUIRE)) {
    const struct fragscope_api* (*get)(uint32_t);
    const int saved = errno;
    *(void**)&get = dlsym((void*)0 /* RTLD_DEFAULT */, "fragscope_get_api");
    __atomic_store_n(&found, get ? get(FRAGSCOPE_API_VERSION) : (const struct fragscope_api*)0,
                     __ATOMIC_RELAXED);
    __atomic_store_n(&searched, 1, __ATOMIC_RELEASE);
    errno = saved;
  }
  return __atomic_load_n(&found, __ATOMIC_RELAXED);
}

/* 1 when this process is being recorded (or will be, from its first CUDA memory call on). */
static inline int fragscope_active(void) {
  const struct fragscope_api* api = fragscope_find_();
  return api ? api->active() : 0;
}

/* A block was handed out: `size` bytes of the segment for a request of `requested` bytes. The last
 * two are the allocator's totals on this device afterwards. */
static inline void fragscope_block_alloc(int32_t device, uint64_t stream, uint64_t address,
                                         uint64_t size, uint64_t requested,
                                         uint64_t allocated_after, uint64_t reserved_after) {
  const struct fragscope_api* api = fragscope_find_();
  if (api)
    api->block_alloc(device, stream, address, size, requested, allocated_after, reserved_after);
}

/* The client gave a block back. It can be taken again only from block_free_completed on (which may
 * follow later: other streams may still use it). */
static inline void fragscope_block_free_requested(int32_t device, uint64_t stream,
                                                  uint64_t address) {
  const struct fragscope_api* api = fragscope_find_();
  if (api) api->block_free_requested(device, stream, address);
}

static inline void fragscope_block_free_completed(int32_t device, uint64_t stream,
                                                  uint64_t address) {
  const struct fragscope_api* api = fragscope_find_();
  if (api) api->block_free_completed(device, stream, address);
}

/* Both at once, for allocators that never defer. */
static inline void fragscope_block_free(int32_t device, uint64_t stream, uint64_t address) {
  fragscope_block_free_requested(device, stream, address);
  fragscope_block_free_completed(device, stream, address);
}

/* The allocator got a segment from CUDA (after the call) or gives one back (before the call). */
static inline void fragscope_segment_alloc(int32_t device, uint64_t stream, uint64_t address,
                                           uint64_t size) {
  const struct fragscope_api* api = fragscope_find_();
  if (api) api->segment_alloc(device, stream, address, size);
}

static inline void fragscope_segment_free(int32_t device, uint64_t stream, uint64_t address,
                                          uint64_t size) {
  const struct fragscope_api* api = fragscope_find_();
  if (api) api->segment_free(device, stream, address, size);
}

/* A request of `requested` bytes (rounded as the allocator rounds) failed; `device_free` is what
 * the device had left. */
static inline void fragscope_oom(int32_t device, uint64_t stream, uint64_t requested,
                                 uint64_t device_free) {
  const struct fragscope_api* api = fragscope_find_();
  if (api) api->oom(device, stream, requested, device_free);
}

/* Internal: 1 when the recorder knows a member that version 1 began without. */
#define FRAGSCOPE_KNOWS_(api, member) \
  ((api) && (api)->size >= offsetof(struct fragscope_api, member) + sizeof((api)->member))

/* The same of an expandable segment: memory was mapped behind a part of its address range, or is
 * about to be taken from one. */
static inline void fragscope_segment_map(int32_t device, uint64_t stream, uint64_t address,
                                         uint64_t size) {
  const struct fragscope_api* api = fragscope_find_();
  if (FRAGSCOPE_KNOWS_(api, segment_map)) api->segment_map(device, stream, address, size);
}

static inline void fragscope_segment_unmap(int32_t device, uint64_t stream, uint64_t address,
                                           uint64_t size) {
  const struct fragscope_api* api = fragscope_find_();
  if (FRAGSCOPE_KNOWS_(api, segment_unmap)) api->segment_unmap(device, stream, address, size);
}

/* For an allocator that carries PyTorch's settings out itself (PYTORCH_CUDA_ALLOC_CONF); said
 * before its first CUDA call, so that `fragscope run --max-split-size-mb` does not serve it a
 * second time. */
static inline void fragscope_enforces_settings(void) {
  const struct fragscope_api* api = fragscope_find_();
  if (FRAGSCOPE_KNOWS_(api, property)) api->property("enforce", "native");
}

/* A point in time with a name (UTF-8, the first 1000 bytes count). Marks and ranges are kept from
 * the first CUDA memory call of the process on. */
static inline void fragscope_mark(const char* text) {
  const struct fragscope_api* api = fragscope_find_();
  if (api) api->mark(text);
}

/* A stretch of the calling thread's time with a name; ranges of a thread nest. */
static inline void fragscope_range_push(const char* text) {
  const struct fragscope_api* api = fragscope_find_();
  if (FRAGSCOPE_KNOWS_(api, range_push)) api->range_push(text);
}

static inline void fragscope_range_pop(void) {
  const struct fragscope_api* api = fragscope_find_();
  if (FRAGSCOPE_KNOWS_(api, range_pop)) api->range_pop();
}

#ifdef __cplusplus
}
#endif

#endif /* FRAGSCOPE_API_H */
