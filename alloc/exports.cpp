// The entry points. Compiled without exceptions: PyTorch's exception of a failed allocation passes
// these frames (torch_error.h).
#include <functional>
#include <string>
#include <utility>

#include "alloc/block_report.h"
#include "alloc/devices.h"
#include "alloc/fragscope_alloc.h"
#include "alloc/live_settings.h"
#include "alloc/stream_pools.h"
#include "alloc/torch_error.h"

#define FRAGSCOPE_EXPORT __attribute__((visibility("default")))

namespace fragscope::alloc {
namespace {

uint64_t number(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// Texts of exceptions and answers outlive the frames that the exception leaves without clean-up.
const char* keep(const std::string& text) {
  static constinit thread_local char kept[2048];
  kept[text.copy(kept, sizeof kept - 1)] = '\0';
  return kept;
}

const char* answer(const std::string& problem) { return problem.empty() ? nullptr : keep(problem); }

struct Failure {
  bool out_of_memory;
  const char* text;
};

// Said before the allocator is asked, in PyTorch's words.
constexpr const char* kTooLarge = "CUDA out of memory. Tried to allocate more than 1EB memory.";

Failure describe(enforce::ServedAllocator* allocator, int device, int result,
                 const std::string& why) {
  if (allocator == nullptr) return {false, keep("fragscope: " + why)};
  if (result == enforce::kOutOfMemory) return {true, keep(allocator->oom_text(device))};
  return {false, keep("CUDA error " + std::to_string(result) + " from cudaMalloc")};
}

void* serve(size_t bytes, int device, void* stream, Failure& failure) {
  if (bytes > enforce::kMaxRequest) {
    failure = {true, kTooLarge};
    return nullptr;
  }
  std::string why;
  take_live_settings();
  enforce::ServedAllocator* allocator = existing_allocator(device);
  if (allocator == nullptr) allocator = allocator_of(device, why);
  const enforce::Served served =
      allocator != nullptr ? allocator->allocate(bytes, number(stream)) : enforce::Served{};
  if (allocator != nullptr && served.result == enforce::kSuccess) {
    return reinterpret_cast<void*>(served.address);
  }
  failure = describe(allocator, device, served.result, why);
  return nullptr;
}

void begin_pool(int device, model::PoolId pool, std::function<bool(uint64_t)> filter) {
  std::string why;
  enforce::ServedAllocator* const allocator = allocator_of(device, why);
  if (allocator == nullptr) return raise_error(keep("fragscope: " + why));
  if (!allocator->begin_pool(pool, std::move(filter))) {
    raise_error("a scope of this memory pool is open already");
  }
}

}  // namespace
}  // namespace fragscope::alloc

using namespace fragscope;
using fragscope::alloc::existing_allocator;

extern "C" {

FRAGSCOPE_EXPORT void* fragscope_alloc_malloc(size_t bytes, int device, void* stream) {
  alloc::Failure failure{false, nullptr};
  void* const block = alloc::serve(bytes, device, stream, failure);
  if (failure.text == nullptr) return block;
  if (failure.out_of_memory) {
    alloc::raise_out_of_memory(failure.text);
  } else {
    alloc::raise_error(failure.text);
  }
  return nullptr;
}

FRAGSCOPE_EXPORT void fragscope_alloc_free(void* block, size_t, int device, void*) {
  // None: a forked child gives back what its parent had.
  enforce::ServedAllocator* const allocator = existing_allocator(device);
  if (allocator != nullptr && block != nullptr) allocator->release(alloc::number(block));
}

FRAGSCOPE_EXPORT const char* fragscope_alloc_configure(const char* settings,
                                                       const char* torch_version) {
  return alloc::answer(alloc::configure(settings != nullptr ? settings : "",
                                        torch_version != nullptr ? torch_version : ""));
}

FRAGSCOPE_EXPORT const char* fragscope_alloc_set(const char* settings) {
  return alloc::answer(alloc::change_settings(settings != nullptr ? settings : ""));
}

// Contexts are made when they are first needed, as PyTorch does.
FRAGSCOPE_EXPORT void fragscope_alloc_init(int) {}

FRAGSCOPE_EXPORT void fragscope_alloc_reset() {
  alloc::for_each_allocator([](enforce::ServedAllocator& allocator) { allocator.empty_cache(); });
}

FRAGSCOPE_EXPORT void fragscope_alloc_memory_fraction(double fraction, int device) {
  std::string why;
  enforce::ServedAllocator* const allocator = alloc::allocator_of(device, why);
  if (allocator == nullptr) return alloc::raise_error(alloc::keep("fragscope: " + why));
  if (!allocator->set_memory_fraction(fraction)) {
    alloc::raise_error("invalid fraction: it has to be between 0 and 1");
  }
}

FRAGSCOPE_EXPORT void* fragscope_alloc_base(void* block, size_t* bytes) {
  void* base = block;
  alloc::for_each_allocator([&](enforce::ServedAllocator& allocator) {
    const auto segment = allocator.base_of(alloc::number(block));
    if (!segment) return;
    base = reinterpret_cast<void*>(segment->first);
    if (bytes != nullptr) *bytes = segment->second;
  });
  return base;
}

FRAGSCOPE_EXPORT void fragscope_alloc_record_stream(void* block, void* stream) {
  alloc::for_each_allocator([&](enforce::ServedAllocator& allocator) {
    static_cast<void>(allocator.record_stream(alloc::number(block), alloc::number(stream)));
  });
}

FRAGSCOPE_EXPORT void fragscope_alloc_stats(
    int device, void (*visit)(const char* key, int64_t value, void* context), void* context) {
  enforce::ServedAllocator* const allocator = existing_allocator(device);
  if (allocator == nullptr) return;
  allocator->visit_stats(
      [=](const std::string& key, int64_t value) { visit(key.c_str(), value, context); });
}

FRAGSCOPE_EXPORT void fragscope_alloc_reset_stats(int device, int peaks) {
  enforce::ServedAllocator* const allocator = existing_allocator(device);
  if (allocator == nullptr) return;
  if (peaks != 0) {
    allocator->reset_peak_stats();
  } else {
    allocator->reset_accumulated_stats();
  }
}

// Graph pools: C++ types of PyTorch's signatures (c10::MempoolId_t, std::function), so not in the C
// header.
using PoolPair = std::pair<unsigned long long, unsigned long long>;

FRAGSCOPE_EXPORT void fragscope_alloc_begin_pool(int device, PoolPair id,
                                                 std::function<bool(void*)> filter);
void fragscope_alloc_begin_pool(int device, PoolPair id, std::function<bool(void*)> filter) {
  alloc::begin_pool(device, {id.first, id.second},
                    [filter](uint64_t stream) { return filter(reinterpret_cast<void*>(stream)); });
}

FRAGSCOPE_EXPORT void fragscope_alloc_end_pool(int device, PoolPair id);
void fragscope_alloc_end_pool(int device, PoolPair id) {
  enforce::ServedAllocator* const allocator = existing_allocator(device);
  if (allocator != nullptr) static_cast<void>(allocator->end_pool({id.first, id.second}));
}

FRAGSCOPE_EXPORT void fragscope_alloc_release_pool(int device, PoolPair id);
void fragscope_alloc_release_pool(int device, PoolPair id) {
  enforce::ServedAllocator* const allocator = existing_allocator(device);
  if (allocator != nullptr) static_cast<void>(allocator->release_pool({id.first, id.second}));
}

// Of torch 2.1 and 2.2.
FRAGSCOPE_EXPORT void fragscope_alloc_begin_stream_pool(int device, void* stream, PoolPair id);
void fragscope_alloc_begin_stream_pool(int device, void* stream, PoolPair id) {
  const uint64_t wanted = alloc::number(stream);
  alloc::begin_pool(device, {id.first, id.second},
                    [wanted](uint64_t given) { return given == wanted; });
  alloc::remember_stream_pool(device, wanted, {id.first, id.second});
}

FRAGSCOPE_EXPORT void fragscope_alloc_end_stream_pool(int device, void* stream);
void fragscope_alloc_end_stream_pool(int device, void* stream) {
  const auto pool = alloc::take_stream_pool(device, alloc::number(stream));
  enforce::ServedAllocator* const allocator = existing_allocator(device);
  if (allocator != nullptr && pool) static_cast<void>(allocator->end_pool(*pool));
}

}  // extern "C"
