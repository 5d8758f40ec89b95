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
    pushfq
    pop     rdx
    or      r13, rdx
    expect  5 * N
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
