# A timer signal every few milliseconds, its handler counted; and a sleep that it interrupts.
    .include "tracee.inc"
    .macro mask how
    mov     edi, \how
    lea     rsi, [rip + set]
    xor     edx, edx
    mov     r10d, 8
    mov     eax, SYS_rt_sigprocmask
    syscall
    .endm
    tracee  alarms
    .set    N, 3000
    .set    SYS_nanosleep, 35
    .set    SYS_setitimer, 38
    .set    EINTR, 4
    mov     edi, 14                     # SIGALRM
    lea     rsi, [rip + action]
    xor     edx, edx
    mov     r10d, 8
    mov     eax, SYS_rt_sigaction
    syscall
    mask    0                           # SIG_BLOCK: all hits lie between the marks
    xor     edi, edi
    lea     rsi, [rip + interval]
    xor     edx, edx
    mov     eax, SYS_setitimer
    syscall
    begin
    mask    1                           # SIG_UNBLOCK
    lea     rdi, [rip + second]
    mov     r12d, N
again:
    inc     qword ptr [rip + cell]
    expect  1 * N
    dec     r12d
    jnz     again
    xor     esi, esi
    mov     eax, SYS_nanosleep
    syscall
    mov     r13, rax
    mask    0
    end
    cmp     r13, -EINTR
    wrong_if ne, 1
    cmp     qword ptr [rip + cell], N
    wrong_if ne, 2
    mov     rbx, [rip + hits]
    test    rbx, rbx
    wrong_if z, 3
    # three accesses a hit
    lea     rdi, [rbx + rbx * 2]
    add     rdi, expected
    lea     rsi, [rip + name]
    jmp     report_ok
handler:
    inc     qword ptr [rip + hits]      # 1
    push    rax                         # 1
    lea     rsp, [rsp + 8]
    ret                                 # 1
restorer:
    mov     eax, 15
    syscall
    .data
action:     .quad handler, 0x04000004, restorer, 0
interval:   .quad 0, 20000, 0, 20000
set:        .quad 1 << (14 - 1)
second:     .quad 10, 0
hits:       .quad 0
cell:       .quad 0
