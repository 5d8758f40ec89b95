# An access that faults is none; the handler's are, and so is the repetition after it.
    .include "tracee.inc"
    tracee  faults
    mov     edi, 11
    lea     rsi, [rip + action]
    xor     edx, edx
    mov     r10d, 8
    mov     eax, SYS_rt_sigaction
    syscall
    xor     ebx, ebx
    begin
    mov     rax, [rip + hits]           # 1
    mov     rcx, [rbx]                  # faults with rbx = 0, once; then 1
    mov     rdx, [rip + hits]           # 1
    expect  3
    expect  3                           # the handler's
    end
    cmp     rdx, 1
    wrong_if ne, 1
    finish
handler:
    # rdx: ucontext; rbx lies in it at 40 + 11 * 8
    inc     qword ptr [rip + hits]      # 1
    lea     rax, [rip + hits]
    mov     [rdx + 128], rax            # 1
    ret                                 # 1
restorer:
    mov     eax, 15
    syscall
    .data
action: .quad handler, 0x04000004, restorer, 0
hits:   .quad 0
