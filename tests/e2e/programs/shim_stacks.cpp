// Stacks that lead where nothing can be read: call frame information that is wrong, stacks that end
// at a guard page, stacks that are gone by the next call. Usage: shim_stacks MODE
#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "shim_fake.h"

#define NOT_INLINED __attribute__((noinline))

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kStackBytes = size_t{256} << 10;

NOT_INLINED void allocate() {
  void* out = nullptr;
  if (cudaMalloc(&out, 256) == 0) cudaFree(out);
  asm volatile("");
}

// Guard pages right below and right above.
class Stack {
 public:
  explicit Stack(size_t bytes) : bytes_(bytes) {
    base_ = static_cast<char*>(
        mmap(nullptr, bytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + kPage, bytes, PROT_READ | PROT_WRITE);
  }
  ~Stack() { munmap(base_, bytes_ + 2 * kPage); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  char* low() const { return base_ + kPage; }
  char* top() const { return base_ + kPage + bytes_; }

 private:
  char* base_ = nullptr;
  size_t bytes_;
};

using Function = void (*)();

#if defined(__x86_64__)
// The caller's frame is said to be at the stack pointer plus something, whatever the stack.
__attribute__((noinline, optimize("O2", "omit-frame-pointer"))) void call_on(char* top,
                                                                             Function function) {
  asm volatile(
      "mov %%rsp, %%rbx\n"
      "mov %0, %%rsp\n"
      "call *%1\n"
      "mov %%rbx, %%rsp\n"
      :
      : "r"(top), "r"(function)
      : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "memory", "cc");
}

// The caller's frame is said to be at the base pointer, which is used for something else.
asm(R"(
  .text
  .type call_with_base_pointer, @function
call_with_base_pointer:
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  push %rbx
  sub $8, %rsp
  mov %rsp, %rbx
  mov %rsi, %rbp
  call *%rdi
  mov %rbx, %rsp
  add $8, %rsp
  pop %rbx
  pop %rbp
  ret
  .cfi_endproc
  .size call_with_base_pointer, . - call_with_base_pointer
)");
extern "C" void call_with_base_pointer(Function function, uint64_t value);
#else
void call_on(char*, Function function) { function(); }
void call_with_base_pointer(Function function, uint64_t) { function(); }
#endif

void switched() {
  for (int i = 0; i < 20; ++i) {
    const Stack stack(kStackBytes);
    for (size_t below : {0, 16, 64}) call_on(stack.top() - below, allocate);
  }
}

void base_pointers() {
  for (uint64_t value : {uint64_t{0}, uint64_t{0x10}, uint64_t{0x7000000010}, ~uint64_t{0} << 12,
                         uint64_t{0x7ffffffff000}, uint64_t{1} << 62, ~uint64_t{0} - 31}) {
    call_with_base_pointer(allocate, value);
  }
}

ucontext_t g_outside;
ucontext_t g_inside;
NOT_INLINED void down(int depth) {
  if (depth > 0) {
    down(depth - 1);
  } else {
    allocate();
  }
  asm volatile("");
}
void coroutine() {
  for (int i = 0; i < 4; ++i) {
    down(3 * i);
    swapcontext(&g_inside, &g_outside);
  }
}

// Each at the place of the one before, sometimes smaller.
void coroutines() {
  for (size_t round = 0; round < 60; ++round) {
    const Stack stack(kStackBytes >> round % 3);
    getcontext(&g_inside);
    g_inside.uc_stack.ss_sp = stack.low();
    g_inside.uc_stack.ss_size = static_cast<size_t>(stack.top() - stack.low());
    g_inside.uc_link = &g_outside;
    makecontext(&g_inside, coroutine, 0);
    for (int i = 0; i < 4; ++i) {
      swapcontext(&g_outside, &g_inside);
      if (round % 2 == 0) down(i);
    }
    call_on(stack.top(), allocate);
  }
}

int through_library(const char* path) {
  void* const library = dlopen(path, RTLD_NOW);
  if (library == nullptr) return 3;
  reinterpret_cast<void (*)(Function)>(dlsym(library, "call"))(allocate);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const char* const mode = count > 1 ? arguments[1] : "";
  if (std::strcmp(mode, "switched") == 0) {
    switched();
  } else if (std::strcmp(mode, "base_pointers") == 0) {
    base_pointers();
  } else if (std::strcmp(mode, "coroutines") == 0) {
    coroutines();
  } else if (std::strcmp(mode, "library") == 0 && count > 2) {
    return through_library(arguments[2]);
  } else {
    return 2;
  }
  std::puts("done");
  return 0;
}
