#include "replay/verifier.h"

#include <algorithm>
#include <utility>

#include "replay/figures_of.h"
#include "replay/hex_text.h"

namespace fragscope::replay {
namespace {

using model::MallocResult;

constexpr uint64_t kLargestRequest = 1ull << 60;  // PyTorch refuses more without an attempt
// Size of a device that the trace does not tell: bounds nothing but an expandable segment's range.
constexpr uint64_t kAssumedTotal = 1ull << 40;
constexpr uint64_t kRebuiltBlocksLimit = 50'000'000;  // work that resyncs may do in all

std::string place_text(uint64_t address, uint64_t size) {
  if (size == kUnknown) return "block at " + hex_text(address);
  return "block of " + std::to_string(size) + " bytes at " + hex_text(address);
}

std::string outcome_text(const MallocResult& result) {
  return result.ok() ? place_text(result.address, result.block_size) : std::string("out of memory");
}

std::string tie_text(model::TieRule rule) {
  switch (rule) {
    case model::TieRule::kAddress:
      return "of equal ones the lowest address";
    case model::TieRule::kBlockNumber:
      return "of equal ones the one created first";
    case model::TieRule::kSegmentNumber:
      break;
  }
  return "of equal ones that of the oldest segment";
}

uint64_t stream_of(const BlockOp& op) { return op.stream == kUnknown ? 0 : op.stream; }

bool usable(uint64_t request) { return request != 0 && request < kLargestRequest; }

}  // namespace

DeviceVerifier::DeviceVerifier(const VerifySettings& settings)
    : settings_(settings), provider_(counts_, settings.refusals_recorded), calls_(*this) {
  provider_.set_total(settings.total_bytes.value_or(kAssumedTotal));
  make_model();
}

void DeviceVerifier::on_alloc(const BlockOp& op, OpSpan own) {
  ++counts_.block_events;
  last_block_size_ = op.size;
  if (op.requested == kUnknown) sizes_known_ = false;
  const uint64_t request = op.request();
  if (!usable(request)) {
    diverge(op.seq, "nothing: the size of the request is not known",
            place_text(op.address, op.size), "a request of unknown size is passed over",
            "the trace lacks the size");
    return;
  }
  releases_.clear();
  if (!own.empty()) {
    complete_recorded(own);
    end_pools_of(own);
    note_releases(own);
  }
  const uint64_t calls_before = counts_.segment_calls;
  provider_.begin_call(own, 0);
  const MallocResult predicted = pools_.malloc(*model_, pool_of(op), request, stream_of(op));
  const bool asked_device = counts_.segment_calls != calls_before;
  const bool calls_match = provider_.end_call();
  if (!own.empty()) forget_completed(own);
  const bool place_matches = predicted.ok() && predicted.address == op.address &&
                             (op.size == kUnknown || op.size == predicted.block_size);
  if (place_matches) {
    ++counts_.address_matches;
    last_address_ = op.address;
    last_block_size_ = predicted.block_size;
  }
  if (place_matches && calls_match) return;
  learn_from_releases();
  if (calls_match) learn_from_choice(op.address, predicted);
  const PlacedBlock recorded = {op.address, op.size, request, false};
  std::string rule = rule_of(op, predicted, asked_device);
  if (calls_match) {
    diverge(op.seq, outcome_text(predicted), place_text(op.address, op.size), std::move(rule),
            "another free block was taken: an unrecorded event before, a stream that is not "
            "known, or another split or tie rule");
  } else {
    diverge(op.seq, provider_.mismatch().predicted, provider_.mismatch().recorded, std::move(rule),
            "free memory differs: a block that was still in use by a stream, an unrecorded "
            "event before, a setting that the replay does not know, or another split rule");
  }
  resync(&recorded, predicted.ok() ? predicted.block : model::kNone);
  last_block_size_ = size_at(op.address);
}

uint64_t DeviceVerifier::size_at(uint64_t address) const {
  const auto pending = pending_.find(address);
  if (pending != pending_.end()) return pending->second.size;
  const model::BlockIndex block = model_->find(address);
  return block == model::kNone ? kUnknown : model_->blocks()[block].size;
}

void DeviceVerifier::on_oom(const BlockOp& op, OpSpan own) {
  const uint64_t request = op.request();
  OomFact fact{op.seq, op.time_ns, op.stack, std::nullopt, std::nullopt};
  if (op.requested != kUnknown) fact.requested = op.requested;
  if (op.device_free != kUnknown) fact.device_free = op.device_free;
  ooms_.push_back(fact);
  if (!usable(request)) return;
  ++counts_.block_events;
  complete_recorded(own);
  end_pools_of(own);
  note_releases(own);
  provider_.begin_call(own, op.device_free == kUnknown ? 0 : op.device_free, /*fails=*/true);
  const MallocResult predicted = pools_.malloc(*model_, pool_of(op), request, stream_of(op));
  const bool calls_match = provider_.end_call();
  forget_completed(own);
  if (!predicted.ok()) ++counts_.address_matches;
  if (!available_at_oom_ && fact.device_free) {
    available_at_oom_ = *fact.device_free + model_->reserved_bytes();
  }
  keep_first(at_oom_, op.seq, op.time_ns, *model_);
  if (!predicted.ok() && calls_match) return;
  learn_from_releases();
  std::string rule = rule_of(op, predicted, !calls_match);
  if (calls_match) {
    diverge(op.seq, outcome_text(predicted), "out of memory", std::move(rule),
            "a memory fraction that the replay does not know, or an unrecorded event before");
  } else {
    diverge(op.seq, provider_.mismatch().predicted, provider_.mismatch().recorded, std::move(rule),
            "free memory differs: an unrecorded event before, or a setting that the replay "
            "does not know");
  }
  resync(nullptr, predicted.ok() ? predicted.block : model::kNone);
}

// A flush gives the default pools back first: releases of one private pool before them are that
// pool's end, a call of its own.
void DeviceVerifier::on_empty_cache(OpSpan own) {
  size_t end = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].kind != BlockOpKind::segment_free) continue;
    const RecordedSegments::Segment* segment = provider_.segment_of(own[i].address);
    if (!segment || segment->pool.is_default()) break;
    end = i + 1;
  }
  const bool more =
      std::any_of(own.begin() + static_cast<ptrdiff_t>(end), own.end(),
                  [](const BlockOp& op) { return op.kind == BlockOpKind::segment_free; });
  if (end > 0 && more) {
    verify_release(own.first(end));
    own = own.subspan(end);
  }
  verify_release(own);
}

void DeviceVerifier::verify_release(OpSpan own) {
  const bool matches = empty_cache(own);
  forget_completed(own);
  if (matches) return;
  learn_from_releases();
  diverge(own.front().seq, provider_.mismatch().predicted, provider_.mismatch().recorded,
          "empty_cache() gives back every segment in which nothing lives, and no other",
          "other segments were empty: an unrecorded event before, or a memory fraction or "
          "collection threshold that the replay does not know");
  resync(nullptr, model::kNone);
}

void DeviceVerifier::on_completions(OpSpan own) {
  complete_recorded(own);
  model_->process_events();
  forget_completed(own);
}

void DeviceVerifier::on_free_pending(const BlockOp& op) {
  const model::BlockIndex block = model_->find(op.address);
  if (block == model::kNone) {
    ++counts_.unknown_frees;
    return;
  }
  add_pending(op.address, block);
}

void DeviceVerifier::add_pending(uint64_t address, model::BlockIndex block) {
  model_->free_pending(block);
  const model::BlockTable& blocks = model_->blocks();
  pending_[address] = {block, blocks.generation(block), blocks[block].size};
}

void DeviceVerifier::on_block_size(const BlockOp& op) {
  const model::BlockIndex block = model_->find(op.address);
  if (block == model::kNone || model_->blocks()[block].size == op.size) return;
  if (op.address == last_address_) --counts_.address_matches;
  last_address_ = 0;
  const PlacedBlock recorded = {op.address, op.size, model_->blocks()[block].requested_size, false};
  diverge(op.seq, place_text(op.address, model_->blocks()[block].size),
          place_text(op.address, op.size),
          "a large block is split when more than 1 MiB remains, a small one when 512 bytes do",
          "another split rule");
  resync(&recorded, block);
}

// Completions that came before the allocator called for memory: its events were done.
void DeviceVerifier::complete_recorded(OpSpan own) {
  for (const BlockOp& op : own) {
    if (op.kind != BlockOpKind::free_completed) return;
    const auto pending = pending_.find(op.address);
    if (pending == pending_.end()) continue;
    model_->complete_block(pending->second.block, pending->second.generation);
    pending_.erase(pending);
  }
}

// All others: the flush waited for them.
void DeviceVerifier::forget_completed(OpSpan own) {
  if (pending_.empty()) return;
  for (const BlockOp& op : own) {
    if (op.kind != BlockOpKind::free_completed) continue;
    const auto pending = pending_.find(op.address);
    if (pending == pending_.end()) continue;
    model_->complete_block(pending->second.block, pending->second.generation);
    pending_.erase(pending);
  }
}

void DeviceVerifier::diverge(uint64_t seq, std::string predicted, std::string recorded,
                             std::string rule, std::string reason) {
  if (counts_.first_divergence) return;
  counts_.first_divergence = Divergence{seq, std::move(predicted), std::move(recorded),
                                        std::move(rule), std::move(reason)};
}

// How the model came to its answer, in a sentence.
std::string DeviceVerifier::rule_of(const BlockOp& op, const MallocResult& predicted,
                                    bool asked_device) const {
  if (counts_.first_divergence) return {};  // nobody will read it
  const uint64_t rounded = model_->round_size(op.request());
  const bool small = predicted.ok() ? model_->pool_kind(predicted.block) == model::PoolKind::kSmall
                                    : rounded <= kMiB;
  const std::string place =
      std::string(small ? "small" : "large") + " pool of stream " + std::to_string(stream_of(op));
  const std::string need =
      std::to_string(rounded) + " bytes (" + std::to_string(op.request()) + " asked for, rounded)";
  const std::string segment =
      "a segment of " + std::to_string(model_->segment_size(rounded)) + " bytes";
  if (!predicted.ok())
    return "no free block of the " + place + " has " + need + ", and " + segment + " is refused";
  if (asked_device)
    return "no free block of the " + place + " has " + need + ": " + segment + " is asked of CUDA";
  std::string rule = "best fit: the smallest free block of the " + place + " with at least " +
                     need + ", " + tie_text(settings_.profile->tie);
  if (predicted.block_size > rounded)
    rule += "; kept whole, as what is left over is too little to split off";
  return rule;
}

// Segments of a private pool go back only when nobody uses the pool any more.
void DeviceVerifier::end_pools_of(OpSpan own) {
  for (const BlockOp& op : own) {
    if (op.kind != BlockOpKind::segment_free) continue;
    const RecordedSegments::Segment* segment = provider_.segment_of(op.address);
    if (segment && !segment->pool.is_default()) pools_.end(*model_, segment->pool);
  }
}

// A run of releases of one private pool's segments is the end of that pool, where the release
// gives a pool's memory back by itself; else it is a flush of everything.
bool DeviceVerifier::empty_cache(OpSpan own) {
  std::optional<model::PoolId> only;
  bool one_pool = settings_.profile->scoped_empty_cache == model::ScopedEmptyCache::kFreeablePools;
  for (const BlockOp& op : own) {
    if (op.kind != BlockOpKind::segment_free) continue;
    const RecordedSegments::Segment* segment = provider_.segment_of(op.address);
    const model::PoolId pool = segment ? segment->pool : model::PoolId{};
    one_pool = one_pool && !pool.is_default() && (!only || *only == pool);
    only = pool;
  }
  end_pools_of(own);
  note_releases(own);
  const auto garbage = garbage_bytes(own);
  provider_.begin_call(own, 0);
  if (garbage) {
    model_->collect_garbage(*garbage);
  } else {
    model_->empty_cache(one_pool && only ? *only : model::PoolId{});
  }
  return provider_.end_call();
}

// With a collection threshold a release may be a collection, at the start of the request that
// follows. When it comes and how much it takes depends on the memory fraction, which no recording
// tells; what goes for so many bytes, and in which order, is predicted: then it was one.
std::optional<uint64_t> DeviceVerifier::garbage_bytes(OpSpan own) {
  if (!(settings_.config.garbage_collection_threshold > 0)) return std::nullopt;
  complete_recorded(own);
  std::vector<uint64_t> released;
  uint64_t bytes = 0;
  for (const BlockOp& op : own) {
    if (op.kind != BlockOpKind::segment_free) continue;
    const RecordedSegments::Segment* segment = provider_.segment_of(op.address);
    if (op.expandable || !segment) return std::nullopt;
    released.push_back(op.address);
    bytes += segment->size;
  }
  std::vector<uint64_t> predicted;
  for (const model::BlockIndex index : model_->garbage(bytes)) {
    predicted.push_back(model_->blocks()[index].address);
  }
  return bytes > 0 && predicted == released ? std::optional(bytes) : std::nullopt;
}

// A fresh model under the present settings.
void DeviceVerifier::make_model() {
  model_.emplace(settings_.config, *settings_.profile, provider_);
  model_->count_ages();
}

void DeviceVerifier::note_releases(OpSpan own) {
  releases_.clear();
  if (settings_.profile->tie == model::TieRule::kAddress) return;
  for (const BlockOp& op : own) {
    if (op.kind != BlockOpKind::segment_free || op.expandable) continue;
    if (provider_.is_of_start(op.address)) releases_.push_back(op);
  }
}

// A flush gives equally large segments of one stream back in the order of their age.
void DeviceVerifier::learn_from_releases() {
  if (settings_.config.max_split_size != model::kUnlimitedSplit) return;  // another order
  bool learned = false;
  for (size_t i = 1; i < releases_.size(); ++i) {
    const BlockOp& older = releases_[i - 1];
    const BlockOp& younger = releases_[i];
    const bool comparable = older.size == younger.size && older.stream == younger.stream &&
                            pool_of(older) == pool_of(younger);
    if (comparable) learned |= start_order_.learn({older.address, younger.address});
  }
  releases_.clear();
  if (learned) provider_.set_start_order(start_order_.order());
}

// Of two equally large free blocks the one in the older segment is taken.
void DeviceVerifier::learn_from_choice(uint64_t recorded, const MallocResult& predicted) {
  if (settings_.profile->tie == model::TieRule::kAddress || !predicted.ok()) return;
  if (!provider_.is_of_start(recorded) || !provider_.is_of_start(predicted.address)) return;
  const model::BlockTable& blocks = model_->blocks();
  const model::Block& taken = blocks[predicted.block];
  uint64_t taken_from = taken.size;
  if (taken.next != model::kNone && !blocks[taken.next].active && blocks[taken.next].mapped) {
    taken_from += blocks[taken.next].size;
  }
  for (model::BlockIndex i = 0; i < blocks.limit(); ++i) {
    const model::Block& other = blocks[i];
    if (!other.in_use || other.active || !other.mapped || other.address != recorded) continue;
    if (other.size != taken_from) return;
    const bool learned = start_order_.learn({provider_.segment_of(recorded)->address,
                                             provider_.segment_of(predicted.address)->address});
    if (learned) provider_.set_start_order(start_order_.order());
    return;
  }
}

// Puts a fresh model into the recorded state.
BuiltState DeviceVerifier::rebuild(std::vector<PlacedBlock> blocks) {
  pending_.clear();
  make_model();
  BuiltState built = build_state(*model_, provider_.segments(), std::move(blocks));
  model_->restore(built.segments);
  std::vector<model::PoolId> pools;
  for (const model::SegmentSnapshot& segment : built.segments) {
    if (segment.pool.is_default()) continue;
    if (std::find(pools.begin(), pools.end(), segment.pool) == pools.end()) {
      pools.push_back(segment.pool);
    }
  }
  pools_.reset(std::move(pools));
  for (const uint64_t address : built.pending) {
    const model::BlockIndex block = model_->find(address);
    if (block != model::kNone) add_pending(address, block);
  }
  model_->reset_peak_stats();
  model_->reset_accumulated_stats();
  return built;
}

void DeviceVerifier::take_start() {
  std::vector<PlacedBlock> blocks;
  for (const BlockOp& op : start_) {
    if (op.kind == BlockOpKind::segment_alloc && op.address != kUnknown && op.size != kUnknown) {
      RecordedSegments::Segment segment;
      segment.address = op.address;
      segment.size = op.size;
      segment.stream = op.stream == kUnknown ? 0 : op.stream;
      segment.pool = pool_of(op);
      segment.expandable = op.expandable;
      if (op.is_small != kUnknown) segment.small = op.is_small == 1;
      provider_.add(segment);
      ++start_state_.segments;
    } else if (op.kind == BlockOpKind::alloc) {
      blocks.push_back({op.address, op.size, op.requested == kUnknown ? 0 : op.requested, false});
      ++start_state_.blocks;
      if (op.size == kUnknown) ++start_state_.sizes_inferred;
    } else if (op.kind == BlockOpKind::free_requested && !blocks.empty() &&
               blocks.back().address == op.address) {
      blocks.back().pending = true;
    }
  }
  start_.clear();
  start_.shrink_to_fit();
  std::vector<uint64_t> addresses;
  for (const RecordedSegments::Segment& segment : provider_.segments()) {
    addresses.push_back(segment.address);
  }
  start_order_.reset(std::move(addresses), settings_.start_choices);
  provider_.set_start_order(start_order_.order());
  const BuiltState built = rebuild(std::move(blocks));
  start_state_.lost = built.lost;
}

// Rebuilds the model in the recorded state: the recorded segments, the model's allocated blocks but
// for `last`, which lies where the recording has `instead_of_last`, and the pending ones.
void DeviceVerifier::resync(const PlacedBlock* instead_of_last, model::BlockIndex last) {
  if (rebuilt_blocks_ > kRebuiltBlocksLimit) return;
  const uint64_t skipped = last == model::kNone ? kUnknown : model_->blocks()[last].address;
  const uint64_t least = instead_of_last == nullptr ? 0
                         : instead_of_last->size != kUnknown
                             ? instead_of_last->size
                             : model_->round_size(instead_of_last->requested);
  std::vector<PlacedBlock> blocks;
  const auto add = [&](const PlacedBlock& block) {
    const bool overlaps = instead_of_last && block.address < instead_of_last->address + least &&
                          instead_of_last->address < block.address + block.size;
    if (!overlaps) blocks.push_back(block);
    counts_.lost_blocks += overlaps ? 1 : 0;
  };
  for (const model::SegmentSnapshot& segment : model_->segments()) {
    for (const model::BlockSnapshot& block : segment.blocks) {
      if (block.state != model::BlockState::kAllocated || block.address == skipped) continue;
      add({block.address, block.size, block.requested_size, false});
    }
  }
  for (const auto& [address, pending] : pending_) add({address, pending.size, 0, true});
  if (instead_of_last) blocks.push_back(*instead_of_last);
  rebuilt_blocks_ += blocks.size() + 1;
  kept_ = figures_of(model_->stats(), kept_);
  const BuiltState built = rebuild(std::move(blocks));
  ++counts_.resyncs;
  counts_.lost_blocks += built.lost;
}

ReplayFigures DeviceVerifier::figures() const {
  ReplayFigures figures = figures_of(model_->stats(), kept_);
  figures.ooms = ooms_;
  if (!sizes_known_) figures.requested.reset();
  return figures;
}

}  // namespace fragscope::replay
