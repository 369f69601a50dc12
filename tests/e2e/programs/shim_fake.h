// Prototypes of the stand-ins' functions, for the programs of the shim's tests.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {
int cudaMalloc(void** out, size_t bytes);
int cudaFree(void* address);
int cudaMallocAsync(void** out, size_t bytes, void* stream);
int cudaFreeAsync(void* address, void* stream);
int cudaMallocHost(void** out, size_t bytes);
int cudaHostAlloc(void** out, size_t bytes, unsigned flags);
int cudaFreeHost(void* address);
int cudaDeviceSynchronize();
int cudaMemGetInfo(size_t* free_bytes, size_t* total);
int cudaDeviceReset();
int cudaGetLastError();
int fake_runtime_major();
int fake_runtime_mallocs();
int fake_runtime_synchronizations();

int cuMemAlloc_v2(uint64_t* out, size_t bytes);
int cuMemFree_v2(uint64_t address);
int cuGetProcAddress(const char* name, void** out, int version, uint64_t flags);
int cuGetProcAddress_v2(const char* name, void** out, int version, uint64_t flags, int* status);
void* fake_address(const char* symbol);
extern void (*fake_during_alloc)();
extern int fake_forbidden_calls;
}
