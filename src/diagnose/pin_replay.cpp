#include "diagnose/pin_replay.h"

#include <algorithm>

#include "replay/backend.h"

namespace fragscope::diagnose {
namespace {

using replay::Call;
using replay::CallKind;

}  // namespace

std::optional<replay::CallList> without_block(const replay::CallList& list, uint64_t seq) {
  const auto at = std::lower_bound(list.seqs.begin(), list.seqs.end(), seq);
  if (at == list.seqs.end() || *at != seq) return std::nullopt;
  auto first = static_cast<size_t>(at - list.seqs.begin());
  while (first < list.calls.size() && list.seqs[first] == seq &&
         list.calls[first].kind != CallKind::alloc) {
    ++first;
  }
  if (first >= list.calls.size() || list.seqs[first] != seq) return std::nullopt;
  const uint32_t slot = list.calls[first].slot;
  replay::CallList rest = list;
  rest.calls.clear();
  rest.seqs.clear();
  bool lives = false;  // the block, at this call
  for (size_t i = 0; i < list.calls.size(); ++i) {
    const Call& call = list.calls[i];
    const bool of_block = lives && call.slot == slot &&
                          (call.kind == CallKind::free || call.kind == CallKind::free_later ||
                           call.kind == CallKind::complete);
    if (of_block) lives = call.kind == CallKind::free_later;
    if (i == first) lives = true;
    if (of_block || i == first) continue;
    rest.calls.push_back(call);
    rest.seqs.push_back(list.seqs[i]);
  }
  --rest.allocations;
  return rest;
}

std::optional<WithoutBlock> replay_without(const replay::RecordedProcess& process, size_t device,
                                           uint64_t seq) {
  if (!process.undecidable.empty() || process.modelled) return std::nullopt;
  const replay::RecordedDevice& recorded = process.devices[device];
  const auto list = without_block(recorded.calls, seq);
  if (!list) return std::nullopt;
  const auto run = replay::torch_backend(process.rules.profile, process.rules.config)
                       ->run(*list, recorded.backend_device());
  return WithoutBlock{run.figures.ooms.size(), run.figures.reserved.peak};
}

}  // namespace fragscope::diagnose
