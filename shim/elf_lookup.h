// Loaded objects and their own symbol tables, read without dlopen or dlsym: those are overridden
// here, would leave an error behind for the host's dlerror() and cannot see past a preload.
//
// Threads: any. Locks: the loader's short one inside dl_iterate_phdr. Nothing is allocated and no
// reference is taken: what is found lives as long as the host keeps it loaded.
#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>

namespace fragscope::shim {

struct LoadedObject {
  uintptr_t base = 0;
  const ElfW(Dyn) * dynamic = nullptr;
  const char* path = "";  // as the loader knows it; valid while the object is loaded
  uintptr_t start = 0;    // addresses of its segments
  uintptr_t end = 0;

  explicit operator bool() const { return dynamic != nullptr; }
};

// First loaded object whose soname (file name, when it has none) starts with `prefix`.
LoadedObject find_object(const char* soname_prefix) noexcept;
// The one that contains `address`. Takes no lock: also in a forked child, whose parent's other
// threads may have held the loader's.
LoadedObject object_of(const void* address) noexcept;
// Calls visit(object, context) for each until it returns true; true when one did.
bool for_each_object(bool (*visit)(const LoadedObject&, void*), void* context) noexcept;

// Address of the default version of a defined function or variable; nullptr when it has none.
void* find_symbol(const LoadedObject& object, const char* name) noexcept;

// DT_SONAME, or the file name.
const char* soname(const LoadedObject& object) noexcept;
// First DT_NEEDED that starts with `prefix`; nullptr when there is none.
const char* needed(const LoadedObject& object, const char* prefix) noexcept;
// GNU build-id in lower-case hex; "" when it has none. `out` takes 2 * 32 + 1 bytes.
void build_id(const LoadedObject& object, char (&out)[65]) noexcept;

// True for addresses inside libfragscope.so itself.
bool is_ours(const void* address) noexcept;

}  // namespace fragscope::shim
