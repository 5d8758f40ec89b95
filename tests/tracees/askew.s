# Words of four bytes in one line; then, for a fifth of the time, words of eight that cross into the next line each; then the
# first again.
    .include "tracee.inc"
    tracee  askew
    .set    LINES, 16384                # 1 MiB
    .set    TURNS, 60
    .set    N, 2000000
    begin
    call    straight
    expect  2 + 2 * N                   # with the call and its return
    mov     ecx, TURNS
turn:
    lea     rsi, [rip + table + 60]
    mov     ebx, LINES
across:
    mov     r8, [rsi]                   # 1, of two lines
    add     rsi, 64
    dec     ebx
    jnz     across
    expect  LINES * TURNS
    dec     ecx
    jnz     turn
    call    straight
    expect  2 + 2 * N
    end
    finish
straight:
    lea     rsi, [rip + table]
    mov     ebx, N
again:
    mov     [rsi + 4], ebx              # 1
    mov     edx, [rsi + 8]              # 1
    dec     ebx
    jnz     again
    ret
    .bss
    .balign 64
table:
    .skip   LINES * 64 + 64
