/* The handler and the mask of the signal with which PHP's timer reports that it has expired. PHP installs and unblocks
 * the same handler at the beginning of each request, and a thread-safe build reads the action before that. The
 * functions that PHP calls for this are defined here, ahead of the C library's, and skip the calls that change nothing.
 *
 * In a thread-safe build, the timer of a request may expire after its end (timers.c), so a handler of our own comes
 * first and passes every other signal on to the handler that PHP has installed. */
#include "core/internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#ifdef ZEND_MAX_EXECUTION_TIMERS
# define TIMER_SIGNAL SIGRTMIN
#else
# define TIMER_SIGNAL SIGPROF
#endif

void *howdah_next_function(void *known, const char *name)
{
	if (!known) {
		known = dlsym(RTLD_NEXT, name);
		if (!known) {
			errno = ENOSYS;
		}
	}
	return known;
}

/* Compares the part of a set that the kernel uses; the C library leaves the rest of the 128 bytes unchanged. */
static bool same_set(const sigset_t *a, const sigset_t *b)
{
	return memcmp(a, b, _NSIG / 8) == 0;
}

static bool same_action(const struct sigaction *a, const struct sigaction *b)
{
	return a->sa_flags == b->sa_flags && a->sa_sigaction == b->sa_sigaction
	    && same_set(&a->sa_mask, &b->sa_mask);
}

/* The action of the signal, as its last caller has set it. */
static struct sigaction installed;
static bool installed_known, unblocked_known;

static int call_sigaction(int signo, const struct sigaction *action, struct sigaction *old)
{
	static int (*next)(int, const struct sigaction *, struct sigaction *);
	*(void **)&next = howdah_next_function((void *)next, "sigaction");
	return next ? next(signo, action, old) : -1;
}

#ifdef ZEND_MAX_EXECUTION_TIMERS
static void on_timer_signal(int signo, siginfo_t *info, void *context)
{
	bool is_timer = info->si_code == SI_TIMER && info->si_value.sival_ptr == &EG(max_execution_timer_timer);
	if (!is_timer || !howdah_timer_clear_left_over()) {
		installed.sa_sigaction(signo, info, context);
	}
}
#endif

int howdah_sigaction(int signo, const struct sigaction *action, struct sigaction *old)
{
	if (signo != TIMER_SIGNAL) {
		return call_sigaction(signo, action, old);
	}
	if (installed_known && (!action || same_action(action, &installed))) {
		if (old) {
			*old = installed;
		}
		return 0;
	}
	if (!action) {
		return call_sigaction(signo, action, old);
	}
	struct sigaction before = installed;
	bool before_known = installed_known;
	/* A signal that arrives between the two calls finds the new action. */
	installed = *action;
	installed_known = !(action->sa_flags & SA_RESETHAND);
	struct sigaction real = *action;
#ifdef ZEND_MAX_EXECUTION_TIMERS
	bool has_handler = action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
	if (installed_known && has_handler && (action->sa_flags & SA_SIGINFO)) {
		real.sa_sigaction = on_timer_signal;
	}
#endif
	if (call_sigaction(signo, &real, old) != 0) {
		installed = before;
		installed_known = before_known;
		return -1;
	}
	if (old && before_known) {
		*old = before;
	}
	return 0;
}

int howdah_sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	static sigset_t only_timer;
	static bool ready;
	if (!ready) {
		sigemptyset(&only_timer);
		sigaddset(&only_timer, TIMER_SIGNAL);
		ready = true;
	}
	bool unblocks_timer = how == SIG_UNBLOCK && set && same_set(set, &only_timer);
	if (unblocks_timer && !old && unblocked_known) {
		return 0;
	}
	int error = pthread_sigmask(how, set, old);
	if (error) {
		errno = error;
		return -1;
	}
	if (set) {
		unblocked_known = unblocks_timer;
	}
	return 0;
}
