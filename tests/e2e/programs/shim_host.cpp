// shim_host MODULE: a host without libstdc++ of its own that loads shim_module.cpp.
#include <dlfcn.h>
#include <stdio.h>

#include "shim_fake.h"

int main(int, char** arguments) {
  void* block = nullptr;
  cudaMalloc(&block, 111);
  void* const module = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    puts(dlerror());
    return 1;
  }
  const auto run = reinterpret_cast<int (*)(const char**)>(dlsym(module, "module_run"));
  const char* library = nullptr;
  printf("%d\n", run(&library));
  printf("%s\n", library);
  return 0;
}
