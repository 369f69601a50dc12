// fragscope explain [FILE|-]: an error message, a log that contains one, or a recorded run, put
// into words.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "diagnose/explain_json.h"
#include "diagnose/explain_text.h"
#include "diagnose/oom_message.h"
#include "diagnose/verdict.h"
#include "tools/command.h"
#include "tools/explain_run.h"

namespace fragscope::tools {
namespace {

using diagnose::Explanation;
using diagnose::MessageScan;

struct ExplainOptions {
  std::string file = "-";
  std::string context;
  bool json = false;
};

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};

struct TextSeen {
  uint64_t bytes = 0;
  bool binary = false;  // a NUL: no log and no message of a person's
};

// Feeds the whole file in pieces; the scanner's memory does not grow with it.
Result<TextSeen> read_text(const std::string& name, diagnose::MessageScanner& scanner) {
  TextSeen seen;
  const bool from_stdin = name == "-";
  const std::string shown = from_stdin ? "standard input" : "'" + name + "'";
  const auto error = [&shown](int code) {
    const ErrorCode kind = code == EACCES ? ErrorCode::kPermission : ErrorCode::kNotFound;
    return Error{kind, shown + " cannot be read: " + std::strerror(code)};
  };
  const std::unique_ptr<std::FILE, CloseFile> file(from_stdin ? stdin
                                                              : std::fopen(name.c_str(), "rb"));
  if (!file) return error(errno);
  std::vector<char> buffer(size_t{256} * 1024);
  while (true) {
    const size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get());
    scanner.feed({buffer.data(), count});
    seen.bytes += count;
    seen.binary |= std::memchr(buffer.data(), 0, count) != nullptr;
    if (count == buffer.size()) continue;
    if (std::ferror(file.get()) != 0) return error(errno);
    return seen;
  }
}

// Input that can hold no message is bad input, as for every other command.
int no_message(const ExplainOptions& options, const TextSeen& seen) {
  const std::string shown = options.file == "-" ? "standard input" : "'" + options.file + "'";
  if (seen.bytes == 0) return fail(shown + " is empty: no message to explain", kExitInput);
  if (seen.binary) {
    return fail(
        shown + " is binary, and neither a recorded run nor a snapshot: no message to explain",
        kExitInput);
  }
  return fail("no out-of-memory message found in " + shown, kExitNo);
}

Explanation nothing_found() {
  Explanation out;
  out.why.emplace_back("The text contains no message about missing memory that is known.");
  return out;
}

int print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return kExitOk;
  return fail("standard output cannot be written", kExitOutput);
}

int explain_text(const ExplainOptions& options) {
  if (options.file != "-" && is_recorded_run(options.file)) {
    return explain_run(options.file, options.json);
  }
  diagnose::MessageScanner scanner;
  const Result<TextSeen> read = read_text(options.file, scanner);
  if (!read) return fail(read.error(), kExitInput);
  if (!options.context.empty()) scanner.add_context(options.context);
  const MessageScan scan = scanner.finish();
  if (!scan.message) {
    if (options.json) {
      const int code = print(explanation_json(scan, nothing_found()) + "\n");
      if (code != kExitOk) return code;
    }
    return no_message(options, read.value());
  }
  const Explanation explanation = diagnose::explain(scan);
  return print(options.json ? explanation_json(scan, explanation) + "\n"
                            : explanation_text(scan, explanation));
}

}  // namespace

void add_explain_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand(
      "explain", "Say why memory ran out and what to do: of a message, a log or a run");
  command->add_option(
      "FILE", options->file,
      "Error message, a log that contains one, or a recorded run; - is standard input");
  command->add_option("--context", options->context,
                      "What else is known: settings, other programs on the card, what was tried");
  command->add_flag("--json", options->json, "Print the explanation as JSON");
  command->callback([options, &context] { context.exit_code = explain_text(*options); });
}

}  // namespace fragscope::tools
