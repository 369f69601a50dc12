// Calls that the simulated GPU does not implement, against the stand-in driver of these tests.
#include <cstdio>

#include "shim_fake.h"

extern "C" {
int cuMulticastCreate(uint64_t* out, const void* properties);
int cuMulticastBindMem(uint64_t object, size_t at, uint64_t handle, size_t offset, size_t bytes,
                       unsigned long long flags);
int cuMulticastBindMem_v2(uint64_t object, int device, size_t at, uint64_t handle, size_t offset,
                          size_t bytes, unsigned long long flags);
int cuMulticastBindAddr(uint64_t object, size_t at, uint64_t address, size_t bytes,
                        unsigned long long flags);
int cuMulticastUnbind(uint64_t object, int device, size_t at, size_t bytes);
int cuMemMapArrayAsync(void* list, unsigned count, void* stream);
int cuExternalMemoryGetMappedMipmappedArray(void** out, void* memory, const void* about);
}

int main() {
  struct {
    unsigned devices;
    size_t bytes;
    unsigned long long types, flags;
  } properties{2, 4 << 20, 1, 0};
  struct {
    int resource;
    void* array;
    int subresource;
    uint64_t opaque[4];
    int operation, type;
    uint64_t handle;
    unsigned long long offset;
    unsigned mask, flags, reserved[2];
  } list[2] = {{0, reinterpret_cast<void*>(0x77), 0, {}, 1, 0, 0x55, 0, 1, 0, {}}, {}};
  uint64_t object = 0;
  void* array = nullptr;
  int failures = cuMulticastCreate(&object, &properties) != 0;
  failures += cuMulticastBindMem(object, 0, 0x55, 0, 2 << 20, 0) != 0;
  failures += cuMulticastBindMem_v2(object, 0, 0, 0x56, 0, 2 << 20, 0) != 0;
  failures += cuMulticastBindAddr(object, 0, 0x9000, 2 << 20, 0) != 0;
  failures += cuMulticastUnbind(object, 0, 0, 2 << 20) != 0;
  failures += cuMemMapArrayAsync(list, 2, reinterpret_cast<void*>(0x5000)) != 0;
  failures += cuExternalMemoryGetMappedMipmappedArray(&array, &object, list) != 0;
  std::printf("%d failures, forbidden calls: %d\n", failures, fake_forbidden_calls);
}
