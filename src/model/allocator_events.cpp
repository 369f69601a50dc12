// record_stream and what follows: a freed block comes back when the streams that used it are done.
#include <algorithm>
#include <utility>

#include "model/caching_allocator.h"

namespace fragscope::model {

CachingAllocator::StreamWork& CachingAllocator::stream_work(uint64_t stream) {
  for (StreamWork& work : stream_work_) {
    if (work.stream == stream) return work;
  }
  StreamWork& fresh = stream_work_.emplace_back();
  fresh.stream = stream;
  return fresh;
}

void CachingAllocator::work(uint64_t stream) { ++stream_work(stream).submitted; }

void CachingAllocator::complete(uint64_t stream) { synchronize_stream(stream); }

void CachingAllocator::synchronize_stream(uint64_t stream) {
  StreamWork& work = stream_work(stream);
  work.completed = work.submitted;
}

void CachingAllocator::complete_until(uint64_t stream, uint64_t count) {
  StreamWork& work = stream_work(stream);
  work.completed = std::max(work.completed, count);
}

CachingAllocator::StreamProgress CachingAllocator::stream_progress(uint64_t stream) const {
  for (const StreamWork& work : stream_work_) {
    if (work.stream == stream) return {work.submitted, work.completed};
  }
  return {};
}

bool CachingAllocator::record_stream(uint64_t address, uint64_t stream) {
  const BlockIndex index = blocks_.find_allocated(address);
  if (index == kNone) return false;
  if (stream == stream_of(index)) return true;
  std::vector<StreamUse>& uses = uses_[index];
  const auto same = [stream](const StreamUse& use) { return use.stream == stream; };
  auto found = std::find_if(uses.begin(), uses.end(), same);
  if (found == uses.end()) found = uses.insert(found, {stream, false});
  if (scope_blocks()) found->under_scope = true;
  blocks_[index].has_uses = true;
  return true;
}

void CachingAllocator::insert_events(BlockIndex index) {
  for (const StreamUse& use : uses_[index]) {
    StreamWork& work = stream_work(use.stream);
    if (provider_.record_event(use.stream)) ++work.submitted;
    work.events.push_back({work.submitted, index});
    blocks_.add_event(index);
    ++outstanding_;
  }
  uses_.erase(index);
  blocks_[index].has_uses = false;
}

// Blocks that were freed under a scope. Uses that were recorded under it have ended with it.
void CachingAllocator::insert_deferred_events() {
  for (const BlockIndex index : std::exchange(deferred_, {})) {
    if (profile_.scope_drops_uses) {
      std::erase_if(uses_[index], [](const StreamUse& use) { return use.under_scope; });
    }
    insert_events(index);
    if (blocks_.events(index) == 0) finish_wait(index);
  }
}

void CachingAllocator::finish_event(BlockIndex index) {
  --outstanding_;
  blocks_.remove_event(index);
  if (blocks_.events(index) == 0) finish_wait(index);
}

void CachingAllocator::process_events() {
  insert_deferred_events();
  for (size_t i = 0; i < stream_work_.size(); ++i) {
    StreamWork& work = stream_work_[i];
    while (!work.events.empty() && work.events.front().position <= work.completed) {
      const BlockIndex index = work.events.front().block;
      work.events.pop_front();
      finish_event(index);
    }
  }
  for (const Hold& hold : std::exchange(ended_holds_, {})) {
    if (is_held(hold)) finish_event(hold.block);
  }
}

bool CachingAllocator::belongs_to(BlockIndex index, uint32_t private_pool) const {
  return private_pool == kNone || pool_of(blocks_[index]).owner == private_pool;
}

// Waits for all events (of one private pool, if one is named).
void CachingAllocator::synchronize_events(uint32_t private_pool) {
  ++stats_.num_sync_all_streams;
  insert_deferred_events();
  if (outstanding_ != 0) provider_.wait_for_events();
  for (size_t i = 0; i < stream_work_.size(); ++i) {
    for (const PendingEvent event : std::exchange(stream_work_[i].events, {})) {
      StreamWork& work = stream_work_[i];
      if (!belongs_to(event.block, private_pool)) {
        work.events.push_back(event);
        continue;
      }
      work.completed = std::max(work.completed, event.position);
      finish_event(event.block);
    }
  }
  synchronize_holds(private_pool);
}

FreeOutcome CachingAllocator::free_pending(BlockIndex index) {
  blocks_.unlink_address(index);
  start_wait(index);
  blocks_.add_event(index);
  ++outstanding_;
  if (blocks_[index].has_uses) insert_events(index);
  // tuning: holds that have ended are passed over; they go when they are most of the list.
  if (holds_.size() > 64 && holds_.size() > 2 * outstanding_) {
    std::erase_if(holds_, [this](const Hold& hold) { return !is_held(hold); });
  }
  holds_.push_back({index, blocks_.generation(index)});
  return FreeOutcome::kPending;
}

bool CachingAllocator::is_held(const Hold& hold) const {
  return blocks_.generation(hold.block) == hold.generation && blocks_.events(hold.block) > 0;
}

bool CachingAllocator::complete_block(BlockIndex block, uint32_t generation) {
  const Hold hold{block, generation};
  if (!is_held(hold)) return false;
  ended_holds_.push_back(hold);
  return true;
}

void CachingAllocator::synchronize_holds(uint32_t private_pool) {
  for (const Hold& hold : std::exchange(holds_, {})) {
    if (!is_held(hold)) continue;
    if (belongs_to(hold.block, private_pool)) {
      finish_event(hold.block);
    } else {
      holds_.push_back(hold);
    }
  }
}

}  // namespace fragscope::model
