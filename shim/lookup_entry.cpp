// Entry points of dlsym and dlvsym, in assembly.
//
// RTLD_NEXT (-1) and RTLD_DEFAULT (0) mean something relative to the caller, which the C library
// tells by the return address: such requests jump to the real function with the stack as it was.
// Names that nobody but this library exports are not found: without CUDA in the process there is no
// cudaMalloc. The real function is asked for a name that nobody has then (fragscope_name_to_ask),
// so that dlerror() tells what it tells without us. All others jump to fragscope_dlsym /
// fragscope_dlvsym (lookup.cpp). When the C library has no such function the answer is NULL.

#if defined(__x86_64__)

#define FRAGSCOPE_LOOKUP_ENTRY(name)              \
  asm(".pushsection .text\n"                      \
      ".globl " #name                             \
      "\n"                                        \
      ".type " #name ", @function\n" #name        \
      ":\n"                                       \
      ".cfi_startproc\n"                          \
      "  endbr64\n"                               \
      "  lea 1(%rdi), %rax\n"                     \
      "  cmp $1, %rax\n"                          \
      "  ja fragscope_" #name                     \
      "\n"                                        \
      "  push %rdi\n  .cfi_adjust_cfa_offset 8\n" \
      "  push %rsi\n  .cfi_adjust_cfa_offset 8\n" \
      "  push %rdx\n  .cfi_adjust_cfa_offset 8\n" \
      "  mov %rsi, %rdi\n"                        \
      "  mov 24(%rsp), %rsi\n"                    \
      "  call fragscope_name_to_ask\n"            \
      "  pop %rdx\n  .cfi_adjust_cfa_offset -8\n" \
      "  pop %rsi\n  .cfi_adjust_cfa_offset -8\n" \
      "  pop %rdi\n  .cfi_adjust_cfa_offset -8\n" \
      "  mov %rax, %rsi\n"                        \
      "  mov fragscope_real_" #name               \
      "(%rip), %r11\n"                            \
      "  test %r11, %r11\n"                       \
      "  jz 1f\n"                                 \
      "  jmp *%r11\n"                             \
      "1: xor %eax, %eax\n"                       \
      "  ret\n"                                   \
      ".cfi_endproc\n"                            \
      ".size " #name ", .-" #name                 \
      "\n"                                        \
      ".popsection\n")

#elif defined(__aarch64__)

#define FRAGSCOPE_LOOKUP_ENTRY(name)                 \
  asm(".pushsection .text\n"                         \
      ".globl " #name                                \
      "\n"                                           \
      ".type " #name ", %function\n" #name           \
      ":\n"                                          \
      ".cfi_startproc\n"                             \
      "  hint #34\n"                                 \
      "  add x9, x0, #1\n"                           \
      "  cmp x9, #1\n"                               \
      "  b.hi 2f\n"                                  \
      "  stp x29, x30, [sp, #-48]!\n"                \
      "  .cfi_adjust_cfa_offset 48\n"                \
      "  .cfi_rel_offset x29, 0\n"                   \
      "  .cfi_rel_offset x30, 8\n"                   \
      "  mov x29, sp\n"                              \
      "  stp x0, x1, [sp, #16]\n"                    \
      "  str x2, [sp, #32]\n"                        \
      "  mov x0, x1\n"                               \
      "  mov x1, x30\n"                              \
      "  bl fragscope_name_to_ask\n"                 \
      "  mov x1, x0\n"                               \
      "  ldr x0, [sp, #16]\n"                        \
      "  ldr x2, [sp, #32]\n"                        \
      "  ldp x29, x30, [sp], #48\n"                  \
      "  .cfi_adjust_cfa_offset -48\n"               \
      "  .cfi_restore x29\n"                         \
      "  .cfi_restore x30\n"                         \
      "  adrp x16, fragscope_real_" #name            \
      "\n"                                           \
      "  ldr x16, [x16, :lo12:fragscope_real_" #name \
      "]\n"                                          \
      "  cbz x16, 1f\n"                              \
      "  br x16\n"                                   \
      "1: mov x0, #0\n"                              \
      "  ret\n"                                      \
      "2: b fragscope_" #name                        \
      "\n"                                           \
      ".cfi_endproc\n"                               \
      ".size " #name ", .-" #name                    \
      "\n"                                           \
      ".popsection\n")

#else
#error "dlsym and dlvsym need an entry for this processor"
#endif

FRAGSCOPE_LOOKUP_ENTRY(dlsym);
FRAGSCOPE_LOOKUP_ENTRY(dlvsym);
