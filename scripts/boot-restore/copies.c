/* What it costs to put memory back, for ../boot-restore.py: `copies ALL DIRTY ROUNDS` holds ALL pages, lets
 * each round write DIRTY of them, spread evenly, and puts them back, in each of the ways a server could.
 * Prints microseconds of CPU (median), separately for the writes themselves, made dearer by faults, and for
 * putting the memory back. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/types.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pagemap.h"

static char *live, *kept;
static long all, dirty, rounds;
static double *writes, *restores;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
	return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b);
}

static double median(double *values)
{
	qsort(values, rounds, sizeof(double), ascending);
	return values[rounds / 2];
}

static void report(const char *way)
{
	printf("| %s | %.0f | %.0f |\n", way, median(writes), median(restores));
	fflush(stdout);
}

static void write_pages(void)
{
	for (long i = 0; i < dirty; i++) {
		((volatile char *)live)[i * all / dirty * PAGE + 64]++;
	}
}

static void check(void)
{
	if (memcmp(live, kept, all * PAGE)) {
		fprintf(stderr, "not put back\n");
		exit(1);
	}
}

static char *memory(void)
{
	return mmap(NULL, all * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}

static void no_tracking(void)
{
	for (long i = 0; i < rounds; i++) {
		double start = now();
		write_pages();
		writes[i] = now() - start;
		start = now();
		memcpy(live, kept, all * PAGE);
		restores[i] = now() - start;
	}
	check();
	report("copy of all");
}

static void write_protection(void)
{
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED};
	struct uffdio_register range = {.range = {(unsigned long)live, all * PAGE}, .mode = UFFDIO_REGISTER_MODE_WP};
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &range)) {
		perror("userfaultfd");
		return;
	}
	struct page_region *found = calloc(all, sizeof(*found));
	double *scans = calloc(rounds, sizeof(double));
	for (long i = -1; i < rounds; i++) {
		double start = now();
		write_pages();
		double written = now();
		/* Found without protecting them again, put back, and protected: the copy is a write too. */
		struct pm_scan_arg arg = {
			.size = sizeof(arg), .start = (unsigned long)live, .end = (unsigned long)live + all * PAGE,
			.vec = (unsigned long)found, .vec_len = all, .category_mask = PAGE_IS_WRITTEN, .return_mask = PAGE_IS_WRITTEN,
		};
		int count = ioctl(pagemap, PAGEMAP_SCAN, &arg);
		for (int r = 0; r < count; r++) {
			memcpy((char *)found[r].start, kept + (found[r].start - (unsigned long)live), found[r].end - found[r].start);
		}
		double copied = now();
		arg.flags = PM_SCAN_WP_MATCHING;
		arg.walk_end = 0;
		ioctl(pagemap, PAGEMAP_SCAN, &arg);
		if (i >= 0) {
			writes[i] = written - start;
			restores[i] = now() - written;
			scans[i] = copied - written;
		}
	}
	check();
	report("userfaultfd, PAGEMAP_SCAN");
	struct uffdio_range whole = range.range;
	ioctl(uffd, UFFDIO_UNREGISTER, &whole);
	close(uffd);
	close(pagemap);
}

static volatile long noted[1 << 16], noted_count; /* Written by the handler. */

static void on_fault(int signal, siginfo_t *info, void *context)
{
	unsigned long page = (unsigned long)info->si_addr & ~(PAGE - 1);
	noted[noted_count++] = page;
	mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE);
}

static void page_signals(void)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &action, NULL);
	for (long i = 0; i < rounds; i++) {
		mprotect(live, all * PAGE, PROT_READ);
		noted_count = 0;
		double start = now();
		write_pages();
		double written = now();
		for (long n = 0; n < noted_count; n++) {
			memcpy((char *)noted[n], kept + (noted[n] - (unsigned long)live), PAGE);
		}
		mprotect(live, all * PAGE, PROT_READ);
		writes[i] = written - start;
		restores[i] = now() - written;
	}
	mprotect(live, all * PAGE, PROT_READ | PROT_WRITE);
	signal(SIGSEGV, SIG_DFL);
	check();
	report("mprotect, SIGSEGV");
}

static void private_mapping(void)
{
	int fd = memfd_create("kept", MFD_CLOEXEC);
	if (write(fd, kept, all * PAGE) != all * (long)PAGE) {
		perror("memfd");
		return;
	}
	char *before = live;
	live = mmap(NULL, all * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	for (long i = 0; i < rounds; i++) {
		volatile char sum = 0;
		for (long page = 0; page < all; page++) {
			sum += live[page * PAGE]; /* Mapped again for reading, as a program would fault it in. */
		}
		double start = now();
		write_pages();
		double written = now();
		madvise(live, all * PAGE, MADV_DONTNEED);
		writes[i] = written - start;
		restores[i] = now() - written;
	}
	check();
	report("MAP_PRIVATE of a memfd, MADV_DONTNEED (its faults for reading not counted)");
	munmap(live, all * PAGE);
	live = before;
	close(fd);
}

static double spent(int who)
{
	struct rusage usage;
	getrusage(who, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

/* CPU of parent and child together, as a mean: the kernel's count of a child is exact only in the sum. */
static void forks(void)
{
	double start = spent(RUSAGE_SELF) + spent(RUSAGE_CHILDREN);
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (long i = 0; i < rounds; i++) {
		pid_t child = fork();
		if (child == 0) {
			write_pages();
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	double wall = ((b.tv_sec - a.tv_sec) * 1e6 + (b.tv_nsec - a.tv_nsec) / 1e3) / rounds;
	printf("| fork, copy on write, exit, wait: both together, mean | %.0f | %.0f wall clock |\n",
		(spent(RUSAGE_SELF) + spent(RUSAGE_CHILDREN) - start) / rounds, wall);
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "copies ALL DIRTY ROUNDS\n");
		return 2;
	}
	all = atol(argv[1]), dirty = atol(argv[2]), rounds = atol(argv[3]);
	if (dirty < 1 || dirty > all || dirty > 1 << 16 || rounds < 1) {
		return 2;
	}
	live = memory(), kept = memory();
	writes = calloc(rounds, sizeof(double)), restores = calloc(rounds, sizeof(double));
	for (long i = 0; i < all * (long)PAGE; i++) {
		live[i] = kept[i] = i * 7;
	}
	printf("\n| %ld pages, %ld written, CPU in µs | the writes | putting back |\n|---|---|---|\n", all, dirty);
	no_tracking();
	write_protection();
	page_signals();
	private_mapping();
	forks();
	return 0;
}
