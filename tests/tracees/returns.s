# Returns that lead behind their calls, and some that lead elsewhere; no register and no flag is lost on either way.
    .include "tracee.inc"
    tracee  returns
    .set    N, 60
    mov     ebx, N
    xor     r12d, r12d                  # returns that led elsewhere
    xor     r13d, r13d                  # what got lost
    mov     rcx, 0x1122334455667788
    mov     rdx, 0x99aabbccddeeff00
    mov     r15d, 3
    push    rcx                         # `begin` clobbers it
    begin
    pop     rcx                         # 1
    expect  1
again:
    # A leaf; flags and the registers that hold targets and sums of ours come through.
    mov     rax, 0x7766554433221100
    stc
    call    leaf                        # 1 + 1
    adc     r13, -1                     # the carry that `leaf` leaves
    mov     rsi, 0x7766554433221100
    cmp     rax, rsi
    jne     lost
    mov     rsi, 0x1122334455667788
    cmp     rcx, rsi
    jne     lost
    mov     rsi, 0x99aabbccddeeff00
    cmp     rdx, rsi
    jne     lost
    expect  2 * N
    # Two deep, and by a jump.
    call    outer                       # 2 + 2
    call    jumps                       # 1 + 1
    expect  6 * N
    # Where am I?
    call    here                        # 1
here:
    pop     rax                         # 1
    call    leaf                        # 1 + 1
    expect  4 * N
    # Every third time not to where it was called from.
    dec     r15d
    call    wanders                     # 1 + 1
elsewhere_or_not:
    expect  2 * N + N / 3
    # Past its caller.
    call    passes                      # 1 + 1 + 1
    expect  3 * N
    # To what it pushed itself.
    call    pushes                      # 1 + 2 + 2
back:
    expect  5 * N
    # With an argument.
    push    7                           # 1
    call    takes_one                   # 1 + 1
    expect  3 * N
    # Itself.
    mov     edi, 3
    call    itself                      # 4 * (1 + 1)
    expect  8 * N
    dec     ebx
    jnz     again
    end
    cmp     r12d, N / 3
    wrong_if ne, 1
    test    r13, r13
    wrong_if nz, 2
    finish
lost:
    end
    or      r12d, -1
    wrong_if nz, 3

leaf:
    stc
    ret
outer:
    call    leaf
    ret
jumps:
    jmp     leaf
wanders:
    test    r15d, r15d
    jnz     stays
    mov     r15d, 3
    inc     r12d
    lea     rax, [rip + by_way]
    mov     [rsp], rax                  # 1, every third time
stays:
    ret
by_way:
    jmp     elsewhere_or_not
passes:
    call    drops
    ud2
drops:
    add     rsp, 8
    ret
pushes:
    add     rsp, 8
    lea     rax, [rip + between]
    push    rax
    ret
between:
    lea     rax, [rip + back]
    push    rax
    ret
takes_one:
    ret     8
itself:
    dec     edi
    js      bottom
    call    itself
bottom:
    ret
