// shim_absent RUNTIME: asks for CUDA's functions in every way while there is no CUDA in the
// process, when there is for those alone who loaded it, and when there is for all.
#include <dlfcn.h>

#include <cstdio>
#include <initializer_list>

namespace {

void say(const char* how, void* found) {
  const char* const error = dlerror();
  std::printf("%s: %s %s\n", how, found != nullptr ? "found" : "none",
              error != nullptr ? error : "-");
}

void ask_all(const char* name) {
  say("default", dlsym(RTLD_DEFAULT, name));
  say("next", dlsym(RTLD_NEXT, name));
  void* const program = dlopen(nullptr, RTLD_NOW);
  say("program", dlsym(program, name));
  say("default, version",
      dlvsym(RTLD_DEFAULT, name, "libcudart.so.13") != nullptr ? program : nullptr);
  say("next, version", dlvsym(RTLD_NEXT, name, "libcudart.so.13") != nullptr ? program : nullptr);
  say("program, version", dlvsym(program, name, "libcudart.so.13") != nullptr ? program : nullptr);
}

}  // namespace

int main(int, char** arguments) {
  for (const char* name : {"cudaMalloc", "cuMemAlloc_v2", "cuGetProcAddress", "cudaNoSuchThing"}) {
    ask_all(name);
  }
  say("libc", dlsym(RTLD_DEFAULT, "malloc"));
  void* const local = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (local == nullptr) return 1;
  say("local", dlsym(local, "cudaMalloc"));
  ask_all("cudaMalloc");
  if (dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) return 1;
  ask_all("cudaMalloc");
}
