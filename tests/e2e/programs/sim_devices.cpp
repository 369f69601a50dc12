// Two simulated devices of 1 GiB each, an A100's shape: attributes, look-ups, current device,
// errors.
#include <dlfcn.h>

#include <cstring>
#include <thread>

#include "sim_check.h"

namespace {

void properties_have_sane_values() {
  int count = 0;
  OK(cudaGetDeviceCount(&count));
  CHECK(count == 2);
  cudaDeviceProp about{};
  OK(cudaGetDeviceProperties(&about, 1));
  CHECK(about.totalGlobalMem == 1024u << 20);
  CHECK(about.major == 8 && about.minor == 0 && about.multiProcessorCount == 108);
  CHECK(about.maxGridSize[0] == 2147483647 && about.maxThreadsPerBlock == 1024);
  CHECK(about.maxBlocksPerMultiProcessor == 32 && about.maxThreadsPerMultiProcessor == 2048);
  CHECK(about.sharedMemPerBlockOptin == 166912 && about.regsPerBlock == 65536);
  CHECK(about.warpSize == 32 && about.l2CacheSize > 0 && about.unifiedAddressing == 1);
  char first[32] = {}, second[32] = {};
  OK(cudaDeviceGetPCIBusId(first, sizeof first, 0));
  OK(cudaDeviceGetPCIBusId(second, sizeof second, 1));
  CHECK(std::strcmp(first, second) != 0);
  CHECK_CODE(cudaGetDeviceProperties(&about, 2), cudaErrorInvalidDevice);
  cudaGetLastError();
}

void every_attribute_is_answered() {
  const int highest = CUDART_VERSION >= 13000 ? 147 : 132;
  for (int number = 1; number <= highest; ++number) {
    int value = -77;
    OK(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(number), 0));
    CHECK(value != -77);
  }
  int value = 0;
  CHECK_CODE(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(255), 0),
             cudaErrorInvalidValue);
  cudaGetLastError();
}

void devices_are_apart() {
  void* first = nullptr;
  void* second = nullptr;
  OK(cudaMalloc(&first, 600u << 20));
  OK(cudaSetDevice(1));
  OK(cudaMalloc(&second, 600u << 20));
  cudaPointerAttributes about{};
  OK(cudaPointerGetAttributes(&about, first));
  CHECK(about.device == 0 && about.type == cudaMemoryTypeDevice);
  OK(cudaPointerGetAttributes(&about, second));
  CHECK(about.device == 1);
  const int value = 21;
  int back = 0;
  OK(cudaMemcpy(first, &value, 4, cudaMemcpyHostToDevice));
  OK(cudaMemcpyPeer(second, 1, first, 0, 4));
  OK(cudaMemcpy(&back, second, 4, cudaMemcpyDeviceToHost));
  CHECK(back == 21);
  std::thread([] {
    int device = -1;
    OK(cudaGetDevice(&device));
    CHECK(device == 0);  // chosen per thread
  }).join();
  OK(cudaFree(first));
  OK(cudaFree(second));
  CHECK_CODE(cudaSetDevice(2), cudaErrorInvalidDevice);
  cudaGetLastError();
  OK(cudaSetDevice(0));
}

void look_ups_honour_version_and_flags() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  using Resolve = int (*)(const char*, void**, int, unsigned long long, int*);
  const auto resolve = reinterpret_cast<Resolve>(dlsym(driver, "cuGetProcAddress_v2"));
  const auto symbol = [&](const char* name) { return dlsym(driver, name); };
  const auto find = [&](const char* name, int version, unsigned long long flags, int code,
                        int expected_status) {
    void* found = nullptr;
    int status = -1;
    CHECK_CODE(resolve(name, &found, version, flags, &status), code);
    CHECK(status == expected_status);
    return found;
  };
  CHECK(find("cuMemAlloc", 3020, 0, 0, 0) == symbol("cuMemAlloc_v2"));
  CHECK(find("cuMemAlloc", 12000, 0, 0, 0) == symbol("cuMemAlloc_v2"));
  CHECK(find("cuMemAlloc", 2000, 0, 0, 0) == symbol("cuMemAlloc"));
  CHECK(find("cuMemAllocAsync", 11020, 0, 0, 0) == symbol("cuMemAllocAsync"));
  CHECK(find("cuMemAllocAsync", 11020, 2, 0, 0) == symbol("cuMemAllocAsync_ptsz"));
  CHECK(find("cuMemAllocAsync", 11010, 0, 500, 2) == nullptr);  // too old a version
  CHECK(find("cuNoSuchName", 12000, 0, 500, 1) == nullptr);
  CHECK(find("cuMemAlloc", 99000, 0, 1, 1) == nullptr);  // newer than the driver
  const void* table = &table;
  using Export = int (*)(const void**, const void*);
  CHECK(reinterpret_cast<Export>(symbol("cuGetExportTable"))(&table, "0123456789abcdef") == 500);
  CHECK(table == nullptr);
  CHECK(reinterpret_cast<int (*)()>(symbol("fragscope_sim_version"))() >= 1);
}

void what_is_missing_says_so() {
  cudaTextureObject_t texture = 0x1234;
  CHECK_CODE(cudaCreateTextureObject(&texture, nullptr, nullptr, nullptr), cudaErrorNotSupported);
  CHECK(texture == 0);  // outputs are zeroed
  CHECK(std::strcmp(cudaGetErrorName(cudaGetLastError()), "cudaErrorNotSupported") == 0);
  CHECK(std::strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
  CHECK(std::strcmp(cudaGetErrorName(static_cast<cudaError_t>(777)), "unrecognized error code") ==
        0);
}

}  // namespace

int main() {
  properties_have_sane_values();
  every_attribute_is_answered();
  devices_are_apart();
  look_ups_honour_version_and_flags();
  what_is_missing_says_so();
  return g_failures;
}
