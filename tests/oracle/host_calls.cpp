#include "tests/oracle/host_calls.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <time.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "tests/oracle/scripted_events.h"

namespace {

using fragscope::model::HostCall;
using fragscope::model::HostCallKind;

struct Memory {
  fragscope::model::HostAddresses addresses;
  std::map<uint64_t, uint64_t> registered;  // pointer -> shown address
  std::vector<HostCall> calls;
};

Memory& memory() {
  static Memory* all = new Memory;  // outlives the allocator's own destructors
  return *all;
}

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool arrived = false;  // the thread has slept once
  bool open = false;     // it runs freely
  uint64_t granted = 0;  // rounds
  uint64_t begun = 0;
  bool sleeping = false;
};

Gate& gate() {
  static Gate* one = new Gate;
  return *one;
}

const pthread_t main_thread = pthread_self();

}  // namespace

namespace fragscope::oracle {

std::vector<HostCall> take_host_calls() { return std::exchange(memory().calls, {}); }

uint64_t shown_host_address(uint64_t pointer) {
  const auto at = memory().registered.find(pointer);
  return at == memory().registered.end() ? pointer : at->second;
}

void await_background() {
  std::unique_lock lock(gate().mutex);
  gate().changed.wait(lock, [] { return gate().sleeping; });
}

void run_background() {
  std::unique_lock lock(gate().mutex);
  if (!gate().arrived) return;
  const uint64_t round = ++gate().granted;
  gate().changed.notify_all();
  gate().changed.wait(lock, [round] { return gate().begun == round && gate().sleeping; });
}

void release_background() {
  const std::lock_guard lock(gate().mutex);
  gate().open = true;
  gate().changed.notify_all();
}

}  // namespace fragscope::oracle

#define FRAGSCOPE_OVERRIDE extern "C" __attribute__((visibility("default")))

// The allocator's background thread pauses between its rounds by the C library's function of this
// name; nobody else on another thread does. Here it waits for the list, not for the clock.
FRAGSCOPE_OVERRIDE int
pause_between_rounds(const struct timespec* wanted, struct timespec* left) asm(
    "nano"
    "sleep");

int pause_between_rounds(const struct timespec* wanted, struct timespec* left) {
  if (pthread_equal(pthread_self(), main_thread)) {
    return clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
  }
  std::unique_lock lock(gate().mutex);
  gate().arrived = gate().sleeping = true;
  gate().changed.notify_all();
  gate().changed.wait(lock, [] { return gate().open || gate().begun < gate().granted; });
  if (gate().open) {
    lock.unlock();
    return clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
  }
  ++gate().begun;
  gate().sleeping = false;
  return 0;
}

FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI cudaHostAlloc(void** pointer, size_t bytes, unsigned int) {
  const auto address = memory().addresses.take(bytes);
  if (!address) return cudaErrorMemoryAllocation;
  memory().calls.push_back({HostCallKind::kAlloc, *address, bytes});
  *pointer = reinterpret_cast<void*>(*address);
  return cudaSuccess;
}

FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI cudaFreeHost(void* pointer) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  if (!memory().addresses.give_back(address)) return cudaErrorInvalidValue;
  memory().calls.push_back({HostCallKind::kFree, address, {}});
  return cudaSuccess;
}

FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI cudaHostRegister(void* pointer, size_t bytes,
                                                          unsigned int) {
  const auto address = memory().addresses.take(bytes);
  if (!address) return cudaErrorMemoryAllocation;
  memory().registered[reinterpret_cast<uint64_t>(pointer)] = *address;
  memory().calls.push_back({HostCallKind::kRegister, *address, bytes});
  return cudaSuccess;
}

FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI cudaHostUnregister(void* pointer) {
  const auto at = memory().registered.find(reinterpret_cast<uint64_t>(pointer));
  if (at == memory().registered.end()) return cudaErrorInvalidValue;
  memory().calls.push_back({HostCallKind::kUnregister, at->second, {}});
  memory().addresses.give_back(at->second);
  memory().registered.erase(at);
  return cudaSuccess;
}

// Releases that look at the registered pages from the device's side (up to 2.6).
FRAGSCOPE_OVERRIDE cudaError_t CUDARTAPI cudaHostGetDevicePointer(void** device, void* host,
                                                                  unsigned int) {
  *device = host;
  return cudaSuccess;
}
