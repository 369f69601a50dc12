#include "shim/elf_lookup.h"

#include <elf.h>

#include <cstring>

extern "C" {
// Put there by the linker.
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
}

namespace fragscope::shim {
namespace {

struct SymbolTables {
  const char* strings = nullptr;
  const ElfW(Sym) * symbols = nullptr;
  const ElfW(Versym) * versions = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* sysv_hash = nullptr;
};

// glibc relocates these entries in place, unless the dynamic section is read-only (vdso).
template <typename T>
const T* pointer_of(const LoadedObject& object, const ElfW(Dyn) & entry) {
  const uintptr_t value = entry.d_un.d_ptr;
  return reinterpret_cast<const T*>(value < object.base ? value + object.base : value);
}

SymbolTables tables_of(const LoadedObject& object) {
  SymbolTables tables;
  for (const ElfW(Dyn)* entry = object.dynamic; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_STRTAB:
        tables.strings = pointer_of<char>(object, *entry);
        break;
      case DT_SYMTAB:
        tables.symbols = pointer_of<ElfW(Sym)>(object, *entry);
        break;
      case DT_VERSYM:
        tables.versions = pointer_of<ElfW(Versym)>(object, *entry);
        break;
      case DT_GNU_HASH:
        tables.gnu_hash = pointer_of<uint32_t>(object, *entry);
        break;
      case DT_HASH:
        tables.sysv_hash = pointer_of<uint32_t>(object, *entry);
        break;
      default:
        break;
    }
  }
  return tables;
}

bool matches(const SymbolTables& tables, uint32_t index, const char* name) {
  const ElfW(Sym)& symbol = tables.symbols[index];
  if (symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0) return false;
  const auto type = ELF64_ST_TYPE(symbol.st_info);
  if (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE) return false;
  constexpr uint16_t kHidden = 0x8000;  // not the default version
  if (tables.versions != nullptr && (tables.versions[index] & kHidden) != 0) return false;
  return std::strcmp(tables.strings + symbol.st_name, name) == 0;
}

uint32_t gnu_hash_of(const char* name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

uint32_t search_gnu_hash(const SymbolTables& tables, const char* name) {
  const uint32_t* table = tables.gnu_hash;
  const uint32_t buckets = table[0];
  const uint32_t first = table[1];
  const uint32_t bloom_words = table[2];
  const uint32_t* bucket = table + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = bucket + buckets;
  if (buckets == 0) return 0;
  const uint32_t hash = gnu_hash_of(name);
  uint32_t index = bucket[hash % buckets];
  if (index < first) return 0;
  for (;; ++index) {
    const uint32_t entry = chain[index - first];
    if ((entry | 1) == (hash | 1) && matches(tables, index, name)) return index;
    if ((entry & 1) != 0) return 0;
  }
}

uint32_t search_all(const SymbolTables& tables, const char* name) {
  const uint32_t count = tables.sysv_hash[1];
  for (uint32_t index = 1; index < count; ++index) {
    if (matches(tables, index, name)) return index;
  }
  return 0;
}

struct Visit {
  bool (*visit)(const LoadedObject&, void*);
  void* context;
};

LoadedObject describe(const dl_phdr_info& info) {
  LoadedObject object;
  object.base = info.dlpi_addr;
  object.path = info.dlpi_name != nullptr ? info.dlpi_name : "";
  object.start = UINTPTR_MAX;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    const uintptr_t start = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_DYNAMIC) object.dynamic = reinterpret_cast<const ElfW(Dyn)*>(start);
    if (header.p_type != PT_LOAD) continue;
    if (start < object.start) object.start = start;
    if (start + header.p_memsz > object.end) object.end = start + header.p_memsz;
  }
  return object;
}

int on_object(dl_phdr_info* info, size_t, void* data) {
  const auto* visit = static_cast<const Visit*>(data);
  const LoadedObject object = describe(*info);
  return object && visit->visit(object, visit->context) ? 1 : 0;
}

struct Search {
  const char* prefix;
  const void* address;
  LoadedObject found;
};

bool has_prefix(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

struct BuildIdSearch {
  uintptr_t base;
  char* out;
};

size_t align4(size_t value) { return (value + 3) & ~size_t{3}; }

// One PT_NOTE segment; true when it held the build-id.
bool read_build_id(const char* note, size_t bytes, char* out) {
  while (bytes >= sizeof(ElfW(Nhdr))) {
    const auto* header = reinterpret_cast<const ElfW(Nhdr)*>(note);
    const char* name = note + sizeof *header;
    const char* data = name + align4(header->n_namesz);
    const size_t total = sizeof *header + align4(header->n_namesz) + align4(header->n_descsz);
    if (total > bytes) return false;
    if (header->n_type == NT_GNU_BUILD_ID && header->n_namesz == 4 &&
        std::memcmp(name, "GNU", 4) == 0 && header->n_descsz <= 32) {
      for (size_t i = 0; i < header->n_descsz; ++i) {
        constexpr char kDigits[] = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(data[i]);
        *out++ = kDigits[byte >> 4];
        *out++ = kDigits[byte & 15];
      }
      *out = '\0';
      return true;
    }
    note += total;
    bytes -= total;
  }
  return false;
}

int on_notes(dl_phdr_info* info, size_t, void* data) {
  const auto* search = static_cast<const BuildIdSearch*>(data);
  if (info->dlpi_addr != search->base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* note = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    if (read_build_id(note, header.p_memsz, search->out)) break;
  }
  return 1;
}

}  // namespace

bool for_each_object(bool (*visit)(const LoadedObject&, void*), void* context) noexcept {
  Visit wrapped{visit, context};
  return dl_iterate_phdr(on_object, &wrapped) != 0;
}

LoadedObject find_object(const char* soname_prefix) noexcept {
  Search search{soname_prefix, nullptr, {}};
  for_each_object(
      [](const LoadedObject& object, void* context) {
        auto* wanted = static_cast<Search*>(context);
        if (!has_prefix(soname(object), wanted->prefix)) return false;
        wanted->found = object;
        return true;
      },
      &search);
  return search.found;
}

LoadedObject object_of(const void* address) noexcept {
  dl_find_object found{};
  if (_dl_find_object(const_cast<void*>(address), &found) != 0) return {};
  const link_map* const map = found.dlfo_link_map;
  return {map->l_addr, map->l_ld, map->l_name != nullptr ? map->l_name : "",
          reinterpret_cast<uintptr_t>(found.dlfo_map_start),
          reinterpret_cast<uintptr_t>(found.dlfo_map_end)};
}

void* find_symbol(const LoadedObject& object, const char* name) noexcept {
  if (!object) return nullptr;
  const SymbolTables tables = tables_of(object);
  if (tables.symbols == nullptr || tables.strings == nullptr) return nullptr;
  uint32_t index = 0;
  if (tables.gnu_hash != nullptr) {
    index = search_gnu_hash(tables, name);
  } else if (tables.sysv_hash != nullptr) {
    index = search_all(tables, name);
  }
  if (index == 0) return nullptr;
  return reinterpret_cast<void*>(object.base + tables.symbols[index].st_value);
}

const char* soname(const LoadedObject& object) noexcept {
  const SymbolTables tables = tables_of(object);
  for (const ElfW(Dyn)* entry = object.dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SONAME) return tables.strings + entry->d_un.d_val;
  }
  const char* slash = std::strrchr(object.path, '/');
  return slash != nullptr ? slash + 1 : object.path;
}

const char* needed(const LoadedObject& object, const char* prefix) noexcept {
  if (!object) return nullptr;
  const SymbolTables tables = tables_of(object);
  for (const ElfW(Dyn)* entry = object.dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != DT_NEEDED) continue;
    const char* name = tables.strings + entry->d_un.d_val;
    if (has_prefix(name, prefix)) return name;
  }
  return nullptr;
}

void build_id(const LoadedObject& object, char (&out)[65]) noexcept {
  out[0] = '\0';
  BuildIdSearch search{object.base, out};
  dl_iterate_phdr(on_notes, &search);
}

bool is_ours(const void* address) noexcept {
  return address >= static_cast<const void*>(__ehdr_start) &&
         address < static_cast<const void*>(_end);
}

}  // namespace fragscope::shim
