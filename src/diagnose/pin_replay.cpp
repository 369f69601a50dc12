#include "diagnose/pin_replay.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "replay/backend.h"

namespace fragscope::diagnose {
namespace {

using replay::Call;
using replay::CallKind;

// Where the block's calls stand in the list.
struct BlockCalls {
  size_t alloc = 0;
  std::vector<size_t> ends;  // free, or free_later and complete
};

std::optional<BlockCalls> calls_of(const replay::CallList& list, uint64_t seq) {
  const auto at = std::lower_bound(list.seqs.begin(), list.seqs.end(), seq);
  if (at == list.seqs.end() || *at != seq) return std::nullopt;
  BlockCalls block;
  block.alloc = static_cast<size_t>(at - list.seqs.begin());
  while (block.alloc < list.calls.size() && list.seqs[block.alloc] == seq &&
         list.calls[block.alloc].kind != CallKind::alloc) {
    ++block.alloc;
  }
  if (block.alloc >= list.calls.size() || list.seqs[block.alloc] != seq) return std::nullopt;
  const uint32_t slot = list.calls[block.alloc].slot;
  for (size_t i = block.alloc + 1; i < list.calls.size(); ++i) {
    const Call& call = list.calls[i];
    const bool end = call.kind == CallKind::free || call.kind == CallKind::free_later ||
                     call.kind == CallKind::complete;
    if (!end || call.slot != slot) continue;
    block.ends.push_back(i);
    if (call.kind != CallKind::free_later) break;
  }
  return block;
}

std::optional<BlockReplay> replayed(const replay::RecordedProcess& process, size_t device,
                                    const std::optional<replay::CallList>& list) {
  if (!list) return std::nullopt;
  const auto run = replay::torch_backend(process.rules.profile, process.rules.config)
                       ->run(*list, process.devices[device].backend_device());
  return BlockReplay{run.figures.ooms.size(), run.figures.reserved.peak};
}

bool answers(const replay::RecordedProcess& process) {
  return process.undecidable.empty() && !process.modelled;
}

}  // namespace

std::optional<replay::CallList> without_block(const replay::CallList& list, uint64_t seq) {
  const auto block = calls_of(list, seq);
  if (!block) return std::nullopt;
  replay::CallList rest = list;
  std::vector<size_t> gone = block->ends;
  gone.push_back(block->alloc);
  std::sort(gone.begin(), gone.end(), std::greater<>());
  for (const size_t at : gone) {
    rest.calls.erase(rest.calls.begin() + static_cast<std::ptrdiff_t>(at));
    rest.seqs.erase(rest.seqs.begin() + static_cast<std::ptrdiff_t>(at));
    if (at < rest.start_calls) --rest.start_calls;
  }
  --rest.allocations;
  return rest;
}

std::optional<replay::CallList> moved_block(const replay::CallList& list, uint64_t seq,
                                            Moved where) {
  const auto block = calls_of(list, seq);
  if (!block || block->alloc < list.start_calls) return std::nullopt;
  replay::CallList moved = list;
  Call& call = moved.calls[block->alloc];
  if (where == Moved::apart) {
    replay::CallOrigin origin = list.origins[call.origin];
    uint64_t unused = 1;  // a pool that no other call names
    for (const replay::CallOrigin& other : list.origins) {
      unused = std::max({unused, other.pool.first + 1, other.pool.second + 1});
    }
    origin.pool = {unused, unused};
    if (moved.origins.size() > UINT16_MAX) return std::nullopt;
    call.origin = static_cast<uint16_t>(moved.origins.size());
    moved.origins.push_back(origin);
    return moved;
  }
  // Slots are used again: from the start on the block needs one of its own.
  call.slot = moved.slots++;
  for (const size_t end : block->ends) moved.calls[end].slot = call.slot;
  const auto rotate = [&](auto& items) {
    const auto begin = items.begin() + static_cast<std::ptrdiff_t>(list.start_calls);
    const auto at = items.begin() + static_cast<std::ptrdiff_t>(block->alloc);
    std::rotate(begin, at, at + 1);
  };
  rotate(moved.calls);
  rotate(moved.seqs);
  return moved;
}

std::optional<BlockReplay> replay_without(const replay::RecordedProcess& process, size_t device,
                                          uint64_t seq) {
  if (!answers(process)) return std::nullopt;
  return replayed(process, device, without_block(process.devices[device].calls, seq));
}

std::optional<BlockReplay> replay_moved(const replay::RecordedProcess& process, size_t device,
                                        uint64_t seq, Moved where) {
  if (!answers(process)) return std::nullopt;
  return replayed(process, device, moved_block(process.devices[device].calls, seq, where));
}

}  // namespace fragscope::diagnose
