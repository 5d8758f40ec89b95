# String instructions: one access per iteration and memory side, none where the counter is zero.
    .include "tracee.inc"
    tracee  string
    lea     r12, [rip + source]
    lea     r13, [rip + target]
    mov     byte ptr [r12 + 40], 'x'
    begin
    mov     rsi, r12
    mov     rdi, r13
    mov     ecx, 100
    rep movsb
    expect  2 * 100
    mov     ecx, 25
    rep movsq
    expect  2 * 25
    xor     ecx, ecx
    rep movsb
    rep stosq
    expect  0
    mov     rdi, r13
    mov     ecx, 64
    mov     al, 7
    rep stosb
    expect  64
    mov     ecx, 9
    rep stosd
    expect  9
    mov     rsi, r12
    mov     ecx, 5
    rep lodsw
    expect  5
    movsd
    lodsb
    stosw
    expect  4
    # found at offset 40: 41 iterations
    mov     rdi, r12
    mov     ecx, 100
    mov     al, 'x'
    repne scasb
    wrong_if ne, 1
    expect  41
    mov     rdx, rcx
    # the copy of the source was overwritten from offset 0 on: differs at once
    mov     rsi, r12
    mov     rdi, r13
    mov     ecx, 100
    repe cmpsb
    wrong_if e, 2
    expect  2
    # equal to the end: 60 iterations
    mov     rsi, r12
    mov     rdi, r12
    mov     ecx, 60
    repe cmpsb
    wrong_if ne, 3
    expect  2 * 60
    cmpsb
    scasb
    expect  3
    # 32-bit counter
    movabs  rcx, 0x100000003
    mov     rdi, r13
    .byte   0x67
    rep stosb                           # 3 iterations at edi: the image lies below 4 GiB
    expect  3
    mov     ebx, ecx
    end
    cmp     rdx, 59
    wrong_if ne, 4
    test    ebx, ebx
    wrong_if ne, 5
    finish
    .bss
    .balign 64
source: .skip 1024
target: .skip 1024
