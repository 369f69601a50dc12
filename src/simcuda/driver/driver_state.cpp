#include "simcuda/driver/driver_state.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace fragscope::simcuda {

namespace {

std::atomic<DriverState*> g_state{nullptr};
std::atomic<bool> g_forked{false};
std::atomic<CUresult> g_failure{CUDA_ERROR_NOT_INITIALIZED};
std::atomic<unsigned> g_threads{0};

// Plain data, so that calls from thread-exit destructors still find it.
constexpr int kStackDepth = 64;
thread_local CUcontext t_stack[kStackDepth];
thread_local int t_depth = 0;
thread_local unsigned t_number = 0;

// Nothing may be mapped where device addresses lie, and a host access to one must fault. When the
// range cannot be had (ulimit -v) the addresses are still never dereferenced by us.
void reserve_window(int ordinal) {
  void* const at = reinterpret_cast<void*>(model::device_window(ordinal));
  ::mmap(at, model::kDeviceWindowBytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
}

// The cards this process may see, in its order. As documented for CUDA_VISIBLE_DEVICES: numbers or
// beginnings of UUIDs; the first that names no card, or one twice, ends the list.
std::vector<int> visible_cards(int cards) {
  std::vector<int> visible;
  const char* text = ::secure_getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int i = 0; i < cards; ++i) visible.push_back(i);
    return visible;
  }
  std::string_view rest(text);
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    int found = -1;
    for (int i = 0; i < cards; ++i) {
      const bool by_uuid = item.size() > 4 && item.substr(0, 4) == "GPU-" &&
                           std::string_view(uuid_text(i)).substr(0, item.size()) == item;
      if (found < 0 && (by_uuid || item == std::to_string(i))) found = i;
    }
    if (found < 0) break;
    if (std::find(visible.begin(), visible.end(), found) != visible.end()) return {};
    visible.push_back(found);
  }
  return visible;
}

void set_up_device(DriverState& state, int ordinal, int card) {
  auto device = std::make_unique<Device>(ordinal, card, *state.ledger);
  device->primary.device = device.get();
  device->primary.primary = true;
  device->primary.id = state.next_id++;
  device->primary.legacy.context = &device->primary;
  device->primary.legacy.id = state.next_id++;
  device->default_pool.device = device.get();
  device->graph_pool.device = device.get();
  device->current_pool = &device->default_pool;
  reserve_window(ordinal);
  state.devices.push_back(std::move(device));
}

CUresult create_state() {
  const char* text = ::secure_getenv(kConfigVariable);
  if (text == nullptr || *text == '\0') return CUDA_ERROR_NO_DEVICE;
  auto config = parse_config(text);
  if (!config) {
    std::fprintf(stderr, "fragscope: %s\n", config.error().text.c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  const std::vector<int> visible = visible_cards(config->devices);
  if (visible.empty()) return CUDA_ERROR_NO_DEVICE;
  auto ledger =
      Ledger::open(::secure_getenv(kLedgerVariable), config->devices, config->total_bytes);
  if (!ledger) {
    std::fprintf(stderr, "fragscope: %s\n", ledger.error().text.c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  auto* state = new DriverState;
  state->config = std::move(*config);
  state->ledger = std::move(*ledger);
  if (!state->config.answers.empty()) {
    const Status added = add_answers_of_file(state->answers, state->config.answers);
    if (!added) std::fprintf(stderr, "fragscope: %s\n", added.error().text.c_str());
  }
  if (!state->config.script.empty()) {
    auto rows = read_faults(state->config.script);
    if (rows.ok()) {
      state->faults = std::make_unique<FaultScript>(std::move(*rows));
    } else {
      std::fprintf(stderr, "fragscope: %s\n", rows.error().text.c_str());
    }
  }
  state->ledger->claim();
  for (size_t i = 0; i < visible.size(); ++i) {
    set_up_device(*state, static_cast<int>(i), visible[i]);
  }
  ::pthread_atfork(nullptr, nullptr, [] { g_forked.store(true); });
  g_state.store(state, std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult initialise_driver() {
  if (g_forked.load()) return CUDA_ERROR_NOT_INITIALIZED;
  if (g_state.load(std::memory_order_acquire) != nullptr) return CUDA_SUCCESS;
  static std::mutex once;
  const std::lock_guard<std::mutex> guard(once);
  if (g_state.load() != nullptr) return CUDA_SUCCESS;
  if (g_failure.load() == CUDA_ERROR_NO_DEVICE) return CUDA_ERROR_NO_DEVICE;
  try {
    const CUresult result = create_state();
    g_failure.store(result == CUDA_SUCCESS ? CUDA_ERROR_NOT_INITIALIZED : result);
    return result;
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

const DriverState* started_state() { return g_state.load(std::memory_order_acquire); }

CUresult ready_state(DriverState*& state) {
  state = g_state.load(std::memory_order_acquire);
  if (state == nullptr) return g_failure.load();
  return g_forked.load(std::memory_order_relaxed) ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

CUcontext context_on_top() { return t_depth == 0 ? nullptr : t_stack[t_depth - 1]; }

CUcontext current_context() {
  const CUcontext top = context_on_top();
  return top != nullptr && top->ended ? nullptr : top;
}

CUresult why_there_is_none() {
  return context_on_top() != nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

void set_current_context(CUcontext context) {
  if (t_depth == 0) t_depth = 1;
  t_stack[t_depth - 1] = context;
}

bool push_context(CUcontext context) {
  if (t_depth == kStackDepth) return false;
  t_stack[t_depth++] = context;
  return true;
}

CUcontext pop_context() { return t_depth == 0 ? nullptr : t_stack[--t_depth]; }

unsigned thread_number() {
  if (t_number == 0) t_number = ++g_threads;
  return t_number;
}

CUresult unsupported_call(const char* name) {
  DriverState* state = nullptr;
  if (ready_state(state) == CUDA_SUCCESS) state->ledger->note(Ledger::Kind::kUnsupported, name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

Device* device_at(DriverState& state, CUdevice ordinal) {
  if (ordinal < 0 || ordinal >= static_cast<int>(state.devices.size())) return nullptr;
  return state.devices[static_cast<size_t>(ordinal)].get();
}

bool is_device_address(uint64_t address) {
  return address >= model::kDeviceWindowBase && address < model::device_window(model::kMaxDevices);
}

Device* device_of_address(DriverState& state, uint64_t address) {
  if (!is_device_address(address)) return nullptr;
  return device_at(
      state, static_cast<int>((address - model::kDeviceWindowBase) / model::kDeviceWindowBytes));
}

bool is_live_device_range(DriverState& state, uint64_t address, uint64_t bytes) {
  Device* device = device_of_address(state, address);
  if (device == nullptr) return false;
  if (const auto found = device->memory.find(address)) {
    return bytes <= found->address + found->bytes - address;
  }
  // A graph's copies name its allocations before there is memory behind them.
  if (const auto block = block_around(state.graph_blocks, address);
      block != state.graph_blocks.end()) {
    return bytes <= block->first + block->second.bytes - address;
  }
  auto mapping = state.mappings.upper_bound(address);
  if (mapping == state.mappings.begin()) return false;
  --mapping;
  uint64_t end = mapping->first + mapping->second.bytes;
  if (address >= end) return false;
  while (end - address < bytes) {  // neighbouring mappings count as one
    ++mapping;
    if (mapping == state.mappings.end() || mapping->first != end) return false;
    end += mapping->second.bytes;
  }
  return true;
}

CUresult charge_context(DriverState& state, Device& device) {
  if (device.context_charged) return CUDA_SUCCESS;
  if (!device.book.charge(state.config.context_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  device.context_charged = true;
  return CUDA_SUCCESS;
}

}  // namespace fragscope::simcuda

// For our own NVML when the ledger is private to the process.
extern "C" __attribute__((visibility("default"))) void* fragscope_sim_ledger(void) {
  fragscope::simcuda::DriverState* state = nullptr;
  const CUresult ready = fragscope::simcuda::ready_state(state);
  return ready == CUDA_SUCCESS ? state->ledger.get() : nullptr;
}
