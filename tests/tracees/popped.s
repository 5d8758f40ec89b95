# Flags popped of which some would hinder an engine: strings that go downwards, checks of alignment.
    .include "tracee.inc"
    tracee  popped
    .set    N, 20
    mov     ebx, N
    lea     rsi, [rip + buffer + 255]
    lea     rdi, [rip + buffer + 511]
    mov     byte ptr [rsi - 3], 9
    begin
again:
    pushfq                              # 1
    or      dword ptr [rsp], 0x400      # 2
    popfq                               # 1
    movsb                               # 2
    cld
    expect  6 * N
    pushfq                              # 1
    or      dword ptr [rsp], 0x40000    # 2
    popfq                               # 1
    pushfq                              # 1
    and     dword ptr [rsp], ~0x40000   # 2
    popfq                               # 1
    expect  8 * N
    dec     ebx
    jnz     again
    end
    lea     rax, [rip + buffer + 255 - N]
    cmp     rsi, rax
    wrong_if ne, 1
    cmp     byte ptr [rip + buffer + 511 - 3], 9
    wrong_if ne, 2
    finish
    .bss
    .balign 64
buffer: .skip 512
