# A program with a SIGTRAP handler of its own: it must see exactly its own traps.
    .include "tracee.inc"
    tracee  handles_sigtrap
    .set    N, 5
    mov     edi, 5
    lea     rsi, [rip + action]
    xor     edx, edx
    mov     r10d, 8
    mov     eax, SYS_rt_sigaction
    syscall
    mov     r12d, N
    begin
again:
    int3
    mov     rax, [rip + hits]
    expect  (1 + 2) * N                 # the handler's two
    dec     r12d
    jnz     again
    end
    cmp     qword ptr [rip + hits], N
    wrong_if ne, 1
    finish
handler:
    inc     qword ptr [rip + hits]
    ret
restorer:
    mov     eax, 15
    syscall
    .data
action: .quad handler, 0x04000004, restorer, 0
hits:   .quad 0
