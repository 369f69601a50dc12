#include "simcuda/fault_script.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

#include "simcuda/text_rows.h"

namespace fragscope::simcuda {

namespace {

struct Alias {
  std::string_view function;
  std::string_view point;
};
constexpr Alias kAliases[] = {
#define FAULT_POINT(function, point) {#function, #point},
#include "simcuda/fault_points.def"
#undef FAULT_POINT
};

std::string_view without_suffix(std::string_view name) {
  for (const std::string_view suffix : {"_ptsz", "_ptds", "_v2", "_v3", "_v4"}) {
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  }
  return name;
}

bool is_name_of_error(std::string_view text) {
  return text.starts_with("CUDA_ERROR_") &&
         text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string_view::npos;
}

bool is_function(std::string_view text) {
  if (text.starts_with("cuda")) {
    return std::any_of(std::begin(kAliases), std::end(kAliases),
                       [&](const Alias& alias) { return alias.function == text; });
  }
  return text.starts_with("cu") && text.size() > 2 && text[2] >= 'A' && text[2] <= 'Z';
}

bool set_action(FaultRow& row, std::string_view action, std::string_view value) {
  if (action == "slow") {
    row.action = FaultRow::Action::kSlow;
    return read_number(value, row.milliseconds) && row.milliseconds <= 3'600'000;
  }
  if (action != "fail" && action != "lost") return false;
  if (action == "lost") row.action = FaultRow::Action::kLost;
  row.error = value;
  return is_name_of_error(value);
}

std::optional<FaultRow> parse_row(const std::vector<std::string_view>& words) {
  FaultRow row;
  if (words.size() != 4 || !is_function(words[0])) return std::nullopt;
  row.point = fault_point(words[0]);
  std::string_view call = words[1];
  row.later_too = call.ends_with('+');
  if (row.later_too) call.remove_suffix(1);
  if (!read_number(call, row.call) || row.call == 0) return std::nullopt;
  return set_action(row, words[2], words[3]) ? std::optional(row) : std::nullopt;
}

}  // namespace

std::string fault_point(std::string_view function) {
  const std::string_view plain = without_suffix(function);
  for (const Alias& alias : kAliases) {
    if (alias.function == plain) return std::string(alias.point);
  }
  return std::string(plain);
}

Result<std::vector<FaultRow>> parse_faults(std::string_view text, const std::string& source) {
  return parse_rows<FaultRow>(
      text, source, parse_row,
      "not 'FUNCTION CALL ACTION VALUE' (CALL from 1, or \"5+\"; ACTION fail or lost with a "
      "CUDA_ERROR_ name, or slow with milliseconds; FUNCTION of the driver, or one of the runtime "
      "that src/simcuda/fault_points.def names)");
}

Result<std::vector<FaultRow>> read_faults(const std::string& path) {
  const auto text = read_text(path);
  if (!text.ok()) return text.error();
  return parse_faults(*text, path);
}

const FaultRow* FaultScript::next(std::string_view point) {
  calls_.resize(rows_.size());
  const FaultRow* met = lost_;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const FaultRow& row = rows_[i];
    if (row.point != point) continue;
    const uint64_t call = ++calls_[i];
    const bool now = call == row.call || (row.later_too && call > row.call);
    if (!now || met != nullptr) continue;
    met = &row;
    if (row.action == FaultRow::Action::kLost) lost_ = &row;
  }
  return met;
}

}  // namespace fragscope::simcuda
