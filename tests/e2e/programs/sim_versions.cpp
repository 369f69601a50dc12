// Asks cuGetProcAddress_v2 for every function, at every version at which any function changed and
// its neighbours, with all flags, and prints result and status of each request; then for the odd
// ones.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <set>
#include <string>

#define CUDA_VERSION 99999  // all rows of the table

namespace {
struct Procedure {
  const char* name;
  int version;
};
constexpr Procedure kProcedures[] = {
#define PROCEDURE(name, version, symbol) {#name, version},
#define PROCEDURE_PER_THREAD(name, version, symbol, twin) {#name, version},
#include "simcuda/driver/driver_procedures.def"
};
}  // namespace

int main() {
  using Resolve = int (*)(const char*, void**, int, uint64_t, int*);
  using Resolve1 = int (*)(const char*, void**, int, uint64_t);
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto resolve = reinterpret_cast<Resolve>(dlsym(driver, "cuGetProcAddress_v2"));
  const auto resolve1 = reinterpret_cast<Resolve1>(dlsym(driver, "cuGetProcAddress"));
  std::set<std::string> names = {"", "cuNoSuchName", "malloc", "cuMemAlloc_v2"};
  std::set<int> versions = {0, 1, 2000, 13050, 99000};
  for (const Procedure& row : kProcedures) {
    names.insert(row.name);
    versions.insert({row.version - 10, row.version, row.version + 10});
  }
  long requests = 0;
  for (const std::string& name : names) {
    for (const int version : versions) {
      uint64_t hash = 14695981039346656037ull;
      for (const uint64_t flags : {0, 1, 2, 3}) {
        void* function = nullptr;
        int status = -1;
        const int result = resolve(name.c_str(), &function, version, flags, &status);
        void* same = nullptr;
        const int old = resolve1(name.c_str(), &same, version, flags);
        const int null_out = resolve(name.c_str(), nullptr, version, flags, nullptr);
        // A hook's wrapper of the same function is the same pointer, whoever asks.
        const int found = function != nullptr, equal = same == function;
        for (const int part : {result, status, found, old, null_out, equal}) {
          hash = (hash ^ static_cast<uint64_t>(part)) * 1099511628211ull;
        }
        requests += 3;
      }
      std::printf("%s %d %016llx\n", name.c_str(), version, static_cast<unsigned long long>(hash));
    }
  }
  std::printf("%ld requests, null name: %d\n", requests,
              resolve(nullptr, nullptr, 12000, 0, nullptr));
}
