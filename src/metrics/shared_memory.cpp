#include "metrics/shared_memory.h"

namespace fragscope::metrics {

void SharedMemory::feed(const Event& event) {
  if (event.result != 0 && event.result != kResultPending) return;
  switch (event.kind) {
    case EventKind::device_alloc:
    case EventKind::async_alloc:
      if (event.address != kUnknown && event.size != kUnknown) live_[event.address] = event.size;
      return;
    case EventKind::device_free:
    case EventKind::async_free:
    case EventKind::ipc_close:
      live_.erase(event.address);
      if (const auto at = open_at_.find(event.address); at != open_at_.end()) {
        opened_[at->second].closed = true;
        open_at_.erase(at);
      }
      return;
    case EventKind::ipc_export: {
      if (event.aux == kUnknown) return;
      const auto own = live_.find(event.address);
      exports_[event.aux] = own == live_.end() ? std::nullopt : std::optional(own->second);
      return;
    }
    case EventKind::ipc_open:
      if (event.address == kUnknown || open_at_.count(event.address) != 0) return;
      open_at_[event.address] = opened_.size();
      opened_.push_back({event.aux, event.seq, false});
      return;
    case EventKind::phys_export:
    case EventKind::pool_export:
      ++handles_exported_;
      return;
    case EventKind::phys_import:
    case EventKind::pool_import:
      ++handles_imported_;
      return;
    case EventKind::external_import:
      if (event.address == kUnknown || event.size == kUnknown) return;
      external_at_[event.address] = event.size;
      external_.rise(event.size, event.seq);
      return;
    case EventKind::external_destroy:
      if (const auto at = external_at_.find(event.address); at != external_at_.end()) {
        external_.fall(at->second);
        external_at_.erase(at);
      }
      return;
    default:
      return;
  }
}

}  // namespace fragscope::metrics
