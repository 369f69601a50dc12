// Where streams lie: in order of creation, see CUstream_st. Callers hold the driver's lock.
#include <sys/mman.h>

#include <new>
#include <set>

#include "simcuda/driver/objects.h"

namespace {

constexpr size_t kStride = 256;
constexpr size_t kMost = 65536;  // streams alive at once; more of them come from the heap
static_assert(sizeof(CUstream_st) <= kStride);

struct Handles {
  char* begin = nullptr;
  size_t used = 0;
  std::set<char*> free;

  Handles() {
    void* const place = mmap(nullptr, kStride * kMost, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place != MAP_FAILED) begin = static_cast<char*>(place);
  }
  bool has(const char* handle) const {
    return begin != nullptr && handle >= begin && handle < begin + kStride * kMost;
  }
};

Handles& handles() {
  static auto* const all = new Handles;  // streams live as long as the process
  return *all;
}

}  // namespace

void* CUstream_st::operator new(size_t bytes) {
  Handles& all = handles();
  if (!all.free.empty()) return all.free.extract(all.free.begin()).value();
  if (all.begin == nullptr || all.used == kMost) return ::operator new(bytes);
  return all.begin + kStride * all.used++;
}

void CUstream_st::operator delete(void* handle) {
  Handles& all = handles();
  char* const place = static_cast<char*>(handle);
  if (!all.has(place)) return ::operator delete(handle);
  all.free.insert(place);
}
