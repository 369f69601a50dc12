#include "shim/real_api.h"

#include <dlfcn.h>

#include <atomic>

#include "shim/elf_lookup.h"
#include "shim/real_dlsym.h"
#include "shim/torch_blocks.h"

namespace fragscope::shim {
namespace {

constinit std::atomic<void*> g_slots[kHookCount][kSlots];

// The answer for one call site, found without a lock: open addressing over return addresses.
struct CallSite {
  std::atomic<uint64_t> key;  // return address mixed with the hook id; 0 = free
  std::atomic<void*> real;
};
constexpr size_t kCallSites = 4096;
constinit CallSite g_call_sites[kCallSites];

uint64_t site_key(HookId id, const void* caller) {
  return reinterpret_cast<uint64_t>(caller) << 9 ^ static_cast<uint64_t>(id);
}

CallSite* call_site(uint64_t key) {
  size_t index = key * 0x9E3779B97F4A7C15ull >> 52;
  for (size_t probe = 0; probe < 32; ++probe, index = (index + 1) % kCallSites) {
    uint64_t seen = g_call_sites[index].key.load(std::memory_order_acquire);
    if (seen == 0 && g_call_sites[index].key.compare_exchange_strong(seen, key)) seen = key;
    if (seen == key) return &g_call_sites[index];
  }
  return nullptr;
}

bool is_cuda_library(const LoadedObject& object, Library library) {
  const char* name = soname(object);
  const char* prefix = library == Library::driver ? "libcuda.so" : "libcudart";
  while (*prefix != '\0' && *prefix == *name) ++prefix, ++name;
  return *prefix == '\0';
}

void* symbol_in(const LoadedObject& object, const char* symbol) {
  void* const found = find_symbol(object, symbol);
  return is_ours(found) ? nullptr : found;
}

// Trampolines of programs that load CUDA themselves (TensorFlow) and were loaded RTLD_LOCAL.
void* find_anywhere(const char* symbol) {
  struct Search {
    const char* symbol;
    void* found;
  } search{symbol, nullptr};
  for_each_object(
      [](const LoadedObject& object, void* context) {
        auto* wanted = static_cast<Search*>(context);
        wanted->found = symbol_in(object, wanted->symbol);
        return wanted->found != nullptr;
      },
      &search);
  return search.found;
}

// What the loader said of a function when it could be asked (find_next_definitions).
constinit std::atomic<void*> g_next[kHookCount];
constinit int g_no_definition = 0;  // its address: there is none

void* known_next_definition(HookId id) {
  void* const known = g_next[static_cast<size_t>(id)].load(std::memory_order_acquire);
  if (known == nullptr) return next_definition(info(id).symbol);
  return known == &g_no_definition ? nullptr : known;
}

void* find_real(HookId id, const void* caller) {
  const HookInfo& hook = info(id);
  if (id == HookId::cudaMalloc) look_for_torch(caller);
  void* const next = known_next_definition(id);
  if (next != nullptr && !is_cuda_library(object_of(next), hook.library)) return next;
  const bool driver = hook.library == Library::driver;
  const char* const name = driver ? "libcuda.so." : needed(object_of(caller), "libcudart");
  void* real = name != nullptr ? symbol_in(find_object(name), hook.symbol) : nullptr;
  if (real == nullptr) real = next != nullptr ? next : next_definition(hook.symbol);
  if (real == nullptr && !driver) real = symbol_in(find_object("libcudart"), hook.symbol);
  return real != nullptr ? real : find_anywhere(hook.symbol);
}

}  // namespace

void* real_for_caller(HookId id, const void* caller) noexcept {
  CallSite* const site = call_site(site_key(id, caller));
  void* real = site != nullptr ? site->real.load(std::memory_order_acquire) : nullptr;
  if (real == nullptr) {
    real = find_real(id, caller);
    if (site != nullptr) site->real.store(real, std::memory_order_release);
  }
  return real;
}

void* real_in_slot(HookId id, int slot) noexcept {
  return g_slots[static_cast<size_t>(id)][slot].load(std::memory_order_acquire);
}

int bind_slot(HookId id, void* real) noexcept {
  for (int slot = 0; slot < kSlots; ++slot) {
    std::atomic<void*>& entry = g_slots[static_cast<size_t>(id)][slot];
    void* seen = entry.load(std::memory_order_acquire);
    if (seen == nullptr && entry.compare_exchange_strong(seen, real)) return slot;
    if (seen == real) return slot;
  }
  return -1;
}

bool is_defined_elsewhere(const char* symbol) noexcept { return find_anywhere(symbol) != nullptr; }

void* driver_function(const char* symbol) noexcept {
  return symbol_in(find_object("libcuda.so."), symbol);
}

void find_next_definitions() noexcept {
  for (size_t index = 1; index < kHookCount; ++index) {
    const auto id = static_cast<HookId>(index);
    if (info(id).library != Library::runtime) continue;
    void* const next = next_definition(info(id).symbol);
    g_next[index].store(next != nullptr ? next : &g_no_definition, std::memory_order_release);
  }
}

void* next_definition(const char* name) noexcept {
  if (real_dlsym() == nullptr) return nullptr;
  void* const found = real_dlsym()(RTLD_NEXT, name);
  if (found == nullptr) static_cast<void>(dlerror());  // ours, not the host's
  return is_ours(found) ? nullptr : found;
}

}  // namespace fragscope::shim
