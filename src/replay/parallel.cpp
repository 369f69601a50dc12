#include "replay/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace fragscope::replay {

void run_in_parallel(size_t count, unsigned threads, const std::function<void(size_t)>& work,
                     const std::function<void(size_t)>& progress) {
  std::atomic<size_t> next{0};
  std::mutex reporting;
  size_t done = 0;
  const auto take = [&] {
    for (size_t i = next++; i < count; i = next++) {
      work(i);
      const std::lock_guard lock(reporting);
      ++done;
      if (progress) progress(done);
    }
  };
  if (threads == 0) threads = std::max(std::thread::hardware_concurrency(), 1u);
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads && i < count; ++i) others.emplace_back(take);
  take();
  for (std::thread& other : others) other.join();
}

}  // namespace fragscope::replay
