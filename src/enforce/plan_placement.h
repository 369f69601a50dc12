// A plan in force: its arena is one segment of the device, taken with the first request that has a
// place in it. When there is no memory for the arena the plan is given up and the cache serves all.
//
// Units: bytes and device addresses. Ownership: borrows device and sink. Threads: as Placement.
// Errors: load_plan(): kNotFound, kPermission, and those of parse_plan().
#pragma once

#include <string>

#include "enforce/block_sink.h"
#include "enforce/device_api.h"
#include "enforce/placement.h"
#include "enforce/plan_follower.h"

namespace fragscope::enforce {

class PlanPlacement final : public Placement {
 public:
  PlanPlacement(Plan plan, DeviceApi& api, BlockSink* sink)
      : follower_(std::move(plan)), api_(api), sink_(sink) {}

  std::optional<PlacedBlock> offer(uint64_t requested, uint64_t stream) override;
  void release(uint64_t address) override;
  uint64_t reserved_bytes() const override { return arena_ != 0 ? follower_.arena_bytes() : 0; }
  bool contains(uint64_t address) const override;
  void release_cached() override;

  const PlanFollower& follower() const { return follower_; }

 private:
  bool take_arena();

  PlanFollower follower_;
  DeviceApi& api_;
  BlockSink* sink_;
  uint64_t arena_ = 0;  // 0: none now
  bool given_up_ = false;
};

// The plan in a file.
Result<Plan> load_plan(const std::string& path);

}  // namespace fragscope::enforce
