# Sleeps for six seconds between the marks.
    .include "tracee.inc"
    tracee  sleeps
    .set    SYS_nanosleep, 35
    begin
    lea     rdi, [rip + time]
    xor     esi, esi
    mov     eax, SYS_nanosleep
    syscall
    inc     qword ptr [rip + cell]
    expect  1
    end
    finish
    .data
time:   .quad 6, 0
cell:   .quad 0
