#include "metrics/driver_bytes.h"

#include <iterator>

namespace fragscope::metrics {
namespace {

// A free that had not returned when the record ends counts as done: it was logged before the call.
bool failed(const Event& event) { return event.result != 0 && event.result != kResultPending; }

}  // namespace

void DriverBytes::feed(const Event& event) {
  if (failed(event) || (event.flags & kFlagServed)) return;
  switch (event.kind) {
    case EventKind::device_alloc:
    case EventKind::async_alloc:
      begin(event);
      return;
    case EventKind::device_free:
    case EventKind::async_free:
      end(event.address);
      return;
    case EventKind::phys_create:
      begin_physical(event);
      return;
    case EventKind::phys_release:
      if (const auto at = physical_.find(event.address); at != physical_.end()) {
        at->second.released = true;
        drop_if_unused(event.address);
      }
      return;
    case EventKind::va_map:
      map(event);
      return;
    case EventKind::va_unmap:
      unmap(event);
      return;
    case EventKind::context_destroy:
      end_device(event.device);
      return;
    default:
      return;
  }
}

void DriverBytes::begin(const Event& event) {
  if (event.address == kUnknown || event.size == kUnknown || event.address == 0) return;
  end(event.address);  // handed out again, so it was free: its free was not seen
  live_[event.address] = {event.size, event.device};
  devices_[event.device].rise(event.size, event.seq);
}

void DriverBytes::end(uint64_t address) {
  const auto at = live_.find(address);
  if (at == live_.end()) return;
  devices_[at->second.device].fall(at->second.size);
  live_.erase(at);
}

void DriverBytes::begin_physical(const Event& event) {
  if (event.address == kUnknown || event.size == kUnknown) return;
  if (const auto old = physical_.find(event.address); old != physical_.end()) {
    devices_[old->second.device].fall(old->second.size);
  }
  physical_[event.address] = {event.size, event.device, 0, false};
  devices_[event.device].rise(event.size, event.seq);
}

void DriverBytes::drop_if_unused(uint64_t handle) {
  const auto at = physical_.find(handle);
  if (at == physical_.end() || !at->second.released || at->second.maps > 0) return;
  devices_[at->second.device].fall(at->second.size);
  physical_.erase(at);
}

void DriverBytes::map(const Event& event) {
  const auto physical = physical_.find(event.aux);
  if (physical == physical_.end() || event.address == kUnknown || event.size == kUnknown) return;
  if (!mappings_.emplace(event.address, Mapping{event.size, event.aux}).second) return;
  ++physical->second.maps;
}

void DriverBytes::unmap(const Event& event) {
  if (event.address == kUnknown || event.size == kUnknown) return;
  for (auto at = mappings_.lower_bound(event.address);
       at != mappings_.end() && at->first - event.address < event.size;) {
    const uint64_t handle = at->second.handle;
    at = mappings_.erase(at);
    if (const auto physical = physical_.find(handle); physical != physical_.end()) {
      --physical->second.maps;
      drop_if_unused(handle);
    }
  }
}

void DriverBytes::end_device(int32_t device) {
  std::erase_if(live_, [&](const auto& entry) { return entry.second.device == device; });
  std::erase_if(mappings_, [&](const auto& entry) {
    const auto physical = physical_.find(entry.second.handle);
    return physical == physical_.end() || physical->second.device == device;
  });
  std::erase_if(physical_, [&](const auto& entry) { return entry.second.device == device; });
  if (const auto at = devices_.find(device); at != devices_.end()) at->second.set(0, 0);
}

}  // namespace fragscope::metrics
