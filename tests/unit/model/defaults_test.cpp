// What a value says before anybody has said anything.
#include "model/caching_allocator.h"
#include "model/command_list.h"
#include "model/command_runner.h"
#include "model/host_allocator.h"
#include "model/host_memory.h"
#include "model/host_stats.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::model;

TEST_CASE("settings that nobody gave are PyTorch's defaults") {
  const AllocatorConfig config;
  CHECK(config.text.empty());
  CHECK(config.max_split_size == UINT64_MAX);
  CHECK(config.max_non_split_rounding == 20 * kMiB);
  CHECK_FALSE(config.max_non_split_rounding_named);
  CHECK(config.large_segment_size == 20 * kMiB);
  CHECK(config.garbage_collection_threshold == 0);
  for (const uint64_t divisions : config.roundup_power2_divisions) CHECK(divisions == 0);
  CHECK(config.roundup_power2_divisions.size() == 16);
  CHECK_FALSE(config.expandable_segments);
  CHECK_FALSE(config.release_lock_on_cudamalloc);
  CHECK_FALSE(config.throw_on_cudamalloc_oom);
  CHECK_FALSE(config.graph_capture_record_stream_reuse);
  CHECK_FALSE(config.per_process_memory_fraction);
  CHECK(config.backend == "native");
  CHECK_FALSE(config.reserve_fraction);
  CHECK_FALSE(config.reserve_bytes);
  CHECK_FALSE(config.pinned_use_cuda_host_register);
  CHECK_FALSE(config.pinned_use_background_threads);
  CHECK_FALSE(config.pinned_free_catch_all);
  CHECK(config.pinned_num_register_threads == 1);
  CHECK(config.pinned_reserve_segment_size == 0);
  CHECK_FALSE(config.pinned_max_round_threshold);
  CHECK_FALSE(config.pinned_max_cached_size);
}

TEST_CASE("a block, a snapshot and an answer begin empty") {
  const Block block;
  CHECK(block.address == 0);
  CHECK(block.size == 0);
  CHECK(block.requested_size == 0);
  CHECK(block.number == 0);
  CHECK_FALSE(block.in_use);
  CHECK_FALSE(block.allocated);
  CHECK_FALSE(block.active);
  CHECK(block.mapped);
  CHECK_FALSE(block.has_uses);
  CHECK_FALSE(block.free);
  CHECK_FALSE(block.expandable);
  CHECK_FALSE(block.is_split());
  const BlockSnapshot shot;
  CHECK(shot.address == 0);
  CHECK(shot.size == 0);
  CHECK(shot.requested_size == 0);
  CHECK(shot.state == BlockState::kInactive);
  const SegmentSnapshot segment;
  CHECK(segment.address == 0);
  CHECK(segment.total_size + segment.allocated_size + segment.active_size == 0);
  CHECK(segment.requested_size == 0);
  CHECK(segment.stream == 0);
  CHECK(segment.kind == PoolKind::kSmall);
  CHECK(segment.pool.is_default());
  CHECK_FALSE(segment.is_expandable);
  const MallocResult result;
  CHECK_FALSE(result.ok());
  CHECK(result.outcome == MallocOutcome::kNull);
  CHECK(result.block == kNone);
  CHECK(result.address == 0);
  CHECK(result.block_size == 0);
  const OomFacts facts;
  CHECK(facts.requested + facts.segment + facts.device_free == 0);
  CHECK(facts.device_total + facts.allocated + facts.private_free + facts.reserved == 0);
  CHECK_FALSE(facts.allowed);
  const FreeEntry entry;
  CHECK(entry.size + entry.address + entry.tie == 0);
  CHECK(entry.block == kNone);
}

TEST_CASE("a command, a list and statistics begin empty") {
  const Command command;
  CHECK(command.kind == CommandKind::kAlloc);
  CHECK(command.line == 0);
  CHECK(command.device == 0);
  CHECK(command.id == 0);
  CHECK(command.size == 0);
  CHECK(command.fraction == 1);
  CHECK_FALSE(command.stream);
  CHECK_FALSE(command.use_on_oom);
  CHECK_FALSE(command.no_split);
  CHECK(CommandList{}.devices == 1);
  CHECK(AllocReply{}.address == 0);
  CHECK(DeviceResult{}.device == 0);
  CHECK(CommandTarget::Entry{}.device == 0);
  const DeviceStats stats;
  CHECK(stats.max_split_size == -1);
  CHECK(stats.num_alloc_retries + stats.num_ooms + stats.num_sync_all_streams == 0);
  CHECK(stats.num_device_alloc + stats.num_device_free + stats.num_oom_rejections == 0);
  const Stat stat;
  CHECK(stat.current + stat.peak + stat.allocated + stat.freed == 0);
  CHECK(PoolId{}.is_default());
  CHECK_FALSE(PoolId{0, 1}.is_default());
  CHECK_FALSE(PoolId{1, 0}.is_default());
  CHECK(DeviceMemoryInfo{}.free + DeviceMemoryInfo{}.total == 0);
}

TEST_CASE("pinned memory, pools and streams begin empty") {
  CHECK(DeviceStream{}.device == 0);
  CHECK(DeviceStream{}.stream == 0);
  CHECK(HostReply{}.outcome == HostReply::Outcome::kNull);
  CHECK(HostReply{}.address + HostReply{}.block_size == 0);
  CHECK(HostCall{}.address == 0);
  CHECK_FALSE(HostCall{}.bytes);
  const HostStats host;
  CHECK(host.num_host_alloc + host.num_host_free + host.timed_allocs + host.timed_frees == 0);
  CHECK(CheckpointBlock{}.address + CheckpointBlock{}.size == 0);
  CHECK_FALSE(CheckpointBlock{}.allocated);
  CHECK_FALSE(CachingAllocator::PoolTraits{}.use_on_oom);
  CHECK_FALSE(CachingAllocator::PoolTraits{}.no_split);
  CHECK(CachingAllocator::StreamProgress{}.submitted == 0);
  CHECK(CachingAllocator::StreamProgress{}.completed == 0);
  CHECK_FALSE(CommandList{}.uses_host);
  CHECK(Command{}.checkpoint == 0);
}

TEST_CASE("a statistic counts rises and falls") {
  Stat stat;
  stat.rise(10);
  stat.fall(4);
  stat.rise(3);
  stat.fall(2);
  CHECK(stat.current == 7);
  CHECK(stat.peak == 10);
  CHECK(stat.allocated == 13);
  CHECK(stat.freed == 6);
  stat.reset_peak();
  CHECK(stat.peak == 7);
  stat.reset_accumulated();
  CHECK(stat.allocated == 0);
  CHECK(stat.freed == 0);
  CHECK(stat.current == 7);
}

TEST_CASE("a device that can do nothing expandable says so") {
  class Plain final : public SegmentProvider {
   public:
    std::optional<uint64_t> device_malloc(uint64_t) override { return std::nullopt; }
    void device_free(uint64_t, uint64_t) override {}
    DeviceMemoryInfo memory_info() override { return {}; }
  };
  Plain plain;
  CHECK_FALSE(plain.reserve(2 * kMiB));
  CHECK_FALSE(plain.map(0, 2 * kMiB));
}
