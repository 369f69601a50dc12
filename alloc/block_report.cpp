#include "alloc/block_report.h"

#include "shim/fragscope_api.h"

namespace fragscope::alloc {

void BlockReport::on_alloc(const enforce::BlockAlloc& block) {
  fragscope_block_alloc(device_, block.stream, block.address, block.size, block.requested,
                        block.allocated, block.reserved);
}

void BlockReport::on_free_requested(uint64_t stream, uint64_t address, uint64_t) {
  fragscope_block_free_requested(device_, stream, address);
}

void BlockReport::on_free_completed(uint64_t stream, uint64_t address, uint64_t) {
  fragscope_block_free_completed(device_, stream, address);
}

void BlockReport::on_segment_alloc(uint64_t stream, uint64_t address, uint64_t size) {
  fragscope_segment_alloc(device_, stream, address, size);
}

void BlockReport::on_segment_free(uint64_t stream, uint64_t address, uint64_t size) {
  fragscope_segment_free(device_, stream, address, size);
}

void BlockReport::on_oom(uint64_t stream, uint64_t requested, uint64_t device_free) {
  fragscope_oom(device_, stream, requested, device_free);
}

bool recorder_is_there() { return fragscope_find_() != nullptr; }

void report_property(const char* key, const char* value) {
  const fragscope_api* const api = fragscope_find_();
  if (FRAGSCOPE_KNOWS_(api, property)) api->property(key, value);
}

}  // namespace fragscope::alloc
