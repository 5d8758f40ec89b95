// Maps a page, touches each of its lines once, gives it back; argument: how many times. A watch on such a line ends
// with its page, whatever else it would have seen.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 100;
	long lines = 0;

	for (long i = 0; i < rounds; i++) {
		volatile char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (page == MAP_FAILED)
			return 1;
		for (long at = 0; at < 4096; at += 64, lines++)
			page[at] = 1;
		munmap((void *)page, 4096);
	}
	printf("%ld\n", lines);
	return 7;
}
