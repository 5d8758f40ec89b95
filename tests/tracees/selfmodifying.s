# Code that changes under way: the instruction executed counts, not the one seen there before.
    .include "tracee.inc"
    .section .wtext, "awx"
patched:
    mov     rax, [rdi]                  # becomes lea rax, [rdi]
    ret
    tracee  selfmodifying
    .set    N, 10
    mov     r12d, N
    lea     rdi, [rip + patched]
    begin
again:
    mov     byte ptr [rdi + 1], 0x8b    # mov
    call    patched
    mov     byte ptr [rdi + 1], 0x8d    # lea
    call    patched
    expect  (1 + 3 + 1 + 2) * N
    mov     rbx, rax
    dec     r12d
    jnz     again
    end
    cmp     rbx, rdi
    wrong_if ne, 1
    finish
