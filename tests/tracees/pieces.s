# String instructions that repeat more often than is executed at a time, and as often; with a counter
# that is known, and with addresses that hang on it.
    .include "tracee.inc"
    .set    PIECE, 65536
    tracee  pieces
    lea     r12, [rip + source]
    lea     r13, [rip + target]
    mov     byte ptr [r12 + 100], 'x'
    mov     r14d, PIECE - 1
    begin
    xor     ebx, ebx                    # what is left over, and lost
    # flags come through, and so do registers
    mov     rdx, 0x1122334455667788
    stc
    lea     rcx, [r14 + 1]
    mov     rsi, r12
    mov     rdi, r13
    rep movsb
    adc     rbx, -1                     # the carry is still there
    or      rbx, rcx
    expect  2 * PIECE
    # bytes up to the one that is told, of words
    mov     rdi, r13
    mov     ecx, PIECE + 100
    mov     rax, rdx
    rep stosq
    expect  PIECE + 100
    sub     rdi, r13
    cmp     rdi, 8 * (PIECE + 100)
    wrong_if ne, 1
    cmp     [r13 + 8 * PIECE], rdx      # 1
    wrong_if ne, 2
    expect  1
    # the counter names what is read, before and behind
    mov     ecx, PIECE
    lea     rcx, [rcx + r14 - PIECE + 4]
    mov     al, [r12 + rcx]             # 1
    mov     rsi, r12
    rep lodsb
    expect  1 + PIECE + 3
    mov     al, [r12 + rcx + 100]       # 1
    cmp     al, 'x'
    wrong_if ne, 3
    expect  1
    # none
    rep stosb
    expect  0
    end
    test    rbx, rbx
    wrong_if ne, 5
    finish
    .bss
    .balign 64
source: .skip 4 * PIECE
target: .skip 16 * PIECE
