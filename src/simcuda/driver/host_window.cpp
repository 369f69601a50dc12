#include "simcuda/driver/host_window.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <new>
#include <set>

#include "base/bytes.h"

namespace fragscope::simcuda {

namespace {

constexpr int kAccess = PROT_READ | PROT_WRITE;

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// Maps exactly there. MAP_FAILED with EEXIST: something else is there.
void* map_at(uint64_t place, size_t bytes, int flags) {
  void* const wanted = reinterpret_cast<void*>(place);
  void* const at = ::mmap(wanted, bytes, kAccess, flags | MAP_FIXED_NOREPLACE, -1, 0);
  if (at == MAP_FAILED || at == wanted) return at;
  ::munmap(at, bytes);  // before Linux 4.17 the address is a wish
  errno = EEXIST;
  return MAP_FAILED;
}

}  // namespace

void* HostWindow::map(size_t bytes, int flags) {
  flags |= MAP_PRIVATE | MAP_ANONYMOUS;
  const uint64_t pages = bytes > bytes_ ? UINT64_MAX : round_up(bytes, page_bytes());
  uint64_t step = pages;  // doubled from one taken place to the next: large ones are passed soon
  for (auto hole = holes_.begin(); hole != holes_.end();) {
    if (hole->second < pages) {
      ++hole;
      continue;
    }
    const uint64_t place = hole->first;
    void* const at = map_at(place, bytes, flags);
    if (at == MAP_FAILED && errno != EEXIST) return at;
    cut(hole, at == MAP_FAILED ? std::min(step, hole->second) : pages);
    if (at != MAP_FAILED) return at;
    step = std::min(step * 2, bytes_);
    hole = holes_.lower_bound(place);
  }
  return ::mmap(nullptr, bytes, kAccess, flags, -1, 0);
}

void HostWindow::unmap(void* at, size_t bytes) {
  ::munmap(at, bytes);
  const auto place = reinterpret_cast<uint64_t>(at);
  if (place - base_ < bytes_) give_back(holes_, place, round_up(bytes, page_bytes()));
}

// Takes the first `bytes` of a hole.
void HostWindow::cut(FreeRanges::iterator hole, uint64_t bytes) {
  const uint64_t begin = hole->first + bytes;
  const uint64_t left = hole->second - bytes;
  holes_.erase(hole);
  if (left != 0) holes_.emplace(begin, left);
}

namespace {

constexpr size_t kStride = 128;           // sizes are told apart that far
constexpr uint64_t kRoom = 256ull << 20;  // of each size; beyond it objects come from the heap
constexpr size_t kLargestObject = 16384;

struct Places {
  char* begin = nullptr;  // null: not to be had
  size_t used = 0;
  std::set<char*> free;
};

struct Objects {
  std::mutex lock;
  std::map<size_t, Places> by_size;

  // Each size has its own part of the window, whichever is used first.
  Places& places(size_t stride) {
    const auto found = by_size.try_emplace(stride);
    Places& all = found.first->second;
    if (!found.second) return all;
    const uint64_t place = kHandleWindowBase + (stride / kStride) * kRoom;
    void* const at = map_at(place, kRoom, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if (at != MAP_FAILED) all.begin = static_cast<char*>(at);
    return all;
  }
};

Objects& objects() {
  static auto* const all = new Objects;  // handles live as long as the process
  return *all;
}

}  // namespace

void* PlacedObject::operator new(size_t bytes) {
  if (bytes > kLargestObject) return ::operator new(bytes);
  const size_t stride = round_up(bytes, kStride);
  Objects& all = objects();
  const std::lock_guard<std::mutex> guard(all.lock);
  Places& places = all.places(stride);
  if (!places.free.empty()) return places.free.extract(places.free.begin()).value();
  if (places.begin == nullptr || places.used + stride > kRoom) return ::operator new(bytes);
  char* const at = places.begin + places.used;
  places.used += stride;
  return at;
}

void PlacedObject::operator delete(void* object, size_t bytes) {
  const auto place = reinterpret_cast<uint64_t>(object);
  if (place - kHandleWindowBase >= kHandleWindowBytes) return ::operator delete(object);
  Objects& all = objects();
  const std::lock_guard<std::mutex> guard(all.lock);
  all.places(round_up(bytes, kStride)).free.insert(static_cast<char*>(object));
}

}  // namespace fragscope::simcuda
