# Operands that cross cache lines and pages: still one access each.
    .include "tracee.inc"
    tracee  crossing
    .set    N, 64
    lea     rdi, [rip + page + 4096 - 32]
    pxor    xmm0, xmm0
    begin
    xor     ecx, ecx
again:
    mov     rax, [rdi + rcx]
    mov     [rdi + rcx], eax
    movups  xmm0, [rdi + rcx]
    movups  [rdi + rcx], xmm0
    add     word ptr [rdi + rcx], 1
    expect  5 * N
    inc     ecx
    cmp     ecx, N
    jne     again
    end
    finish
    .bss
    .balign 4096
page:   .skip 8192
