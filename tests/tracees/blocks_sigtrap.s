# A program that blocks SIGTRAP: a single step would kill it if the tracer died.
    .include "tracee.inc"
    tracee  blocks_sigtrap
    .set    N, 50
    xor     edi, edi
    lea     rsi, [rip + set]
    xor     edx, edx
    mov     r10d, 8
    mov     eax, SYS_rt_sigprocmask
    syscall
    mov     r12d, N
    begin
again:
    mov     rax, [rip + set]
    expect  1 * N
    dec     r12d
    jnz     again
    end
    finish
    .data
set:    .quad 0x10
