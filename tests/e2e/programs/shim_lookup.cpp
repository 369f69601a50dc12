// Asks for functions in every way and says which answers are the driver's own ("real") and which
// are not ("hook"). Calls what it got.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "shim_fake.h"

namespace {

void say(const char* how, const void* got, const char* symbol) {
  const char* const kind = got == nullptr ? "none" : got == fake_address(symbol) ? "real" : "hook";
  std::printf("%s %s: %s\n", how, symbol, kind);
}

void ask(const char* name, int version, uint64_t flags, const char* symbol) {
  void* out = nullptr;
  int status = -1;
  const int result = cuGetProcAddress_v2(name, &out, version, flags, &status);
  char how[64];
  std::snprintf(how, sizeof how, "v2 %d/%d result %d status %d", version, static_cast<int>(flags),
                result, status);
  say(how, out, symbol);
  out = nullptr;
  std::snprintf(how, sizeof how, "v1 %d/%d result %d", version, static_cast<int>(flags),
                cuGetProcAddress(name, &out, version, flags));
  say(how, out, symbol);
}

void call_through(void* function, size_t bytes) {
  uint64_t address = 0;
  reinterpret_cast<int (*)(uint64_t*, size_t)>(function)(&address, bytes);
}

}  // namespace

int main() {
  void* const handle = dlopen("libcuda.so.1", RTLD_NOW);
  dlerror();
  say("dlsym handle", dlsym(handle, "cuMemAlloc_v2"), "cuMemAlloc_v2");
  say("dlsym handle", dlsym(handle, "cuMemAlloc"), "cuMemAlloc");
  say("dlsym handle", dlsym(handle, "cuMemPoolCreate"), "cuMemPoolCreate");
  say("dlsym handle", dlsym(handle, "cuGetExportTable"), "cuGetExportTable");
  std::printf("error after: %s\n", dlerror() == nullptr ? "none" : "some");
  say("dlsym handle", dlsym(handle, "cuNoSuchThing"), "cuNoSuchThing");
  std::printf("error after: %s\n", dlerror() == nullptr ? "none" : "some");
  say("dlsym default", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), "cuMemAlloc_v2");
  say("dlsym main", dlsym(dlopen(nullptr, RTLD_NOW), "cuMemAlloc_v2"), "cuMemAlloc_v2");
  say("dlvsym handle", dlvsym(handle, "cuMemAlloc_v2", "none"), "cuMemAlloc_v2");
  dlerror();
  call_through(dlsym(handle, "cuMemAlloc_v2"), 111);

  ask("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
  ask("cuMemAlloc", 12000, 1, "cuMemAlloc_v2");
  ask("cuMemAlloc", 12000, 2, "cuMemAlloc_v2");
  ask("cuMemAlloc", 2000, 0, "cuMemAlloc");
  ask("cuMemAlloc", 14000, 0, "cuMemAlloc_v2");
  ask("cuMemAllocAsync", 11020, 0, "cuMemAllocAsync");
  ask("cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz");
  ask("cuMemAllocAsync", 11010, 0, "cuMemAllocAsync");
  ask("cuMemPoolCreate", 12000, 0, "cuMemPoolCreate");
  ask("cuGetExportTable", 12000, 0, "cuGetExportTable");
  ask("cuGetProcAddress", 11030, 0, "cuGetProcAddress");
  ask("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
  ask("", 12000, 0, "");
  std::printf("null out: %d\n", cuGetProcAddress_v2("cuMemAlloc", nullptr, 12000, 0, nullptr));
  void* out = nullptr;
  cuGetProcAddress_v2("cuMemAlloc", &out, 12000, 0, nullptr);
  call_through(out, 222);
}
