#include "shim/policy_devices.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>

#include "enforce/fork_guard.h"
#include "enforce/plan_placement.h"
#include "enforce/settings.h"
#include "shim/recorder.h"

namespace fragscope::shim::policy {
namespace {

constexpr size_t kMaxContexts = 64;

// Everything of one process; a forked child starts anew and leaves its parent's state alone.
struct State {
  std::atomic<ServedContext*> contexts[kMaxContexts]{};
  enforce::Mutex making;  // of contexts, and of the settings
  std::optional<model::AllocatorConfig> settings;
  std::optional<fragscope::Result<enforce::Plan>> plan;
};

constinit enforce::ForkGuard g_state;

State* current_state() { return static_cast<State*>(g_state.get()); }

State* state() {
  if (State* const found = current_state()) return found;
  auto fresh = std::make_unique<State>();
  auto* const winner = static_cast<State*>(g_state.set(fresh.get()));
  if (winner == fresh.get()) static_cast<void>(fresh.release());
  return winner;
}

fragscope::Result<model::AllocatorConfig> read_environment() {
  const char* const text = secure_getenv("FRAGSCOPE_ALLOC_CONF");
  return enforce::read_settings(text != nullptr ? text : "", model::version_profiles().back());
}

// Under the lock.
const model::AllocatorConfig& settings_of(State& all) {
  if (!all.settings) {
    auto config = read_environment();
    all.settings = config ? *config : model::AllocatorConfig{};
  }
  return *all.settings;
}

// FRAGSCOPE_PLAN, for each context. Under the lock. A plan that cannot be followed is said and
// left.
void follow_plan(State& all, ServedContext& context) {
  const char* const path = secure_getenv("FRAGSCOPE_PLAN");
  if (path == nullptr || *path == '\0') return;
  const bool first = !all.plan;
  if (first) all.plan = enforce::load_plan(path);
  Session* const session = get_or_create_session();
  if (first && session != nullptr) {
    session->write_property(all.plan->ok() ? "enforce_plan" : "enforce_plan_problem",
                            all.plan->ok() ? path : all.plan->error().text);
  }
  if (!all.plan->ok()) return;
  static_cast<void>(context.allocator.set_placement(
      std::make_unique<enforce::PlanPlacement>(all.plan->value(), context.device, &context.log)));
}

void write_block(Event& event) {
  event.flags = kFlagSourceApi | kFlagServed;
  event.stream = 0;
  if (Session* const session = session_for(event.kind)) submit(*session, event);
}

void write_block(EventKind kind, int device, uint64_t address, uint64_t requested,
                 uint64_t size = Event{}.size) {
  Event event;
  event.kind = kind;
  event.device = device;
  event.address = address;
  event.requested = requested;
  event.size = size;
  write_block(event);
}

}  // namespace

void BlockLog::on_alloc(const enforce::BlockAlloc& block) {
  Event event;
  event.kind = EventKind::alloc;
  event.device = device_;
  event.address = block.address;
  event.size = block.size;
  event.requested = block.requested;
  event.aux = block.allocated;
  event.aux2 = block.reserved;
  write_block(event);
}

void BlockLog::on_free_requested(uint64_t, uint64_t address, uint64_t requested) {
  write_block(EventKind::free_requested, device_, address, requested);
}

void BlockLog::on_free_completed(uint64_t, uint64_t address, uint64_t requested) {
  write_block(EventKind::free_completed, device_, address, requested);
}

void BlockLog::on_segment_alloc(uint64_t, uint64_t address, uint64_t size) {
  write_block(EventKind::segment_alloc, device_, address, size, size);
}

void BlockLog::on_segment_free(uint64_t, uint64_t address, uint64_t size) {
  write_block(EventKind::segment_free, device_, address, size, size);
}

void BlockLog::on_oom(uint64_t, uint64_t requested, uint64_t device_free) {
  Event event;
  event.kind = EventKind::oom;
  event.device = device_;
  event.requested = requested;
  event.aux = device_free;
  write_block(event);
}

ServedContext::ServedContext(int ordinal_, const Backend& backend, void* context,
                             const model::AllocatorConfig& config)
    : ordinal(ordinal_),
      device(backend, context),
      log(ordinal_),
      allocator(config, model::version_profiles().back(), device, &log) {}

bool settings_are_served() noexcept try { return read_environment().ok(); } catch (...) {
  return false;
}

std::string settings_problem() {
  const auto config = read_environment();
  return config ? std::string() : config.error().text;
}

std::string change_settings(const char* text) {
  State* const all = state();
  if (all == nullptr) return "no memory for the allocator";
  const enforce::Locked lock(all->making);
  auto config = enforce::read_settings(text, model::version_profiles().back(), settings_of(*all));
  if (!config) return config.error().text;
  all->settings = *config;
  for (const std::atomic<ServedContext*>& slot : all->contexts) {
    ServedContext* const context = slot.load(std::memory_order_acquire);
    if (context != nullptr) context->allocator.set_config(*config);
  }
  return {};
}

ServedContext* context_for(int ordinal, const Backend& backend, void* context) {
  State* const all = state();
  if (all == nullptr) return nullptr;
  for (std::atomic<ServedContext*>& slot : all->contexts) {
    ServedContext* found = slot.load(std::memory_order_acquire);
    if (found != nullptr && found->device.context() == context) return found;
  }
  const enforce::Locked lock(all->making);
  std::atomic<ServedContext*>* room = nullptr;
  for (std::atomic<ServedContext*>& slot : all->contexts) {
    ServedContext* const found = slot.load(std::memory_order_acquire);
    if (found != nullptr && found->device.context() == context) return found;
    if (found == nullptr && room == nullptr) room = &slot;
  }
  if (room == nullptr) return nullptr;
  auto fresh = std::make_unique<ServedContext>(ordinal, backend, context, settings_of(*all));
  follow_plan(*all, *fresh);
  room->store(fresh.get(), std::memory_order_release);
  return fresh.release();
}

ServedContext* owner_of(DevicePtr address, enforce::Ownership& what) {
  State* const all = current_state();
  if (all == nullptr) return nullptr;
  for (std::atomic<ServedContext*>& slot : all->contexts) {
    ServedContext* const context = slot.load(std::memory_order_acquire);
    if (context == nullptr) continue;
    what = context->allocator.ownership(address);
    if (what != enforce::Ownership::kForeign) return context;
  }
  return nullptr;
}

void for_each_context(int device, const std::function<void(ServedContext&)>& visit) {
  State* const all = current_state();
  if (all == nullptr) return;
  for (std::atomic<ServedContext*>& slot : all->contexts) {
    ServedContext* const context = slot.load(std::memory_order_acquire);
    if (context != nullptr && context->ordinal == device) visit(*context);
  }
}

void write_plan_counts(Session& session) noexcept {
  State* const all = current_state();
  if (all == nullptr) return;
  enforce::PlacementCounts sum;
  for (std::atomic<ServedContext*>& slot : all->contexts) {
    ServedContext* const context = slot.load(std::memory_order_acquire);
    if (context == nullptr) continue;
    const enforce::PlacementCounts counts = context->allocator.placement_counts();
    sum.offered += counts.offered;
    sum.placed += counts.placed;
  }
  if (sum.offered == 0) return;
  session.write_property("enforce_plan.offered", sum.offered);
  session.write_property("enforce_plan.placed", sum.placed);
}

void drop_contexts(const void* context, int device) {
  State* const all = current_state();
  if (all == nullptr) return;
  for (std::atomic<ServedContext*>& slot : all->contexts) {
    ServedContext* const found = slot.load(std::memory_order_acquire);
    if (found == nullptr) continue;
    const bool of_device = device == kUnknownDevice ? context == nullptr : found->ordinal == device;
    if (found->device.context() == context || of_device) {
      slot.store(nullptr, std::memory_order_release);
    }
  }
}

}  // namespace fragscope::shim::policy
