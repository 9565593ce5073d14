/* Processes that a script has forked (pcntl_fork) and has not waited for. During a request they are managed by the
 * script, and so is SIGCHLD. After the request no code would ever wait for them, since this process continues, and each
 * would stay a zombie until the user's process limit is reached. So the remaining ones are reaped between requests.
 *
 * This does not apply to worker scripts: their processes may outlive a request on purpose, as under php on a command
 * line. */
#include "core/internal.h"

#include "zend_max_execution_timer.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* This process has forked since it was last found without children. A request that forks nothing thus costs no system
 * call. */
static bool has_forked;
/* SIGCHLD is ignored while this process sleeps; `before` is the previous action. */
static bool ignores;
static struct sigaction before;

/* A thread-safe build of PHP asks for the process id at the beginning and the end of each request, because its timer
 * belongs to one process (zend_max_execution_timer.c). The C library makes a system call each time. Here the id is
 * remembered in a page that the kernel clears in every process that is forked, in whatever way. */
pid_t howdah_getpid(void)
{
#ifdef ZEND_MAX_EXECUTION_TIMERS
	static volatile pid_t *remembered;
	static bool tried;
	if (!tried) {
		tried = true;
		size_t size = (size_t)sysconf(_SC_PAGESIZE);
		void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (page != MAP_FAILED) {
			if (madvise(page, size, MADV_WIPEONFORK) == 0) {
				remembered = page;
			} else {
				munmap(page, size);
			}
		}
	}
	if (remembered) {
		if (!*remembered) {
			*remembered = (pid_t)syscall(SYS_getpid);
		}
		return *remembered;
	}
#endif
	return (pid_t)syscall(SYS_getpid);
}

/* Called in a process that has forked (pthread_atfork). */
void howdah_forks_seen(void)
{
	has_forked = true;
}

/* Prepares PHP in a new process, as php-fpm does (fpm_php_init_child()). Before PHP 8.5 only a thread-safe build needs
 * this, because its timer (ZEND_MAX_EXECUTION_TIMERS) belongs to the process that created it. */
void howdah_forks_init_php(void)
{
#if PHP_VERSION_ID >= 80500
	php_child_init();
#else
	zend_max_execution_timer_init();
#endif
}

void howdah_forks_enter_child(void)
{
	has_forked = false;
}

/* Called when a request begins: the script finds SIGCHLD as it was before this process slept. */
void howdah_forks_begin(void)
{
	if (ignores) {
		ignores = false;
		sigaction(SIGCHLD, &before, NULL);
	}
}

/* Called when a request is over: reaps the processes that it has left. */
void howdah_forks_reap(void)
{
	if (!has_forked || howdah_is_copy) {
		return;
	}
	pid_t pid;
	do {
		pid = waitpid(-1, NULL, WNOHANG);
	} while (pid > 0);
	/* waitpid() returns 0 while some children are still running. */
	has_forked = pid == 0;
}

/* Called before this process sleeps because there is no request. The kernel reaps the children that are still running
 * when they exit, as it does for a process that ignores SIGCHLD. */
void howdah_forks_rest(void)
{
	if (!has_forked || ignores || howdah_is_copy) {
		return;
	}
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	ignores = sigaction(SIGCHLD, &ignore, &before) == 0;
	/* Reaps those that exited before SIGCHLD was ignored. */
	howdah_forks_reap();
}
