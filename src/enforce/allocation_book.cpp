#include "enforce/allocation_book.h"

#include <iterator>

namespace fragscope::enforce {

void AllocationBook::begin(uint64_t address, const Holding& holding) {
  // Handed out again, so it was free: its free was not seen.
  if (const auto before = take_out(address)) end_taken(*before);
  live_[address] = holding;
}

std::optional<Holding> AllocationBook::take_out(uint64_t address) {
  const auto at = live_.find(address);
  if (at == live_.end()) return std::nullopt;
  const Holding holding = at->second;
  live_.erase(at);
  return holding;
}

void AllocationBook::end_taken(const Holding& holding) {
  account_.give_back(holding.purse, holding.bytes);
}

void AllocationBook::put_back(uint64_t address, const Holding& holding) {
  live_.emplace(address, holding);
}

void AllocationBook::begin_physical(uint64_t handle, int purse, uint64_t bytes) {
  physical_[next_id_] = {purse, bytes, 1, 0, false};
  handles_[handle] = next_id_++;
}

void AllocationBook::begin_imported(uint64_t handle) {
  if (const uint64_t id = physical_of(handle); id != 0) {  // a handle that came back
    ++physical_[id].references;
    return;
  }
  physical_[next_id_] = {0, 0, 1, 0, true};
  handles_[handle] = next_id_++;
}

void AllocationBook::retain(uint64_t handle, uint64_t mapped) {
  auto mapping = mappings_.upper_bound(mapped);
  if (mapping == mappings_.begin()) return;
  --mapping;
  if (mapped - mapping->first >= mapping->second.bytes) return;
  const auto physical = physical_.find(mapping->second.physical);
  if (physical == physical_.end()) return;
  ++physical->second.references;
  handles_[handle] = physical->first;
}

uint64_t AllocationBook::physical_of(uint64_t handle) const {
  const auto at = handles_.find(handle);
  if (at == handles_.end()) return 0;
  const auto physical = physical_.find(at->second);
  return physical == physical_.end() || physical->second.references == 0 ? 0 : at->second;
}

void AllocationBook::release(uint64_t physical) {
  const auto at = physical_.find(physical);
  if (at == physical_.end() || at->second.references == 0) return;
  --at->second.references;
  drop_if_unused(physical);
}

void AllocationBook::drop_if_unused(uint64_t id) {
  const auto at = physical_.find(id);
  if (at == physical_.end() || at->second.references > 0 || at->second.maps > 0) return;
  if (!at->second.imported) account_.give_back(at->second.purse, at->second.bytes);
  physical_.erase(at);
}

void AllocationBook::map(uint64_t address, uint64_t bytes, uint64_t handle) {
  const uint64_t id = physical_of(handle);
  if (!mappings_.emplace(address, Mapping{bytes, id}).second || id == 0) return;
  ++physical_[id].maps;
}

void AllocationBook::unmap(uint64_t address, uint64_t bytes) {
  for (auto at = mappings_.lower_bound(address);
       at != mappings_.end() && at->first - address < bytes;) {
    const uint64_t id = at->second.physical;
    at = mappings_.erase(at);
    const auto physical = physical_.find(id);
    if (physical == physical_.end()) continue;
    --physical->second.maps;
    drop_if_unused(id);
  }
}

void AllocationBook::end_context(uint64_t context) {
  for (auto at = live_.begin(); at != live_.end();) {
    if (at->second.context != context || context == kNoContext) {
      ++at;
      continue;
    }
    end_taken(at->second);
    at = live_.erase(at);
  }
}

void AllocationBook::end_device(int purse, bool (*is_own)(const void*, uint64_t),
                                const void* self) {
  for (auto at = live_.begin(); at != live_.end();) {
    if (at->second.purse != purse || is_own(self, at->second.context)) {
      ++at;
      continue;
    }
    end_taken(at->second);
    at = live_.erase(at);
  }
  std::erase_if(mappings_, [&](const auto& entry) {
    const auto physical = physical_.find(entry.second.physical);
    return physical != physical_.end() && !physical->second.imported &&
           physical->second.purse == purse;
  });
  for (auto at = physical_.begin(); at != physical_.end();) {
    if (at->second.imported || at->second.purse != purse) {
      ++at;
      continue;
    }
    account_.give_back(at->second.purse, at->second.bytes);
    at = physical_.erase(at);
  }
}

}  // namespace fragscope::enforce
