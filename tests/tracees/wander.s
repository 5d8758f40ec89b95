# A long aligned walk: random loads, a sequential stream, calls, branches either way, `rep` of varying
# length. No access crosses a line, so that every count of references is known exactly.
    .include "tracee.inc"
    tracee  wander
    .set    N, 200000
    .set    WORDS, 131072               # a table of 1 MiB
    lea     rsi, [rip + table]
    begin
    mov     rax, 12345
    xor     ebx, ebx                    # iterations
    xor     r12d, r12d                  # turns of each kind
    xor     r13d, r13d
    mov     r14, 0x5851f42d4c957f2d
again:
    imul    rax, r14
    add     rax, 0x14057b7
    mov     rdx, rax
    shr     rdx, 47                     # 17 bits
    mov     r8, [rsi + rdx * 8]         # random load
    mov     rcx, rbx
    and     ecx, WORDS - 1
    mov     [rsi + rcx * 8], rax        # sequential store
    expect  2 * N
    test    dl, 1
    jz      even
    inc     r12d
    call    leaf                        # 3 accesses
    jmp     joined
even:
    inc     r13d
    add     qword ptr [rip + cell], 1   # 1 access
joined:
    test    ebx, 1023
    jnz     next
    mov     r9, rax
    mov     edi, ebx
    shr     edi, 10
    mov     ecx, edi                    # as many words as turns so far
    lea     rdi, [rip + other]
    add     qword ptr [rip + words], rcx
    rep stosq
    mov     rax, r9
    expect  (N + 1023) / 1024
next:
    inc     ebx
    cmp     ebx, N
    jne     again
    end
    lea     ecx, [r12 + r13]
    cmp     ecx, N
    wrong_if ne, 1
    cmp     [rip + cell], r13
    wrong_if ne, 2
    mov     rdi, expected
    add     rdi, [rip + words]
    add     rdi, r13
    lea     rdi, [rdi + r12 * 2]
    add     rdi, r12
    lea     rsi, [rip + name]
    jmp     report_ok
leaf:
    mov     r8, [rip + cell]
    ret
    .bss
    .balign 64
table:
    .skip   WORDS * 8
other:
    .skip   8192
cell:
    .skip   8
words:
    .skip   8
