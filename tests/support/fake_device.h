// A device for tests of src/enforce: memory with a capacity, streams whose work is done when a test
// says so, events. Remembers which bytes unfinished work touches, and whether a block was handed
// out while such work was under way.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "enforce/device_api.h"

namespace fragscope::test {

class FakeDevice : public enforce::DeviceApi {
 public:
  explicit FakeDevice(uint64_t capacity) : capacity_(capacity) {}

  enforce::CudaResult malloc(uint64_t bytes, uint64_t& address) override {
    const std::lock_guard lock(mutex_);
    calls.push_back({bytes, true});
    if (used_ + bytes > capacity_) return enforce::kOutOfMemory;
    address = next_;
    next_ += (bytes + kPage - 1) / kPage * kPage;
    used_ += bytes;
    segments[address] = bytes;
    return enforce::kSuccess;
  }
  enforce::CudaResult free(uint64_t address) override {
    const std::lock_guard lock(mutex_);
    const auto found = segments.find(address);
    if (found == segments.end()) return enforce::kInvalidValue;
    calls.push_back({found->second, false});
    used_ -= found->second;
    segments.erase(found);
    return enforce::kSuccess;
  }
  enforce::CudaResult synchronize() override {
    const std::lock_guard lock(mutex_);
    ++waits;
    if (wait_result != enforce::kSuccess) return wait_result;
    for (auto& [stream, state] : streams_) state.done = state.submitted;
    return enforce::kSuccess;
  }
  bool may_synchronize() override { return may_wait; }
  bool memory_info(uint64_t& free_bytes, uint64_t& total) override {
    const std::lock_guard lock(mutex_);
    free_bytes = capacity_ - used_;
    total = capacity_;
    return true;
  }
  void forget_last_error() override { ++forgotten; }
  enforce::Event record_event(uint64_t stream) override {
    const std::lock_guard lock(mutex_);
    if (refuses_events) return nullptr;
    events_.push_back(std::make_unique<Mark>(Mark{stream, ++streams_[stream].submitted}));
    return events_.back().get();
  }
  enforce::EventState query_event(enforce::Event event) override {
    const std::lock_guard lock(mutex_);
    const auto* const mark = static_cast<const Mark*>(event);
    const bool done = streams_[mark->stream].done >= mark->tick;
    return done ? enforce::EventState::kDone : enforce::EventState::kPending;
  }
  enforce::CudaResult wait_event(enforce::Event event) override {
    const std::lock_guard lock(mutex_);
    const auto* const mark = static_cast<const Mark*>(event);
    Progress& stream = streams_[mark->stream];
    stream.done = std::max(stream.done, mark->tick);
    return enforce::kSuccess;
  }
  void drop_event(enforce::Event event) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(events_, [event](const auto& mark) { return mark.get() == event; });
  }

  // Work on `stream` that touches these bytes.
  void work(uint64_t stream, uint64_t address, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    work_.push_back({stream, ++streams_[stream].submitted, address, bytes});
  }
  void finish(uint64_t stream) {
    const std::lock_guard lock(mutex_);
    streams_[stream].done = streams_[stream].submitted;
  }
  // Unfinished work of other streams than `stream` touches these bytes: whoever gets them now, for
  // work on `stream`, reads or writes what is not its own.
  bool in_use_elsewhere(uint64_t stream, uint64_t address, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    return std::any_of(work_.begin(), work_.end(), [&](const Work& work) {
      return work.stream != stream && streams_[work.stream].done < work.tick &&
             work.address < address + bytes && address < work.address + work.bytes;
    });
  }
  size_t live_events() {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }

  struct Call {
    uint64_t bytes;
    bool is_malloc;
    bool operator==(const Call&) const = default;
  };
  std::vector<Call> calls;
  std::map<uint64_t, uint64_t> segments;
  int waits = 0;
  int forgotten = 0;
  enforce::CudaResult wait_result = enforce::kSuccess;
  bool refuses_events = false;
  bool may_wait = true;

 private:
  static constexpr uint64_t kPage = uint64_t{2} << 20;
  struct Mark {
    uint64_t stream;
    uint64_t tick;
  };
  struct Work {
    uint64_t stream;
    uint64_t tick;
    uint64_t address;
    uint64_t bytes;
  };
  struct Progress {
    uint64_t submitted = 0;
    uint64_t done = 0;
  };

  std::mutex mutex_;
  uint64_t capacity_;
  uint64_t used_ = 0;
  uint64_t next_ = uint64_t{0x7} << 40;
  std::map<uint64_t, Progress> streams_;
  std::vector<std::unique_ptr<Mark>> events_;
  std::vector<Work> work_;
};

}  // namespace fragscope::test
