/* The border between the Rust loop and PHP. C owns every zend_try and everything that may bail
 * out (a longjmp); the Rust functions declared under "leaves" return always and call nothing of
 * PHP, so no bailout ever crosses a Rust frame.
 *
 * Not here: the layout of the request frame, which build.rs generates from howdah-proto into
 * howdah_frame.h. */
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

/* Appends body bytes to the answer, waiting for room. False: the client is gone. */
bool howdah_write_body(const char *bytes, size_t len);
/* Appends a frame of another kind. False: the client is gone. */
bool howdah_write_frame(uint32_t kind, const char *payload, size_t len);
/* Shows the front what was written so far. False: the client is gone. */
bool howdah_publish(void);
/* Lets the front see what was written when it looks, without waking it. */
void howdah_show(void);
/* Reads an SQL text (crate howdah-sql): HOWDAH_READS, _CONTROLS or _WRITES. Of a write, `out` gets the
 * description, at most HOWDAH_MAX_DESCRIPTION bytes. */
uint32_t howdah_describe(uint32_t dialect, const char *sql, size_t len, char *out, size_t cap, size_t *used);
/* Fills `out`, waiting for the client; returns less than `len` only at the body's end. */
size_t howdah_read_body(char *out, size_t len);
/* Hands the request back to the front; nothing of the frame may be read afterwards. */
void howdah_done(void);
/* Worker mode: waits for the next request and makes it the one being run. NULL: there is none to
 * come. The first call says that the script has booted. */
const char *howdah_next_request(void);
/* Worker mode: asks the front to replace the pool's workers by newly booted ones. */
void howdah_ask_for_restart(void);
/* ---- the shared cache (src/shared_cache) ---- */

/* Bytes that live as long as the call. */
typedef struct {
	const char *at;
	size_t len;
} howdah_span;

/* A request begins: it has asked for nothing. */
void howdah_shared_cache_begin(void);
/* Whether this process has a shared cache, which may be used now. */
bool howdah_shared_cache_exists(void);
/* The bytes of a value, until the next of these calls. False: there is none. */
bool howdah_shared_cache_get(const char *key, size_t len, const char **bytes, size_t *bytes_len);
/* Keeps a value for `ttl` seconds, 0: without limit; `only_new`: only where there is none. Whether it is kept. */
bool howdah_shared_cache_keep(const char *key, size_t len, const char *bytes, size_t bytes_len, uint64_t ttl,
                              const howdah_span *tags, size_t tag_count, bool only_new);
/* Whether there was a value. */
bool howdah_shared_cache_delete(const char *key, size_t len);
/* False: there is no integer, or the sum is none. */
bool howdah_shared_cache_increment(const char *key, size_t len, int64_t step, int64_t *sum);
void howdah_shared_cache_delete_tag(const char *tag, size_t len);
/* size, used, values, hits, misses, evicted; false: the pool has no shared cache. */
bool howdah_shared_cache_info(uint64_t *figures);

/* PHP cannot be started: says so and ends the process. The one leaf that does not return. */
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
	/* The frame in shared memory: valid and unchanging until howdah_done(). */
	const char *frame;
	const howdah_var_ref *vars;
	uint32_t var_count;
	const howdah_ini_ref *inis;
	uint32_t ini_count;
	uint32_t site;
	/* Known variables by number; NULL when the request has none of that name. */
	const howdah_var_ref *known[HOWDAH_VAR_COUNT];
	/* The request is claimed and not yet handed back. */
	bool open;
	/* The front wants to know what the run does apart from answering. */
	bool effects;
	/* SERVER_NAME is a name of the site's own, not only what the client said. */
	bool own_name;
	/* The final head has been written. */
	bool head_sent;
	/* fastcgi_finish_request(): the client has everything, later output goes nowhere. */
	bool finished;
	/* filter_input(INPUT_SERVER) has been given its raw values. */
	bool filter_fed;
} howdah_request;

extern howdah_request howdah_current;
/* Set in a copy of this process that a script made by pcntl_fork(): it must not answer. */
extern bool howdah_is_copy;

static inline const char *howdah_text(uint32_t offset)
{
	return howdah_current.frame + offset;
}

/* The value of a known variable, or NULL. NUL-terminated in the frame. */
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
/* Whether output belongs to no answer but is the worker script's own. */
bool howdah_worker_speaks_itself(void);
/* Whether a worker handles a request. */
bool howdah_worker_serves(void);
/* Whether this process runs a worker script, in a request or not. */
bool howdah_is_worker(void);

/* headers.c */
int howdah_send_headers(sapi_headers_struct *headers);
int howdah_send_informational(sapi_headers_struct *headers, int status);

/* stderr_lines.c */
/* Once, at PHP's start. */
void howdah_watch_stderr(void);
/* At the end of a request. */
void howdah_end_stderr_line(void);

/* variables.c */
void howdah_intern_names(void);
void howdah_hook_environment(void);
char *howdah_getenv(const char *name, size_t len);
char *howdah_read_cookies(void);
void howdah_register_server_variables(zval *array);
/* The name of variable `ref` and its length. */
const char *howdah_var_name(const howdah_var_ref *ref, size_t *len);

/* filters.c: filter_input(INPUT_SERVER) fed only when asked for. */
void howdah_wrap_filters(void);
bool howdah_filter_is_default(void);

/* settings.c */
void howdah_apply_settings(void);
int howdah_activate_user_ini(void);

/* cwd.c */
/* Changes to the script's directory; NULL: the request names no script. */
void howdah_enter_script_directory(const char *script);
/* Changes back to the directory open as `fd`, if the process has left it. */
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
/* Before opcache starts: refuses a memory that its start would end the process for. */
void howdah_opcache_check_memory(void);
void howdah_opcache_started(void);
void howdah_opcache_begin_use(void);
void howdah_opcache_settle(void);
void howdah_opcache_end_use(void);

/* signals.c */
void howdah_wrap_signals(void);
void howdah_signals_enter_child(void);
void howdah_signals_between_requests(void);
/* A worker has booted: its handlers are what is put back from now on. */
void howdah_signals_keep(void);

/* forks.c */
void howdah_forks_seen(void);
void howdah_forks_enter_child(void);
void howdah_forks_begin(void);
void howdah_forks_reap(void);

/* Puts `ours` in front of the internal function `name`; returns the handler it had, or NULL when
 * there is no such function (its extension is not loaded). */
zif_handler howdah_wrap_function(const char *name, zif_handler ours);

/* As howdah_wrap_function(), for a method, in the class and in those of PHP's that have it from there.
 * Names in lower case. */
zif_handler howdah_wrap_method(const char *class_name, const char *name, zif_handler ours);

/* ---- effects.c: what a run does apart from answering ---- */

void howdah_wrap_effects(void);
/* A request begins: no effect of it has been reported. */
void howdah_effects_begin(void);
/* Whether effects are to be reported. */
bool howdah_effects_wanted(void);
/* Reports the effect `name`; its value is the place in the script, if `place`, and then `len` bytes. */
void howdah_tell(const char *name, bool place, const char *text, size_t len);
/* Reports, once each, the effects that are looked for at the run's end. */
void howdah_tell_effects(void);
/* The SAPI's header_handler: sees each header that a script sets. */
int howdah_see_header(sapi_header_struct *header, sapi_header_op_enum op, sapi_headers_struct *headers);

/* ---- statements.c: what is sent to databases, whatever extension sends it ---- */

/* What a statement does and, of a write, its description for the front. */
typedef struct {
	uint32_t kind; /* HOWDAH_READS, _CONTROLS, _WRITES */
	size_t len;
	char text[HOWDAH_MAX_DESCRIPTION];
} howdah_statement;

void howdah_statements_begin(void);
/* Whether statements are looked at now; asked first, since most requests are of sites without a cache. */
bool howdah_statements_watched(void);
/* Reads a statement's text; NULL: not known, and so a write to any table. */
void howdah_statement_read(howdah_statement *statement, uint32_t dialect, const char *sql, size_t len);
/* It is about to be executed, and has been: `kind` as read. */
void howdah_statement_starts(const howdah_statement *statement);
void howdah_statement_ended(uint32_t kind);
/* Both of the above, of a text; returns its kind. */
uint32_t howdah_statement_begins(uint32_t dialect, const char *sql, size_t len);

/* ---- cli.c: PHP as on a command line ---- */

extern sapi_module_struct howdah_cli_sapi;
/* PHP's start, for `script`. `is_server`: its output may be closed. False: PHP has said why. */
bool howdah_cli_startup(const char *ini_path, bool no_ini, const char *ini_entries, const char *script,
                        bool is_server);
/* php_request_startup() and what a command line adds. Under a zend_try. */
bool howdah_cli_begin(int argc, char **argv);
void howdah_cli_register_streams(void);
/* Whether this is `howdah php`. */
bool howdah_is_command_line(void);

/* ---- statements.c, the extensions ---- */

/* mysqlnd.c: mysqli and PDO_MySQL. database_calls.c: PDO, SQLite3. pgsql_calls.c: pgsql. */
/* Whether the extension `name` was built on a mysqlnd that is watched. */
bool howdah_is_watched_below(const char *name);
void howdah_watch_mysqlnd(void);
void howdah_watch_database_calls(void);

/* sessions.c */

/* Looks for the session module. Once, after PHP's start. */
void howdah_session_find(void);
/* The handlers that are set now are those every request begins with. */
void howdah_session_keep(void);
bool howdah_session_is_active(void);
/* session.save_handler "user", which only session_set_save_handler() may set, can be put back. */
void howdah_session_let_handler_be_set(bool may);
/* End and begin the session module's request, as PHP does around each request. */
void howdah_session_end(void);
void howdah_session_begin(void);
/* Both, if there has been a session; session.auto_start opens none. */
void howdah_session_forget(void);

#endif
