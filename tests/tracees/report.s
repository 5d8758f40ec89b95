# Prints the outcome of a tracee and exits. rdi: a number, rsi: the tracee's name.
    .include "tracee.inc"

    .text
    .globl  report_ok, report_wrong, report_skip
report_ok:
    lea     rbx, [rip + ok]
    lea     rbp, [rip + accesses]
    xor     r15d, r15d
    jmp     line
report_wrong:
    lea     rbx, [rip + wrong]
    lea     rbp, [rip + at]
    mov     r15d, 1
    jmp     line
report_skip:
    lea     rbx, [rip + skipped]
    xor     ebp, ebp
    xor     r15d, r15d
line:
    and     rsp, -16
    mov     r12, rdi
    mov     r13, rsi
    lea     rdi, [rip + buffer]
    mov     rsi, rbx
    call    append
    mov     rsi, r13
    call    append
    test    rbp, rbp
    jz      print
    mov     rsi, rbp
    call    append
    # decimal digits, last first, on the stack
    mov     rax, r12
    mov     ecx, 10
    xor     ebx, ebx
digit:
    xor     edx, edx
    div     rcx
    add     edx, '0'
    push    rdx
    inc     ebx
    test    rax, rax
    jnz     digit
emit:
    pop     rax
    stosb
    dec     ebx
    jnz     emit
print:
    mov     al, '\n'
    stosb
    lea     rsi, [rip + buffer]
    mov     rdx, rdi
    sub     rdx, rsi
    mov     edi, 1
    mov     eax, SYS_write
    syscall
    mov     edi, r15d
    mov     eax, SYS_exit
    syscall

append:
    lodsb
    test    al, al
    jz      appended
    stosb
    jmp     append
appended:
    ret

    .section .rodata
ok:         .asciz "ok "
wrong:      .asciz "wrong "
skipped:    .asciz "skip "
accesses:   .asciz " accesses "
at:         .asciz " at "
    .bss
buffer:     .skip 256
