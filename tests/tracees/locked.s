# Atomic read-modify-writes: one access each.
    .include "tracee.inc"
    tracee  locked
    .set    N, 50
    lea     rdi, [rip + cells]
    xor     ebx, ebx
    mov     r12d, N
    begin
again:
    lock add dword ptr [rdi], 1
    lock inc qword ptr [rdi]
    mov     eax, 1
    lock xadd [rdi], eax
    mov     eax, -1
    mov     ecx, 5
    lock cmpxchg [rdi + 8], ecx         # fails: one all the same
    xchg    [rdi + 32], rcx
    xor     eax, eax
    xor     edx, edx
    lock cmpxchg16b [rdi + 16]
    lock cmpxchg8b [rdi + 16]
    lock bts dword ptr [rdi + 40], 3
    expect  8 * N
    dec     r12d
    jnz     again
    mfence
    end
    cmp     qword ptr [rdi], 3 * N
    wrong_if ne, 1
    finish
    .bss
    .balign 64
cells:  .skip 64
