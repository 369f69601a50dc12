#include "shim/lookup.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "shim/coverage.h"
#include "shim/cuda_abi.h"
#include "shim/elf_lookup.h"
#include "shim/export.h"
#include "shim/real_api.h"
#include "shim/real_dlsym.h"
#include "shim/session.h"

namespace fragscope::shim {
namespace {

constexpr uint64_t kPerThreadFlag = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

bool is_cuda_name(const char* name) { return name[0] == 'c' && name[1] == 'u'; }

HookId hook_of_symbol(const char* symbol) {
  for (size_t id = 1; id < kHookCount; ++id) {
    if (std::strcmp(kHooks[id].symbol, symbol) == 0) return static_cast<HookId>(id);
  }
  return HookId::none;
}

bool from_cuda_library(const void* real) {
  const LoadedObject object = object_of(real);
  if (!object) return false;
  const char* const name = soname(object);
  return std::strncmp(name, "libcuda.so", 10) == 0 || std::strncmp(name, "libcudart", 9) == 0;
}

void* wrap(HookId id, void* real) {
  const int slot = bind_slot(id, real);
  if (slot < 0) {
    count_unhooked(info(id).symbol);
    return real;
  }
  count_hooked();
  return wrapper_of(id, slot);
}

bool is_driver_function(HookId id, const char* base) {
  return info(id).library == Library::driver && std::strcmp(info(id).base, base) == 0;
}

// The row whose exported function in the same library is `real`: certain.
HookId hook_by_pointer(const char* base, const void* real) {
  const LoadedObject library = object_of(real);
  for (size_t index = 1; index < kHookCount; ++index) {
    const auto id = static_cast<HookId>(index);
    if (!is_driver_function(id, base)) continue;
    if (find_symbol(library, info(id).symbol) == real) return id;
  }
  return HookId::none;
}

bool has_flavour(const char* base, Flavour flavour) {
  for (size_t index = 1; index < kHookCount; ++index) {
    const auto id = static_cast<HookId>(index);
    if (is_driver_function(id, base) && info(id).flavour == flavour) return true;
  }
  return false;
}

// True for a driver function of which at least one ABI is hooked.
bool has_hooks(const char* base) { return has_flavour(base, Flavour::plain); }

// The row by version and flags, for drivers whose answers are not their exported functions.
HookId hook_by_version(const char* base, int version, uint64_t flags) {
  if (version == kUnknownVersion || version > kNewestKnownVersion || flags > kPerThreadFlag) {
    return HookId::none;
  }
  const bool ptsz = flags == kPerThreadFlag && has_flavour(base, Flavour::ptsz);
  const Flavour flavour = ptsz ? Flavour::ptsz : Flavour::plain;
  HookId best = HookId::none;
  for (size_t index = 1; index < kHookCount; ++index) {
    const auto id = static_cast<HookId>(index);
    if (!is_driver_function(id, base) || info(id).flavour != flavour) continue;
    if (info(id).since > version) continue;
    if (best == HookId::none || info(id).since > info(best).since) best = id;
  }
  return best;
}

// An answer that is another exported function of that name, of an ABI that has no row (cuMemAlloc
// before 3.2), must not be taken for the row that the version suggests.
bool is_old_twin(const char* base, const void* real) {
  return find_symbol(object_of(real), base) == real;
}

// Names of CUDA's and of PyTorch's functions that this library exports.
bool is_hooked_name(const char* name) {
  constexpr char kTorch[] = "_ZN3c10";
  return is_cuda_name(name) || std::strncmp(name, kTorch, sizeof kTorch - 1) == 0;
}

// A child of the process that asked first. Another thread of its parent may have held the loader's
// lock, which is then held for ever.
bool is_forked_child() {
  static constinit std::atomic<pid_t> first{0};
  pid_t known = 0;
  const pid_t own = getpid();
  return !first.compare_exchange_strong(known, own) && known != own;
}

// In a forked child only what the global scope has counts: CUDA does not work there anyway.
bool is_defined_beside_us(const char* name) {
  if (is_forked_child()) return false;
  return for_each_object(
      [](const LoadedObject& object, void* context) {
        const void* const found = find_symbol(object, static_cast<const char*>(context));
        return found != nullptr && !is_ours(found);
      },
      const_cast<char*>(name));
}

// The loader knows the program by an empty name.
bool is_of_library(const void* address) {
  if (address == nullptr) return false;
  const LoadedObject object = object_of(address);
  return !object || object.path[0] != '\0';
}

}  // namespace

void* substitute_symbol(const char* name, void* real) noexcept {
  if (real == nullptr || name == nullptr || !is_cuda_name(name) || is_ours(real)) return real;
  const HookId id = hook_of_symbol(name);
  if (id == HookId::none) {
    const bool counts = has_hooks(name) || is_known_unhooked(name) || is_unknown_name(name);
    if (counts && from_cuda_library(real)) count_unhooked(name);
    return real;
  }
  return from_cuda_library(real) ? wrap(id, real) : real;
}

void* substitute_function(const char* base, int version, uint64_t flags, void* real) noexcept {
  if (real == nullptr || base == nullptr || !is_cuda_name(base) || is_ours(real)) return real;
  if (!has_hooks(base)) {
    if (is_known_unhooked(base) || is_unknown_name(base)) count_unhooked(base);
    return real;
  }
  HookId id = hook_by_pointer(base, real);
  if (id == HookId::none && !is_old_twin(base, real)) id = hook_by_version(base, version, flags);
  if (id != HookId::none) return wrap(id, real);
  count_unhooked(base);
  return real;
}

}  // namespace fragscope::shim

extern "C" {

// Called from lookup_entry.cpp for RTLD_DEFAULT and RTLD_NEXT. The name itself; or, since no
// library has it but this one and the program must be told that there is no such function, the same
// with a blank behind it, which no library has. Afterwards the entry's pointers to the real
// functions are set. `caller`: where the look-up returns to, whose scope counts; null: the global
// one.
__attribute__((visibility("hidden"), used)) const char* fragscope_name_to_ask(const char* name,
                                                                              const void* caller) {
  using namespace fragscope::shim;
  static thread_local char absent[96];
  const ErrnoKeeper keep;
  const DlsymFunction real = real_dlsym();
  static_cast<void>(real_dlvsym());
  if (name == nullptr || !is_hooked_name(name)) return name;
  const LoadedObject own = object_of(reinterpret_cast<const void*>(&fragscope_name_to_ask));
  if (find_symbol(own, name) == nullptr) return name;
  if (real != nullptr && real(RTLD_NEXT, name) != nullptr) return name;
  // Not behind us in the global scope, which is all that the program itself sees; a library may see
  // what was loaded with it.
  const size_t length = std::strlen(name);
  if (length + 2 > sizeof absent) return name;
  if (is_of_library(caller) && is_defined_beside_us(name)) return name;
  std::memcpy(absent, name, length);
  absent[length] = ' ';
  absent[length + 1] = '\0';
  return absent;
}

// The message of a look-up that was asked with a blank behind the name: as it is without us. The
// text is the C library's, made for this call and the caller's to read.
FRAGSCOPE_EXPORT char* dlerror() noexcept {
  using namespace fragscope::shim;
  const ErrnoKeeper keep;
  const DlerrorFunction real = real_dlerror();
  char* const text = real != nullptr ? real() : nullptr;
  constexpr char kBefore[] = "undefined symbol: ";
  char* const before = text != nullptr ? std::strstr(text, kBefore) : nullptr;
  char* const name = before != nullptr ? before + sizeof kBefore - 1 : nullptr;
  char* const blank = name != nullptr ? std::strchr(name, ' ') : nullptr;
  if (blank == nullptr || (blank[1] != '\0' && blank[1] != ',')) return text;
  *blank = '\0';
  const bool ours = is_hooked_name(name);
  *blank = ' ';
  if (ours) std::memmove(blank, blank + 1, std::strlen(blank));
  return text;
}

// Jumped to from lookup_entry.cpp with the caller's arguments.
__attribute__((visibility("hidden"), used)) void* fragscope_dlsym(void* handle, const char* name) {
  using namespace fragscope::shim;
  const DlsymFunction real = real_dlsym();
  if (real == nullptr) return nullptr;
  void* const found = real(handle, name);
  if (is_ours(found)) {
    if (const char* const asked = fragscope_name_to_ask(name, nullptr); asked != name) {
      return real(handle, asked);
    }
  }
  const ErrnoKeeper keep;
  // After a success there is no dlerror() of the host's to keep.
  if (found != nullptr && name != nullptr && is_cuda_name(name)) load_what_recording_needs();
  return substitute_symbol(name, found);
}

__attribute__((visibility("hidden"), used)) void* fragscope_dlvsym(void* handle, const char* name,
                                                                   const char* version) {
  using namespace fragscope::shim;
  const DlvsymFunction real = real_dlvsym();
  if (real == nullptr) return nullptr;
  void* const found = real(handle, name, version);
  if (is_ours(found)) {
    if (const char* const asked = fragscope_name_to_ask(name, nullptr); asked != name) {
      return real(handle, asked, version);
    }
  }
  const ErrnoKeeper keep;
  return substitute_symbol(name, found);
}

}  // extern "C"
