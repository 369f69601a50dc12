// derive(): what the printed figures add up to.
#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "diagnose/device_arithmetic.h"

namespace fragscope::diagnose {
namespace {

// Bytes of other processes: listed ones, or what the card has in use beyond this process.
std::optional<int64_t> other_processes(const OomFacts& f, const Derived& d) {
  const auto& in_use = f[Field::kProcessInUse];
  if (in_use && f[Field::kTotal] && f[Field::kFree]) {
    const int64_t rest =
        signed_bytes(*f[Field::kTotal]) - signed_bytes(*f[Field::kFree]) - signed_bytes(*in_use);
    int64_t listed = 0;
    for (const auto& process : f.listed_processes) listed += signed_bytes(process.in_use);
    return std::max<int64_t>({rest, listed, 0});
  }
  if (f.listed_processes.empty() || !d.reserved || !f[Field::kTotal] || !f[Field::kFree]) {
    return std::nullopt;
  }
  int64_t listed = 0;
  for (const auto& process : f.listed_processes) listed += signed_bytes(process.in_use);
  const int64_t used = signed_bytes(*f[Field::kTotal]) - signed_bytes(*f[Field::kFree]);
  // In a container the process finds itself under its host pid: then the listed ones explain all
  // that is in use, and one of them holds what PyTorch has reserved.
  if (used - listed >= *d.reserved - static_cast<int64_t>(kGiB) / 4) return listed;
  int64_t self = 0;
  for (const auto& process : f.listed_processes) {
    const int64_t bytes = signed_bytes(process.in_use);
    if (bytes >= *d.reserved && (self == 0 || bytes < self)) self = bytes;
  }
  return listed - self;
}

}  // namespace

Derived derive(const OomFacts& f) {
  Derived d;
  const auto allocated = signed_bytes(f[Field::kAllocated]);
  const auto free = signed_bytes(f[Field::kFree]);
  const auto total = signed_bytes(f[Field::kTotal]);
  d.idle_reserved =
      signed_bytes(f[Field::kUnallocated] ? f[Field::kUnallocated] : f[Field::kCached]);
  if (f[Field::kReserved]) {
    d.reserved = signed_bytes(f[Field::kReserved]);
    // CuPy's one figure is what its pool got, idle memory included.
    if (allocated && f.family != Family::kCupy) d.idle_reserved = *d.reserved - *allocated;
  } else if (allocated && d.idle_reserved) {
    d.reserved = *allocated + *d.idle_reserved;
  }
  if (free && d.idle_reserved) d.obtainable = *free + *d.idle_reserved;
  if (total && free && d.reserved) d.outside_pytorch = *total - *free - *d.reserved;
  d.other_processes = other_processes(f, d);
  auto cap = signed_bytes(f[Field::kAllowed] ? f[Field::kAllowed] : f[Field::kLimit]);
  if (!cap && total && f.memory_fraction) {
    cap = std::llround(*f.memory_fraction * static_cast<double>(*total));
  }
  // A fraction of 1 is printed as well, and limits nothing.
  if (cap && (!total || *cap < *total - slack(f[Field::kTotal]) - slack(f[Field::kAllowed]))) {
    d.cap = cap;
  }
  return d;
}

}  // namespace fragscope::diagnose
