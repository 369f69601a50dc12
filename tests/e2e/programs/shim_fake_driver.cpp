// A stand-in libcuda.so.1 of a few functions, for tests of the hooks alone. Unlike src/simcuda it
// has old ABIs, counts calls, and calls back into the test in the middle of an allocation.
#include <pthread.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

#define API extern "C" __attribute__((visibility("default")))

namespace {
// Never destroyed: hosts free in static destructors.
std::mutex& g_mutex = *new std::mutex;
std::map<uint64_t, uint64_t>& g_live = *new std::map<uint64_t, uint64_t>;
// A fork must not copy a locked mutex.
const int g_fork_safe =
    pthread_atfork([] { g_mutex.lock(); }, [] { g_mutex.unlock(); }, [] { g_mutex.unlock(); });
uint64_t g_next = 0x100000000000;
uint64_t g_used = 0;
constexpr uint64_t kCapacity = uint64_t{1} << 30;
int g_old_calls = 0;

int allocate(uint64_t* out, uint64_t bytes) {
  if (g_fork_safe != 0 || out == nullptr || bytes == 0) return 1;
  const std::lock_guard lock(g_mutex);
  if (bytes > kCapacity - g_used) return 2;
  g_used += bytes;
  *out = g_next;
  g_live[g_next] = bytes;
  g_next += (bytes + 511) / 512 * 512;
  return 0;
}

int release(uint64_t address) {
  if (address == 0) return 0;
  const std::lock_guard lock(g_mutex);
  const auto found = g_live.find(address);
  if (found == g_live.end()) return 1;
  g_used -= found->second;
  g_live.erase(found);
  return 0;
}
}  // namespace

// Called in the middle of every cuMemAlloc_v2 when set.
API void (*fake_during_alloc)();
void (*fake_during_alloc)() = nullptr;
// CUDA calls that an observer must not make.
API int fake_forbidden_calls;
int fake_forbidden_calls = 0;

API int cuInit(unsigned) { return 0; }
API int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
API int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
API int cuCtxGetCurrent(void** context) {
  *context = &g_live;
  return 0;
}
API int cuCtxPushCurrent_v2(void*) { return 0; }
API int cuCtxPopCurrent_v2(void** context) { return cuCtxGetCurrent(context); }
API int cuEventCreate(void** event, unsigned) {
  static char made;
  *event = &made;
  return 0;
}
API int cuEventRecord(void*, void*) { return 0; }
API int cuEventQuery(void*) { return 0; }
API int cuEventSynchronize(void*) { return 0; }
API int cuCtxSynchronize() {
  ++fake_forbidden_calls;
  return 0;
}
API int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  ++fake_forbidden_calls;
  *free_bytes = kCapacity - g_used;
  *total = kCapacity;
  return 0;
}
API int cuDeviceGetName(char* name, int bytes, int) {
  std::strncpy(name, "fake card", static_cast<size_t>(bytes));
  return 0;
}
API int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = kCapacity;
  return 0;
}
API int cuMemAlloc(unsigned* out, unsigned) {
  ++g_old_calls;
  *out = 1;
  return 0;
}
API int cuMemFree(unsigned) { return 0; }
API int cuMemAlloc_v2(uint64_t* out, size_t bytes) {
  if (fake_during_alloc != nullptr) fake_during_alloc();
  return allocate(out, bytes);
}
API int cuMemFree_v2(uint64_t address) { return release(address); }
API int cuMemAllocAsync(uint64_t* out, size_t bytes, void*) { return allocate(out, bytes); }
API int cuMemAllocAsync_ptsz(uint64_t* out, size_t bytes, void*) { return allocate(out, bytes); }
API int cuMemFreeAsync(uint64_t address, void*) { return release(address); }
API int cuMemFreeAsync_ptsz(uint64_t address, void*) { return release(address); }
API int cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  return allocate(reinterpret_cast<uint64_t*>(out), bytes);
}
API int cuMemFreeHost(void* address) { return release(reinterpret_cast<uint64_t>(address)); }
API int cuDevicePrimaryCtxReset_v2(int) {
  g_live.clear();
  g_used = 0;
  return 0;
}
API int cuPoolThing() { return 0; }
API int cuMulticastCreate(uint64_t* out, const void*) {
  *out = 0x3333;
  return 0;
}
API int cuMulticastBindMem(uint64_t, size_t, uint64_t, size_t, size_t, unsigned long long) {
  return 0;
}
API int cuMulticastBindMem_v2(uint64_t, int, size_t, uint64_t, size_t, size_t, unsigned long long) {
  return 0;
}
API int cuMulticastBindAddr(uint64_t, size_t, uint64_t, size_t, unsigned long long) { return 0; }
API int cuMulticastUnbind(uint64_t, int, size_t, size_t) { return 0; }
API int cuMemMapArrayAsync(void*, unsigned, void*) { return 0; }
API int cuExternalMemoryGetMappedMipmappedArray(void** out, void*, const void*) {
  *out = &g_live;
  return 0;
}
API int cuMemPoolCreate(void**, const void*) { return 0; }
API int cuGetExportTable(const void** table, const void*) {
  *table = &g_live;
  return 0;
}
API int cuGetProcAddress_v2(const char* name, void** out, int version, uint64_t flags, int* status);
API int cuGetProcAddress(const char* name, void** out, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, out, version, flags, nullptr);
}

namespace {
struct Entry {
  const char* name;
  int since;
  bool ptsz;
  void* function;
};
template <typename T>
void* address(T* function) {
  return reinterpret_cast<void*>(function);
}
const Entry kEntries[] = {
    {"cuMemAlloc", 2000, false, address(cuMemAlloc)},
    {"cuMemAlloc", 3020, false, address(cuMemAlloc_v2)},
    {"cuMemFree", 2000, false, address(cuMemFree)},
    {"cuMemFree", 3020, false, address(cuMemFree_v2)},
    {"cuMemAllocAsync", 11020, false, address(cuMemAllocAsync)},
    {"cuMemAllocAsync", 11020, true, address(cuMemAllocAsync_ptsz)},
    {"cuMemFreeAsync", 11020, false, address(cuMemFreeAsync)},
    {"cuMemFreeAsync", 11020, true, address(cuMemFreeAsync_ptsz)},
    {"cuMemHostAlloc", 2020, false, address(cuMemHostAlloc)},
    {"cuMemFreeHost", 2000, false, address(cuMemFreeHost)},
    {"cuDevicePrimaryCtxReset", 11000, false, address(cuDevicePrimaryCtxReset_v2)},
    {"cuMemGetInfo", 3020, false, address(cuMemGetInfo_v2)},
    {"cuMemPoolCreate", 11020, false, address(cuMemPoolCreate)},
    {"cuGetExportTable", 3000, false, address(cuGetExportTable)},
    {"cuGetProcAddress", 11030, false, address(cuGetProcAddress)},
    {"cuGetProcAddress", 12000, false, address(cuGetProcAddress_v2)},
};
}  // namespace

API int cuGetProcAddress_v2(const char* name, void** out, int version, uint64_t flags,
                            int* status) {
  if (status != nullptr) *status = 1;  // SYMBOL_NOT_FOUND
  if (version > 13000) return 1;
  const Entry* best = nullptr;
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, name) != 0 || entry.since > version) continue;
    if (entry.ptsz && flags != 2) continue;
    if (best == nullptr || entry.since > best->since || entry.ptsz) best = &entry;
  }
  if (best == nullptr) {
    if (out != nullptr) *out = nullptr;
    return 500;
  }
  if (status != nullptr) *status = 0;
  if (out != nullptr) *out = best->function;
  return 0;
}

// The real address of a function, whatever look-ups say.
API void* fake_address(const char* symbol) {
#define ONE(name) \
  if (std::strcmp(symbol, #name) == 0) return address(name);
  ONE(cuMemAlloc)
  ONE(cuMemAlloc_v2)
  ONE(cuMemFree_v2)
  ONE(cuMemAllocAsync)
  ONE(cuMemAllocAsync_ptsz)
  ONE(cuGetProcAddress)
  ONE(cuGetProcAddress_v2)
  ONE(cuGetExportTable)
  ONE(cuMemPoolCreate)
  return nullptr;
}
