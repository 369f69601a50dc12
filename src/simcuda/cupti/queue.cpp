// The sink: what was asked for, and the threads' side of the queue.
#include "simcuda/cupti/queue.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <string>
#include <unordered_set>

#include "simcuda/clock.h"
#include "simcuda/cupti/activity.h"
#include "simcuda/cupti/api_ids.h"
#include "simcuda/cupti/records.h"
#include "simcuda/library_common.h"

namespace fragscope::simcuda::cupti {

namespace {

constexpr uint32_t kExternalKinds = 6;  // CUpti_ExternalCorrelationKind

std::atomic<uint64_t> g_kinds{0};
std::array<std::array<std::atomic<bool>, kMostApiIds>, 2> g_apis{};  // by ApiDomain
std::atomic<uint32_t> g_next_correlation{1};
std::atomic<bool> g_system_threads{false};
std::mutex g_selection;

struct Queue {
  std::mutex lock;
  std::vector<Entry> entries;
  uint64_t dropped = 0;
  std::unordered_set<std::string> names;  // of kernels; records point to them
};
Queue& queue() {
  static auto* instance = new Queue;  // used until the process ends
  return *instance;
}

using ExternalStacks = std::array<std::vector<uint64_t>, kExternalKinds>;
// Destroyed with its thread; calls that come later see none.
struct ThreadStacks {
  ~ThreadStacks();
  ExternalStacks* stacks = nullptr;
};
thread_local ThreadStacks t_owner;
struct ThreadCall {
  int depth = 0;
  uint32_t correlation = 0;
  uint32_t callback_id = 0;
  ApiDomain domain = ApiDomain::kDriver;
  uint64_t start_ns = 0;
  ExternalStacks* external = nullptr;
  bool has_ended = false;
};
thread_local ThreadCall t_call;

ThreadStacks::~ThreadStacks() {
  t_call.external = nullptr;
  t_call.has_ended = true;
  delete stacks;
}

bool is_on(uint32_t kind) { return (g_kinds.load(std::memory_order_relaxed) >> kind & 1) != 0; }

uint32_t thread_number() {
  if (g_system_threads.load()) return static_cast<uint32_t>(::syscall(SYS_gettid));
  return static_cast<uint32_t>(::pthread_self());
}

void append(const Entry& entry) noexcept {
  Queue& all = queue();
  const std::lock_guard<std::mutex> guard(all.lock);
  try {
    if (all.entries.size() >= kMostQueued) {
      ++all.dropped;
      return;
    }
    const char* name = entry.work.name;
    if (name != nullptr) name = all.names.insert(name).first->c_str();
    all.entries.push_back(entry);
    all.entries.back().work.name = name;
  } catch (...) {  // no memory
    ++all.dropped;
  }
}

// Before the records of the call: readers join them in one pass.
void append_external(uint32_t correlation) {
  if (t_call.external == nullptr || !is_on(kExternalCorrelation)) return;
  for (uint32_t kind = 0; kind < kExternalKinds; ++kind) {
    const auto& stack = (*t_call.external)[kind];
    if (stack.empty()) continue;
    Entry entry;
    entry.kind = kExternalCorrelation;
    entry.correlation = correlation;
    entry.external_kind = kind;
    entry.external = stack.back();
    append(entry);
  }
}

bool on_enter(ApiDomain domain, const char* function) {
  if (t_call.depth > 0) return false;
  // A function of the runtime that has no number still hides what it asks of the driver.
  const uint32_t id = api_id(domain, function);
  if (id == 0 && domain == ApiDomain::kDriver) return false;
  t_call.depth = 1;
  t_call.domain = domain;
  t_call.callback_id = id;
  t_call.correlation = g_next_correlation.fetch_add(1);
  if (id != 0) append_external(t_call.correlation);
  t_call.start_ns = clock_ns();
  return true;
}

void on_leave(int result) {
  t_call.depth = 0;
  const auto domain = static_cast<size_t>(t_call.domain);
  const uint32_t id = t_call.callback_id;
  if (id != 0 && g_apis[domain][id].load(std::memory_order_relaxed)) {
    Entry entry;
    entry.kind = t_call.domain == ApiDomain::kDriver ? kDriver : kRuntime;
    entry.correlation = t_call.correlation;
    entry.start_ns = t_call.start_ns;
    entry.end_ns = clock_ns();
    entry.callback_id = id;
    entry.thread = thread_number();
    entry.result = result;
    append(entry);
  }
  const size_t waiting = queued();
  if (waiting != 0 && !has_buffer()) request_if_free();
  if (waiting >= kDeliverAt) deliver_if_free();
}

// 0: nobody asked for it.
uint32_t kind_of(const DeviceWork& work) {
  switch (work.kind) {
    case DeviceWork::Kind::kKernel:
      return is_on(kConcurrentKernel) ? kConcurrentKernel : is_on(kKernel) ? kKernel : 0U;
    case DeviceWork::Kind::kCopy:
      return is_on(kMemcpy) ? kMemcpy : 0U;
    case DeviceWork::Kind::kPeerCopy:
      return is_on(kPeerCopy) ? kPeerCopy : 0U;
    case DeviceWork::Kind::kFill:
      return is_on(kMemset) ? kMemset : 0U;
  }
  return 0;
}

void on_work(const DeviceWork& work) {
  Entry entry;
  entry.kind = kind_of(work);
  if (entry.kind == 0) return;
  entry.correlation = t_call.depth > 0 ? t_call.correlation : g_next_correlation.fetch_add(1);
  entry.start_ns = work.start_ns;
  entry.end_ns = work.end_ns;
  entry.work = work;
  append(entry);
}

constexpr ActivitySink kSink{on_enter, on_leave, on_work};

bool any_api() {
  for (const auto& domain : g_apis) {
    for (const auto& on : domain) {
      if (on.load(std::memory_order_relaxed)) return true;
    }
  }
  return false;
}

// Under g_selection. The driver is loaded if nobody has: CUPTI may be called before CUDA.
void install() {
  static ActivityTap* tap = nullptr;
  const bool wanted = g_kinds.load() != 0 || any_api();
  if (tap == nullptr && wanted) {
    void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    using GetTap = ActivityTap* (*)();
    const auto get = driver == nullptr
                         ? nullptr
                         : reinterpret_cast<GetTap>(::dlsym(driver, "fragscope_sim_activity_tap"));
    tap = get == nullptr ? nullptr : get();
  }
  if (tap != nullptr) tap->store(wanted ? &kSink : nullptr, std::memory_order_release);
}

}  // namespace

bool select_kind(uint32_t kind, bool on) {
  if (kind >= kMostKinds || record_bytes(kind) == 0) return false;
  const std::lock_guard<std::mutex> guard(g_selection);
  const uint64_t bit = uint64_t{1} << kind;
  g_kinds.store(on ? g_kinds.load() | bit : g_kinds.load() & ~bit);
  if (kind == kDriver || kind == kRuntime) {  // overrides what was said of single functions
    for (auto& each : g_apis[kind == kDriver ? 0 : 1]) each.store(on);
  }
  install();
  return true;
}

bool select_api(ApiDomain domain, uint32_t id, bool on) {
  if (id >= kMostApiIds || api_name(domain, id) == nullptr) return false;
  const std::lock_guard<std::mutex> guard(g_selection);
  g_apis[static_cast<size_t>(domain)][id].store(on);
  install();
  return true;
}

void select_nothing() {
  const std::lock_guard<std::mutex> guard(g_selection);
  g_kinds.store(0);
  for (auto& domain : g_apis) {
    for (auto& on : domain) on.store(false);
  }
  install();
}

void number_threads_by_system(bool by_system) { g_system_threads.store(by_system); }
bool threads_are_numbered_by_system() { return g_system_threads.load(); }

bool push_external(uint32_t kind, uint64_t id) {
  if (kind == 0 || kind >= kExternalKinds || t_call.has_ended) return false;
  try {
    if (t_call.external == nullptr) t_call.external = t_owner.stacks = new ExternalStacks;
    (*t_call.external)[kind].push_back(id);
    return true;
  } catch (...) {
    return false;
  }
}

bool pop_external(uint32_t kind, uint64_t* last) {
  if (kind >= kExternalKinds || t_call.external == nullptr) return false;
  auto& stack = (*t_call.external)[kind];
  if (stack.empty()) return false;
  if (last != nullptr) *last = stack.back();
  stack.pop_back();
  return true;
}

std::vector<Entry> take_entries() {
  std::vector<Entry> taken;
  Queue& all = queue();
  const std::lock_guard<std::mutex> guard(all.lock);
  taken.swap(all.entries);
  return taken;
}

void count_dropped(uint64_t records) {
  Queue& all = queue();
  const std::lock_guard<std::mutex> guard(all.lock);
  all.dropped += records;
}

uint64_t take_dropped() {
  Queue& all = queue();
  const std::lock_guard<std::mutex> guard(all.lock);
  return std::exchange(all.dropped, 0);
}

size_t queued() {
  Queue& all = queue();
  const std::lock_guard<std::mutex> guard(all.lock);
  return all.entries.size();
}

}  // namespace fragscope::simcuda::cupti
