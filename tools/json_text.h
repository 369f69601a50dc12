// JSON as every command prints it: keys in the order of writing, two blanks a level, one line feed
// at the end; bytes that are no UTF-8 are replaced; what is unknown is null.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace fragscope::tools {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

inline std::string document_text(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fragscope::tools
