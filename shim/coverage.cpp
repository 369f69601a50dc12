#include "shim/coverage.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace fragscope::shim {
namespace {

constexpr std::string_view kNotHooked[] = {
#define NOT_HOOKED(base, reason) #base,
#include "shim/intercepts.def"
};

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
