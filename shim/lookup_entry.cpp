// Entry points of dlsym and dlvsym, in assembly.
//
// RTLD_NEXT (-1) and RTLD_DEFAULT (0) mean something relative to the caller, which the C library
// tells by the return address: such requests jump to the real function with the stack as it was.
// RTLD_DEFAULT for a name of CUDA's in a process that has none would find our export: then the
// answer is NULL, as it would be without us (fragscope_is_defined). All others jump to
// fragscope_dlsym / fragscope_dlvsym (lookup.cpp). When the C library has no such function the
// answer is NULL.

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
      "  jne 3f\n"                                \
      "  test %rsi, %rsi\n"                       \
      "  jz 3f\n"                                 \
      "  cmpb $0x63, (%rsi)\n"                    \
      "  jne 3f\n"                                \
      "  cmpb $0x75, 1(%rsi)\n"                   \
      "  jne 3f\n"                                \
      "  push %rdi\n  .cfi_adjust_cfa_offset 8\n" \
      "  push %rsi\n  .cfi_adjust_cfa_offset 8\n" \
      "  push %rdx\n  .cfi_adjust_cfa_offset 8\n" \
      "  mov %rsi, %rdi\n"                        \
      "  call fragscope_is_defined\n"             \
      "  pop %rdx\n  .cfi_adjust_cfa_offset -8\n" \
      "  pop %rsi\n  .cfi_adjust_cfa_offset -8\n" \
      "  pop %rdi\n  .cfi_adjust_cfa_offset -8\n" \
      "  test %eax, %eax\n"                       \
      "  jnz 3f\n"                                \
      "  xor %eax, %eax\n"                        \
      "  ret\n"                                   \
      "3:\n"                                      \
      "  mov fragscope_real_" #name               \
      "(%rip), %rax\n"                            \
      "  test %rax, %rax\n"                       \
      "  jnz 1f\n"                                \
      "  push %rdi\n  .cfi_adjust_cfa_offset 8\n" \
      "  push %rsi\n  .cfi_adjust_cfa_offset 8\n" \
      "  push %rdx\n  .cfi_adjust_cfa_offset 8\n" \
      "  call fragscope_find_real_dlsym\n"        \
      "  pop %rdx\n  .cfi_adjust_cfa_offset -8\n" \
      "  pop %rsi\n  .cfi_adjust_cfa_offset -8\n" \
      "  pop %rdi\n  .cfi_adjust_cfa_offset -8\n" \
      "  mov fragscope_real_" #name               \
      "(%rip), %rax\n"                            \
      "  test %rax, %rax\n"                       \
      "  jnz 1f\n"                                \
      "  ret\n"                                   \
      "1: jmp *%rax\n"                            \
      ".cfi_endproc\n"                            \
      ".size " #name ", .-" #name                 \
      "\n"                                        \
      ".popsection\n")

#elif defined(__aarch64__)

#define FRAGSCOPE_LOOKUP_ENTRY(name)               \
  asm(".pushsection .text\n"                       \
      ".globl " #name                              \
      "\n"                                         \
      ".type " #name ", %function\n" #name         \
      ":\n"                                        \
      ".cfi_startproc\n"                           \
      "  hint #34\n"                               \
      "  add x9, x0, #1\n"                         \
      "  cmp x9, #1\n"                             \
      "  b.hi 2f\n"                                \
      "  b.ne 3f\n"                                \
      "  cbz x1, 3f\n"                             \
      "  ldrb w9, [x1]\n"                          \
      "  cmp w9, #0x63\n"                          \
      "  b.ne 3f\n"                                \
      "  ldrb w9, [x1, #1]\n"                      \
      "  cmp w9, #0x75\n"                          \
      "  b.ne 3f\n"                                \
      "  stp x29, x30, [sp, #-48]!\n"              \
      "  .cfi_adjust_cfa_offset 48\n"              \
      "  .cfi_rel_offset x29, 0\n"                 \
      "  .cfi_rel_offset x30, 8\n"                 \
      "  mov x29, sp\n"                            \
      "  stp x0, x1, [sp, #16]\n"                  \
      "  str x2, [sp, #32]\n"                      \
      "  mov x0, x1\n"                             \
      "  bl fragscope_is_defined\n"                \
      "  mov w9, w0\n"                             \
      "  ldp x0, x1, [sp, #16]\n"                  \
      "  ldr x2, [sp, #32]\n"                      \
      "  ldp x29, x30, [sp], #48\n"                \
      "  .cfi_adjust_cfa_offset -48\n"             \
      "  .cfi_restore x29\n"                       \
      "  .cfi_restore x30\n"                       \
      "  cbnz w9, 3f\n"                            \
      "  mov x0, #0\n"                             \
      "  ret\n"                                    \
      "3:\n"                                       \
      "  adrp x9, fragscope_real_" #name           \
      "\n"                                         \
      "  ldr x9, [x9, :lo12:fragscope_real_" #name \
      "]\n"                                        \
      "  cbnz x9, 1f\n"                            \
      "  stp x29, x30, [sp, #-48]!\n"              \
      "  .cfi_adjust_cfa_offset 48\n"              \
      "  .cfi_rel_offset x29, 0\n"                 \
      "  .cfi_rel_offset x30, 8\n"                 \
      "  mov x29, sp\n"                            \
      "  stp x0, x1, [sp, #16]\n"                  \
      "  str x2, [sp, #32]\n"                      \
      "  bl fragscope_find_real_dlsym\n"           \
      "  ldp x0, x1, [sp, #16]\n"                  \
      "  ldr x2, [sp, #32]\n"                      \
      "  ldp x29, x30, [sp], #48\n"                \
      "  .cfi_adjust_cfa_offset -48\n"             \
      "  .cfi_restore x29\n"                       \
      "  .cfi_restore x30\n"                       \
      "  adrp x9, fragscope_real_" #name           \
      "\n"                                         \
      "  ldr x9, [x9, :lo12:fragscope_real_" #name \
      "]\n"                                        \
      "  cbnz x9, 1f\n"                            \
      "  mov x0, #0\n"                             \
      "  ret\n"                                    \
      "1: mov x16, x9\n"                           \
      "  br x16\n"                                 \
      "2: b fragscope_" #name                      \
      "\n"                                         \
      ".cfi_endproc\n"                             \
      ".size " #name ", .-" #name                  \
      "\n"                                         \
      ".popsection\n")

#else
#error "dlsym and dlvsym need an entry for this processor"
#endif

FRAGSCOPE_LOOKUP_ENTRY(dlsym);
FRAGSCOPE_LOOKUP_ENTRY(dlvsym);
