/* Reports that a signal kills this process while PHP starts, for example because an extension was built for another
 * PHP. Without this report, the process would exit without a message. The handlers are installed during the start only:
 * the zygote reports a child that crashes later, with the script that it ran.
 *
 * A handler may only call async-signal-safe functions, so it writes a line to stderr and lets the signal kill the
 * process with its usual consequences, such as a core dump. */
#include "core/internal.h"

#include <signal.h>
#include <unistd.h>

static const struct {
	int number;
	const char *name;
} fatal_signals[] = {
	{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGILL, "SIGILL"},
	{SIGFPE, "SIGFPE"},   {SIGABRT, "SIGABRT"}, {SIGSYS, "SIGSYS"},
};
enum { FATAL_SIGNALS = sizeof(fatal_signals) / sizeof(*fatal_signals) };

static struct sigaction before[FATAL_SIGNALS];
/* The extension whose file is being loaded, or NULL. */
static const char *volatile loading;
/* The handler runs on this stack, because the process's own stack may have overflowed. */
static char stack[32 * 1024];

const char *howdah_crashes_set_loading(const char *path)
{
	const char *outer = loading;
	loading = path;
	return outer;
}

static size_t append(char *line, size_t cap, size_t len, const char *text)
{
	size_t more = strlen(text);
	if (more > cap - len) {
		more = cap - len;
	}
	memcpy(line + len, text, more);
	return len + more;
}

static void on_fatal_signal(int signo)
{
	static char line[1024];
	const size_t cap = sizeof(line) - 1;
	const char *name = "a signal";
	for (size_t i = 0; i < FATAL_SIGNALS; i++) {
		if (fatal_signals[i].number == signo) {
			name = fatal_signals[i].name;
		}
	}
	size_t len = append(line, cap, 0, "howdah-php: PhpCrashed: PHP was killed by ");
	len = append(line, cap, len, name);
	/* zend_startup_module_ex() sets it while it starts a module. */
	const zend_module_entry *module = EG(current_module);
	if (loading) {
		len = append(line, cap, len, " during its start, while it loaded ");
		len = append(line, cap, len, loading);
		len = append(line, cap, len, ": disable this extension, or install the build of it for this PHP");
	} else if (module) {
		len = append(line, cap, len, " during its start, while the extension ");
		len = append(line, cap, len, module->name);
		len = append(line, cap, len, " started: disable it, or install the build of it for this PHP");
	} else if (EG(current_execute_data)) {
		len = append(line, cap, len, " during its start, in the script of opcache.preload");
	} else {
		len = append(line, cap, len,
		             " during its start: disable the extensions in turn to find the one that crashes");
	}
	line[len++] = '\n';
	(void)!write(STDERR_FILENO, line, len);
	/* The signal is blocked until the handler returns. SA_RESETHAND has restored the default action. */
	raise(signo);
}

void howdah_crashes_watch(void)
{
	const stack_t own = {.ss_sp = stack, .ss_size = sizeof(stack)};
	sigaltstack(&own, NULL);
	struct sigaction action = {.sa_handler = on_fatal_signal, .sa_flags = SA_RESETHAND | SA_ONSTACK};
	for (size_t i = 0; i < FATAL_SIGNALS; i++) {
		sigaction(fatal_signals[i].number, &action, &before[i]);
	}
}

void howdah_crashes_unwatch(void)
{
	for (size_t i = 0; i < FATAL_SIGNALS; i++) {
		sigaction(fatal_signals[i].number, &before[i], NULL);
	}
	const stack_t none = {.ss_flags = SS_DISABLE};
	sigaltstack(&none, NULL);
}
