// The file a trace is written to. A write that the disk refuses leaves the file as it was before,
// so that it ends with its last whole chunk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "trace/trace_writer.h"

namespace fragscope::capture {

class TraceFile final : public trace::ByteSink {
 public:
  // Creates `path` (0600, must not exist, links are not followed).
  static Result<std::unique_ptr<TraceFile>> create(const std::string& path);
  ~TraceFile() override;
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Never raises SIGXFSZ: RLIMIT_FSIZE is asked first.
  Status write(std::span<const std::byte> bytes) override;
  uint64_t size() const { return size_; }
  // Waits until all of it is on the disk.
  Status sync();

 private:
  TraceFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
  uint64_t size_ = 0;
};

}  // namespace fragscope::capture
