// Finds the driver as a runtime does that is linked into a program (nvcc's default), recorded of
// the vendor's static runtime 13.0: one dlsym, of cuGetProcAddress_v2; a request without a name;
// then hundreds by name, version and flags, all before cuInit; every answer kept in a table. Here
// the names are all that the simulated driver has. Then it allocates through the table.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>

namespace {

using Resolve = int (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
std::map<std::string, void*> g_table;  // symbol -> function

struct Request {
  const char* name;
  int version;
  cuuint64_t flags;
  const char* symbol;
};
constexpr Request kRequests[] = {
#define PROCEDURE(name, version, symbol) {#name, version, 0, #symbol},
#define PROCEDURE_PER_THREAD(name, version, symbol, twin) \
  {#name, version, 0, #symbol}, {#name, version, 2, #twin},
#include "simcuda/driver/driver_procedures.def"
};

bool fill_table() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return false;
  const auto resolve = reinterpret_cast<Resolve>(dlsym(driver, "cuGetProcAddress_v2"));
  CUdriverProcAddressQueryResult status{};
  void* function = nullptr;
  resolve("", &function, CUDA_VERSION, 0, &status);
  for (const Request& request : kRequests) {
    function = nullptr;
    const int result = resolve(request.name, &function, request.version, request.flags, &status);
    if (result != 0 || status != CU_GET_PROC_ADDRESS_SUCCESS || function == nullptr) return false;
    g_table[request.symbol] = function;
  }
  return true;
}

template <typename Function, typename... Arguments>
int call(const char* symbol, Arguments... arguments) {
  return reinterpret_cast<Function*>(g_table.at(symbol))(arguments...);
}
#define CALL(symbol, ...) call<decltype(symbol)>(#symbol __VA_OPT__(, ) __VA_ARGS__)

}  // namespace

int main() {
  if (!fill_table()) return 1;
  CUcontext context = nullptr;
  CUdeviceptr a = 0, b = 0, c = 0;
  void* host = nullptr;
  size_t free_bytes = 0, total = 0;
  int failures = 0;
  failures += CALL(cuInit, 0u) != 0;
  failures += CALL(cuDevicePrimaryCtxRetain, &context, 0) != 0;
  failures += CALL(cuCtxSetCurrent, context) != 0;
  failures += CALL(cuMemAlloc_v2, &a, size_t{1111}) != 0;
  failures += CALL(cuMemAllocAsync, &b, size_t{2222}, CUstream{}) != 0;
  failures += CALL(cuMemAllocAsync_ptsz, &c, size_t{3333}, CUstream{}) != 0;
  failures += CALL(cuMemHostAlloc, &host, size_t{4444}, 0u) != 0;
  failures += CALL(cuMemGetInfo_v2, &free_bytes, &total) != 0;
  failures += CALL(cuMemFreeHost, host) != 0;
  failures += CALL(cuMemFreeAsync_ptsz, c, CUstream{}) != 0;
  failures += CALL(cuMemFreeAsync, b, CUstream{}) != 0;
  failures += CALL(cuMemFree_v2, a) != 0;
  std::printf("%zu requests, %d failures\n", sizeof kRequests / sizeof *kRequests, failures);
  return failures;
}
