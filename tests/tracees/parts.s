# String instructions that repeat more often than is executed at a time, and as often; with a counter
# that is known, and with addresses that hang on it.
    .include "tracee.inc"
    .set    PART, 65536
    tracee  parts
    lea     r12, [rip + source]
    lea     r13, [rip + target]
    mov     byte ptr [r12 + 100], 'x'
    mov     r14d, PART - 1
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
    expect  2 * PART
    # bytes up to the one that is told, of words
    mov     rdi, r13
    mov     ecx, PART + 100
    mov     rax, rdx
    rep stosq
    expect  PART + 100
    sub     rdi, r13
    cmp     rdi, 8 * (PART + 100)
    wrong_if ne, 1
    cmp     [r13 + 8 * PART], rdx      # 1
    wrong_if ne, 2
    expect  1
    # the counter names what is read, before and behind
    mov     ecx, PART
    lea     rcx, [rcx + r14 - PART + 4]
    mov     al, [r12 + rcx]             # 1
    mov     rsi, r12
    rep lodsb
    expect  1 + PART + 3
    mov     al, [r12 + rcx + 100]       # 1
    cmp     al, 'x'
    wrong_if ne, 3
    expect  1
    # none
    rep stosb
    expect  0
    # a counter that is known, of a part and of more
    mov     rdi, r13
    mov     ecx, 100
    rep stosb
    expect  100
    movabs  rcx, PART + 5
    rep stosb
    expect  PART + 5
    or      rbx, rcx
    sub     rdi, r13
    cmp     rdi, PART + 105
    wrong_if ne, 4
    end
    test    rbx, rbx
    wrong_if ne, 5
    finish
    .bss
    .balign 64
source: .skip 4 * PART
target: .skip 16 * PART
