// A report for people: figures with their definitions, what stands out, pictures of the segments.
#pragma once

#include <cstddef>
#include <string>

#include "report/report_data.h"

namespace fragscope::report {

struct TextStyle {
  size_t width = 100;  // columns
  bool color = false;  // only for a terminal
  bool utf8 = true;
  size_t map_rows = 16;  // segments per picture
};

std::string render_text(const ReportData& report, const TextStyle& style = {});

// "the trace is damaged at byte 9, only 5 of 7 events could be read".
std::string damage_text(const DamageData& damage);

}  // namespace fragscope::report
