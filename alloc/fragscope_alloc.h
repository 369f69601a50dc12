/* libfragscope_alloc.so: a device allocator for torch.cuda.memory.CUDAPluggableAllocator. PyTorch's
 * own caching allocator (its newest release's, or the one named to fragscope_alloc_configure) over
 * cudaMalloc segments, with settings that can be changed while the process runs.
 *
 *   allocator = torch.cuda.memory.CUDAPluggableAllocator(
 *       "libfragscope_alloc.so", "fragscope_alloc_malloc", "fragscope_alloc_free")
 *   torch.cuda.memory.change_current_allocator(allocator)
 *
 * serves one stream's memory; `fragscope.torch.enable()` also sets the functions for record_stream,
 * empty_cache, memory fraction and graph pools, which PyTorch leaves out otherwise.
 *
 * Settings: FRAGSCOPE_ALLOC_CONF, PyTorch's grammar; expandable segments and other back ends are
 * refused. Units: bytes. Threads: any. Errors: inside a process with PyTorch an allocation that
 * fails raises PyTorch's exception; elsewhere it returns NULL.
 */
#ifndef FRAGSCOPE_ALLOC_H
#define FRAGSCOPE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void* fragscope_alloc_malloc(size_t bytes, int device, void* stream);
void fragscope_alloc_free(void* block, size_t bytes, int device, void* stream);

/* Before the first allocation. NULL: accepted; else one line that says what is wrong, valid until
 * the thread's next call. `torch_version` ("2.6.0"): whose rules; NULL or "": the newest known. */
const char* fragscope_alloc_configure(const char* settings, const char* torch_version);
/* At any time; NULL or one line, as above. In force from the next allocation on. */
const char* fragscope_alloc_set(const char* settings);

/* CUDAPluggableAllocator's other functions. */
void fragscope_alloc_init(int devices);
void fragscope_alloc_reset(void); /* torch.cuda.empty_cache() */
void fragscope_alloc_memory_fraction(double fraction, int device);
void* fragscope_alloc_base(void* block, size_t* bytes);
void fragscope_alloc_record_stream(void* block, void* stream);

/* Statistics of a device, with the keys of torch.cuda.memory_stats(): calls visit(key, value,
 * context) for each. Nothing is called for a device that has not served yet. */
void fragscope_alloc_stats(int device, void (*visit)(const char* key, int64_t value, void* context),
                           void* context);
void fragscope_alloc_reset_stats(int device, int peaks); /* 1: the peaks, 0: what has accumulated */

#ifdef __cplusplus
}
#endif

#endif /* FRAGSCOPE_ALLOC_H */
