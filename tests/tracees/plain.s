# Loads, stores and read-modify-writes in a loop over arrays.
    .include "tracee.inc"
    tracee  plain
    .set    N, 500
    lea     rsi, [rip + source]
    lea     rdi, [rip + target]
    xor     ecx, ecx
fill:
    mov     [rsi + rcx * 8], rcx
    inc     ecx
    cmp     ecx, N
    jne     fill
    begin
    xor     ecx, ecx
again:
    mov     rax, [rsi + rcx * 8]        # load
    mov     [rdi + rcx * 8], rax        # store
    add     [rdi + rcx * 8], rax        # read-modify-write: one
    lea     rdx, [rdi + rcx * 8]        # none
    nop     dword ptr [rdx + rax]       # none
    prefetcht0 [rdx]                    # none
    cmp     rax, [rdx]                  # load
    cmovb   r8, [rdx]                   # load, whether or not it moves
    inc     ecx
    cmp     ecx, N
    jne     again
    expect  5 * N
    add     r9, [rip + source]          # load, relative to rip
    expect  1
    end
    xor     ecx, ecx
check:
    lea     rax, [rcx + rcx]
    cmp     [rdi + rcx * 8], rax
    wrong_if ne, 1
    inc     ecx
    cmp     ecx, N
    jne     check
    finish
    .bss
    .balign 64
source: .skip 8 * N
target: .skip 8 * N
