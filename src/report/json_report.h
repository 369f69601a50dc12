// A report as JSON, schema 1: SCHEMA.md. One document, integers for every byte figure, null for
// whatever is unknown.
#pragma once

#include <string>

#include "report/report_data.h"

namespace fragscope::report {

inline constexpr int kReportSchema = 1;

// Ends in '\n'. Text that is not UTF-8 has its damaged bytes replaced by U+FFFD.
std::string render_json(const ReportData& report);

}  // namespace fragscope::report
