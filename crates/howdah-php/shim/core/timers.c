/* PHP's time limit without its system calls per request. PHP arms a timer when it begins to read the request and again
 * when the script begins, and disarms it at the end. The functions that it calls are defined here, ahead of the C
 * library's, and skip calls that change nothing:
 *
 * - arming while the request is read if there is no body to read, since the timer is armed again before the script;
 * - disarming at the very end if much of the limit is left: the end of a request and the sleep after it use almost
 *   nothing of the limit, and the next request sets the timer again. A request without a limit, or with a body to read,
 *   disarms it first;
 * - arming for a script if the timer was armed less than GRACE ago for a script with the same long limit: it was armed
 *   for the limit and GRACE, so a script never has less than its limit, and at most GRACE more.
 *
 * Calls that a script makes itself (set_time_limit, pcntl) are never skipped.
 *
 * Most builds of PHP use setitimer(ITIMER_PROF), which measures the CPU time of the process. A thread-safe build (ZTS)
 * creates and deletes a timer in each request (ZEND_MAX_EXECUTION_TIMERS), which measures elapsed time and sends
 * SIGRTMIN. Here it is created once for each process. It may expire while the process sleeps between two requests;
 * timer_signals.c discards such a signal. */
#include "core/internal.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "zend_max_execution_timer.h"

/* A timer is left running only if its limit is at least this long (seconds) and was set less than a second ago. */
#define LONG_LIMIT 10
/* Nanoseconds for which one arming serves the scripts of several requests. */
#define GRACE 250000000

howdah_phase_t howdah_phase;

/* A signal handler reads and clears these two. */
static volatile bool armed;     /* the kernel's timer may be running */
static volatile bool left_over; /* PHP has disarmed it, but the kernel's timer still runs */
static long limit;     /* seconds for which it was armed, without GRACE; 0: not armed by PHP's own call */
static bool graced;    /* it was armed with GRACE added */
static bool for_script; /* PHP's next arming is for a script that is about to begin */
static int64_t armed_at;
#ifdef ZEND_MAX_EXECUTION_TIMERS
static timer_t own_timer;     /* the only timer of PHP in this process */
static pid_t own_timer_owner; /* the process that has created it, because a fork does not inherit it */
static bool worker_pauses;    /* PHP's next call disarms the timer because a worker waits for a request */
#endif

static int64_t monotonic_ns(void)
{
	/* This clock is accurate to a few milliseconds, which is enough here, and cheaper than the precise one. */
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int kernel_setitimer(int which, const struct itimerval *value, struct itimerval *old)
{
	return (int)syscall(SYS_setitimer, which, value, old);
}

#ifdef ZEND_MAX_EXECUTION_TIMERS
static int kernel_timer_settime(timer_t timer, const struct itimerspec *value)
{
	static int (*next)(timer_t, int, const struct itimerspec *, struct itimerspec *);
	*(void **)&next = howdah_next_function((void *)next, "timer_settime");
	return next ? next(timer, 0, value, NULL) : -1;
}
#endif

static int disarm(void)
{
	armed = left_over = false;
#ifdef ZEND_MAX_EXECUTION_TIMERS
	static const struct itimerspec none;
	return kernel_timer_settime(own_timer, &none);
#else
	static const struct itimerval none;
	return kernel_setitimer(ITIMER_PROF, &none, NULL);
#endif
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
#ifdef ZEND_MAX_EXECUTION_TIMERS
	if (worker_pauses) {
		return true;
	}
#endif
	return howdah_phase == HOWDAH_ENDING && !EG(current_execute_data);
}

/* Called when PHP disarms its timer. */
static int on_disarm(void)
{
	for_script = false;
	if (!armed) {
		return 0;
	}
	if (is_final_disarm() && limit >= LONG_LIMIT && monotonic_ns() - armed_at < 1000000000) {
		left_over = true;
		return 0;
	}
	return disarm();
}

/* PHP arms its timer for `seconds`, or for another time if they are 0. Returns whether the kernel's timer has to be
 * armed, and sets `longer` if that must be done with GRACE added. */
static bool must_arm(long seconds, bool *longer)
{
	if (howdah_phase == HOWDAH_BEGINNING && PG(max_input_time) != -1 && !has_body()) {
		return false;
	}
	*longer = for_script && seconds >= LONG_LIMIT;
	for_script = false;
	if (*longer && left_over && graced && limit == seconds && monotonic_ns() - armed_at < GRACE) {
		left_over = false;
		return false;
	}
	return true;
}

static void remember_arming(long seconds, bool longer)
{
	armed = true;
	left_over = false;
	limit = seconds;
	graced = longer;
	armed_at = monotonic_ns();
}

int howdah_setitimer(int which, const struct itimerval *value, struct itimerval *old)
{
#ifndef ZEND_MAX_EXECUTION_TIMERS
	if (which == ITIMER_PROF && !old && value) {
		if (!value->it_value.tv_sec && !value->it_value.tv_usec) {
			return on_disarm();
		}
		bool repeats = value->it_interval.tv_sec || value->it_interval.tv_usec;
		long seconds = repeats ? 0 : value->it_value.tv_sec;
		bool longer;
		if (!must_arm(seconds, &longer)) {
			return 0;
		}
		struct itimerval time = *value;
		if (longer) {
			time.it_value.tv_usec = GRACE / 1000;
		}
		int result = kernel_setitimer(which, &time, NULL);
		if (result == 0) {
			remember_arming(seconds, longer);
		}
		return result;
	}
#endif
	return kernel_setitimer(which, value, old);
}

#ifdef ZEND_MAX_EXECUTION_TIMERS
static bool is_own_timer(timer_t timer)
{
	return own_timer_owner && timer == own_timer && own_timer_owner == getpid();
}

bool howdah_timer_clear_left_over(void)
{
	if (!left_over) {
		return false;
	}
	armed = left_over = false;
	return true;
}
#endif

/* PHP creates its timer when a process or its first request begins (zend_max_execution_timer_init()). */
int howdah_timer_create(clockid_t clock, struct sigevent *event, timer_t *timer)
{
	static int (*next)(clockid_t, struct sigevent *, timer_t *);
	*(void **)&next = howdah_next_function((void *)next, "timer_create");
	if (!next) {
		return -1;
	}
#ifdef ZEND_MAX_EXECUTION_TIMERS
	if (event && event->sigev_notify == SIGEV_THREAD_ID && event->sigev_signo == SIGRTMIN
	    && event->sigev_value.sival_ptr == &EG(max_execution_timer_timer)) {
		pid_t process = getpid();
		if (own_timer_owner != process) {
			own_timer_owner = 0;
			int result = next(clock, event, &own_timer);
			if (result != 0) {
				return result;
			}
			own_timer_owner = process;
			armed = left_over = false;
		}
		*timer = own_timer;
		return 0;
	}
#endif
	return next(clock, event, timer);
}

int howdah_timer_settime(timer_t timer, int flags, const struct itimerspec *value, struct itimerspec *old)
{
#ifdef ZEND_MAX_EXECUTION_TIMERS
	if (flags == 0 && !old && value && is_own_timer(timer)) {
		if (!value->it_value.tv_sec && !value->it_value.tv_nsec) {
			return on_disarm();
		}
		long seconds = value->it_value.tv_sec;
		bool longer;
		if (!must_arm(seconds, &longer)) {
			return 0;
		}
		struct itimerspec time = *value;
		if (longer) {
			time.it_value.tv_nsec = GRACE;
		}
		int result = kernel_timer_settime(timer, &time);
		if (result == 0) {
			remember_arming(seconds, longer);
		}
		return result;
	}
#endif
	static int (*next)(timer_t, int, const struct itimerspec *, struct itimerspec *);
	*(void **)&next = howdah_next_function((void *)next, "timer_settime");
	return next ? next(timer, flags, value, old) : -1;
}

/* PHP deletes its timer when a request ends, after it has disarmed it (zend_max_execution_timer_shutdown()). The timer
 * stays, and PHP is told so: zend_max_execution_timer_init() does nothing if EG(pid) is this process. */
int howdah_timer_delete(timer_t timer)
{
#ifdef ZEND_MAX_EXECUTION_TIMERS
	if (is_own_timer(timer)) {
		EG(pid) = own_timer_owner;
		return armed && !left_over ? disarm() : 0;
	}
#endif
	static int (*next)(timer_t);
	*(void **)&next = howdah_next_function((void *)next, "timer_delete");
	return next ? next(timer) : -1;
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

#ifdef ZEND_MAX_EXECUTION_TIMERS
void howdah_timer_before_worker_request(void)
{
	if (EG(timeout_seconds) > 0) {
		for_script = true;
		zend_set_timeout(EG(timeout_seconds), 0);
	} else if (left_over) {
		disarm();
	}
}

/* The time in which a worker waits for a request does not count. */
void howdah_timer_after_worker_request(void)
{
	worker_pauses = true;
	zend_unset_timeout();
	worker_pauses = false;
}
#else
/* A worker's limit starts again with each request, but a timer that was set less than a second ago with the same long
 * limit is left running: a request then has up to a second less, which saves a system call. Between requests the timer
 * stays armed, since a sleeping process uses no CPU time. */
void howdah_timer_before_worker_request(void)
{
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
}

void howdah_timer_after_worker_request(void)
{
}
#endif
