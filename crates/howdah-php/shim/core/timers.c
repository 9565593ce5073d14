/* PHP's time limit without its five system calls per request. PHP arms the CPU timer (ITIMER_PROF) when it begins to
 * read the request and again when the script begins, disarms it at the end, and installs and unblocks the same SIGPROF
 * handler every time. The three functions that it calls are defined here, ahead of the C library's, and skip calls that
 * change nothing:
 *
 * - installing the action for SIGPROF that is already installed, and unblocking SIGPROF when it is unblocked;
 * - arming while the request is read if there is no body to read, since the timer is armed again before the script;
 * - disarming at the very end if much of the limit is left: the timer counts this process's CPU time, of which the end
 *   of a request and the sleep after it take next to none, and the next request sets it again. A request without a
 *   limit, or with a body to read, disarms it first;
 * - arming for a script if the timer was armed less than GRACE ago for a script with the same long limit: it was armed
 *   for the limit and GRACE, so a script never has less than its limit, and at most GRACE more.
 *
 * Calls that a script makes itself (set_time_limit, pcntl) are never skipped.
 *
 * A thread-safe build of PHP (ZTS) uses timer_settime() instead (ZEND_MAX_EXECUTION_TIMERS), which is not intercepted. Its
 * timer measures elapsed time, so a worker has to stop it before it waits for a request. */
#include "core/internal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* A timer is left running only with at least this limit (seconds), set less than a second ago. */
#define LONG_LIMIT 10
/* Nanoseconds for which one arming serves the scripts of several requests. */
#define GRACE 250000000

howdah_phase_t howdah_phase;

static bool armed;     /* the kernel's timer may be running */
static bool left_over; /* PHP has disarmed it, but the kernel's timer still runs */
static long limit;     /* seconds for which it was armed, without GRACE; 0: not armed by PHP's own call */
static bool graced;    /* it was armed with GRACE added */
static bool for_script; /* PHP's next arming is for a script that is about to begin */
static int64_t armed_at;

static int64_t monotonic_ns(void)
{
	/* Accurate to a few milliseconds, which is enough here, and cheaper than the precise clock. */
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int kernel_setitimer(int which, const struct itimerval *value, struct itimerval *old)
{
	return (int)syscall(SYS_setitimer, which, value, old);
}

static void disarm(void)
{
	static const struct itimerval none;
	kernel_setitimer(ITIMER_PROF, &none, NULL);
	armed = left_over = false;
}

static bool has_body(void)
{
	int64_t length;
	memcpy(&length, howdah_current.frame + HOWDAH_OFF_CONTENT_LENGTH, sizeof(length));
	return length != 0;
}

/* Returns whether this is step 4 of php_request_shutdown(), where no PHP code runs any more, unlike set_time_limit()
 * called by a shutdown function. */
static bool is_final_disarm(void)
{
	return howdah_phase == HOWDAH_ENDING && !EG(current_execute_data);
}

int howdah_setitimer(__itimer_which_t which,
                                                     const struct itimerval *value,
                                                     struct itimerval *old)
{
	if (which != ITIMER_PROF || old || !value) {
		return kernel_setitimer(which, value, old);
	}
	if (!value->it_value.tv_sec && !value->it_value.tv_usec) {
		for_script = false;
		if (!armed) {
			return 0;
		}
		if (is_final_disarm() && limit >= LONG_LIMIT && monotonic_ns() - armed_at < 1000000000) {
			left_over = true;
			return 0;
		}
		disarm();
		return 0;
	}
	if (howdah_phase == HOWDAH_BEGINNING && PG(max_input_time) != -1 && !has_body()) {
		return 0;
	}
	long seconds = value->it_interval.tv_sec || value->it_interval.tv_usec ? 0 : value->it_value.tv_sec;
	bool with_grace = for_script && seconds >= LONG_LIMIT;
	for_script = false;
	int64_t now = monotonic_ns();
	if (with_grace && left_over && graced && limit == seconds && now - armed_at < GRACE) {
		left_over = false;
		return 0;
	}
	struct itimerval longer = *value;
	if (with_grace) {
		longer.it_value.tv_usec = GRACE / 1000;
	}
	int result = kernel_setitimer(which, &longer, NULL);
	if (result == 0) {
		armed = true;
		left_over = false;
		limit = seconds;
		graced = with_grace;
		armed_at = now;
	}
	return result;
}

void howdah_timer_before_input(void)
{
	if (left_over && has_body()) {
		disarm();
	}
	/* max_input_time = -1: the timer is armed once, for reading the request and for the script. */
	for_script = PG(max_input_time) == -1 && !has_body();
}

void howdah_timer_before_script(void)
{
	/* max_execution_time, as its on_modify handler stores it. */
	bool limited = EG(timeout_seconds) > 0;
	for_script = limited && PG(max_input_time) != -1;
	if (left_over && !limited) {
		disarm();
	}
}

/* A worker's limit starts again with each request, but a timer that was set less than a second ago with the same long
 * limit is left running: a request then has up to a second less, which saves a system call. Between requests the timer
 * stays armed, since a sleeping process uses no CPU time. */
void howdah_timer_before_worker_request(void)
{
#ifdef ZEND_MAX_EXECUTION_TIMERS
	if (EG(timeout_seconds) > 0) {
		zend_set_timeout(EG(timeout_seconds), 0);
	}
#else
	if (EG(timeout_seconds) <= 0) {
		if (armed) {
			disarm();
		}
		return;
	}
	bool same = armed && !left_over && limit == EG(timeout_seconds) && limit >= LONG_LIMIT;
	if (!same || monotonic_ns() - armed_at >= 1000000000) {
		zend_set_timeout(EG(timeout_seconds), 0);
	}
#endif
}

void howdah_timer_after_worker_request(void)
{
#ifdef ZEND_MAX_EXECUTION_TIMERS
	zend_unset_timeout();
#endif
}

/* ---- SIGPROF's handler and mask ---- */

/* Compares the part of a set that the kernel uses; glibc leaves the rest of the 128 bytes unchanged. */
static bool same_set(const sigset_t *a, const sigset_t *b)
{
	return memcmp(a, b, _NSIG / 8) == 0;
}

static bool same_action(const struct sigaction *a, const struct sigaction *b)
{
	return a->sa_flags == b->sa_flags && a->sa_sigaction == b->sa_sigaction
	    && same_set(&a->sa_mask, &b->sa_mask);
}

static struct sigaction installed;
static bool installed_known, unblocked_known;

/* glibc's own name for sigaction(), which this file defines. */
extern int __sigaction(int signo, const struct sigaction *action, struct sigaction *old);

int howdah_sigaction(int signo, const struct sigaction *action,
                                                     struct sigaction *old)
{
	if (signo != SIGPROF || !action) {
		return __sigaction(signo, action, old);
	}
	if (installed_known && !old && same_action(action, &installed)) {
		return 0;
	}
	int result = __sigaction(signo, action, old);
	installed_known = result == 0 && !(action->sa_flags & SA_RESETHAND);
	if (installed_known) {
		installed = *action;
	}
	return result;
}

int howdah_sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	static sigset_t only_prof;
	static bool ready;
	if (!ready) {
		sigemptyset(&only_prof);
		sigaddset(&only_prof, SIGPROF);
		ready = true;
	}
	bool unblocks_prof = how == SIG_UNBLOCK && set && same_set(set, &only_prof);
	if (unblocks_prof && !old && unblocked_known) {
		return 0;
	}
	int error = pthread_sigmask(how, set, old);
	if (error) {
		errno = error;
		return -1;
	}
	if (set) {
		unblocked_known = unblocks_prof;
	}
	return 0;
}
