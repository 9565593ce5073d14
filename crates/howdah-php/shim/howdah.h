/* The boundary between the Rust loop and PHP. C contains every zend_try and everything that may bail out (a longjmp).
 * The Rust functions declared under "leaves" always return and call nothing of PHP, so no bailout ever crosses a Rust
 * frame.
 *
 * The layout of the request frame is not here: build.rs generates it from howdah-proto into howdah_frame.h. */
#ifndef HOWDAH_H
#define HOWDAH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "php.h"
#include "SAPI.h"
#include "php_main.h"
#include "php_variables.h"
#include "php_ini.h"
#include "zend_ini.h"

#include "entry.h"
#include "howdah_frame.h"

/* ---- leaves: written in Rust (src/ffi/mod.rs) ---- */

/* Appends body bytes to the response, waiting for room. Returns false when the client is gone. */
bool howdah_write_body(const char *bytes, size_t len);
/* Appends a frame of another kind. Returns false when the client is gone. */
bool howdah_write_frame(uint32_t kind, const char *payload, size_t len);
/* Publishes what was written so far and wakes the front. Returns false when the client is gone. */
bool howdah_publish(void);
/* Makes what was written visible to the front when it next checks, without waking it. */
void howdah_show(void);
/* Classifies an SQL text (crate howdah-sql) as HOWDAH_READS, _CONTROLS or _WRITES. For a write, `out` receives the
 * description, at most HOWDAH_MAX_DESCRIPTION bytes. */
uint32_t howdah_describe(uint32_t dialect, const char *sql, size_t len, char *out, size_t cap, size_t *used);
/* Fills `out`, waiting for the client. Returns less than `len` only at the end of the body or when the client is gone.
 */
size_t howdah_read_body(char *out, size_t len);
/* Hands the request back to the front. The frame must not be read afterwards. */
void howdah_done(void);
/* Worker mode: waits for the next request, makes it the current one and returns its frame. Returns NULL when there will
 * be none. The first call reports that the script has booted. */
const char *howdah_next_request(void);
/* Worker mode: asks the front to replace the pool's workers by newly booted ones. */
void howdah_ask_for_restart(void);
/* ---- the shared cache (src/shared_cache) ---- */

/* Bytes that are valid for the duration of a call. */
typedef struct {
	const char *at;
	size_t len;
} howdah_span;

/* Begins a request, which has read nothing from the cache yet. */
void howdah_shared_cache_begin(void);
/* Returns whether this process has a shared cache that may be used now. */
bool howdah_shared_cache_exists(void);
/* Returns the bytes of a value, valid until the next of these calls. Returns false if there is none. */
bool howdah_shared_cache_get(const char *key, size_t len, const char **bytes, size_t *bytes_len);
/* Stores a value for `ttl` seconds, 0 meaning without limit; with `only_new`, only if there is none. Returns whether
 * the value was stored. */
bool howdah_shared_cache_keep(const char *key, size_t len, const char *bytes, size_t bytes_len, uint64_t ttl,
                              const howdah_span *tags, size_t tag_count, bool only_new);
/* Removes a value. Returns whether there was one. */
bool howdah_shared_cache_delete(const char *key, size_t len);
/* Adds `step` to an integer. Returns false if the value is not an integer or the sum overflows. */
bool howdah_shared_cache_increment(const char *key, size_t len, int64_t step, int64_t *sum);
void howdah_shared_cache_delete_tag(const char *tag, size_t len);
/* Fills in size, used, values, hits, misses, evicted. Returns false if the pool has no shared cache. */
bool howdah_shared_cache_info(uint64_t *figures);

/* Reports that PHP cannot be started and ends the process. This is the one leaf that does not return. */
ZEND_NORETURN void howdah_cannot_start(const char *name, const char *sentence);

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
	uint32_t site;
	/* Known variables by number; NULL if the request has no variable of that name. */
	const howdah_var_ref *known[HOWDAH_VAR_COUNT];
	/* The request is claimed and has not been handed back yet. */
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

/* ---- parts of the shim ---- */

extern sapi_module_struct howdah_sapi;
extern zend_module_entry howdah_module;
extern zend_module_entry howdah_command_line_module;
extern zend_string *howdah_names[HOWDAH_VAR_COUNT];

void howdah_log(int syslog_level, const char *text, size_t len);
void howdah_logf(int syslog_level, const char *format, ...) ZEND_ATTRIBUTE_FORMAT(printf, 2, 3);

/* run.c */
bool howdah_open_frame(const char *frame);
void howdah_fill_request_info(void);

/* worker.c */
void howdah_worker_prepare(void);
/* Returns whether output belongs to no response but to the worker script itself. */
bool howdah_worker_speaks_itself(void);
/* Returns whether a worker handles a request. */
bool howdah_worker_serves(void);
/* Returns whether this process runs a worker script, in a request or not. */
bool howdah_is_worker(void);

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
void howdah_apply_settings(void);
int howdah_activate_user_ini(void);

/* cwd.c */
/* Changes to the script's directory; `script` is NULL if the request names none. */
void howdah_enter_script_directory(const char *script);
/* Changes back to the directory opened as `fd`, if the process has left it. */
void howdah_return_to_directory(int fd);

/* timers.c */
typedef enum {
	HOWDAH_OUTSIDE,   /* between requests, in the zygote */
	HOWDAH_BEGINNING, /* php_request_startup() */
	HOWDAH_RUNNING,   /* the script */
	HOWDAH_ENDING,    /* php_request_shutdown(), which still runs PHP code at first */
} howdah_phase_t;
extern howdah_phase_t howdah_phase;
void howdah_timer_before_input(void);
void howdah_timer_before_script(void);
void howdah_timer_before_worker_request(void);

/* opcache.c */
/* Called before opcache starts. Refuses a memory size with which opcache's startup would end the process. */
void howdah_opcache_check_memory(void);
void howdah_opcache_started(void);
void howdah_opcache_begin_use(void);
void howdah_opcache_settle(void);
void howdah_opcache_end_use(void);

/* signals.c */
void howdah_wrap_signals(void);
void howdah_signals_enter_child(void);
void howdah_signals_between_requests(void);
/* Called when a worker has booted. The handlers that are set now are restored after each request from now on. */
void howdah_signals_keep(void);

/* forks.c */
void howdah_forks_seen(void);
void howdah_forks_enter_child(void);
void howdah_forks_begin(void);
void howdah_forks_reap(void);

/* Installs `ours` as the handler of the internal function `name`. Returns the previous handler, or NULL if there is no
 * such function (its extension is not loaded). */
zif_handler howdah_wrap_function(const char *name, zif_handler ours);

/* As howdah_wrap_function(), for a method: in its class and in the internal classes that inherit the method. Both names
 * are in lower case. */
zif_handler howdah_wrap_method(const char *class_name, const char *name, zif_handler ours);

/* ---- effects.c: what a run does apart from its response ---- */

void howdah_wrap_effects(void);
/* Begins a request, none of whose effects has been reported. */
void howdah_effects_begin(void);
/* Returns whether effects must be reported. */
bool howdah_effects_wanted(void);
/* Reports the effect `name`. Its value is the place in the script, if `place` is set, followed by `len` bytes. */
void howdah_tell(const char *name, bool place, const char *text, size_t len);
/* Reports, once each, the effects that are detected at the end of the run. */
void howdah_tell_effects(void);
/* The SAPI's header_handler, which sees each header that a script sets. */
int howdah_see_header(sapi_header_struct *header, sapi_header_op_enum op, sapi_headers_struct *headers);

/* ---- statements.c: what is sent to databases, by any extension ---- */

/* The kind of a statement and, for a write, its description for the front. */
typedef struct {
	uint32_t kind; /* HOWDAH_READS, _CONTROLS, _WRITES */
	size_t len;
	char text[HOWDAH_MAX_DESCRIPTION];
} howdah_statement;

void howdah_statements_begin(void);
/* Returns whether statements are watched now. Called first, since most requests are for sites without a cache. */
bool howdah_statements_watched(void);
/* Classifies a statement's text. NULL means that the text is not known, which counts as a write to any table. */
void howdah_statement_read(howdah_statement *statement, uint32_t dialect, const char *sql, size_t len);
/* Called before a statement is executed and after it has been, the latter with its kind. */
void howdah_statement_starts(const howdah_statement *statement);
void howdah_statement_ended(uint32_t kind);
/* Classifies a text and reports that its execution begins. Returns its kind. */
uint32_t howdah_statement_begins(uint32_t dialect, const char *sql, size_t len);

/* ---- cli.c: PHP as on a command line ---- */

extern sapi_module_struct howdah_cli_sapi;
/* Starts PHP for `script`. With `is_server`, losing the output does not end the script. Returns false if PHP failed and
 * has reported why. */
bool howdah_cli_startup(const char *ini_path, bool no_ini, const char *ini_entries, const char *script,
                        bool is_server);
/* Calls php_request_startup() and adds what a command line needs. Called under a zend_try. */
bool howdah_cli_begin(int argc, char **argv);
void howdah_cli_register_streams(void);
/* Returns whether this is `howdah php`. */
bool howdah_is_command_line(void);

/* ---- statements.c, the extensions ---- */

/* mysqlnd.c: mysqli and PDO_MySQL. database_calls.c: PDO, SQLite3. pgsql_calls.c: pgsql. */
/* Returns whether the extension `name` was built on mysqlnd and mysqlnd is watched. */
bool howdah_is_watched_below(const char *name);
void howdah_watch_mysqlnd(void);
void howdah_watch_database_calls(void);

/* sessions.c */

/* Finds the session module. Called once, after PHP's start. */
void howdah_session_find(void);
/* Keeps the handlers that are set now; every request begins with them. */
void howdah_session_keep(void);
bool howdah_session_is_active(void);
/* Allows or forbids to restore session.save_handler "user", which otherwise only session_set_save_handler() may set. */
void howdah_session_let_handler_be_set(bool may);
/* End and begin the session module's request, as PHP does around each request. */
void howdah_session_end(void);
void howdah_session_begin(void);
/* Does both if there has been a session; session.auto_start opens none. */
void howdah_session_forget(void);

#endif
