/* Shared by the files of the core only. */
#ifndef HOWDAH_CORE_INTERNAL_H
#define HOWDAH_CORE_INTERNAL_H

#include "core/core.h"

/* ---- leaves: written in Rust (src/ffi/mod.rs) ---- */

/* Appends body bytes to the response, waiting for room. Returns false when the client is gone. */
bool howdah_write_body(const char *bytes, size_t len);
/* Fills `out`, waiting for the client. Returns less than `len` only at the end of the body or when the client is gone.
 */
size_t howdah_read_body(char *out, size_t len);
/* Runs this program with the arguments of the PHP program that hosts it, and returns the exit status. */
int howdah_main(int argc, char **argv);
/* Reports that PHP cannot be started and ends the process. This is the one leaf that does not return. */
ZEND_NORETURN void howdah_cannot_start(const char *name, const char *sentence);

/* ---- parts of the core ---- */

extern sapi_module_struct howdah_sapi;
/* functions.c */
extern zend_module_entry howdah_command_line_module;

/* headers.c */
int howdah_send_headers(sapi_headers_struct *headers);
int howdah_send_informational(sapi_headers_struct *headers, int status);

/* stderr_lines.c */
/* Called once, when PHP starts. */
void howdah_watch_stderr(void);
/* Called at the end of a request. */
void howdah_end_stderr_line(void);

/* variables.c */
void howdah_intern_names(void);
void howdah_hook_environment(void);
char *howdah_getenv(const char *name, size_t len);
char *howdah_read_cookies(void);
void howdah_register_server_variables(zval *array);
/* Returns the name of variable `ref` and stores its length in `len`. */
const char *howdah_var_name(const howdah_var_ref *ref, size_t *len);

/* filters.c: registers the variables for filter_input(INPUT_SERVER) only when a script reads them. */
void howdah_wrap_filters(void);
bool howdah_filter_is_default(void);

/* settings.c */
int howdah_activate_user_ini(void);
void howdah_watch_settings(void);

/* title.c */
/* Called once, with the arguments where the kernel put them. A constructor would not do: musl passes it no arguments.
 */
void howdah_title_remember_arguments(int argc, char **argv);

/* crashes.c */
/* Between these two calls, a signal that kills the process is reported. PHP's globals must exist. */
void howdah_crashes_watch(void);
void howdah_crashes_unwatch(void);
/* Sets the extension that is being loaded; NULL: none. Returns the previous one. */
const char *howdah_crashes_set_loading(const char *path);

/* timers.c */
void howdah_timer_before_input(void);
#ifdef ZEND_MAX_EXECUTION_TIMERS
/* Called when PHP's timer has expired. Returns whether a request that has ended had left it running. */
bool howdah_timer_clear_left_over(void);
#endif

/* timer_signals.c */
/* Returns `known`, or if it is NULL the function of this name that comes after ours. Returns NULL and sets errno if
 * there is none. */
void *howdah_next_function(void *known, const char *name);

/* opcache.c */
/* Called before opcache starts. Refuses a memory size with which opcache's startup would end the process. */
void howdah_opcache_check_memory(void);
void howdah_opcache_started(void);
void howdah_opcache_begin_use(void);

/* signals.c */
void howdah_wrap_signals(void);
void howdah_signals_enter_child(void);

/* forks.c */
void howdah_forks_seen(void);
void howdah_forks_enter_child(void);
void howdah_forks_begin(void);
void howdah_forks_reap(void);

#endif
