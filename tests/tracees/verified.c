// Has the kernel verify a program that takes it long, again and again, while another thread computes: it gives up where a signal
// is there. Prints how often. Source: bpf(2); linux/kernel/bpf/verifier.c, `do_check`.
#include <errno.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BODY = 100, TURNS = 7000 };

static volatile int done;
static volatile long sum;

static void *compute(void *unused) {
    while (!done)
        for (int i = 0; i < 10000; i++) sum += i;
    return unused;
}

int main(int argc, char **argv) {
    struct bpf_insn code[BODY + 8];
    int length = 0, failed = 0;
    code[length++] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0};
    code[length++] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 1, .imm = TURNS};
    int loop = length;
    for (int i = 0; i < BODY; i++) code[length++] = (struct bpf_insn){.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 0, .imm = 1};
    code[length++] = (struct bpf_insn){.code = BPF_ALU64 | BPF_SUB | BPF_K, .dst_reg = 1, .imm = 1};
    code[length] = (struct bpf_insn){.code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = 1, .off = loop - length - 1};
    length++;
    code[length++] = (struct bpf_insn){.code = BPF_JMP | BPF_EXIT};
    union bpf_attr load;
    memset(&load, 0, sizeof load);
    load.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
    load.insns = (long)code;
    load.insn_cnt = length;
    load.license = (long)"GPL";
    pthread_t thread;
    pthread_create(&thread, 0, compute, 0);
    for (int i = 0; argc > 1 && i < atoi(argv[1]); i++) {
        int loaded = syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load);
        if (loaded >= 0) {
            close(loaded);
        } else if (errno == EAGAIN || errno == EINTR) {
            failed++;
        } else {
            printf("skip: bpf: %s\n", strerror(errno));
            return 0;
        }
    }
    done = 1;
    pthread_join(thread, 0);
    printf("failed %d\n", failed);
    return 0;
}
