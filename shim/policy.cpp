#include "shim/policy.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "model/caching_allocator.h"
#include "shim/export.h"
#include "shim/policy_backend.h"
#include "shim/recorder.h"

namespace fragscope::shim::policy {
namespace {

constexpr int kMaxDevices = 64;

EventKind kind_of(model::TraceAction action) {
  switch (action) {
    case model::TraceAction::kFreeRequested:
      return EventKind::free_requested;
    case model::TraceAction::kFreeCompleted:
      return EventKind::free_completed;
    case model::TraceAction::kSegmentAlloc:
      return EventKind::segment_alloc;
    case model::TraceAction::kSegmentFree:
      return EventKind::segment_free;
    case model::TraceAction::kOom:
      return EventKind::oom;
    default:  // kAlloc is logged when its block size is known; the rest does not occur
      return EventKind::none;
  }
}

void write_block(Event& event) {
  event.flags = kFlagSourceApi | kFlagServed;
  event.stream = 0;
  if (Session* const session = session_for(event.kind)) submit(*session, event);
}

// Block plane: the allocator's own trace, as PyTorch's allocator would be recorded.
class BlockLog final : public model::TraceObserver {
 public:
  explicit BlockLog(int device) : device_(device) {}

  void on_entry(const model::TraceEntry& entry) override {
    Event event;
    event.kind = kind_of(entry.action);
    if (event.kind == EventKind::none) return;
    event.device = device_;
    event.requested = entry.size;
    if (event.kind == EventKind::oom) {
      event.aux = entry.address;
    } else {
      event.address = entry.address;
    }
    if (event.kind == EventKind::segment_alloc || event.kind == EventKind::segment_free) {
      event.size = entry.size;
    }
    write_block(event);
  }

 private:
  int device_;
};

// One device's allocator. Blocks that were freed while another device was current wait in
// `deferred`: the device that has to be waited for is this one.
struct Device {
  Device(int ordinal, const model::AllocatorConfig& config, const model::VersionProfile& profile)
      : log(ordinal), allocator(config, profile, segments) {
    allocator.set_observer(&log);
  }

  RealSegments segments;
  BlockLog log;
  model::CachingAllocator allocator;
  std::vector<uint64_t> deferred;
};

// Everything of one process; a forked child starts anew and leaves its parent's state alone.
struct State {
  pid_t owner = getpid();
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  const model::VersionProfile& profile = model::version_profiles().back();
  model::AllocatorConfig config;
  std::unique_ptr<Device> devices[kMaxDevices];
};

constinit std::atomic<State*> g_state{nullptr};
enum class Wanted : int { unasked, no, yes };
constinit std::atomic<Wanted> g_wanted{Wanted::unasked};

std::optional<model::AllocatorConfig> read_config() {
  const char* const text = secure_getenv("FRAGSCOPE_ALLOC_CONF");
  Result<model::AllocatorConfig> config =
      model::parse_config(text != nullptr ? text : "", model::version_profiles().back());
  if (!config || config->expandable_segments || config->backend != "native") return std::nullopt;
  return std::move(*config);
}

Wanted ask_environment() {
  const char* const mode = secure_getenv("FRAGSCOPE_ENFORCE");
  if (mode == nullptr || std::strcmp(mode, "shim") != 0) return Wanted::no;
  return read_config() ? Wanted::yes : Wanted::no;
}

State& state() {
  State* current = g_state.load(std::memory_order_acquire);
  if (current != nullptr && current->owner == getpid()) return *current;
  auto fresh = std::make_unique<State>();
  if (std::optional<model::AllocatorConfig> config = read_config()) fresh->config = *config;
  if (g_state.compare_exchange_strong(current, fresh.get())) return *fresh.release();
  return *current;
}

class Locked {
 public:
  explicit Locked(State& state) : state_(state) { pthread_mutex_lock(&state_.lock); }
  ~Locked() { pthread_mutex_unlock(&state_.lock); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  State& state_;
};

// The current device. The first runtime call of a thread makes its context: what cudaMalloc would
// have done.
int device_for(const Backend& backend) {
  int device = current_device();
  if (device == kUnknownDevice && backend.library == Library::runtime) {
    static_cast<void>(backend.free(0));
    device = current_device();
  }
  return device >= 0 && device < kMaxDevices ? device : kUnknownDevice;
}

int flush_deferred(Device& device, const Backend& backend) {
  if (device.deferred.empty()) return kSuccess;
  if (const int result = backend.synchronize(); result != kSuccess) return result;
  for (const uint64_t address : device.deferred) device.allocator.free(address);
  device.deferred.clear();
  return kSuccess;
}

void write_alloc(int device, const model::CachingAllocator& allocator,
                 const model::MallocResult& block, size_t requested) {
  Event event;
  event.kind = EventKind::alloc;
  event.device = device;
  event.address = block.address;
  event.size = block.block_size;
  event.requested = requested;
  event.aux = static_cast<uint64_t>(allocator.stats().allocated_bytes.all.current);
  event.aux2 = static_cast<uint64_t>(allocator.stats().reserved_bytes.all.current);
  write_block(event);
}

void tell_source() {
  static constinit std::atomic<uint64_t> told{0};
  Session* const session = get_or_create_session();
  if (session != nullptr && told.exchange(session->id) != session->id) {
    session->write_property("block_source", "api");
  }
}

int serve(Device& device, int ordinal, const Backend& backend, DevicePtr* out, size_t bytes) {
  device.segments.use(backend);
  tell_source();
  if (const int result = flush_deferred(device, backend); result != kSuccess) return result;
  const int64_t retries = device.allocator.stats().num_alloc_retries;
  const model::MallocResult block = device.allocator.malloc(bytes, 0);
  if (!block.ok()) {
    *out = device.segments.last_address();
    const int result = device.segments.last_result();
    return result != kSuccess ? result : kErrorOutOfMemory;
  }
  // A first attempt that failed must not be seen by the program, which got its memory.
  if (backend.take_last_error != nullptr && device.allocator.stats().num_alloc_retries != retries) {
    static_cast<void>(backend.take_last_error());
  }
  write_alloc(ordinal, device.allocator, block, bytes);
  *out = block.address;
  return kSuccess;
}

// The device that handed `address` out; kUnknownDevice: nobody here did.
int owner_of(const State& state, DevicePtr address) {
  for (int ordinal = 0; ordinal < kMaxDevices; ++ordinal) {
    const Device* const device = state.devices[ordinal].get();
    if (device != nullptr && device->allocator.find(address) != model::kNone) return ordinal;
  }
  return kUnknownDevice;
}

// True when `address` lies in a segment of ours: then CUDA must not see it, since the base of a
// segment is a pointer that CUDA would free with all live blocks in it.
bool lies_in_segment(const State& state, DevicePtr address) {
  for (const std::unique_ptr<Device>& device : state.devices) {
    if (device == nullptr) continue;
    for (const model::SegmentSnapshot& segment : device->allocator.segments()) {
      if (address >= segment.address && address - segment.address < segment.total_size) return true;
    }
  }
  return false;
}

// CUDA's own answer, last error included, to a pointer that nobody allocated: inside an allocation
// but not at its start.
int refuse(const Backend& backend, DevicePtr address) { return backend.free(address + 1); }

}  // namespace

bool enabled() noexcept try {
  Wanted wanted = g_wanted.load(std::memory_order_relaxed);
  if (wanted == Wanted::unasked) {
    const ErrnoKeeper keep;
    wanted = ask_environment();
    g_wanted.store(wanted, std::memory_order_relaxed);
  }
  return wanted == Wanted::yes;
} catch (...) {
  return false;
}

bool allocate(HookId id, RealMalloc real, DevicePtr* out, size_t bytes, int& result) noexcept try {
  if (out == nullptr || bytes == 0) return false;
  const Backend backend = backend_of(info(id).library, reinterpret_cast<const void*>(real));
  // Another preload between us and CUDA: its functions come alone and are not split from it.
  if (!backend || backend.malloc != real) return false;
  State& all = state();
  const Locked lock(all);
  const int ordinal = device_for(backend);
  if (ordinal == kUnknownDevice) return false;
  std::unique_ptr<Device>& device = all.devices[ordinal];
  if (device == nullptr) device = std::make_unique<Device>(ordinal, all.config, all.profile);
  result = serve(*device, ordinal, backend, out, bytes);
  return true;
} catch (...) {  // no memory for the books
  return false;
}

bool release(HookId id, RealFree real, DevicePtr address, int& result) noexcept try {
  if (address == 0) return false;
  State& all = state();
  const Locked lock(all);
  const int ordinal = owner_of(all, address);
  const bool refused = ordinal == kUnknownDevice && lies_in_segment(all, address);
  if (ordinal == kUnknownDevice && !refused) return false;
  const Backend backend = backend_of(info(id).library, reinterpret_cast<const void*>(real));
  if (!backend) return false;
  if (refused) {
    result = refuse(backend, address);
    return true;
  }
  Device& device = *all.devices[ordinal];
  device.segments.use(backend);
  if (device_for(backend) != ordinal) {
    device.deferred.push_back(address);
    result = kSuccess;
    return true;
  }
  result = backend.synchronize();
  if (result == kSuccess) device.allocator.free(address);
  return true;
} catch (...) {
  return false;
}

void forget_everything() noexcept try {
  if (!enabled()) return;
  State& all = state();
  const Locked lock(all);
  for (std::unique_ptr<Device>& device : all.devices) device.reset();
} catch (...) {
  return;
}

}  // namespace fragscope::shim::policy
