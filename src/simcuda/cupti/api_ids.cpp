#include "simcuda/cupti/api_ids.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace fragscope::simcuda::cupti {

namespace {

struct Row {
  uint32_t id;
  const char* name;
};
#define API_ID(id, name) {id, #name},
#if FRAGSCOPE_CUPTI_MAJOR >= 13
#define API_ID_12(id, name)
#define API_ID_13 API_ID
#else
#define API_ID_12 API_ID
#define API_ID_13(id, name)
#endif
constexpr Row kDriverRows[] = {
#include "simcuda/cupti/driver_api_ids.def"
};
constexpr Row kRuntimeRows[] = {
#include "simcuda/cupti/runtime_api_ids.def"
};
#undef API_ID
#undef API_ID_12
#undef API_ID_13

// The runtime's names end in the version that introduced them: _v3020.
std::string_view without_version(std::string_view name) {
  constexpr size_t kFewestDigits = 4;
  const size_t at = name.rfind("_v");
  if (at == std::string_view::npos || name.size() - at - 2 < kFewestDigits) return name;
  return name.substr(0, at);
}

using Index = std::unordered_map<std::string_view, uint32_t>;
template <typename Spelling>
const Index* make_index(const Row* begin, const Row* end, Spelling spelling) {
  auto* index = new Index;  // used until the process ends
  std::for_each(begin, end, [&](const Row& row) { (*index)[spelling(row.name)] = row.id; });
  return index;
}

const Index& index_of(ApiDomain domain) {
  static const Index* driver = make_index(std::begin(kDriverRows), std::end(kDriverRows),
                                          [](const char* name) { return std::string_view(name); });
  static const Index* runtime =
      make_index(std::begin(kRuntimeRows), std::end(kRuntimeRows), without_version);
  return domain == ApiDomain::kDriver ? *driver : *runtime;
}

template <size_t N>
const char* find_name(const Row (&rows)[N], uint32_t id) {
  const Row* found =
      std::find_if(std::begin(rows), std::end(rows), [id](const Row& row) { return row.id == id; });
  return found == std::end(rows) ? nullptr : found->name;
}

template <size_t N>
constexpr bool fit(const Row (&rows)[N]) {
  return std::all_of(std::begin(rows), std::end(rows),
                     [](const Row& row) { return row.id < kMostApiIds; });
}
static_assert(fit(kDriverRows) && fit(kRuntimeRows));

}  // namespace

uint32_t api_id(ApiDomain domain, const char* function) {
  const Index& index = index_of(domain);
  const auto found = index.find(function);
  return found == index.end() ? 0 : found->second;
}

const char* api_name(ApiDomain domain, uint32_t id) {
  return domain == ApiDomain::kDriver ? find_name(kDriverRows, id) : find_name(kRuntimeRows, id);
}

}  // namespace fragscope::simcuda::cupti
