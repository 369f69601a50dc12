// shim_majors PLUGIN FLAG: linked with libcudart.so.13; loads a module that is linked with .12.
// Says which runtime answered whom.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "shim_fake.h"

int main(int, char** arguments) {
  int flags = RTLD_NOW | RTLD_LOCAL;
  if (std::strcmp(arguments[2], "deepbind") == 0) flags |= RTLD_DEEPBIND;
  if (std::strcmp(arguments[2], "global") == 0) flags = RTLD_NOW | RTLD_GLOBAL;
  void* block = nullptr;
  cudaMalloc(&block, 111);
  void* const plugin = dlopen(arguments[1], flags);
  if (plugin == nullptr) {
    std::puts(dlerror());
    return 1;
  }
  const auto run = reinterpret_cast<int (*)(size_t)>(dlsym(plugin, "plugin_run"));
  std::printf("plugin: %d\n", run(222));
  // By handle: each library's own function.
  for (const char* name : {"libcudart.so.12", "libcudart.so.13"}) {
    void* const handle = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    const auto alloc = reinterpret_cast<int (*)(void**, size_t)>(dlsym(handle, "cudaMalloc"));
    const auto count = reinterpret_cast<int (*)()>(dlsym(handle, "fake_runtime_mallocs"));
    alloc(&block, 333);
    std::printf("%s: %d\n", name, count());
  }
  std::printf("own: %d %d\n", fake_runtime_major(), fake_runtime_mallocs());
}
