# System calls: no accesses, and neither the trap flag nor a foreign address in what they leave behind.
    .include "tracee.inc"
    tracee  syscalls
    .set    N, 30
    mov     r12d, N
    xor     r13d, r13d
    begin
again:
    mov     eax, SYS_getpid
    syscall
here:
    or      r13, r11
    lea     rdx, [rip + here]
    cmp     rcx, rdx
    wrong_if ne, 1
    mov     [rip + pid], eax
    expect  1 * N
    dec     r12d
    jnz     again
    end
    test    r13d, 0x100
    wrong_if nz, 2
    test    r11d, 0x100
    wrong_if nz, 3
    finish
    .bss
pid:    .skip 8
