# A program that ignores SIGTRAP goes on ignoring it, between the marks and after.
    .include "tracee.inc"
    tracee  ignores_sigtrap
    .set    N, 10
    mov     edi, 5
    lea     rsi, [rip + ignore]
    xor     edx, edx
    mov     r10d, 8
    mov     eax, SYS_rt_sigaction
    syscall
    mov     eax, SYS_getpid
    syscall
    mov     ebx, eax
    begin
    mov     r12d, N
again:
    inc     qword ptr [rip + cell]
    expect  1 * N
    dec     r12d
    jnz     again
    mov     edi, ebx
    mov     esi, 5
    mov     eax, SYS_kill
    syscall
    inc     qword ptr [rip + cell]
    expect  1
    end
    mov     edi, 5
    xor     esi, esi
    lea     rdx, [rip + found]
    mov     r10d, 8
    mov     eax, SYS_rt_sigaction
    syscall
    cmp     qword ptr [rip + found], 1  # SIG_IGN
    wrong_if ne, 1
    finish
    .data
ignore: .quad 1, 0x04000000, 0, 0
found:  .quad 0, 0, 0, 0
cell:   .quad 0
