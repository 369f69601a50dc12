#include "tests/oracle/compare.h"

#include "tests/support/answer_digest.h"

namespace fragscope::oracle {

std::string first_difference(const model::ListResult& from_model,
                             const model::ListResult& from_library,
                             const model::VersionProfile& profile) {
  const auto ours = test::normal_lines(from_model, profile);
  const auto theirs = test::normal_lines(from_library, profile);
  for (size_t i = 0; i < ours.size() || i < theirs.size(); ++i) {
    const std::string a = i < ours.size() ? ours[i] : "";
    const std::string b = i < theirs.size() ? theirs[i] : "";
    if (a != b) return "model:   " + a + "\nlibrary: " + b + "\n";
  }
  return {};
}

}  // namespace fragscope::oracle
