#include "shim/call_stack.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

#include "shim/elf_lookup.h"
#include "shim/frame_rules.h"
#include "shim/stack_walk.h"
#include "shim/thread_state.h"

namespace fragscope::shim {
namespace {

#if defined(__x86_64__)
#define FRAGSCOPE_UNW_LOCAL(name) "_ULx86_64_" name
#define FRAGSCOPE_UNW(name) "_Ux86_64_" name
#else
#define FRAGSCOPE_UNW_LOCAL(name) "_ULaarch64_" name
#define FRAGSCOPE_UNW(name) "_Uaarch64_" name
#endif

// libunwind.h's prototypes; the header is not needed for four functions.
using Backtrace = int (*)(void** buffer, int size);
using SetCachingPolicy = int (*)(void* space, int policy);
using SetCacheSize = int (*)(void* space, size_t size, int flags);
using FlushCache = void (*)(void* space, uintptr_t low, uintptr_t high);
constexpr int kCachePerThread = 2;  // UNW_CACHE_PER_THREAD
constexpr size_t kCacheSize = 1024;

constinit std::atomic<Backtrace> g_backtrace;
constinit std::atomic<FlushCache> g_flush;
constinit std::atomic<void*> g_space;

// Calls into libunwind that are under way, spread by thread so that threads do not share a line. A
// forked child inherits the sum of its parent's other threads.
struct alignas(64) Count {
  std::atomic<int32_t> value;
};
constexpr size_t kCounts = 64;
constinit Count g_inside[kCounts]{};

class Inside {
 public:
  Inside() : count_(g_inside[slot()].value) { count_.fetch_add(1, std::memory_order_relaxed); }
  ~Inside() { count_.fetch_sub(1, std::memory_order_relaxed); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  static size_t slot() { return (reinterpret_cast<uintptr_t>(&t_state) >> 12) % kCounts; }
  std::atomic<int32_t>& count_;
};

// How often something was unloaded, and for how many of them the caches were flushed. Threads that
// come together all flush: none takes a stack by rules of code that is gone.
constinit std::atomic<uint64_t> g_unloads{0};
constinit std::atomic<uint64_t> g_flushed{0};

// How many there were.
uint64_t flush_if_unloaded() {
  const uint64_t unloads = g_unloads.load(std::memory_order_acquire);
  if (g_flushed.load(std::memory_order_acquire) == unloads) return unloads;
  const FlushCache flush = g_flush.load(std::memory_order_acquire);
  if (flush != nullptr) flush(g_space.load(std::memory_order_relaxed), 0, 0);
  forget_frame_rules();
  g_flushed.store(unloads, std::memory_order_release);
  return unloads;
}

constinit std::atomic<uintptr_t> g_helper_start{0};
constinit std::atomic<uintptr_t> g_helper_end{0};

bool is_left_out(uint64_t frame) {
  return is_ours(reinterpret_cast<const void*>(frame)) ||
         (frame >= g_helper_start.load(std::memory_order_relaxed) &&
          frame < g_helper_end.load(std::memory_order_relaxed));
}

template <typename T>
T function_in(const LoadedObject& object, const char* name) {
  return reinterpret_cast<T>(find_symbol(object, name));
}

LoadedObject load_unwinder() {
  void* const handle = dlopen("libunwind.so.8", RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    static_cast<void>(dlerror());  // ours, not the host's
    return {};
  }
  return find_object("libunwind.so.8");
}

}  // namespace

bool open_unwinder() noexcept {
  if (g_backtrace.load(std::memory_order_acquire) != nullptr) return true;
  const LoadedObject object = load_unwinder();
  const auto backtrace = function_in<Backtrace>(object, "unw_backtrace");
  if (backtrace == nullptr) return false;
  void** const space =
      static_cast<void**>(find_symbol(object, FRAGSCOPE_UNW_LOCAL("local_addr_space")));
  const auto policy =
      function_in<SetCachingPolicy>(object, FRAGSCOPE_UNW_LOCAL("set_caching_policy"));
  const auto size = function_in<SetCacheSize>(object, FRAGSCOPE_UNW_LOCAL("set_cache_size"));
  if (space != nullptr && policy != nullptr) policy(*space, kCachePerThread);
  if (space != nullptr && size != nullptr) size(*space, kCacheSize, 0);
  if (space != nullptr) {
    g_space.store(*space, std::memory_order_relaxed);
    g_flush.store(function_in<FlushCache>(object, FRAGSCOPE_UNW("flush_cache")),
                  std::memory_order_release);
  }
  g_backtrace.store(backtrace, std::memory_order_release);
  return true;
}

bool is_unwinder_entered() noexcept {
  return std::any_of(std::begin(g_inside), std::end(g_inside), [](const Count& count) {
    return count.value.load(std::memory_order_relaxed) != 0;
  });
}

namespace {

// Of frames as a walk by rules hashes them.
uint64_t hash_of(const uint64_t* frames, size_t count) {
  uint64_t hash = kNoFramesHash;
  for (size_t i = count; i-- > 0;) hash = add_frame_hash(hash, frames[i]);
  return hash;
}

// False: not walked by rules, nothing is appended. The same frames as libunwind's.
bool append_walked_frames(CallStack& out, size_t room, size_t depth, const StackWalk& walk) {
  const WalkMemory* const memory = walk.result();
  if (memory == nullptr) return false;
  const WalkMemory::Frame* const first = memory->frames();
  const WalkMemory::Frame* frame = first + memory->count();
  while (frame > first && is_left_out(frame[-1].state.ip)) --frame;
  const size_t host = static_cast<size_t>(frame - first);
  const size_t most = std::min(room, depth);
  const uint64_t hash = host > 0 ? frame[-1].hash : kNoFramesHash;
  uint64_t* const frames = out.frames + out.count;
  size_t kept = 0;
  for (; frame > first && frame[-1].state.ip != 0 && kept < most; --frame) {
    frames[kept++] = frame[-1].state.ip;
  }
  const bool cut = frame > first && frame[-1].state.ip != 0;
  out.count += kept;
  out.truncated = out.truncated || cut || memory->is_cut();
  out.native_hash = cut ? hash_of(frames, kept) : hash;
  return true;
}

void append_unwound_frames(CallStack& out, size_t room, size_t depth, Backtrace backtrace) {
  uint64_t* const frames = out.frames + out.count;
  const Inside inside;
  const int got = backtrace(reinterpret_cast<void**>(frames), static_cast<int>(room));
  if (got <= 0) return;
  const auto total = static_cast<size_t>(got);
  size_t own = 0;
  while (own < total && is_left_out(frames[own])) ++own;
  const size_t kept = std::min(total - own, depth);
  std::memmove(frames, frames + own, kept * sizeof *frames);
  out.count += kept;
  if (total - own > depth || total == room) out.truncated = true;
  out.native_hash = hash_of(frames, kept);
}

}  // namespace

void append_native_frames(CallStack& out, size_t depth) noexcept {
  const Backtrace backtrace = g_backtrace.load(std::memory_order_acquire);
  if (backtrace == nullptr) return;
  const size_t room = std::min(depth + kMaxOwnFrames, std::size(out.frames) - out.count);
  const uint64_t unloads = flush_if_unloaded();
  {
    const StackWalk walk(state_here(), unloads);
    if (append_walked_frames(out, room, depth, walk)) return;
  }
  append_unwound_frames(out, room, depth, backtrace);
}

void leave_out_frames(uintptr_t start, uintptr_t end) noexcept {
  g_helper_start.store(start, std::memory_order_relaxed);
  g_helper_end.store(end, std::memory_order_relaxed);
}

void flush_unwinder() noexcept { g_unloads.fetch_add(1, std::memory_order_release); }

}  // namespace fragscope::shim
