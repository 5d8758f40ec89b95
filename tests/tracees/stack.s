# The stack's own instructions, and the trap flag in what they store.
    .include "tracee.inc"
    tracee  stack
    .set    N, 20
    mov     ebx, N
    lea     r14, [rip + pointer]
    lea     rax, [rip + callee]
    mov     [r14], rax
    xor     r10d, r10d
    xor     r11d, r11d
    begin
again:
    push    rbx                         # 1
    push    7                           # 1
    push    qword ptr [r14]             # 2
    pop     rax                         # 1
    pop     qword ptr [rsp - 24]        # 2
    push    ax                          # 1
    pop     ax                          # 1
    pop     rcx                         # 1
    expect  10 * N
    call    callee                      # 1 + 1
    call    rax                         # 1 + 1
    call    [r14]                       # 2 + 1
    call    frame                       # 1 + 5 + 1
    expect  (2 + 2 + 3 + 7) * N
    lea     rdx, [rip + behind]
    jmp     rdx
    ud2
behind:
    pushfq                              # 1
    pop     rdx                         # 1
    pushf                               # 1
    pop     cx                          # 1
    expect  4 * N
    or      r8, rdx
    or      r9, rcx
    push    rdx
    popfq
    expect  2 * N
    stc
    pushfq                              # 1
    cmp     ebx, ebx
    popfq                               # 1
    expect  2 * N
    adc     r10d, 0
    jz      kept
    inc     r11d
kept:
    dec     ebx
    jnz     again
    end
    test    r8d, 0x100
    wrong_if nz, 1
    test    r9d, 0x100
    wrong_if nz, 2
    cmp     r10d, N
    wrong_if ne, 3
    test    r11d, r11d
    wrong_if z, 4
    finish

callee:
    ret
frame:
    enter   16, 0                       # 1
    push    1                           # 1
    mov     qword ptr [rbp - 8], 3      # 1
    mov     rdx, [rbp + 8]              # 1
    leave                               # 1
    ret     0
    .data
pointer: .quad 0
