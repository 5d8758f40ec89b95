# fs-relative and 32-bit addresses.
    .include "tracee.inc"
    tracee  segment
    .set    N, 25
    mov     edi, 0x1002                 # ARCH_SET_FS
    lea     rsi, [rip + block]
    mov     eax, SYS_arch_prctl
    syscall
    mov     r12d, N
    lea     rdi, [rip + block]
    begin
again:
    mov     rax, fs:[16]
    inc     qword ptr fs:[16]
    mov     rdx, -8
    mov     fs:[rdx + 16], r12
    mov     rax, fs:[rdx - 8]           # at the base minus 16
    mov     ecx, [edi + 4]              # the image lies below 4 GiB
    xor     esi, esi
    lods    byte ptr fs:[rsi]
    expect  6 * N
    dec     r12d
    jnz     again
    end
    cmp     qword ptr [rip + block + 16], N
    wrong_if ne, 1
    cmp     qword ptr [rip + block + 8], 1
    wrong_if ne, 2
    finish
    .bss
    .balign 64
        .skip 64
block:  .skip 64
