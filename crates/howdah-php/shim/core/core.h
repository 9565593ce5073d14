/* What the core offers to the other folders.
 *
 * Against the direction of includes, run.c, sapi.c, functions.c and cli.c use effects/effects.h: the core calls
 * effects when a request begins and ends and when a script sets a header. functions.c uses effects/cache_functions.h:
 * the PHP functions of the caches belong to the core's modules. The core uses nothing of the folders worker and swoole.
 */
#ifndef HOWDAH_CORE_H
#define HOWDAH_CORE_H

#include "howdah.h"

#include <limits.h>
#include <string.h>

/* ---- numbers ---- */

/* Returns the decimal number at the start of `text`, after blanks and a sign, and sets `end` to what follows it. A
 * number beyond int is INT_MAX or its negative.
 *
 * The shim calls neither strtol() nor atoi(): the headers of glibc 2.38 and newer replace both by functions that
 * older versions lack, and the library must load on these, too. */
static inline int howdah_number(const char *text, const char **end)
{
	text += strspn(text, " \t\n\v\f\r");
	bool negative = *text == '-';
	text += *text == '-' || *text == '+';
	int number = 0;
	for (; *text >= '0' && *text <= '9'; text++) {
		if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *text - '0', &number)) {
			number = INT_MAX;
		}
	}
	if (end) {
		*end = text;
	}
	return negative ? -number : number;
}

/* ---- leaves: written in Rust (src/ffi/mod.rs) ---- */

/* Appends a frame to the response. Returns false when the client is gone. */
bool howdah_write_frame(uint32_t kind, const char *payload, size_t len);
/* Publishes what was written so far and wakes the front. Returns false when the client is gone. */
bool howdah_publish(void);
/* Returns the request to the front. The frame must not be read afterwards. */
void howdah_done(void);

/* ---- the request being run ---- */

/* VarRef and IniRef of howdah_proto::request::layout. */
typedef struct {
	uint16_t id;
	uint16_t name_len;
	uint32_t name_off;
	uint32_t value_off;
	uint32_t value_len;
} howdah_var_ref;

typedef struct {
	uint32_t kind;
	uint32_t name_off;
	uint32_t name_len;
	uint32_t value_off;
	uint32_t value_len;
} howdah_ini_ref;

_Static_assert(sizeof(howdah_var_ref) == HOWDAH_VAR_REF_LEN, "VarRef as in howdah-proto");
_Static_assert(sizeof(howdah_ini_ref) == HOWDAH_INI_REF_LEN, "IniRef as in howdah-proto");

typedef struct {
	/* The frame in shared memory; valid and unchanged until howdah_done(). */
	const char *frame;
	const howdah_var_ref *vars;
	uint32_t var_count;
	const howdah_ini_ref *inis;
	uint32_t ini_count;
	/* Known variables by number; NULL if the request has no variable of that name. */
	const howdah_var_ref *known[HOWDAH_VAR_COUNT];
	/* The request is claimed and has not been returned to the front yet. */
	bool open;
	/* The front needs reports of the run's effects other than its response. */
	bool effects;
	/* SERVER_NAME is a name configured for the site, not just the name that the client sent. */
	bool own_name;
	/* The final header block has been written. */
	bool head_sent;
	/* fastcgi_finish_request() was called: the client has the whole response, and later output is discarded. */
	bool finished;
	/* The raw values for filter_input(INPUT_SERVER) have been registered. */
	bool filter_fed;
} howdah_request;

extern howdah_request howdah_current;
/* Set in a copy of this process that a script made with pcntl_fork(), which must not send a response. */
extern bool howdah_is_copy;

static inline const char *howdah_text(uint32_t offset)
{
	return howdah_current.frame + offset;
}

/* Returns the value of a known variable, NUL-terminated in the frame, or NULL. */
static inline const char *howdah_known(enum howdah_var id)
{
	const howdah_var_ref *ref = howdah_current.known[id];
	return ref ? howdah_text(ref->value_off) : NULL;
}

/* Makes the frame the current request. Returns false if it is not a request frame. */
bool howdah_open_frame(const char *frame);
void howdah_fill_request_info(void);
void howdah_apply_settings(void);
/* Called when all settings of a request have been applied, before its script is compiled. */
void howdah_settle_settings(void);

/* ---- what this process does ---- */

typedef enum {
	HOWDAH_OUTSIDE,   /* between requests, in the zygote */
	HOWDAH_BEGINNING, /* php_request_startup() */
	HOWDAH_RUNNING,   /* the script */
	HOWDAH_ENDING,    /* php_request_shutdown(), which still runs PHP code at first */
} howdah_phase_t;
extern howdah_phase_t howdah_phase;

/* Set by worker/worker.c. It is here because the core and the effects depend on it. */
typedef enum {
	HOWDAH_NO_WORKER,       /* an ordinary child, or the zygote */
	HOWDAH_WORKER_BOOTING,  /* the script runs and has not asked for a request yet */
	HOWDAH_WORKER_BETWEEN,  /* the script has asked before and runs its own code now */
	HOWDAH_WORKER_SERVING,  /* the callback runs, or code that belongs to its request */
	HOWDAH_WORKER_STOPPING, /* the script has been told that there are no more requests */
} howdah_worker_phase;
extern howdah_worker_phase howdah_worker;

/* Returns whether this process runs a worker script, in a request or not. */
static inline bool howdah_is_worker(void)
{
	return howdah_worker != HOWDAH_NO_WORKER;
}

/* Returns whether output belongs to no response but to the worker script itself. */
static inline bool howdah_worker_speaks_itself(void)
{
	return howdah_is_worker() && howdah_worker != HOWDAH_WORKER_SERVING && !howdah_is_copy;
}

/* Returns whether this is `howdah php`. */
bool howdah_is_command_line(void);

/* ---- log ---- */

void howdah_log(int syslog_level, const char *text, size_t len);
void howdah_logf(int syslog_level, const char *format, ...) ZEND_ATTRIBUTE_FORMAT(printf, 2, 3);

/* ---- steps of a request, for scripts that take many ---- */

/* Changes to the script's directory; `script` is NULL if the request names none. */
void howdah_enter_script_directory(const char *script);
/* Changes back to the directory opened as `fd`, if the process has left it. */
void howdah_return_to_directory(int fd);

void howdah_timer_before_script(void);
void howdah_timer_before_worker_request(void);
/* Called before a worker waits for a request. */
void howdah_timer_after_worker_request(void);

/* Calls php_request_startup(), with opcache's usage lock held (opcache.c). */
int howdah_request_startup(void);
/* Called after the RINIT of every extension. */
void howdah_opcache_settle(void);
/* Called when the request has ended and its memory has been freed. */
void howdah_opcache_end_use(void);

void howdah_signals_between_requests(void);
/* Called when a worker has booted. The handlers that are set now are restored after each request from now on. */
void howdah_signals_keep(void);

/* ---- PHP's functions ---- */

extern zend_module_entry howdah_module;

/* A worker pool offers the following functions under FrankenPHP's names, too. */
PHP_FUNCTION(fastcgi_finish_request);
PHP_FUNCTION(apache_request_headers);
PHP_FUNCTION(apache_response_headers);
/* The command line offers the following two. */
PHP_FUNCTION(cli_set_process_title);
PHP_FUNCTION(cli_get_process_title);

/* Installs `ours` as the handler of the internal function `name`. Returns the previous handler, or NULL if there is no
 * such function (its extension is not loaded). */
zif_handler howdah_wrap_function(const char *name, zif_handler ours);

/* Does the same as howdah_wrap_function() for a method, in its class and in the internal classes that inherit it. Both
 * names are in lower case. */
zif_handler howdah_wrap_method(const char *class_name, const char *name, zif_handler ours);

/* ---- PHP's start and end ---- */

/* Starts the parts of PHP that come before its modules, with `module` as the SAPI. No other function of PHP may be
 * called before it. */
void howdah_engine_startup(sapi_module_struct *module);
void howdah_engine_shutdown(void);
/* Returns the globals of a module, or NULL if it has none. */
void *howdah_module_globals(const zend_module_entry *module);
/* Tells PHP that this process has been forked. Must be called in each process that Howdah forks; pcntl_fork() does the
 * same for its own. */
void howdah_forks_init_php(void);

/* ---- PHP as on a command line ---- */

extern sapi_module_struct howdah_cli_sapi;
/* Starts PHP for `script`. With `is_server`, losing the output does not end the script. Returns false if PHP failed and
 * has reported why. */
bool howdah_cli_startup(const char *ini_path, bool no_ini, const char *ini_entries, const char *script,
                        bool is_server);
/* Calls php_request_startup() and adds what a command line needs. Called under a zend_try. */
bool howdah_cli_begin(int argc, char **argv);
/* Opens the script as a file. Returns false and sets errno if that fails. */
bool howdah_cli_open_script(zend_file_handle *file);
void howdah_cli_register_streams(void);

#endif
