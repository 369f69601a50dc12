// The build-id of an ELF file: the note NT_GNU_BUILD_ID that linkers leave, by which another
// machine finds the same file's symbols. An own reader of fifty lines: it takes only program
// headers and notes, which libelf would need a dependency for.
#pragma once

#include <cstdint>
#include <string>

namespace fragscope::capture {

// Lower-case hex; empty when the file is gone, is not a regular 64-bit ELF file, has none, or was
// changed after `unchanged_since_ns` (CLOCK_REALTIME; UINT64_MAX: does not matter).
std::string read_build_id(const std::string& path, uint64_t unchanged_since_ns = UINT64_MAX);

}  // namespace fragscope::capture
