/* Processes that a script has forked (pcntl_fork) and has not waited for. While a request runs they are the
 * script's own, as is SIGCHLD; once it is over nothing would ever wait for them, since this process goes on,
 * and each would stay a zombie until the user's limit of processes is reached. So what is left of a request
 * is reaped between requests.
 *
 * Not for worker scripts: theirs may outlive a request on purpose, as under php on a command line. */
#include "howdah.h"

#include <signal.h>
#include <sys/wait.h>

/* This process has forked since it was last found without children: a request that forks nothing costs no
 * system call. */
static bool has_forked;
/* SIGCHLD is ignored while this process sleeps, and was this before. */
static bool ignores;
static struct sigaction before;

/* pthread_atfork: in the process that has forked. */
void howdah_forks_seen(void)
{
	has_forked = true;
}

void howdah_forks_enter_child(void)
{
	has_forked = false;
}

/* A request begins: the script finds SIGCHLD as it was before this process slept. */
void howdah_forks_begin(void)
{
	if (ignores) {
		ignores = false;
		sigaction(SIGCHLD, &before, NULL);
	}
}

/* A request is over: reaps what it has forked and left. */
void howdah_forks_reap(void)
{
	if (!has_forked || howdah_is_copy) {
		return;
	}
	pid_t pid;
	do {
		pid = waitpid(-1, NULL, WNOHANG);
	} while (pid > 0);
	/* waitpid() returns 0 while children are left that still run. */
	has_forked = pid == 0;
}

/* Before this process sleeps for want of a request: those that still run are reaped by the kernel when they
 * end, which it does for who ignores SIGCHLD. */
void howdah_forks_rest(void)
{
	if (!has_forked || ignores || howdah_is_copy) {
		return;
	}
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	ignores = sigaction(SIGCHLD, &ignore, &before) == 0;
	/* Reaps those that ended before SIGCHLD was ignored. */
	howdah_forks_reap();
}
