# AVX2 gathers: one access per active lane, adjoining ones merged.
    .include "tracee.inc"
    tracee  gather
    mov     eax, 7
    xor     ecx, ecx
    cpuid
    bt      ebx, 5
    jnc     lacking
    mov     eax, 1
    cpuid
    bt      ecx, 27
    jnc     lacking
    .set    N, 10
    lea     rdi, [rip + table]
    mov     r12d, N
    begin
again:
    vmovdqu ymm1, [rip + spread]        # 1
    vpcmpeqd ymm2, ymm2, ymm2
    vpgatherdd ymm0, [rdi + ymm1 * 4], ymm2
    expect  (1 + 8) * N
    vmovdqu ymm1, [rip + consecutive]   # 1
    vpcmpeqd ymm2, ymm2, ymm2
    vpgatherdd ymm3, [rdi + ymm1 * 4], ymm2     # lanes 0-3 and 4-7 adjoin
    expect  (1 + 2) * N
    vmovdqu ymm2, [rip + half]          # 1
    vpgatherdd ymm0, [rdi + ymm1 * 4], ymm2     # lanes 0, 2-3, 5
    expect  (1 + 3) * N
    vpxor   xmm2, xmm2, xmm2
    vpgatherdd ymm0, [rdi + ymm1 * 4], ymm2     # none
    vpcmpeqd xmm2, xmm2, xmm2
    vgatherdpd xmm0, [rdi + xmm1 * 8], xmm2     # lanes 0-1 adjoin
    expect  1 * N
    vmovdqu ymm1, [rip + wide]          # 1
    vpcmpeqd xmm2, xmm2, xmm2
    vgatherqps xmm0, [rdi + ymm1], xmm2         # 4 lanes, the last two adjoin
    expect  (1 + 3) * N
    vmaskmovps ymm0, ymm3, [rdi]        # masked: one
    expect  1 * N
    dec     r12d
    jnz     again
    end
    vzeroupper
    finish
lacking:
    skip
    .data
    .balign 32
spread:      .long 0, 2, 4, 6, 9, 11, 13, 15
consecutive: .long 0, 1, 2, 3, 20, 21, 22, 23
half:        .long -1, 0, -1, -1, 0, -1, 0, 0
wide:        .quad 0, 16, 32, 36
    .bss
    .balign 64
table:  .skip 1024
