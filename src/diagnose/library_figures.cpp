// Figures of other libraries that no phrase with one figure beside it can tell.
#include <algorithm>

#include "diagnose/message_collector.h"

namespace fragscope::diagnose {
namespace {

// Does `what` stand within `reach` characters in front of `at`?
bool stands_before(std::string_view text, size_t at, size_t reach, std::string_view what) {
  const size_t begin = at - std::min(at, reach);
  return text.substr(begin, at - begin).find(what) != std::string_view::npos;
}

}  // namespace

// "Device 0 OOM 18446744073707737660 / 24146608128": used / limit, used may have underflowed.
void MessageCollector::read_hami(const Place& place) {
  size_t begin = place.at;
  const auto device = integer_before(place.text, place.at, &begin);
  if (!device || !ends_at(place.text, begin, "device")) return;
  size_t slash = place.behind;
  while (slash < place.text.size() && slash - place.behind < 24 && place.text[slash] >= '0' &&
         place.text[slash] <= '9') {
    ++slash;
  }
  const auto limit = integer_after(place.text, slash + 1);
  if (slash == place.behind || !starts_at(place.text, slash, "/") || !limit) return;
  start_message(Family::kHami, place);
  current_->device_index = device;
  store(Field::kLimit, Quantity::exact(*limit));
  const auto used = integer_after(place.text, place.behind);
  if (used) store(Field::kReserved, Quantity::exact(*used));
}

// "out of memory" in words nobody foresaw; beside a GPU it is about the GPU.
void MessageCollector::read_generic(const Place& place) {
  // "srun: error: gpu001: task 0: Out Of Memory" is the job's limit of host memory.
  size_t task = place.at;
  if (ends_at(place.text, task, ":")) {
    integer_before(place.text, task - 1, &task);
    if (ends_at(place.text, task, "task") && stands_before(place.text, task, 64, "srun:error:")) {
      open({.text = "outofmemory", .opens = Opens::kYes, .family = Family::kHostRam}, place);
      return;
    }
  }
  const size_t begin = place.at - std::min<size_t>(place.at, 48);
  const std::string_view around = place.text.substr(begin, place.behind + 32 - begin);
  for (const std::string_view device : {"cuda", "gpu", "hip", "nvidia"}) {
    if (around.find(device) == std::string_view::npos) continue;
    open({.text = "outofmemory", .opens = Opens::kYes, .family = Family::kBareCuda}, place);
    return;
  }
}

// "Free memory on device (5.32/23.68 GiB) on startup is less than desired …"
void MessageCollector::read_vllm_free(const Place& place) {
  const size_t paren = place.text.substr(place.behind, 16).find('(');
  if (paren == std::string_view::npos) return;
  const size_t begin = place.behind + paren + 1;
  const size_t slash = place.text.substr(begin, 24).find('/');
  if (slash == std::string_view::npos) return;
  const auto total = quantity_after(place.text, begin + slash + 1, Unit::kRequired);
  if (!total) return;
  std::string free(place.text.substr(begin, slash));
  const size_t digits = place.text.substr(begin + slash + 1).find_first_not_of("0123456789.,");
  const size_t unit = begin + slash + 1 + digits;
  if (free.find_first_not_of("0123456789.,") == std::string::npos) {
    free.append(place.text.substr(unit, total->end - unit));
  }
  const auto available = quantity_after(free, 0, Unit::kRequired);
  start_message(Family::kServerStartup, place);
  store(Field::kTotal, total->value);
  if (available) store(Field::kFree, available->value);
}

// "Effective GPU memory usage: 91.54% (14.446 GiB/15.782 GiB)": in use by all / the card.
void MessageCollector::read_julia_device(const Place& place) {
  if (!current_ || current_->family != Family::kJulia) return;
  const size_t paren = place.text.substr(place.behind, 16).find('(');
  if (paren == std::string_view::npos) return;
  const auto in_use = quantity_after(place.text, place.behind + paren, Unit::kRequired);
  if (!in_use || !starts_at(place.text, in_use->end, "/")) return;
  const auto total = quantity_after(place.text, in_use->end + 1, Unit::kRequired);
  store(Field::kDeviceInUse, in_use->value);
  if (total) store(Field::kTotal, total->value);
  current_->end = place.position;
}

// "current/max/try size = 12.0 GiB, 12.0 GiB, 3.7 GiB" of RMM's pool.
void MessageCollector::read_rmm_sizes(const Place& place) {
  if (!current_ || current_->family != Family::kPoolLimit) return;
  const auto current = quantity_after(place.text, place.behind, Unit::kRequired);
  if (!current || !starts_at(place.text, current->end, ",")) return;
  const auto limit = quantity_after(place.text, current->end + 1, Unit::kRequired);
  if (!limit) return;
  store(Field::kReserved, current->value);
  store(Field::kLimit, limit->value);
}

// "Available memory of 0 is smaller than requested bytes of 2048" of ONNX Runtime's arena, behind
// a signature that each compiler spells its own way.
void MessageCollector::read_arena_free(const Place& place) {
  constexpr std::string_view kThan = "issmallerthanrequestedbytesof";
  const auto free = quantity_after(place.text, place.behind, Unit::kOptional);
  if (!free || !starts_at(place.text, free->end, kThan)) return;
  open({.text = "availablememoryof", .opens = Opens::kYes, .family = Family::kPoolLimit}, place);
  if (current_->family != Family::kPoolLimit) return;
  store(Field::kFree, free->value);
  const size_t behind = free->end + kThan.size();
  if (const auto tried = quantity_after(place.text, behind, Unit::kLast)) {
    store(Field::kTried, tried->value);
  }
}

// "failed to allocate CUDA0 buffer of size 151851674624" of ggml.
void MessageCollector::read_ggml_buffer(const Place& place) {
  if (!stands_before(place.text, place.at, 28, "failedtoallocate")) return;
  if (stands_before(place.text, place.at, 28, "failedtoallocatememory")) return;
  open({.text = place.text.substr(place.at, place.behind - place.at),
        .opens = Opens::kYes,
        .family = Family::kCudaMalloc,
        .field = static_cast<uint8_t>(Field::kTried),
        .at = At::kLast},
       place);
}

// "invalid argument" names the call that failed behind it in some stack traces.
bool MessageCollector::pinning_follows(const Place& place) const {
  const std::string_view next = place.text.substr(place.behind, 200);
  for (const std::string_view call : {"cudahostregister", "cudahostalloc", "pin_memory"}) {
    if (next.find(call) != std::string_view::npos) return true;
  }
  return false;
}

// A shell's "Killed" as the last word of a log that tells nothing else.
void MessageCollector::end_of_text(std::string_view text, uint64_t base) {
  if (context_ || messages_ > 0 || !ends_at(text, text.size(), "killed")) return;
  const size_t at = text.size() - 6;
  start_message(Family::kKilled, {text, at, text.size(), base + at});
}

}  // namespace fragscope::diagnose
