# Targets of calls and returns whose addresses have the same low 16 bits, more of them than lead on to each other, in an order that
# is hard to guess; no register and no flag is lost on the way.
    .include "tracee.inc"
    tracee  apart
    .set    N, 600
    .set    FUNCTIONS, 24
    mov     ebx, N
    xor     r12d, r12d                  # what the functions add up
    xor     r13d, r13d                  # what got lost
    xor     r15d, r15d                  # what they should
    mov     ebp, 12345
    lea     r14, [rip + table]
    begin
again:
    imul    ebp, ebp, 1103515245
    add     ebp, 12345
    mov     eax, ebp
    shr     eax, 16
    xor     edx, edx
    mov     ecx, FUNCTIONS
    div     ecx
    mov     rcx, 0x1122334455667788
    mov     r11, 0x99aabbccddeeff00
    mov     r10, 0x7766554433221100
    stc
    call    [r14 + 8 * rdx]             # 2
    adc     r13, -1                     # the carry that the function leaves
    lea     r15, [r15 + 2 * rdx + 1]    # its number, twice, and the carry it was called with
    mov     rsi, 0x1122334455667788
    cmp     rcx, rsi
    jne     lost
    mov     rsi, 0x99aabbccddeeff00
    cmp     r11, rsi
    jne     lost
    mov     rsi, 0x7766554433221100
    cmp     r10, rsi
    jne     lost
    expect  6 * N
    dec     ebx
    jnz     again
    end
    cmp     r12, r15
    wrong_if ne, 1
    test    r13, r13
    wrong_if nz, 2
    finish
lost:
    end
    mov     edi, 3
    lea     rsi, [rip + name]
    jmp     report_wrong

    .section .text.leaf, "ax"
leaf:
    ret                                 # 1

    .section .text.apart, "ax"
    .balign 65536
first:
    .set    number, 0
    .rept   FUNCTIONS
    .balign 65536
    adc     r12, 2 * number
    stc
    call    [r14 + 8 * FUNCTIONS]       # 2: the place it returns to has the same low bits too
    ret                                 # 1
    .set    number, number + 1
    .endr

    .section .data.rel.table, "aw"
    .balign 8
table:
    .set    number, 0
    .rept   FUNCTIONS
    .quad   first + 65536 * number
    .set    number, number + 1
    .endr
    .quad   leaf
