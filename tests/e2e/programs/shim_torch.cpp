// shim_torch LIBC10_CUDA [cuda]: with CUDA, if asked, loads it as a Python extension is loaded and
// runs its script.
#include <dlfcn.h>

#include <cstdio>
#include <initializer_list>

int main(int count, char** arguments) {
  if (count > 2) dlopen("libcudart.so.13", RTLD_NOW | RTLD_GLOBAL);
  void* const torch = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (torch == nullptr) {
    std::puts(dlerror());
    return 1;
  }
  reinterpret_cast<void (*)()>(dlsym(torch, "fake_torch_run"))();
  for (const char* name : {"fake_memory_reports", "fake_oom_reports"}) {
    std::printf("%s %d\n", name, reinterpret_cast<int (*)()>(dlsym(torch, name))());
  }
}
