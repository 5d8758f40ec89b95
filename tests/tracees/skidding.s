# A loop of some sixty instructions whose accesses lie unevenly among arithmetic: what a careless counter gets wrong.
    .include "tracee.inc"
    .macro  arithmetic n
    .rept   \n
    lea     r10, [r10 + r11 * 2 + 1]
    .endr
    .endm
    tracee  skidding
    .set    N, 60
    lea     rsi, [rip + table]
    xor     ecx, ecx
    mov     r10d, 1
    mov     r11d, 3
    begin
    xor     r12d, r12d
again:
    mov     rax, [rsi]                  # at once after the branch
    mov     rbx, [rsi + 8]              # and another right behind it
    add     [rsi + 64], rax
    arithmetic 25
    mov     rdi, [rsi + r12 * 8 + 128]  # behind long arithmetic
    xor     edx, edx
    mov     eax, 1000
    mov     r9d, 7
    div     r9d                         # slow: where real counters stop
    mov     [rsi + r12 * 8 + 1024], rdi
    arithmetic 11
    push    r10
    pop     r10
    arithmetic 7
    inc     r12
    cmp     r12, N
    jne     again
    expect  7 * N
    lea     rdi, [rip + table + 3072]
    mov     ecx, 24
    rep stosb
    expect  24
    end
    finish
    .bss
    .balign 64
table:  .skip 8192
