# AVX-512: masked operands are one access of full width, broadcasts one of an element, gathers and scatters by lane.
    .include "tracee.inc"
    tracee  avx512
    mov     eax, 1
    cpuid
    bt      ecx, 27
    jnc     lacking
    xor     ecx, ecx
    xgetbv
    and     eax, 0xe6
    cmp     eax, 0xe6
    jne     lacking
    mov     eax, 7
    xor     ecx, ecx
    cpuid
    bt      ebx, 16
    jnc     lacking
    bt      ebx, 30
    jnc     lacking
    .set    N, 10
    lea     rdi, [rip + table]
    mov     r12d, N
    begin
again:
    mov     eax, 0x5555
    kmovw   k1, eax
    vmovdqu32 zmm0, [rdi]               # 1
    vmovdqu32 zmm0{k1}, [rdi + 64]      # 1
    vmovdqu32 [rdi]{k1}, zmm0           # 1
    vmovdqu8 zmm17{k1}{z}, [rdi]        # 1
    kxorw   k2, k2, k2
    vmovdqu32 [rdi]{k2}, zmm0           # 1, though it writes nothing
    vpaddd  zmm1, zmm0, [rdi]{1to16}    # 1
    vpcompressd [rdi]{k1}, zmm0         # 1
    vpexpandd zmm0{k1}, [rdi]           # 1
    kmovq   [rdi], k1                   # 1
    kmovw   k3, [rdi]                   # 1
    expect  10 * N
    vmovdqu32 zmm1, [rip + index]       # 1
    mov     eax, 0x80ff
    kmovw   k1, eax
    vpgatherdd zmm2{k1}, [rdi + zmm1 * 4]       # lanes 0-3, 4, 5, 6-7, 15
    expect  (1 + 5) * N
    mov     eax, 0x80ff
    kmovw   k1, eax
    vpscatterdd [rdi + zmm1 * 4]{k1}, zmm2      # the same
    expect  5 * N
    kmovw   k1, eax
    vmovdqa64 ymm20, ymm1
    vgatherdpd zmm2{k1}, [rdi + ymm20 * 8]      # 8 lanes: 0-3, 4, 5, 6-7
    expect  4 * N
    dec     r12d
    jnz     again
    end
    vzeroupper
    finish
lacking:
    skip
    .data
    .balign 64
index:  .long 0, 1, 2, 3, 20, 22, 30, 31, 0, 0, 0, 0, 0, 0, 0, 50
    .bss
    .balign 64
table:  .skip 1024
