#include "alloc/devices.h"

#include <atomic>
#include <cstdlib>
#include <memory>

#include "alloc/block_report.h"
#include "enforce/fork_guard.h"
#include "enforce/plan_placement.h"
#include "enforce/settings.h"

namespace fragscope::alloc {
namespace {

using enforce::Locked;

// As PyTorch: a refusal for want of memory becomes its exception and leaves no last error behind.
class TorchDevice final : public enforce::CudaDevice {
 public:
  using CudaDevice::CudaDevice;
  enforce::CudaResult malloc(uint64_t bytes, uint64_t& address) override {
    const enforce::CudaResult result = CudaDevice::malloc(bytes, address);
    if (result == enforce::kOutOfMemory) forget_last_error();
    return result;
  }
};

struct Device {
  Device(int ordinal, const CudaLibrary& cuda, void* context, const Settings& settings)
      : api(cuda.functions, context),
        report(ordinal),
        allocator(settings.config, *settings.profile, api,
                  recorder_is_there() ? &report : nullptr) {}

  TorchDevice api;
  BlockReport report;
  enforce::ServedAllocator allocator;
};

// Everything of one process.
struct State {
  enforce::Mutex making;  // of devices, and of the settings
  CudaLibrary cuda;
  Settings settings;
  bool configured = false;
  std::atomic<Device*> devices[kMaxDevices]{};
};

constinit enforce::ForkGuard g_state;

State* state() {
  if (void* const found = g_state.get()) return static_cast<State*>(found);
  auto fresh = std::make_unique<State>();
  auto* const winner = static_cast<State*>(g_state.set(fresh.get()));
  if (winner == fresh.get()) static_cast<void>(fresh.release());
  return winner;
}

const char* environment(const char* name) {
  const char* const text = secure_getenv(name);
  return text != nullptr ? text : "";
}

// Under the lock.
void read_settings(State& all, const char* text, const char* torch_version) {
  Settings& settings = all.settings;
  settings.profile = torch_version[0] != '\0' ? model::find_version_profile(torch_version).profile
                                              : &model::version_profiles().back();
  auto config = enforce::read_settings(text, *settings.profile);
  settings.problem = config ? "" : config.error().text;
  if (config) settings.config = *config;
  all.configured = config.ok();
}

void ensure_settings(State& all) {
  if (all.configured) return;
  read_settings(all, environment("FRAGSCOPE_ALLOC_CONF"), environment("FRAGSCOPE_TORCH_VERSION"));
  if (!all.settings.problem.empty()) {
    all.settings.problem = "FRAGSCOPE_ALLOC_CONF: " + all.settings.problem;
  }
}

// FRAGSCOPE_PLAN. A plan that cannot be followed is said in the recording, and left.
void follow_plan(Device& device) {
  const char* const path = environment("FRAGSCOPE_PLAN");
  if (path[0] == '\0') return;
  auto plan = enforce::load_plan(path);
  if (!plan) return report_property("enforce_plan_problem", plan.error().text.c_str());
  report_property("enforce_plan", path);
  static_cast<void>(device.allocator.set_placement(std::make_unique<enforce::PlanPlacement>(
      std::move(*plan), device.api, recorder_is_there() ? &device.report : nullptr)));
}

Device* make_device(State& all, int ordinal, std::string& why) {
  ensure_settings(all);
  why = all.settings.problem;
  if (!why.empty()) return nullptr;
  if (!all.cuda.complete()) all.cuda = find_cuda();
  if (!all.cuda.complete()) {
    why = "no CUDA runtime (libcudart.so.11.0, .12 or .13) is loaded in this process";
    return nullptr;
  }
  void* context = nullptr;
  if (const int result = all.cuda.primary_context(&context, ordinal); result != 0) {
    why = "device " + std::to_string(ordinal) + " has no context: CUDA error " +
          std::to_string(result);
    return nullptr;
  }
  report_property("enforce", "pluggable");
  report_property("alloc_conf", all.settings.config.text.c_str());
  auto* const device = new Device(ordinal, all.cuda, context, all.settings);
  follow_plan(*device);
  return device;
}

}  // namespace

std::string configure(const char* settings, const char* torch_version) {
  State* const all = state();
  if (all == nullptr) return "no memory for the allocator";
  const Locked lock(all->making);
  for (const std::atomic<Device*>& device : all->devices) {
    if (device.load(std::memory_order_acquire) != nullptr) {
      return "memory has been allocated already: settings can only be changed now";
    }
  }
  read_settings(*all, settings, torch_version);
  return all->settings.problem;
}

std::string change_settings(const char* text) {
  State* const all = state();
  if (all == nullptr) return "no memory for the allocator";
  const Locked lock(all->making);
  ensure_settings(*all);
  if (!all->settings.problem.empty()) return all->settings.problem;
  auto config = enforce::read_settings(text, *all->settings.profile, all->settings.config);
  if (!config) return config.error().text;
  all->settings.config = *config;
  for (const std::atomic<Device*>& slot : all->devices) {
    Device* const device = slot.load(std::memory_order_acquire);
    if (device != nullptr) device->allocator.set_config(*config);
  }
  return {};
}

enforce::ServedAllocator* allocator_of(int device, std::string& why) {
  if (enforce::ServedAllocator* const found = existing_allocator(device)) return found;
  State* const all = state();
  if (all == nullptr || device < 0 || device >= kMaxDevices) {
    why = "device " + std::to_string(device) + " cannot be served";
    return nullptr;
  }
  const Locked lock(all->making);
  Device* found = all->devices[device].load(std::memory_order_acquire);
  if (found == nullptr) {
    found = make_device(*all, device, why);
    all->devices[device].store(found, std::memory_order_release);
  }
  return found != nullptr ? &found->allocator : nullptr;
}

enforce::ServedAllocator* existing_allocator(int device) {
  auto* const all = static_cast<State*>(g_state.get());
  if (all == nullptr || device < 0 || device >= kMaxDevices) return nullptr;
  Device* const found = all->devices[device].load(std::memory_order_acquire);
  return found != nullptr ? &found->allocator : nullptr;
}

}  // namespace fragscope::alloc
