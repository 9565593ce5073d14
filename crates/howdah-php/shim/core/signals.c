/* Signals of a child. PHP asks the kernel at every request whether its seven handlers are still installed
 * (zend_signal_activate with SIGG(reset)). Only scripts that use pcntl can change them, so they are installed once, and
 * again only after a request that did. What such a script leaves behind (handlers, a pending alarm, a blocked signal)
 * ends with its request, which is more than php-fpm guarantees. */
#include "core/internal.h"

#include <signal.h>
#include <unistd.h>

#include "zend_signal.h"

static struct sigaction at_start[NSIG];
static sigset_t mask_at_start;
static bool touched;
static bool settled;
#ifdef ZEND_SIGNALS
static zend_signal_entry_t handlers_at_boot[NSIG];
#endif
static bool is_worker;

static zif_handler stock_signal, stock_alarm, stock_sigprocmask;

static void on_signal(INTERNAL_FUNCTION_PARAMETERS)
{
	touched = true;
	stock_signal(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static void on_alarm(INTERNAL_FUNCTION_PARAMETERS)
{
	touched = true;
	stock_alarm(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static void on_sigprocmask(INTERNAL_FUNCTION_PARAMETERS)
{
	touched = true;
	stock_sigprocmask(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

void howdah_wrap_signals(void)
{
	stock_signal = howdah_wrap_function("pcntl_signal", on_signal);
	stock_alarm = howdah_wrap_function("pcntl_alarm", on_alarm);
	stock_sigprocmask = howdah_wrap_function("pcntl_sigprocmask", on_sigprocmask);
}

void howdah_signals_enter_child(void)
{
	/* A preload script with a time limit leaves PHP's handler behind. If PHP took that for the process's own handler, it
	 * would call itself. */
	static const int zends[] = {SIGPROF, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
	for (size_t i = 0; i < sizeof(zends) / sizeof(*zends); i++) {
		/* This calls sigaction() and not signal(), because timer_signals.c must see changes of SIGPROF. */
		struct sigaction standard = {.sa_handler = SIG_DFL};
		sigaction(zends[i], &standard, NULL);
	}
	sigprocmask(SIG_SETMASK, NULL, &mask_at_start);
	for (int signo = 1; signo < NSIG; signo++) {
		sigaction(signo, NULL, &at_start[signo]);
	}
#if defined(ZEND_SIGNALS) && !defined(ZTS)
	/* Remembers the current dispositions as the ones to fall back to. php-fpm calls zend_signal_init() here, which PHP
	 * does not export to libraries. Sets SIGG(reset). */
	zend_signal_startup();
#elif defined(ZEND_SIGNALS)
	/* In a thread-safe build zend_signal_startup() must not be called again, because it allocates the globals. PHP falls
	 * back to the dispositions that it found when it started. A preload script with a time limit does not change them,
	 * because the time limit of such a build uses SIGRTMIN. */
	SIGG(reset) = 1;
#endif
	touched = settled = false;
}

void howdah_signals_between_requests(void)
{
#ifdef ZEND_SIGNALS
	if (!settled) {
		/* The first request has installed PHP's handlers. */
		settled = true;
		SIGG(reset) = 0;
	}
#endif
	if (!touched) {
		return;
	}
	touched = false;
	alarm(0);
	for (int signo = 1; signo < NSIG; signo++) {
		if (signo != SIGKILL && signo != SIGSTOP) {
			/* Fails for the two signals that the C library reserves for itself. */
			(void)sigaction(signo, &at_start[signo], NULL);
		}
	}
	sigprocmask(SIG_SETMASK, &mask_at_start, NULL);
#ifdef ZEND_SIGNALS
	if (is_worker) {
		/* The worker's PHP handlers were among those restored. */
		memcpy(SIGG(handlers), handlers_at_boot, sizeof(handlers_at_boot));
		return;
	}
	SIGG(reset) = 1;
	settled = false;
#endif
}

void howdah_signals_keep(void)
{
	is_worker = true;
	touched = false;
	sigprocmask(SIG_SETMASK, NULL, &mask_at_start);
	for (int signo = 1; signo < NSIG; signo++) {
		(void)sigaction(signo, NULL, &at_start[signo]);
	}
#ifdef ZEND_SIGNALS
	memcpy(handlers_at_boot, SIGG(handlers), sizeof(handlers_at_boot));
#endif
}
