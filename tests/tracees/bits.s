# Bit tests whose address moves with a register, and other computed addresses.
    .include "tracee.inc"
    tracee  bits
    .set    N, 40
    lea     rdi, [rip + middle]
    mov     r12d, N
    begin
again:
    mov     eax, r12d
    neg     eax
    imul    eax, eax, 37
    cdqe
    bt      [rdi], eax
    bts     [rdi], rax
    bt      [rdi], rax
    wrong_if nc, 1
    btr     [rdi], eax
    btc     [rdi], ax
    bt      dword ptr [rdi], 31
    expect  6 * N
    lea     rbx, [rip + table]
    mov     al, r12b
    xlatb
    expect  1 * N
    dec     r12d
    jnz     again
    end
    finish
    .bss
    .balign 64
        .skip 1024
middle: .skip 1024
table:  .skip 256
