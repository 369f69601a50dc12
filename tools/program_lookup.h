// Which file a command line starts, and which Python runs it, found the way the shell and the
// kernel find them: PATH, then `#!` lines.
//
// Nothing is executed. Errors: as values; what cannot be told is nullopt.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fragscope::tools {

// argv[0] as execvp() would find it. kNotFound: no such file; kPermission: there, and not
// executable (a directory, no x bit).
Result<std::string> find_program(const std::string& name, std::string_view path_variable);

// The Python interpreter that will run `command`: argv[0] itself, the interpreter of its `#!` line
// (also behind /usr/bin/env and pip's /bin/sh trampolines), or the first Python on the command line
// of a known launcher (env, nice, timeout, …). Virtual environments are told by the path, so links
// are not resolved.
std::optional<std::string> find_python(const std::vector<std::string>& command,
                                       std::string_view path_variable);

// Why a preloaded library cannot get into this program: it is static, or set-uid; nullopt when
// nothing speaks against it (or the file cannot be read).
std::optional<std::string> why_not_preloadable(const std::string& program);

}  // namespace fragscope::tools
