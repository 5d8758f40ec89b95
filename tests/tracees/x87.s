# x87, MMX and save areas: one access of full width.
    .include "tracee.inc"
    tracee  x87
    .set    N, 10
    lea     rdi, [rip + area]
    mov     r12d, N
    fninit
    begin
again:
    fld1
    fld     qword ptr [rip + half]
    faddp
    fst     dword ptr [rdi]
    fadd    dword ptr [rdi]
    fstp    tbyte ptr [rdi + 16]
    fld     tbyte ptr [rdi + 16]
    fistp   word ptr [rdi + 32]
    fild    word ptr [rdi + 32]
    fbstp   [rdi + 48]
    fnstcw  [rdi + 60]
    fldcw   [rdi + 60]
    fnstsw  [rdi + 62]
    fnstsw  ax
    expect  11 * N
    fnstenv [rdi + 64]
    fldenv  [rdi + 64]
    fnsave  [rdi + 128]
    frstor  [rdi + 128]
    fxsave  [rdi + 512]
    fxrstor [rdi + 512]
    expect  6 * N
    stmxcsr [rdi]
    ldmxcsr [rdi]
    movq    mm0, [rdi]
    paddb   mm0, [rdi]
    movq    [rdi], mm0
    pcmpeqb mm1, mm1
    maskmovq mm0, mm1
    emms
    pcmpeqb xmm1, xmm1
    maskmovdqu xmm0, xmm1
    expect  7 * N
    dec     r12d
    jnz     again
    end
    cmp     word ptr [rdi + 32], 3
    wrong_if ne, 1
    finish
    .data
half:   .double 0.5
    .bss
    .balign 64
area:   .skip 2048
