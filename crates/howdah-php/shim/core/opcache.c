/* opcache's usage lock, which is held for the whole of a request and from one request to the next.
 *
 * opcache_reset() and a full cache make opcache wipe its shared memory as soon as no process holds a read lock on byte
 * 1 of its lock file (accel_is_inactive). A request takes that lock at its first include and drops it before its memory
 * is freed, but it decides to use the cache earlier, in opcache's RINIT. A wipe between the two leaves it with pointers
 * into memory that is being rewritten ("zend_mm_heap corrupted", under php-fpm as well as here). So the lock is taken
 * just before opcache's RINIT and dropped when the request is over; opcache's own calls find it taken and cost nothing.
 * A request that finds a pending wipe that cannot happen yet runs without the cache and releases the lock at once, so
 * the wipe waits only for requests that began before it.
 *
 * Two fcntl() calls per request would be most of the system calls of a small request. So a child keeps its lock while
 * more requests wait for it, and drops the lock before it sleeps. Kept locks must not delay a wipe: a process that
 * finds one pending sets a word that all children share, and until the wipe has happened each child drops its lock at
 * the end of its request.
 *
 * fcntl() is defined here, ahead of the C library's, to see opcache's calls; calls for every other descriptor pass
 * through. PHP loads extensions with RTLD_DEEPBIND, by which they find the C library's functions first; for opcache.so
 * alone, a dlopen() defined here removes that flag. access() is defined here, too, for a read-only file cache. */
#include "core/internal.h"

#include "zend_extensions.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int lock_file = -1;
static bool starting = true;
static bool in_request;   /* between the beginning of php_request_startup() and the end of php_request_shutdown() */
static bool held;         /* this process holds its read lock on byte 1 */
static bool others_held;  /* this process may hold locks on other bytes */
static bool sees_opcache; /* opcache's calls reach the functions in this file */
static bool wipe_waits;   /* opcache's RINIT saw a pending wipe that cannot happen yet */
/* Set when a process has seen a pending wipe that cannot happen yet, and cleared when a process has seen that it can
 * happen. Shared by the zygote's children. NULL: there is no such memory, and no lock is kept between requests. */
static atomic_bool *wipe_is_wanted;

static int call_fcntl(int fd, int cmd, void *argument)
{
	static int (*next)(int, int, ...);
	if (!next) {
		*(void **)&next = dlsym(RTLD_NEXT, "fcntl");
		if (!next) {
			errno = ENOSYS;
			return -1;
		}
	}
	return next(fd, cmd, argument);
}

void *howdah_dlopen(const char *path, int mode)
{
	static void *(*next)(const char *, int);
	if (!next) {
		*(void **)&next = dlsym(RTLD_NEXT, "dlopen");
		if (!next) {
			return NULL;
		}
	}
#ifdef RTLD_DEEPBIND /* musl does not have it, so extensions find the functions here first. */
	static const char name[] = "/opcache.so";
	size_t len = path ? strlen(path) : 0;
	if (len >= sizeof(name) - 1 && strcmp(path + len - (sizeof(name) - 1), name) == 0) {
		mode &= ~RTLD_DEEPBIND;
	}
#endif
	if (!starting) {
		return next(path, mode);
	}
	const char *outer = howdah_crashes_set_loading(path);
	void *library = next(path, mode);
	howdah_crashes_set_loading(outer);
	return library;
}

/* opcache rejects a file cache that it cannot write (OnUpdateFileCache; PHP 8.5 has opcache.file_cache_read_only). The
 * file cache of a container image is read-only, which is safer: no script changes what others run. Files that it lacks
 * are compiled but not stored. While PHP starts, this function therefore reports directories as writable. */
int howdah_access(const char *path, int mode)
{
	static int (*next)(const char *, int);
	if (!next) {
		*(void **)&next = dlsym(RTLD_NEXT, "access");
		if (!next) {
			errno = ENOSYS;
			return -1;
		}
	}
	struct stat found;
	if (starting && (mode & W_OK) && stat(path, &found) == 0 && S_ISDIR(found.st_mode)) {
		mode &= ~W_OK;
	}
	return next(path, mode);
}

/* Returns the number that php.ini sets, or else `usual`. Like opcache's own handlers, this reads an int. */
static zend_long setting(const char *name, zend_long usual)
{
	char *text;
	return cfg_get_string(name, &text) == SUCCESS && text ? howdah_number(text, NULL) : usual;
}

/* zend_accel_init_shm() takes the interned strings' buffer from the shared memory. If the buffer does not fit, it ends
 * the process with a message that names no setting. The defaults and minimum values here are those of
 * zend_accelerator_module.c (OnUpdateMemoryConsumption, OnUpdateInternedStringsBuffer), which uses the default in place
 * of a value that it rejects. */
void howdah_opcache_check_memory(void)
{
	if (!zend_get_extension("Zend OPcache") || strcmp(sapi_module.name, "cli") == 0) {
		return;
	}
	zend_long enabled = 1, file_cache_only = 0;
	if ((cfg_get_long("opcache.enable", &enabled) == SUCCESS && !enabled)
	    || (cfg_get_long("opcache.file_cache_only", &file_cache_only) == SUCCESS && file_cache_only)) {
		return;
	}
	zend_long memory = setting("opcache.memory_consumption", 128);
	zend_long strings = setting("opcache.interned_strings_buffer", 8);
	if (memory < 8) {
		memory = 128;
	}
	if (strings < memory) {
		return;
	}
	char sentence[256];
	snprintf(sentence, sizeof(sentence),
	         "opcache.memory_consumption = " ZEND_LONG_FMT " (MB) has no room for "
	         "opcache.interned_strings_buffer = " ZEND_LONG_FMT " (MB), which is taken from it: raise the "
	         "first to at least " ZEND_LONG_FMT ", or lower the second",
	         memory, strings, strings + 8);
	howdah_cannot_start("OpcacheMemory", sentence);
}

static int set_lock(short type, off_t start, off_t len)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
	return call_fcntl(lock_file, F_SETLK, &lock);
}

static int on_lock_call(int cmd, struct flock *lock)
{
	sees_opcache = true;
	bool usage = lock->l_whence == SEEK_SET && lock->l_start == 1 && lock->l_len == 1;
	bool whole = lock->l_whence == SEEK_SET && lock->l_start == 0 && lock->l_len == 0;
	if (cmd == F_GETLK) {
		int result = call_fcntl(lock_file, cmd, lock);
		/* opcache makes this call under its own lock, and only while a wipe is pending. */
		if (usage && result == 0) {
			wipe_waits = lock->l_type != F_UNLCK;
			if (wipe_is_wanted) {
				atomic_store_explicit(wipe_is_wanted, wipe_waits, memory_order_relaxed);
			}
		}
		return result;
	}
	if (usage && lock->l_type == F_RDLCK) {
		if (held) {
			return 0;
		}
		int result = call_fcntl(lock_file, cmd, lock);
		held = result == 0;
		return result;
	}
	if ((usage || whole) && lock->l_type == F_UNLCK && in_request) {
		/* This process's own lock stays until the end of the request, when it is dropped explicitly. */
		if (whole && others_held) {
			others_held = false;
			return set_lock(F_UNLCK, 0, 1) | set_lock(F_UNLCK, 2, 0);
		}
		return 0;
	}
	int result = call_fcntl(lock_file, cmd, lock);
	if (result == 0) {
		if (usage || whole) {
			held = false;
			others_held = others_held && !whole;
		} else {
			others_held = lock->l_type != F_UNLCK;
		}
	}
	return result;
}

/* Finds the descriptor of opcache's lock file (zend_shared_alloc_create_lock()). Called when a process waits for a
 * lock, which opcache first does while it starts in the zygote. */
static void find_lock_file(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	while (dir && (entry = readdir(dir))) {
		char path[64], target[512];
		int fd = howdah_number(entry->d_name, NULL);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t len = readlink(path, target, sizeof(target) - 1);
		if (len <= 0) {
			continue;
		}
		target[len] = '\0';
		if (strstr(target, "/.ZendSem.") || strstr(target, "memfd:opcache_lock")) {
			lock_file = fd;
		}
	}
	if (dir) {
		closedir(dir);
	}
}

int howdah_fcntl(int fd, int cmd, ...)
{
	va_list args;
	va_start(args, cmd);
	void *argument = va_arg(args, void *);
	va_end(args);
	/* A fork made by a script does not inherit locks, so opcache's calls in it pass through unchanged. */
	if (starting && lock_file < 0 && cmd == F_SETLKW) {
		find_lock_file();
	}
	if (fd == lock_file && fd >= 0 && !howdah_is_copy
	    && (cmd == F_SETLK || cmd == F_SETLKW || cmd == F_GETLK)) {
		return on_lock_call(cmd, argument);
	}
	return call_fcntl(fd, cmd, argument);
}

/* PHP has started: a lock file opened from now on is not opcache's. */
void howdah_opcache_started(void)
{
	starting = false;
	if (lock_file >= 0) {
		void *shared = mmap(NULL, sizeof(*wipe_is_wanted), PROT_READ | PROT_WRITE,
		                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		wipe_is_wanted = shared == MAP_FAILED ? NULL : shared;
	}
}

static void drop(void)
{
	set_lock(F_UNLCK, 1, 1);
	held = false;
}

/* Called before php_request_startup(). A module of this SAPI would be too late: since PHP 8.5 opcache is a part of PHP,
 * and its RINIT comes first. */
void howdah_opcache_begin_use(void)
{
	/* Holding the lock without seeing opcache's calls could delay a wipe for ever. */
	if (lock_file < 0 || !sees_opcache || howdah_is_copy) {
		return;
	}
	in_request = true;
	wipe_waits = false;
	if (!held) {
		held = set_lock(F_RDLCK, 1, 1) == 0;
	}
}

void howdah_opcache_settle(void)
{
	if (wipe_waits && held) {
		wipe_waits = false;
		drop();
	}
}

void howdah_opcache_end_use(void)
{
	in_request = false;
	bool keep = wipe_is_wanted && !atomic_load_explicit(wipe_is_wanted, memory_order_relaxed);
	if (held && !keep && !howdah_is_copy) {
		drop();
	}
}

/* Called before this process sleeps because there is no request. */
void howdah_opcache_rest(void)
{
	if (held && !in_request && !howdah_is_copy) {
		drop();
	}
}
