// Reaches the driver's memory calls on every route there is, without being linked to CUDA. Each
// route allocates a size of its own and frees it; prints "route size" once it worked.
//
//   sim_routes DRIVER RUNTIME     libraries to dlopen, the latter with version node libcudart.so.N
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

using DevicePtr = unsigned long long;
using DriverAlloc = int (*)(DevicePtr*, size_t);
using DriverFree = int (*)(DevicePtr);
using AsyncAlloc = int (*)(DevicePtr*, size_t, void*);
using AsyncFree = int (*)(DevicePtr, void*);
using RuntimeAlloc = int (*)(void**, size_t);
using RuntimeFree = int (*)(void*);
using Resolve1 = int (*)(const char*, void**, int, unsigned long long);
using Resolve2 = int (*)(const char*, void**, int, unsigned long long, int*);
using EntryPoint = int (*)(const char*, void**, unsigned long long, int*);
using EntryPointByVersion = int (*)(const char*, void**, unsigned, unsigned long long, int*);

size_t g_size = 1000;

void report(const char* route, int result) {
  if (result == 0) {
    std::printf("%s %zu\n", route, g_size);
  } else {
    std::printf("%s error %d\n", route, result);
  }
  g_size += 1000;
}

void use_driver(const char* route, void* allocate, void* release) {
  DevicePtr address = 0;
  if (allocate == nullptr || release == nullptr) return report(route, -1);
  const int result = reinterpret_cast<DriverAlloc>(allocate)(&address, g_size);
  report(route, result != 0 ? result : reinterpret_cast<DriverFree>(release)(address));
}

void use_async(const char* route, void* allocate, void* release) {
  DevicePtr address = 0;
  if (allocate == nullptr || release == nullptr) return report(route, -1);
  const int result = reinterpret_cast<AsyncAlloc>(allocate)(&address, g_size, nullptr);
  report(route, result != 0 ? result : reinterpret_cast<AsyncFree>(release)(address, nullptr));
}

void use_runtime(const char* route, void* allocate, void* release) {
  void* address = nullptr;
  if (allocate == nullptr || release == nullptr) return report(route, -1);
  const int result = reinterpret_cast<RuntimeAlloc>(allocate)(&address, g_size);
  report(route, result != 0 ? result : reinterpret_cast<RuntimeFree>(release)(address));
}

// The C library's versions of dlsym: binaries of before and after glibc 2.34 name different ones.
#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif
extern "C" {
void* dlsym_oldest(void*, const char*);
void* dlvsym_oldest(void*, const char*, const char*);
}
__asm__(".symver dlsym_oldest, dlsym@" OLDEST);
__asm__(".symver dlvsym_oldest, dlvsym@" OLDEST);

void by_symbol(void* driver, const char* runtime_path, const char* node) {
  use_driver("dlsym of the oldest libc", dlsym_oldest(driver, "cuMemAlloc_v2"),
             dlsym_oldest(driver, "cuMemFree_v2"));
  use_driver("dlsym of this libc", dlsym(driver, "cuMemAlloc_v2"), dlsym(driver, "cuMemFree_v2"));
  use_driver("dlsym default", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"),
             dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
  use_driver("dlsym next", dlsym(RTLD_NEXT, "cuMemAlloc_v2"), dlsym(RTLD_NEXT, "cuMemFree_v2"));
  void* const runtime = dlopen(runtime_path, RTLD_NOW | RTLD_LOCAL);
  use_runtime("local", dlsym(runtime, "cudaMalloc"), dlsym(runtime, "cudaFree"));
  use_runtime("dlvsym", dlvsym(runtime, "cudaMalloc", node), dlvsym(runtime, "cudaFree", node));
  use_runtime("dlvsym of the oldest libc", dlvsym_oldest(runtime, "cudaMalloc", node),
              dlvsym_oldest(runtime, "cudaFree", node));
  void* const deep = dlopen(runtime_path, RTLD_NOW | RTLD_DEEPBIND);
  use_runtime("deepbind", dlsym(deep, "cudaMalloc"), dlsym(deep, "cudaFree"));
}

void by_resolver(void* driver) {
  const auto v1 = reinterpret_cast<Resolve1>(dlsym(driver, "cuGetProcAddress"));
  const auto v2 = reinterpret_cast<Resolve2>(dlsym(driver, "cuGetProcAddress_v2"));
  void* allocate = nullptr;
  void* release = nullptr;
  int status = 0;
  v1("cuMemAlloc", &allocate, 11030, 0);
  v1("cuMemFree", &release, 11030, 0);
  use_driver("cuGetProcAddress", allocate, release);
  v2("cuMemAlloc", &allocate, 3020, 0, &status);
  v2("cuMemFree", &release, 12000, 0, nullptr);
  use_driver("cuGetProcAddress_v2", allocate, release);
  v2("cuMemAllocAsync", &allocate, 11020, 2, &status);
  v2("cuMemFreeAsync", &release, 11020, 2, &status);
  use_async("cuGetProcAddress_v2 per thread", allocate, release);
  // The resolver that the resolver answers.
  void* inner = nullptr;
  v2("cuGetProcAddress", &inner, 12000, 0, &status);
  reinterpret_cast<Resolve2>(inner)("cuMemAlloc", &allocate, 12000, 0, &status);
  v2("cuMemFree", &release, 12000, 0, &status);
  use_driver("cuGetProcAddress of cuGetProcAddress", allocate, release);
}

void by_entry_point(const char* runtime_path) {
  void* const runtime = dlopen(runtime_path, RTLD_NOW | RTLD_LOCAL);
  void* allocate = nullptr;
  void* release = nullptr;
  int status = 0;
  const auto plain = reinterpret_cast<EntryPoint>(dlsym(runtime, "cudaGetDriverEntryPoint"));
  if (plain != nullptr) {
    plain("cuMemAlloc", &allocate, 0, &status);
    plain("cuMemFree", &release, 0, &status);
    use_driver("cudaGetDriverEntryPoint", allocate, release);
  }
  const auto versioned =
      reinterpret_cast<EntryPointByVersion>(dlsym(runtime, "cudaGetDriverEntryPointByVersion"));
  if (versioned != nullptr) {
    versioned("cuMemAllocAsync", &allocate, 11020, 2, &status);
    versioned("cuMemFreeAsync", &release, 11020, 2, &status);
    use_async("cudaGetDriverEntryPointByVersion", allocate, release);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  void* const driver = dlopen(words[1], RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) return 3;
  void* context = nullptr;
  reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"))(0);
  reinterpret_cast<int (*)(void**, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
  reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxSetCurrent"))(context);
  const std::string runtime = words[2];
  by_symbol(driver, words[2], runtime.substr(runtime.rfind('/') + 1).c_str());
  by_resolver(driver);
  by_entry_point(words[2]);
  return 0;
}
