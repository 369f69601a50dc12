// Ids and facts of the functions in intercepts.def.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fragscope::shim {

// Also the API ids of a trace; 0 is "no function".
enum class HookId : uint16_t {
  none = 0,
#define CUDA_HOOK(symbol, ...) symbol,
#define RESOLVER_HOOK(symbol, ...) symbol,
#include "shim/intercepts.def"
  count
};
inline constexpr size_t kHookCount = static_cast<size_t>(HookId::count);

enum class Library : uint8_t { none, runtime, driver };
enum class Flavour : uint8_t { plain, ptsz };

struct HookInfo {
  const char* symbol;
  const char* base;
  Library library;
  Flavour flavour;
  int since;
};

inline constexpr HookInfo kHooks[kHookCount] = {
    {"", "", Library::none, Flavour::plain, 0},
#define CUDA_HOOK(symbol, library, base, since, flavour, ...) \
  {#symbol, #base, Library::library, Flavour::flavour, since},
#define RESOLVER_HOOK(symbol, library, base, since, ...) \
  {#symbol, #base, Library::library, Flavour::plain, since},
#include "shim/intercepts.def"
};

constexpr const HookInfo& info(HookId id) { return kHooks[static_cast<size_t>(id)]; }

}  // namespace fragscope::shim
