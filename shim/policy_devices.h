// The served contexts of this process, and which of them an address belongs to.
//
// Threads: any; look-ups take no lock of their own. A context that has ended is taken out of the
// table and kept: a thread may still be inside.
#pragma once

#include <functional>
#include <string>

#include "enforce/served_allocator.h"
#include "shim/policy_backend.h"

namespace fragscope::shim::policy {

// Block plane: the allocator's own trace, as PyTorch's allocator would be recorded.
class BlockLog final : public enforce::BlockSink {
 public:
  explicit BlockLog(int device) : device_(device) {}

  void on_alloc(const enforce::BlockAlloc& block) override;
  void on_free_requested(uint64_t stream, uint64_t address, uint64_t requested) override;
  void on_free_completed(uint64_t stream, uint64_t address, uint64_t requested) override;
  void on_segment_alloc(uint64_t stream, uint64_t address, uint64_t size) override;
  void on_segment_free(uint64_t stream, uint64_t address, uint64_t size) override;
  void on_oom(uint64_t stream, uint64_t requested, uint64_t device_free) override;

 private:
  int device_;
};

struct ServedContext {
  ServedContext(int ordinal, const Backend& backend, void* context,
                const model::AllocatorConfig& config);

  int ordinal;
  RecordedDevice device;
  BlockLog log;
  enforce::ServedAllocator allocator;
};

// FRAGSCOPE_ALLOC_CONF can be read and served.
bool settings_are_served() noexcept;
// Why not; empty: it can.
std::string settings_problem();

// New settings for all contexts, those to come too. "": accepted, else why not.
std::string change_settings(const char* text);

// The allocator of `context`; made if there is none. nullptr: too many contexts, no memory.
ServedContext* context_for(int ordinal, const Backend& backend, void* context);
// The context that serves `address`, and what is there; nullptr: nobody does.
ServedContext* owner_of(DevicePtr address, enforce::Ownership& what);

// Calls visit(context) for each context of a device.
void for_each_context(int device, const std::function<void(ServedContext&)>& visit);

// The one named, or all of a device, or (nullptr and no device) all.
void drop_contexts(const void* context, int device);

}  // namespace fragscope::shim::policy
