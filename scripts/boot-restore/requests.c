/* Runs a page of WordPress again and again in one process of libphp, for ../boot-restore.py, and prints
 * what its boot costs, writes and reads. Every request is whole: php_request_startup() to
 * php_request_shutdown(). A plugin that the script installs calls boot_mark(NAME) at WordPress' hooks.
 *
 *     requests MODE ROOT REQUESTS [NAME=VALUE of $_SERVER ...]
 *
 * time   nanoseconds from mark to mark, wall clock and this thread's CPU, a line a mark
 * pages  pages written from mark to mark, by kind of memory: userfaultfd's asynchronous write
 *        protection and PAGEMAP_SCAN (Linux 6.7), since the soft-dirty bit is often compiled out
 * copies the same from the end of `init` to the end of the script and of the request only, and what
 *        it costs to copy all private memory at `init`, to find what was written since, and to copy
 *        that much back (to a copy: nothing is put back)
 * reads  superglobals fetched and internal functions called from mark to mark, with their place
 *
 * Warm-up requests, as many as are measured up to 30, are not printed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/types.h>
#include <linux/userfaultfd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <main/php.h>
#include <main/SAPI.h>
#include <main/php_main.h>
#include <main/php_variables.h>
#include <sapi/embed/php_embed.h>

#include "pagemap.h"

#define CHUNK (2UL << 20)

static enum { TIME, PAGES, COPIES, READS } mode;
static bool measuring;
static char **server;
static int server_count;
static unsigned long long bytes_out, text_hash;
static char last_mark[64] = "start";

/* --- time --- */

static long long now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long wall, cpu;
static long faults;

static long minor_faults(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

/* --- pages --- */

enum kind { ZEND_HEAP, C_HEAP, LIBPHP_DATA, OTHER_DATA, STACK, SHARED, KINDS };
static const char *const kind_names[KINDS] = {
	"zend", "heap", "libphp", "libraries", "stack", "shared",
};
struct map { unsigned long start, end; enum kind kind; };
static struct map maps[1024], watched[1024];
static int map_count, watched_count, uffd = -1, pagemap = -1;
static struct page_region *regions; /* Outside of what is measured. */
#define REGIONS 65536
static char *copy; /* Nor this. */
#define COPY (64UL << 20)

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* Writable memory of this process. bss is the nameless mapping right behind a file's data. */
static void read_maps(void)
{
	static char text[1 << 18];
	int fd = open("/proc/self/maps", O_RDONLY);
	size_t length = 0;
	ssize_t got;
	while ((got = read(fd, text + length, sizeof(text) - 1 - length)) > 0) {
		length += got;
	}
	close(fd);
	text[length] = 0;
	map_count = 0;
	unsigned long before = 0;
	enum kind kind_before = C_HEAP;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		unsigned long start, end;
		char rights[5], name[512] = "";
		sscanf(line, "%lx-%lx %4s %*s %*s %*s %511[^\n]", &start, &end, rights, name);
		enum kind kind;
		if (rights[3] == 's') {
			kind = SHARED;
		} else if (!strcmp(name, "[stack]")) {
			kind = STACK;
		} else if (strstr(name, "libphp")) {
			kind = LIBPHP_DATA;
		} else if (name[0] == '/') {
			kind = OTHER_DATA;
		} else if (!name[0] && start == before && kind_before != C_HEAP && kind_before != SHARED) {
			kind = kind_before;
		} else {
			kind = C_HEAP; /* A Zend chunk is told apart page by page. */
		}
		before = end;
		kind_before = kind;
		bool ours = (regions && start <= (unsigned long)regions && end > (unsigned long)regions) ||
			(copy && start <= (unsigned long)copy && end > (unsigned long)copy);
		if (rights[1] == 'w' && !ours && map_count < 1024) {
			maps[map_count++] = (struct map){start, end, kind};
		}
	}
}

/* Each chunk of the Zend heap begins with a pointer to the heap. */
static bool is_zend(unsigned long page, const struct map *map)
{
	unsigned long chunk = page & ~(CHUNK - 1);
	return chunk >= map->start && chunk + CHUNK <= map->end && *(void **)chunk == zend_mm_get_heap();
}

static void watch_new_memory(void)
{
	static struct map next[1024];
	read_maps();
	for (int i = 0; i < map_count; i++) {
		struct uffdio_register wanted = {
			.range = {maps[i].start, maps[i].end - maps[i].start},
			.mode = UFFDIO_REGISTER_MODE_WP,
		};
		if (ioctl(uffd, UFFDIO_REGISTER, &wanted) != 0 && errno != EBUSY) {
			fprintf(stderr, "not watched: %lx-%lx: %s\n", maps[i].start, maps[i].end, strerror(errno));
		}
		next[i] = maps[i];
	}
	memcpy(watched, next, sizeof(struct map) * map_count);
	watched_count = map_count;
}

static void open_uffd(void)
{
	/* Shared, so that they do not become part of a private mapping beside them. */
	regions = mmap(NULL, REGIONS * sizeof(*regions), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	copy = mmap(NULL, COPY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	struct uffdio_api api = {.api = UFFD_API,
		.features = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED};
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) != 0) {
		fail("userfaultfd with asynchronous write protection (Linux 6.7, root)");
	}
	pagemap = open("/proc/self/pagemap", O_RDONLY);
	if (pagemap < 0) {
		fail("/proc/self/pagemap");
	}
}

/* The pages written since the last call, which are protected again; `copying`, the private ones are
 * copied too, and the return value is how long that took. */
static long long count_pages(long counts[KINDS], long long *nanoseconds, bool copying)
{
	static struct { unsigned long start, end; } private[REGIONS];
	long private_count = 0;
	memset(counts, 0, sizeof(long) * KINDS);
	long long start = now(CLOCK_MONOTONIC);
	for (int i = 0; i < watched_count; i++) {
		struct pm_scan_arg arg = {
			.size = sizeof(arg), .flags = PM_SCAN_WP_MATCHING, .start = watched[i].start,
			.end = watched[i].end, .vec = (unsigned long)regions, .vec_len = REGIONS,
			.category_mask = PAGE_IS_WRITTEN, .return_mask = PAGE_IS_WRITTEN,
		};
		int found = ioctl(pagemap, PAGEMAP_SCAN, &arg);
		if (found < 0 || found == REGIONS) {
			continue; /* It has been unmapped. */
		}
		for (int r = 0; r < found; r++) {
			for (unsigned long page = regions[r].start; page < regions[r].end; page += PAGE) {
				enum kind kind = watched[i].kind;
				counts[kind != SHARED && is_zend(page, &watched[i]) ? ZEND_HEAP : kind]++;
			}
			if (watched[i].kind != SHARED) {
				private[private_count].start = regions[r].start;
				private[private_count++].end = regions[r].end;
			}
		}
	}
	*nanoseconds = now(CLOCK_MONOTONIC) - start;
	start = now(CLOCK_MONOTONIC);
	size_t at = 0;
	for (long i = 0; copying && i < private_count && at + private[i].end - private[i].start <= COPY; i++) {
		memcpy(copy + at, (void *)private[i].start, private[i].end - private[i].start);
		at += private[i].end - private[i].start;
	}
	long long copied = now(CLOCK_MONOTONIC) - start;
	watch_new_memory();
	return copied;
}

/* Copies all private memory that is there, as for a snapshot. */
static long long copy_all(long *pages)
{
	static uint64_t entries[COPY / PAGE];
	long long taken = 0;
	*pages = 0;
	read_maps();
	for (int i = 0; i < map_count; i++) {
		size_t count = (maps[i].end - maps[i].start) / PAGE;
		if (maps[i].kind == SHARED || count > COPY / PAGE ||
			pread(pagemap, entries, count * 8, maps[i].start / PAGE * 8) != (ssize_t)count * 8) {
			continue;
		}
		long long start = now(CLOCK_MONOTONIC);
		for (size_t page = 0; page < count && (size_t)(*pages + 1) * PAGE <= COPY; page++) {
			bool present = entries[page] >> 63, of_file = entries[page] >> 61 & 1;
			if (present && !of_file) {
				memcpy(copy + *pages * PAGE, (void *)(maps[i].start + page * PAGE), PAGE);
				++*pages;
			}
		}
		taken += now(CLOCK_MONOTONIC) - start;
	}
	return taken;
}

/* --- reads --- */

static const char *place(void)
{
	static char text[600];
	zend_execute_data *frame = EG(current_execute_data);
	while (frame && (!frame->func || !ZEND_USER_CODE(frame->func->type))) {
		frame = frame->prev_execute_data;
	}
	if (!frame) {
		return "-";
	}
	snprintf(text, sizeof(text), "%s:%u", ZSTR_VAL(frame->func->op_array.filename), frame->opline->lineno);
	return text;
}

static int see_fetch(zend_execute_data *execute_data)
{
	const zend_op *op = EX(opline);
	if (measuring && op->op1_type == IS_CONST && (op->extended_value & ZEND_FETCH_GLOBAL)) {
		zval *name = RT_CONSTANT(op, op->op1);
		if (Z_TYPE_P(name) == IS_STRING && Z_STRVAL_P(name)[0] == '_') {
			const char *key = "*";
			const zend_op *next = op + 1;
			if (next->op2_type == IS_CONST && (next->op1_type & (IS_VAR | IS_TMP_VAR)) &&
				next->op1.var == op->result.var) {
				zval *dim = RT_CONSTANT(next, next->op2);
				key = Z_TYPE_P(dim) == IS_STRING ? Z_STRVAL_P(dim) : "*";
			}
			bool writes = op->opcode == ZEND_FETCH_W || op->opcode == ZEND_FETCH_RW || op->opcode == ZEND_FETCH_UNSET;
			printf("%s\t%s\t$%s\t%s\t%s\n", last_mark, writes ? "write" : "read", Z_STRVAL_P(name), key, place());
		}
	}
	return ZEND_USER_OPCODE_DISPATCH;
}

static const char *one_line(const char *from)
{
	static char text[4096];
	size_t i = 0;
	for (; from[i] && i < sizeof(text) - 1; i++) {
		text[i] = from[i] < ' ' ? ' ' : from[i];
	}
	text[i] = 0;
	return text;
}

static void see_call(zend_execute_data *execute_data, zval *return_value)
{
	zend_function *function = EX(func);
	if (measuring && function->common.function_name) {
		zval *first = NULL; /* The first that is text. */
		for (uint32_t i = 1; !first && i <= ZEND_CALL_NUM_ARGS(execute_data) && i <= 2; i++) {
			zval *argument = ZEND_CALL_ARG(execute_data, i);
			first = Z_TYPE_P(argument) == IS_STRING ? argument : NULL;
		}
		printf("%s\tcall\t%s%s%s\t%s\t%s\n", last_mark,
			function->common.scope ? ZSTR_VAL(function->common.scope->name) : "", function->common.scope ? "::" : "",
			ZSTR_VAL(function->common.function_name),
			first ? one_line(Z_STRVAL_P(first)) : "", place());
	}
	execute_internal(execute_data, return_value);
}

static void watch_reads(void)
{
	static const int fetches[] = {ZEND_FETCH_R, ZEND_FETCH_IS, ZEND_FETCH_W, ZEND_FETCH_RW,
		ZEND_FETCH_FUNC_ARG, ZEND_FETCH_UNSET};
	for (size_t i = 0; i < sizeof(fetches) / sizeof(*fetches); i++) {
		zend_set_user_opcode_handler(fetches[i], see_fetch);
	}
	zend_execute_internal = see_call;
}

/* --- marks --- */

static void mark(const char *name)
{
	if (mode == TIME) {
		long long wall_here = now(CLOCK_MONOTONIC), cpu_here = now(CLOCK_THREAD_CPUTIME_ID);
		long faults_here = minor_faults();
		if (measuring) {
			printf("%s\t%lld\t%lld\t%ld\t%zu\n", name, wall_here - wall, cpu_here - cpu, faults_here - faults,
				zend_memory_usage(0));
		}
		wall = now(CLOCK_MONOTONIC);
		cpu = now(CLOCK_THREAD_CPUTIME_ID);
		faults = minor_faults();
	} else if (mode == PAGES) {
		long counts[KINDS];
		long long nanoseconds;
		count_pages(counts, &nanoseconds, false);
		if (measuring) {
			printf("%s\t%lld\t%zu", name, nanoseconds, zend_memory_usage(0));
			for (int i = 0; i < KINDS; i++) {
				printf("\t%s=%ld", kind_names[i], counts[i]);
			}
			printf("\n");
		}
	} else if (mode == COPIES && (!strcmp(name, "init") || !strcmp(name, "script") || !strcmp(name, "end"))) {
		long counts[KINDS], present = 0;
		long long scanned, cpu_here = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
		long long copied = count_pages(counts, &scanned, true);
		long long all = strcmp(name, "init") ? 0 : copy_all(&present);
		if (measuring) {
			printf("%s\t%lld\t%lld\t%lld\t%lld\t%ld", name, cpu_here, scanned, copied, all, present);
			for (int i = 0; i < KINDS; i++) {
				printf("\t%s=%ld", kind_names[i], counts[i]);
			}
			printf("\n");
		}
		cpu = now(CLOCK_THREAD_CPUTIME_ID);
	}
	snprintf(last_mark, sizeof(last_mark), "%s", name);
}

ZEND_BEGIN_ARG_INFO_EX(mark_arginfo, 0, 0, 1)
	ZEND_ARG_TYPE_INFO(0, name, IS_STRING, 0)
ZEND_END_ARG_INFO()

static PHP_FUNCTION(boot_mark)
{
	char *name;
	size_t length;
	if (zend_parse_parameters(ZEND_NUM_ARGS(), "s", &name, &length) == SUCCESS) {
		mark(name);
	}
}

static const zend_function_entry functions[] = {PHP_FE(boot_mark, mark_arginfo) PHP_FE_END};

/* --- the SAPI --- */

static size_t count_output(const char *text, size_t length)
{
	bytes_out += length;
	for (size_t i = 0; i < length; i++) {
		text_hash = text_hash * 31 + (unsigned char)text[i];
	}
	if (getenv("SHOW")) {
		fwrite(text, 1, length, stderr);
	}
	return length;
}

static void no_flush(void *context)
{
}

static char *cookies(void)
{
	for (int i = 0; i < server_count; i++) {
		if (!strncmp(server[i], "HTTP_COOKIE=", 12)) {
			return server[i] + 12;
		}
	}
	return NULL;
}

static void fill_server(zval *array)
{
	for (int i = 0; i < server_count; i++) {
		char *equals = strchr(server[i], '=');
		char name[256];
		snprintf(name, sizeof(name), "%.*s", (int)(equals - server[i]), server[i]);
		php_register_variable(name, equals + 1, array);
	}
}

static int no_headers(sapi_headers_struct *headers)
{
	if (getenv("SHOW")) {
		fprintf(stderr, "status %d\n", headers->http_response_code);
	}
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}

static void log_line(const char *text, int level)
{
	fprintf(stderr, "php: %s\n", text);
}

static void run(const char *script)
{
	SG(server_context) = (void *)1;
	SG(request_info) = (sapi_request_info){
		.request_method = "GET", .request_uri = (char *)"/", .query_string = (char *)"",
		.path_translated = (char *)script,
	};
	bytes_out = text_hash = 0;
	mark("start");
	if (php_request_startup() != SUCCESS) {
		fprintf(stderr, "php_request_startup failed\n");
		exit(1);
	}
	mark("rinit");
	zend_file_handle file;
	zend_stream_init_filename(&file, script);
	file.primary_script = true;
	zend_first_try {
		php_execute_script(&file);
	} zend_end_try();
	zend_destroy_file_handle(&file);
	mark("script");
	php_request_shutdown(NULL);
	mark("end");
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "requests time|pages|copies|reads ROOT REQUESTS [NAME=VALUE ...]\n");
		return 2;
	}
	mode = !strcmp(argv[1], "time") ? TIME : !strcmp(argv[1], "pages") ? PAGES : !strcmp(argv[1], "copies") ? COPIES : READS;
	char script[4096];
	snprintf(script, sizeof(script), "%s/index.php", argv[2]);
	int requests = atoi(argv[3]);
	server = argv + 4;
	server_count = argc - 4;
	setvbuf(stdout, malloc(1 << 20), _IOFBF, 1 << 20);

	sapi_module_struct *sapi = &php_embed_module;
	sapi->name = "fpm-fcgi"; /* opcache knows it. */
	sapi->additional_functions = functions;
	sapi->ub_write = count_output;
	sapi->flush = no_flush;
	sapi->send_headers = no_headers;
	sapi->read_cookies = cookies;
	sapi->register_server_variables = fill_server;
	sapi->log_message = log_line;
	setenv("USE_ZEND_ALLOC_HUGE_PAGES", "0", 1);
	zend_signal_startup();
	sapi_startup(sapi);
	/* After sapi_startup(), which forgets them. */
	sapi->ini_entries = "opcache.enable=1\nopcache.jit=off\nmemory_limit=512M\ndisplay_errors=0\nlog_errors=1\n"
		"html_errors=0\nmax_execution_time=0\nsendmail_path=/bin/true\n";
	if (php_module_startup(sapi, NULL) != SUCCESS) {
		return 1;
	}
	if (mode == READS) {
		watch_reads();
	}
	for (int i = 0; i < (requests < 30 ? requests : 30); i++) {
		run(script);
	}
	if (mode == PAGES || mode == COPIES) {
		open_uffd();
		watch_new_memory();
		run(script); /* Everything is protected once. */
		run(script);
	}
	measuring = true;
	for (int i = 0; i < requests; i++) {
		run(script);
		printf("#\t%llu\t%llu\n", bytes_out, text_hash);
	}
	fflush(stdout);
	_exit(0);
}
