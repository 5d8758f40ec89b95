# Sends itself the signal whose number it finds in its first argument's first two digits, between the marks.
    .include "tracee.inc"
    tracee  dies
    mov     rsi, [rsp + 16]
    movzx   eax, byte ptr [rsi]
    movzx   ebx, byte ptr [rsi + 1]
    imul    eax, eax, 10
    lea     ebx, [rbx + rax - 528]      # '0' * 11
    mov     eax, SYS_getpid
    syscall
    mov     ebp, eax
    begin
    inc     qword ptr [rip + cell]
    expect  1
    mov     edi, ebp
    mov     esi, ebx
    mov     eax, SYS_kill
    syscall
    inc     qword ptr [rip + cell]
    expect  1
    end
    finish
    .bss
cell:   .skip 8
