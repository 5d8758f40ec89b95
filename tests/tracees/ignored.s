# Signals without a handler that do nothing: ignored by default, by choice, and blocked.
    .include "tracee.inc"
    tracee  ignored
    .set    N, 10
    .set    SIGUSR1, 10
    .set    SIGUSR2, 12
    .set    SIGWINCH, 28
    mov     edi, SIGUSR1
    lea     rsi, [rip + ignore]
    xor     edx, edx
    mov     r10d, 8
    mov     eax, SYS_rt_sigaction
    syscall
    xor     edi, edi
    lea     rsi, [rip + set]
    xor     edx, edx
    mov     r10d, 8
    mov     eax, SYS_rt_sigprocmask
    syscall
    mov     eax, SYS_getpid
    syscall
    mov     ebx, eax
    begin
    mov     r12d, N
again:
    .irp    number, SIGUSR1, SIGUSR2, SIGWINCH
    mov     edi, ebx
    mov     esi, \number
    mov     eax, SYS_kill
    syscall
    inc     qword ptr [rip + cell]
    .endr
    expect  3 * N
    dec     r12d
    jnz     again
    end
    cmp     qword ptr [rip + cell], 3 * N
    wrong_if ne, 1
    finish
    .data
ignore: .quad 1, 0x04000000, 0, 0
set:    .quad 1 << (SIGUSR2 - 1)
cell:   .quad 0
