# String instructions with the direction flag set, and flags popped with it.
    .include "tracee.inc"
    tracee  backwards
    lea     rsi, [rip + buffer + 255]
    lea     rdi, [rip + buffer + 511]
    mov     byte ptr [rsi - 3], 9
    begin
    std
    mov     ecx, 50
    rep movsb
    expect  2 * 50
    pushfq
    cld
    popfq
    expect  2
    movsb
    expect  2
    cld
    end
    lea     rax, [rip + buffer + 255 - 51]
    cmp     rsi, rax
    wrong_if ne, 1
    cmp     byte ptr [rip + buffer + 511 - 3], 9
    wrong_if ne, 2
    finish
    .bss
    .balign 64
buffer: .skip 512
