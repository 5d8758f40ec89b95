# Rows of two lines: their first lines alone, many times, then both by accesses that lie beside each other.
    .include "tracee.inc"
    tracee  strides
    .set    ROWS, 16384                 # 2 MiB
    .set    TURNS, 20
    .set    N, ROWS
    begin
    mov     ecx, TURNS
turn:
    lea     rsi, [rip + table]
    mov     ebx, ROWS
first:
    mov     r8, [rsi]                   # 1
    add     [rsi + 8], r8               # 2
    add     rsi, 128
    dec     ebx
    jnz     first
    expect  3 * N * TURNS
    dec     ecx
    jnz     turn
    lea     rsi, [rip + table]
    mov     ebx, ROWS
both:
    mov     r8, [rsi + 56]              # 1
    mov     [rsi + 64], r8              # 1
    add     rsi, 128
    dec     ebx
    jnz     both
    expect  2 * N
    end
    finish
    .bss
    .balign 128
table:
    .skip   ROWS * 128
