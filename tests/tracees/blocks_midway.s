# Blocks SIGTRAP and then handles it between the marks: observation has to end before either.
    .include "tracee.inc"
    tracee  blocks_midway
    .set    N, 20
    begin
    mov     r12d, N
first:
    inc     qword ptr [rip + counter]
    dec     r12d
    jnz     first
    expect  1 * N
    xor     edi, edi
    lea     rsi, [rip + set]
    xor     edx, edx
    mov     r10d, 8
    mov     eax, SYS_rt_sigprocmask
    syscall
    mov     r12d, N
second:
    inc     qword ptr [rip + counter]
    dec     r12d
    jnz     second
    expect  1 * N
    end
    cmp     qword ptr [rip + counter], 2 * N
    wrong_if ne, 1
    finish
    .data
set:     .quad 0x10
counter: .quad 0
