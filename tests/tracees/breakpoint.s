# An int3 without a handler between the marks: fatal, here as natively.
    .include "tracee.inc"
    tracee  breakpoint
    begin
    inc     qword ptr [rip + cell]
    int3
    end
    finish
    .bss
cell:   .skip 8
