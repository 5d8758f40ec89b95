# A loop that no arithmetic flag is ever dead in, left and entered by forward branches only: an engine that looks where
# its log ends only where flags are dead, or only on the straight path, never looks.
    .include "tracee.inc"
    tracee  sideways
    .set    N, 200000
    lea     rdi, [rip + cell]
    begin
    mov     r12d, N
    clc
    jmp     second
first:
    inc     qword ptr [rdi]             # leaves the carry alone, as all that follows
    jnc     second                      # always
    add     rax, 1
    ud2
second:
    mov     rax, [rdi + 8]
    dec     r12
    jnz     third
    add     rax, 1
    jmp     out
third:
    expect  2 * N - 1
    jmp     fourth
    ud2
out:
    end
    cmp     qword ptr [rdi], N - 1
    wrong_if ne, 1
    finish
fourth:
    jmp     first
    .bss
cell:   .skip 16
