#include "model/host_memory.h"

#include <algorithm>
#include <array>
#include <utility>

namespace fragscope::model {
namespace {

uint64_t whole_pages(uint64_t bytes) {
  return (bytes + HostAddresses::kPage - 1) / HostAddresses::kPage * HostAddresses::kPage;
}

}  // namespace

std::string_view host_call_name(HostCallKind kind) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"cudaHostAlloc", "cudaFreeHost", "cudaHostRegister", "cudaHostUnregister"});
  return kNames[static_cast<size_t>(kind)];
}

std::optional<uint64_t> HostAddresses::take(uint64_t bytes) {
  if (bytes > kHostWindowBytes) return std::nullopt;
  const uint64_t wanted = whole_pages(bytes);
  const auto hole = std::find_if(holes_.begin(), holes_.end(),
                                 [&](const auto& entry) { return entry.second >= wanted; });
  if (hole == holes_.end()) return std::nullopt;
  const auto [address, size] = *hole;
  holes_.erase(hole);
  if (size > wanted) holes_[address + wanted] = size - wanted;
  taken_[address] = bytes;
  return address;
}

std::optional<uint64_t> HostAddresses::give_back(uint64_t address) {
  const auto at = taken_.find(address);
  if (at == taken_.end()) return std::nullopt;
  const uint64_t bytes = at->second;
  taken_.erase(at);
  fragscope::give_back(holes_, address, whole_pages(bytes));
  return bytes;
}

std::optional<uint64_t> SimulatedHostMemory::allocate(uint64_t bytes, bool by_register) {
  const auto address = addresses_.take(bytes);
  if (!address) return std::nullopt;
  calls_.push_back({by_register ? HostCallKind::kRegister : HostCallKind::kAlloc, *address, bytes});
  return address;
}

void SimulatedHostMemory::release(uint64_t address, bool by_register) {
  addresses_.give_back(address);
  calls_.push_back({by_register ? HostCallKind::kUnregister : HostCallKind::kFree, address, {}});
}

std::vector<HostCall> SimulatedHostMemory::take_calls() { return std::exchange(calls_, {}); }

}  // namespace fragscope::model
