// Tells the recorder, if one is preloaded, which blocks are served, and hears from it which
// settings `fragscope ctl set` asks for.
//
// Threads: any.
#pragma once

#include "enforce/block_sink.h"

namespace fragscope::alloc {

class BlockReport final : public enforce::BlockSink {
 public:
  explicit BlockReport(int device) : device_(device) {}

  void on_alloc(const enforce::BlockAlloc& block) override;
  void on_free_requested(uint64_t stream, uint64_t address, uint64_t requested) override;
  void on_free_completed(uint64_t stream, uint64_t address, uint64_t requested) override;
  void on_segment_alloc(uint64_t stream, uint64_t address, uint64_t size) override;
  void on_segment_free(uint64_t stream, uint64_t address, uint64_t size) override;
  void on_oom(uint64_t stream, uint64_t requested, uint64_t device_free) override;

 private:
  int device_;
};

bool recorder_is_there();
// A fact of the run: "enforce=pluggable".
void report_property(const char* key, const char* value);

}  // namespace fragscope::alloc
