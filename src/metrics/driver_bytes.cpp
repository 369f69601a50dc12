#include "metrics/driver_bytes.h"

#include <algorithm>
#include <iterator>

namespace fragscope::metrics {
namespace {

// Flags of arrays that hold no memory of their own (CUDA_ARRAY3D_SPARSE, …_DEFERRED_MAPPING).
constexpr uint64_t kMemorylessArray = 0x40 | 0x80;

// A free that had not returned when the record ends counts as done: it was logged before the call.
bool failed(const Event& event) { return event.result != 0 && event.result != kResultPending; }

bool counts_in_total(Gauge DriverAccounts::*account) {
  return account != &DriverAccounts::managed && account != &DriverAccounts::reserved &&
         account != &DriverAccounts::mapped && account != &DriverAccounts::total;
}

}  // namespace

void DriverBytes::feed(const Event& event) {
  if (failed(event) || (event.flags & kFlagServed)) return;
  switch (event.kind) {
    case EventKind::device_alloc:
      begin(event, &DriverAccounts::plain, event.size, event.aux);
      return;
    case EventKind::async_alloc:
      begin(event, &DriverAccounts::stream_ordered, event.size, kUnknown);
      return;
    case EventKind::managed_alloc:
      begin(event, &DriverAccounts::managed, event.size, event.aux);
      return;
    case EventKind::array_alloc:
      if (event.aux2 != kUnknown && (event.aux2 & kMemorylessArray) != 0) return;
      begin(event, &DriverAccounts::arrays, event.requested, event.aux);
      return;
    case EventKind::device_free:
    case EventKind::async_free:
    case EventKind::array_free:
      end(event.address);
      return;
    case EventKind::context_destroy:
      end_context(event);
      return;
    default:
      feed_virtual(event);
      feed_graph(event);
      return;
  }
}

void DriverBytes::feed_virtual(const Event& event) {
  switch (event.kind) {
    case EventKind::phys_create:
      begin_physical(event, false);
      return;
    case EventKind::phys_import:
      begin_physical(event, true);
      return;
    case EventKind::phys_retain:
      retain(event);
      return;
    case EventKind::phys_release:
      release(event.address);
      return;
    case EventKind::va_map:
      map(event);
      return;
    case EventKind::va_unmap:
      unmap(event);
      return;
    case EventKind::va_reserve:
      if (event.address == kUnknown || event.size == kUnknown) return;
      ranges_[event.address] = {event.size, event.device};
      rise(event.device, &DriverAccounts::reserved, event.size, event.seq);
      return;
    case EventKind::va_free:
      if (const auto at = ranges_.find(event.address); at != ranges_.end()) {
        fall(at->second.second, &DriverAccounts::reserved, at->second.first);
        ranges_.erase(at);
      }
      return;
    default:
      return;
  }
}

void DriverBytes::feed_graph(const Event& event) {
  switch (event.kind) {
    case EventKind::graph_alloc:
      if (event.size == kUnknown || event.aux == kUnknown) return;
      graph_nodes_[event.aux].push_back({event.address, event.size, event.device});
      return;
    case EventKind::graph_instantiate:
      instantiate(event);
      return;
    case EventKind::graph_exec_destroy:
      end_instance(event.address);
      return;
    case EventKind::graph_destroy:  // executable graphs made of it live on
      graph_nodes_.erase(event.address);
      return;
    default:
      return;
  }
}

uint64_t DriverBytes::total_now(int32_t device) const {
  const auto at = devices_.find(device);
  return at == devices_.end() ? 0 : at->second.total.current();
}

void DriverBytes::rise(int32_t device, Account account, uint64_t bytes, uint64_t seq) {
  DriverAccounts& accounts = devices_[device];
  (accounts.*account).rise(bytes, seq);
  if (counts_in_total(account)) accounts.total.rise(bytes, seq);
}

void DriverBytes::fall(int32_t device, Account account, uint64_t bytes) {
  DriverAccounts& accounts = devices_[device];
  (accounts.*account).fall(bytes);
  if (counts_in_total(account)) accounts.total.fall(bytes);
}

void DriverBytes::begin(const Event& event, Account account, uint64_t size, uint64_t context) {
  if (event.address == kUnknown || size == kUnknown || event.address == 0) return;
  end(event.address);  // handed out again, so it was free: its free was not seen
  live_[event.address] = {size, event.device, account, context};
  rise(event.device, account, size, event.seq);
}

void DriverBytes::end(uint64_t address) {
  const auto at = live_.find(address);
  if (at == live_.end()) return;
  fall(at->second.device, at->second.account, at->second.size);
  live_.erase(at);
}

void DriverBytes::begin_physical(const Event& event, bool imported) {
  if (event.address == kUnknown || (!imported && event.size == kUnknown)) return;
  const auto old = physical_.find(event.address);
  if (old != physical_.end() && !old->second.imported) {
    fall(old->second.device, &DriverAccounts::physical, old->second.size);
  }
  aliases_.erase(event.address);
  physical_[event.address] = {imported ? 0 : event.size, event.device, 1, 0, imported};
  if (!imported) rise(event.device, &DriverAccounts::physical, event.size, event.seq);
}

uint64_t DriverBytes::resolved(uint64_t handle) const {
  const auto alias = aliases_.find(handle);
  return alias == aliases_.end() ? handle : alias->second;
}

// The handle that comes back may be the first one or a new one for the same memory.
void DriverBytes::retain(const Event& event) {
  if (event.address == kUnknown || event.aux == kUnknown) return;
  auto mapping = mappings_.upper_bound(event.aux);
  if (mapping == mappings_.begin()) return;
  --mapping;
  if (event.aux - mapping->first >= mapping->second.size) return;
  const auto physical = physical_.find(mapping->second.handle);
  if (physical == physical_.end()) return;
  ++physical->second.references;
  if (event.address != physical->first) aliases_[event.address] = physical->first;
}

void DriverBytes::release(uint64_t handle) {
  const auto at = physical_.find(resolved(handle));
  if (at == physical_.end() || at->second.references == 0) return;
  --at->second.references;
  drop_if_unused(at->first);
}

void DriverBytes::drop_if_unused(uint64_t handle) {
  const auto at = physical_.find(handle);
  if (at == physical_.end() || at->second.references > 0 || at->second.maps > 0) return;
  if (!at->second.imported) fall(at->second.device, &DriverAccounts::physical, at->second.size);
  physical_.erase(at);
  std::erase_if(aliases_, [handle](const auto& alias) { return alias.second == handle; });
}

void DriverBytes::map(const Event& event) {
  if (event.address == kUnknown || event.size == kUnknown) return;
  const uint64_t handle = resolved(event.aux);
  if (!mappings_.emplace(event.address, Mapping{event.size, handle, event.device}).second) return;
  rise(event.device, &DriverAccounts::mapped, event.size, event.seq);
  const auto physical = physical_.find(handle);
  if (physical != physical_.end()) ++physical->second.maps;
}

void DriverBytes::unmap(const Event& event) {
  if (event.address == kUnknown || event.size == kUnknown) return;
  for (auto at = mappings_.lower_bound(event.address);
       at != mappings_.end() && at->first - event.address < event.size;) {
    const Mapping mapping = at->second;
    at = mappings_.erase(at);
    fall(mapping.device, &DriverAccounts::mapped, mapping.size);
    if (const auto physical = physical_.find(mapping.handle); physical != physical_.end()) {
      --physical->second.maps;
      drop_if_unused(mapping.handle);
    }
  }
}

void DriverBytes::instantiate(const Event& event) {
  const auto nodes = graph_nodes_.find(event.aux);
  if (event.address == kUnknown || nodes == graph_nodes_.end()) return;
  end_instance(event.address);
  instances_[event.address] = nodes->second;
  for (const GraphBlock& block : nodes->second) {
    rise(block.device, &DriverAccounts::graphs, block.size, event.seq);
  }
}

void DriverBytes::end_instance(uint64_t exec) {
  const auto at = instances_.find(exec);
  if (at == instances_.end()) return;
  for (const GraphBlock& block : at->second) {
    fall(block.device, &DriverAccounts::graphs, block.size);
  }
  instances_.erase(at);
}

// With an address: a context that the program made itself. What does not name its context was
// allocated before there were several, in the device's primary one.
void DriverBytes::end_context(const Event& event) {
  if (event.address == kUnknown) {
    end_device(event.device);
    return;
  }
  std::vector<uint64_t> ended;
  for (const auto& [address, allocation] : live_) {
    if (allocation.context == event.address) ended.push_back(address);
  }
  for (const uint64_t address : ended) end(address);
}

void DriverBytes::end_device(int32_t device) {
  std::erase_if(live_, [&](const auto& entry) { return entry.second.device == device; });
  std::erase_if(mappings_, [&](const auto& entry) {
    const auto physical = physical_.find(entry.second.handle);
    return physical == physical_.end() || physical->second.device == device;
  });
  std::erase_if(physical_, [&](const auto& entry) { return entry.second.device == device; });
  std::erase_if(ranges_, [&](const auto& entry) { return entry.second.second == device; });
  std::erase_if(instances_, [&](const auto& entry) {
    return !entry.second.empty() && entry.second.front().device == device;
  });
  const auto at = devices_.find(device);
  if (at == devices_.end()) return;
  DriverAccounts& of = at->second;
  for (Gauge* gauge : {&of.total, &of.plain, &of.stream_ordered, &of.arrays, &of.graphs,
                       &of.physical, &of.managed, &of.reserved, &of.mapped}) {
    gauge->set(0, 0);
  }
}

}  // namespace fragscope::metrics
