# Runs for a while between the marks: for what happens to a program whose tracer dies.
    .include "tracee.inc"
    tracee  patient
    .set    N, 200000
    lea     rdi, [rip + cell]
    begin
    mov     r12d, N
again:
    inc     qword ptr [rdi]
    push    r12
    pop     rax
    pushfq                              # behind an ordinary instruction
    pop     rdx
    or      r13, rdx
    expect  5 * N
    push    0x100
    xor     eax, eax
    jz      over                        # arrives behind a pushf without executing it
    pushfq
over:
    pop     rdx
    xor     edx, 0x100
    or      r13, rdx
    expect  2 * N
    push    rax
    lea     rbx, [rip + target]
    jmp     rbx
    ud2
target:
    pushfq                              # behind an indirect jump
    pop     rdx
    or      r13, rdx
    pop     rax
    expect  4 * N
    test    r12d, 7
    jnz     next
    mov     eax, SYS_getpid
    syscall
    or      r13, r11
next:
    dec     r12d
    jnz     again
    end
    test    r13d, 0x100
    wrong_if nz, 1
    cmp     qword ptr [rdi], N
    wrong_if ne, 2
    finish
    .bss
cell:   .skip 8
