// Walks by rules against the unwinder of the C library, frame by frame.
#include "shim/stack_walk.h"

#include <alloca.h>
#include <execinfo.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "shim/thread_state.h"
#include "tests/support/catch.h"

namespace fragscope::shim {
constinit thread_local ThreadState t_state{};
}

using namespace fragscope::shim;

namespace {

#define OPTIMIZED __attribute__((noinline, optimize("O2", "omit-frame-pointer")))

struct Compared {
  size_t walks = 0;
  size_t equal = 0;
  size_t not_walked = 0;
};

std::vector<uint64_t> frames_of(const WalkMemory& memory) {
  std::vector<uint64_t> frames;
  for (size_t i = memory.count(); i-- > 0;) {
    if (memory.frames()[i].state.ip != 0) frames.push_back(memory.frames()[i].state.ip);
  }
  return frames;
}

uint64_t hash_of(const std::vector<uint64_t>& frames) {
  uint64_t hash = kNoFramesHash;
  for (size_t i = frames.size(); i-- > 0;) hash = add_frame_hash(hash, frames[i]);
  return hash;
}

// Both from here outwards; the first frame is this function, at two places.
OPTIMIZED void compare(WalkMemory& memory, Compared& out) {
  void* reference[WalkMemory::kMostFrames];
  ++out.walks;
  if (!memory.walk(state_here())) {
    ++out.not_walked;
    return;
  }
  const int count = backtrace(reference, static_cast<int>(std::size(reference)));
  std::vector<uint64_t> wanted;
  for (int i = 0; i < count; ++i) wanted.push_back(reinterpret_cast<uint64_t>(reference[i]));
  std::vector<uint64_t> frames = frames_of(memory);
  const bool hash_is_right = memory.frames()[memory.count() - 1].hash == hash_of(frames);
  frames[0] = wanted[0] = 0;
  if (frames == wanted && hash_is_right) ++out.equal;
}

using Next = std::function<void(int)>;

OPTIMIZED void plain(int depth, const Next& next) {
  next(depth);
  asm volatile("");
}
OPTIMIZED void from_two_places(int depth, const Next& next) {
  if (depth % 2 == 0) {
    next(depth);
    asm volatile("");
  } else {
    next(depth);
    asm volatile("nop");
  }
}
OPTIMIZED void large(int depth, const Next& next) {
  volatile char room[3000];
  room[0] = static_cast<char>(depth);
  next(depth);
  room[1] = room[0];
}
OPTIMIZED void by_base_pointer(int depth, const Next& next) {
  auto* const room = static_cast<volatile char*>(alloca(static_cast<size_t>(16 + depth * 8)));
  room[0] = 1;
  next(depth);
  room[1] = room[0];
}
void with_frame_pointer(int depth, const Next& next) {
  next(depth);
  asm volatile("");
}
thread_local const std::function<void()>* t_inside;
void through_libc(int depth, const Next& next) {
  const std::function<void()> inside = [&] { next(depth); };
  t_inside = &inside;
  const int key = 0;
  static_cast<void>(std::bsearch(&key, &key, 1, sizeof key, [](const void*, const void*) {
    (*t_inside)();
    return 0;
  }));
}

using Way = void (*)(int, const Next&);
constexpr Way kWays[] = {plain,           from_two_places,    large,
                         by_base_pointer, with_frame_pointer, through_libc};

// Goes down and up by chance and compares at every turn: most stacks share their outer part with
// the one before, in places at the same addresses by other ways.
void wander(WalkMemory& memory, Compared& compared, std::mt19937& random, int depth) {
  const auto turns = 1 + random() % 3;
  for (unsigned turn = 0; turn < turns; ++turn) {
    compare(memory, compared);
    if (depth == 0) continue;
    const Next next = [&](int left) { wander(memory, compared, random, left); };
    kWays[random() % std::size(kWays)](depth - 1, next);
  }
}

}  // namespace

TEST_CASE("walks find the frames that the unwinder finds, whatever the last walk found") {
  const auto memory = std::make_unique<WalkMemory>();
  Compared compared;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    wander(*memory, compared, random, 9);
  }
  CHECK(compared.walks > 10000);
  CHECK(compared.not_walked == 0);
  CHECK(compared.equal == compared.walks);
}

TEST_CASE("a thread's stack is walked to its beginning") {
  const auto memory = std::make_unique<WalkMemory>();
  Compared compared;
  for (int i = 0; i < 3; ++i) {  // the same memory, on stacks at the same place
    std::thread([&] {
      std::mt19937 random(7);
      wander(*memory, compared, random, 5);
    }).join();
  }
  CHECK(compared.not_walked == 0);
  CHECK(compared.equal == compared.walks);
}

TEST_CASE("a word that has changed is noticed, though all inside of it is as it was") {
  // One stack, written by hand: the same innermost frame, then another return address further out.
  const auto memory = std::make_unique<WalkMemory>();
  Compared compared;
  const Next stop = [&](int) { compare(*memory, compared); };
  for (int round = 0; round < 8; ++round) {
    const Next inner = [&](int depth) { plain(depth, stop); };
    from_two_places(round, [&](int) { from_two_places(0, inner); });
  }
  CHECK(compared.not_walked == 0);
  CHECK(compared.equal == 8);
}

namespace {

WalkMemory* g_memory;
Compared g_compared;
using Leaf = void (*)();

OPTIMIZED void sized(size_t bytes, Leaf leaf) {
  auto* const room = static_cast<volatile char*>(alloca(bytes));
  room[0] = 1;
  leaf();
  room[1] = room[0];
}
// What lies in `room` from an earlier call stays there.
template <size_t kBytes>
OPTIMIZED void padded(size_t bytes, Leaf leaf) {
  char room[kBytes];
  asm volatile("" ::"r"(room) : "memory");
  sized(bytes, leaf);
  asm volatile("" ::"r"(room) : "memory");
}
// These save the base pointer of sized() (they are compiled with one): near its frame, or further
// inside.
__attribute__((noinline)) void save_near() {
  char room[1024];
  asm volatile("" ::"r"(room) : "memory");
  compare(*g_memory, g_compared);
}
__attribute__((noinline)) void save_framed() { compare(*g_memory, g_compared); }
OPTIMIZED void save_further_inside() {
  char room[256];
  asm volatile("" ::"r"(room) : "memory");
  save_framed();
  asm volatile("" ::"r"(room) : "memory");
}

}  // namespace

TEST_CASE("a base pointer that has changed is noticed, wherever it was saved the last time") {
  const auto memory = std::make_unique<WalkMemory>();
  g_memory = memory.get();
  const Leaf first = GENERATE(&save_near, &save_further_inside);
  g_compared = {};
  // The frame of sized() begins 64 bytes further in and is 64 bytes smaller: all inside of it is at
  // the same addresses, and the words of the longer frame are still where they were.
  padded<64>(512, first);
  padded<64>(512, &save_near);
  padded<128>(512 - 64, &save_near);
  CHECK(g_compared.not_walked == 0);
  CHECK(g_compared.equal == 3);
}

TEST_CASE("code without call frame information is not walked by rules") {
  // sub rsp, 8; call rdi; add rsp, 8; ret
  const unsigned char code[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3};
  void* const page =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  std::memcpy(page, code, sizeof code);
  const auto memory = std::make_unique<WalkMemory>();
  g_memory = memory.get();
  g_compared = {};
  reinterpret_cast<void (*)(Leaf)>(page)(&save_framed);
  CHECK(g_compared.walks == 1);
  CHECK(g_compared.not_walked == 1);
  munmap(page, 4096);
}

TEST_CASE("stacks deeper than there is room for are not walked, the next one is") {
  const auto memory = std::make_unique<WalkMemory>();
  Compared compared;
  const std::function<void(int)> down = [&](int left) {
    if (left > 0) return down(left - 1);
    compare(*memory, compared);
  };
  down(static_cast<int>(WalkMemory::kMostFrames));
  CHECK(compared.not_walked == 1);
  compare(*memory, compared);
  CHECK(compared.equal == 1);
}

TEST_CASE("a memory belongs to one walk at a time") {
  const StackWalk outer(state_here(), 0);
  REQUIRE(outer.result() != nullptr);
  const StackWalk inner(state_here(), 0);  // a signal handler's, say
  CHECK(inner.result() == nullptr);
}

TEST_CASE("after something was unloaded frames are read anew and are the same") {
  std::vector<uint64_t> before;
  for (uint64_t generation = 1; generation <= 3; ++generation) {
    const StackWalk walk(state_here(), generation);
    REQUIRE(walk.result() != nullptr);
    const std::vector<uint64_t> frames = frames_of(*walk.result());
    if (generation > 1) CHECK(frames == before);
    before = frames;
    forget_frame_rules();
  }
}
