#include "shim/coverage.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "shim/elf_lookup.h"

namespace fragscope::shim {
namespace {

constexpr std::string_view kNotHooked[] = {
#define NOT_HOOKED(base, reason) #base,
#include "shim/intercepts.def"
};

constexpr std::string_view kHarmless[] = {
// sorted
#define KNOWN_NAME(name) #name,
#include "shim/harmless_names.def"
#undef KNOWN_NAME
};

// Paths of modules with a runtime inside; written once, by the thread that took the place.
struct RuntimePath {
  std::atomic<uint32_t> state{0};  // as Counter's
  uintptr_t base = 0;
  char path[256] = {};
};
constinit std::array<RuntimePath, 8> g_static_runtimes;

// Names are written once, by the thread whose exchange on `state` won.
struct Counter {
  std::atomic<uint32_t> state{0};  // 0 free, 1 being named, 2 named
  std::atomic<uint64_t> count{0};
  char name[56] = {};
};
constexpr size_t kCounters = 64;
constinit std::array<Counter, kCounters> g_unhooked;
constinit std::atomic<uint64_t> g_hooked;
constinit std::atomic<uint64_t> g_total;

bool is_named(const Counter& counter, const char* symbol) {
  return counter.state.load(std::memory_order_acquire) == 2 &&
         std::strcmp(counter.name, symbol) == 0;
}

Counter* counter_of(const char* symbol) {
  for (Counter& counter : g_unhooked) {
    if (is_named(counter, symbol)) return &counter;
    uint32_t expected = 0;
    if (!counter.state.compare_exchange_strong(expected, 1)) continue;
    std::strncpy(counter.name, symbol, sizeof counter.name - 1);
    counter.state.store(2, std::memory_order_release);
    return &counter;
  }
  return nullptr;
}

bool is_variant_of(std::string_view name, std::string_view base) {
  if (name.substr(0, base.size()) != base) return false;
  const std::string_view suffix = name.substr(base.size());
  return suffix.empty() || suffix == "_ptsz" || suffix.substr(0, 2) == "_v";
}

// cuMemcpyAsync_v2_ptsz -> cuMemcpyAsync
std::string_view without_suffixes(std::string_view name) {
  for (const std::string_view stream : {"_ptsz", "_ptds"}) {
    if (name.size() > stream.size() && name.substr(name.size() - stream.size()) == stream) {
      name.remove_suffix(stream.size());
    }
  }
  const size_t version = name.rfind("_v");
  if (version == std::string_view::npos || version + 2 == name.size()) return name;
  const std::string_view digits = name.substr(version + 2);
  const bool numbered = std::all_of(digits.begin(), digits.end(),
                                    [](char letter) { return letter >= '0' && letter <= '9'; });
  return numbered ? name.substr(0, version) : name;
}

}  // namespace

void count_hooked() noexcept {
  g_hooked.fetch_add(1, std::memory_order_relaxed);
  g_total.fetch_add(1, std::memory_order_relaxed);
}

void count_unhooked(const char* symbol) noexcept {
  Counter* const counter = counter_of(symbol);
  if (counter != nullptr) counter->count.fetch_add(1, std::memory_order_relaxed);
  g_total.fetch_add(1, std::memory_order_relaxed);
}

bool is_known_unhooked(const char* name) noexcept {
  for (const std::string_view base : kNotHooked) {
    if (is_variant_of(name, base)) return true;
  }
  return false;
}

bool is_unknown_name(const char* name) noexcept {
  return !std::binary_search(std::begin(kHarmless), std::end(kHarmless), without_suffixes(name));
}

void note_request(const char* name, const void* caller) noexcept {
  if (name == nullptr || name[0] != '\0') return;
  const LoadedObject object = object_of(caller);
  if (!object || is_ours(caller) || std::strncmp(soname(object), "libcudart", 9) == 0) return;
  for (RuntimePath& known : g_static_runtimes) {
    uint32_t expected = 0;
    if (known.state.load(std::memory_order_acquire) == 2 && known.base == object.base) return;
    if (!known.state.compare_exchange_strong(expected, 1)) continue;
    known.base = object.base;
    // The program itself has no path in the loader's list.
    std::strncpy(known.path, object.path[0] != '\0' ? object.path : "/proc/self/exe",
                 sizeof known.path - 1);
    known.state.store(2, std::memory_order_release);
    g_total.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

void for_each_static_runtime(void (*visit)(unsigned number, const char* path, void* context),
                             void* context) noexcept {
  for (unsigned i = 0; i < g_static_runtimes.size(); ++i) {
    const RuntimePath& known = g_static_runtimes[i];
    if (known.state.load(std::memory_order_acquire) == 2) visit(i, known.path, context);
  }
}

void for_each_coverage(void (*visit)(const char* key, uint64_t count, void* context),
                       void* context) noexcept {
  const uint64_t hooked = g_hooked.load(std::memory_order_relaxed);
  if (hooked != 0) visit("coverage.hooked", hooked, context);
  for (const Counter& counter : g_unhooked) {
    if (counter.state.load(std::memory_order_acquire) != 2) continue;
    char key[80];
    std::snprintf(key, sizeof key, "coverage.unhooked.%s", counter.name);
    visit(key, counter.count.load(std::memory_order_relaxed), context);
  }
}

uint64_t coverage_total() noexcept { return g_total.load(std::memory_order_relaxed); }

}  // namespace fragscope::shim
