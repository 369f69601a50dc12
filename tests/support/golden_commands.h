// Golden command lists: tests/golden/model/*.txt. A file is a command list whose comments carry the
// answer, so that it can be read, run by `fragscope model` and compared as a whole:
//
//   #! torch 2.1 2.6 2.15        releases that all give this answer
//   #! alloc-conf max_split_size_mb:64
//   alloc a 100MiB
//   #= ok 0x200000000000 100MiB; segment_alloc 0x200000000000 100MiB
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "model/command_runner.h"

namespace fragscope::test {

struct GoldenFile {
  std::vector<std::string> versions;
  std::string settings;
  std::string commands;  // without answers
};

inline GoldenFile read_golden(std::string_view text) {
  GoldenFile file;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.rfind("#! torch ", 0) == 0) {
      std::string word;
      for (const char c : line.substr(9) + " ") {
        if (c != ' ') {
          word += c;
        } else if (!word.empty()) {
          file.versions.push_back(word);
          word.clear();
        }
      }
    } else if (line.rfind("#! alloc-conf ", 0) == 0) {
      file.settings = line.substr(14);
    }
    if (line.rfind("#=", 0) != 0) file.commands += line + "\n";
  }
  return file;
}

// Whole MiB as "12MiB", everything else as bytes.
inline std::string golden_bytes(uint64_t bytes) {
  if (bytes != 0 && bytes % kMiB == 0) return std::to_string(bytes / kMiB) + "MiB";
  return std::to_string(bytes);
}

inline std::string golden_address(uint64_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

inline std::string golden_result(const model::CommandResult& result) {
  std::string line = "#= " + result.outcome;
  if (result.address) line += " " + golden_address(*result.address);
  if (result.block_size) line += " " + golden_bytes(*result.block_size);
  for (const auto& [device, entry] : result.trace) {
    if (entry.action == model::TraceAction::kAlloc ||
        entry.action == model::TraceAction::kFreeRequested) {
      continue;  // said by the result
    }
    line += "; " + std::string(model::trace_action_name(entry.action)) + " " +
            (entry.action == model::TraceAction::kOom ? golden_bytes(entry.address) + " free"
                                                      : golden_address(entry.address)) +
            " " + golden_bytes(entry.size);
    if (entry.stream != 0) line += " stream " + std::to_string(entry.stream);
  }
  if (!result.message.empty()) line += "\n#= \"" + result.message + "\"";
  return line + "\n";
}

inline std::string golden_end(const model::DeviceResult& device,
                              const model::VersionProfile& profile) {
  std::string text = "#= device " + std::to_string(device.device) + "\n";
  for (const model::SegmentSnapshot& segment : device.segments) {
    text += "#= " + std::string(segment.kind == model::PoolKind::kSmall ? "small" : "large") +
            (segment.is_expandable ? " range " : " segment ") + golden_address(segment.address) +
            " " + golden_bytes(segment.total_size) + " stream " + std::to_string(segment.stream) +
            ":";
    for (const model::BlockSnapshot& block : segment.blocks) {
      const bool allocated = block.state == model::BlockState::kAllocated;
      const bool pending = block.state == model::BlockState::kPendingFree;
      text += std::string(allocated ? " used "
                          : pending ? " pending "
                                    : " free ") +
              golden_bytes(block.size);
    }
    text += "\n";
  }
  model::visit_stats(device.stats, profile, [&](const std::string& name, int64_t value) {
    const bool told = name.find("_pool.") == std::string::npos && value != 0;
    if (told) text += "#= " + name + " " + std::to_string(value) + "\n";
  });
  return text;
}

// The file's text with the answers of `result` in place.
inline std::string annotate(const GoldenFile& file, const model::ListResult& result,
                            const model::VersionProfile& profile) {
  std::string text;
  std::string_view rest = file.commands;
  size_t next = 0;
  for (uint32_t line = 1; !rest.empty(); ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    text += std::string(rest.substr(0, end)) + "\n";
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (next < result.results.size() && result.results[next].command.line == line) {
      text += golden_result(result.results[next++]);
    }
  }
  for (const model::DeviceResult& device : result.devices) text += golden_end(device, profile);
  return text;
}

}  // namespace fragscope::test
