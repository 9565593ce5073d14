/* The way into a PHP program that exists already: php-fpm, php-cgi or php. The program is started with this library in
 * LD_PRELOAD. Its start-up code calls __libc_start_main() of the C library with its main(); the definition here comes
 * first and passes Howdah's main() in place of it. Nothing of the program's own main() runs: PHP's engine, extensions
 * and php.ini are the program's, and the SAPI is Howdah's. */
#include "core/internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

typedef int main_function(int, char **, char **);
typedef int start_function(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

/* Removes this library from LD_PRELOAD, before anything can start a process that would inherit it. The libraries
 * listed after it are the user's and stay in the list. The string itself is changed because /proc/self/environ shows
 * it. */
static void leave_preload(char **environment)
{
	static const char name[] = "LD_PRELOAD=", descriptor[] = "/proc/self/fd/";
	for (char **at = environment; *at; at++) {
		if (strncmp(*at, name, sizeof(name) - 1) != 0) {
			continue;
		}
		char *list = *at + sizeof(name) - 1;
		size_t own = strcspn(list, ": ");
		/* A path with a blank or a colon is passed as a descriptor. */
		if (strncmp(list, descriptor, sizeof(descriptor) - 1) == 0) {
			close(howdah_number(list + sizeof(descriptor) - 1, NULL));
		}
		if (list[own]) {
			size_t rest = strlen(list + own + 1);
			memmove(list, list + own + 1, rest);
			memset(list + rest, 0, own + 1);
			return;
		}
		memset(*at, 0, sizeof(name) - 1 + own);
		for (; *at; at++) {
			at[0] = at[1];
		}
		return;
	}
}

static int run_program(int argc, char **argv, char **environment)
{
	(void)environment;
	return howdah_main(argc, argv);
}

int howdah_libc_start_main(main_function *program, int argc, char **argv, void (*init)(void), void (*fini)(void),
                           void (*rtld_fini)(void), void *stack_end)
{
	(void)program;
	start_function *next;
	*(void **)&next = dlsym(RTLD_NEXT, "__libc_start_main");
	if (!next) {
		static const char text[] = "howdah-php: HostUnknown: the C library has no __libc_start_main\n";
		(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
		_exit(127);
	}
	/* ps shows this name in place of the host's until the title is set. */
	prctl(PR_SET_NAME, "howdah-php", 0, 0, 0);
	howdah_title_remember_arguments(argc, argv);
	leave_preload(argv + argc + 1);
	return next(run_program, argc, argv, init, fini, rtld_fini, stack_end);
}
