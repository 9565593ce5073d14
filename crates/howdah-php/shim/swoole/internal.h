/* Scripts written for Swoole's HTTP server: declarations shared by the files of this folder. No other folder uses them.
 * Rust starts a script by howdah_run_script() (entry.h), the one function that this folder offers. It uses the core
 * (mainly PHP as on a command line) and, in life.c, worker/worker.h.
 *
 * The event loop is written in Rust (src/run). The control flow of the loop is inverted: C asks for the next event,
 * calls the script, and asks again, so a bailout (a longjmp) crosses only C frames.
 *
 * Behaviour visible to a script follows swoole-src (ext-src/swoole_http_{request,response,server}.cc); where this
 * server is stricter, a comment says so. */
#ifndef HOWDAH_SWOOLE_INTERNAL_H
#define HOWDAH_SWOOLE_INTERNAL_H

#include "core/core.h"

/* ---- leaves: written in Rust (src/ffi/swoole/) ---- */

typedef struct {
	uint64_t workers;
	uint64_t max_requests; /* 0: never replaced */
	uint64_t max_body;
	uint64_t max_uploads; /* maximum size of a form with files in bytes; 0: max_body */
	uint64_t max_output;
	uint64_t idle_ms;
	uint64_t max_wait_ms;
	uint64_t max_connections;
	int backlog;
	bool reports_connections;
	const char *document_root; /* NULL: no static files */
	const char *locations;     /* strings, each terminated by NUL, the last one empty; or NULL */
	const char *spill_directory;
	const char *user, *group;  /* NULL: keep the current user */
} howdah_run_settings;

enum {
	HOWDAH_REQUEST = 1, /* id: the connection */
	HOWDAH_TIMER = 2,   /* id: the timer */
	HOWDAH_CONNECTED = 3,
	HOWDAH_CLOSED = 4,
	HOWDAH_LEAVE = 5,
	HOWDAH_SPAWN = 6, /* id: the worker */
	HOWDAH_DONE = 7,
	HOWDAH_RELOADED = 8,
	HOWDAH_STOPPING = 9,
};

typedef struct {
	uint32_t kind;
	bool repeats;
	uint64_t id;
} howdah_run_event;

typedef struct {
	const char *at;
	size_t len;
} howdah_bytes;

/* Valid until howdah_run_returned(). */
typedef struct {
	howdah_bytes head, method, path, query, body; /* query.at is NULL if there is no query */
	bool http11;
	uint16_t server_port, remote_port;
	char remote_address[48];
} howdah_run_request_t;

typedef struct {
	uint64_t connections, accepted, closed, requests, refused, own_requests, own_connections, ready;
} howdah_run_stats_t;

bool howdah_run_bind(const char *host, uint16_t port, bool unix_socket, char *error, size_t cap);
uint16_t howdah_run_port(void);
bool howdah_run_start(const howdah_run_settings *settings, char *error, size_t cap);
void howdah_run_manage(howdah_run_event *event);
int howdah_run_fork(uint64_t number);
void howdah_run_jitter(uint64_t requests);
void howdah_run_next(howdah_run_event *event);
void howdah_run_returned(void);
void howdah_run_ready(void);
bool howdah_run_request(uint64_t id, howdah_run_request_t *request);
/* Bits that describe the request of a connection. */
enum { HOWDAH_HEAD = 1, HOWDAH_HTTP11 = 2 };
uint32_t howdah_run_traits(uint64_t id);
bool howdah_run_field(uint64_t id, size_t index, howdah_bytes *name, howdah_bytes *value);
bool howdah_run_send(uint64_t id, const char *first, size_t first_len, const char *second,
                     size_t second_len);
bool howdah_run_make_room(uint64_t id);
bool howdah_run_send_file(uint64_t id, const char *path, uint64_t offset, uint64_t length);
howdah_bytes howdah_run_content_type(const char *path);
/* Returns the media type of an extension, or false if it has none. */
bool howdah_run_mime(const char *extension, howdah_bytes *type);
void howdah_run_set_mime(const char *extension, const char *type); /* NULL: removes the type */
void howdah_run_answered(uint64_t id, bool keep);
bool howdah_run_keeps(uint64_t id);
bool howdah_run_exists(uint64_t id, bool answering);
void howdah_run_close(uint64_t id);
void howdah_run_leave(void);
void howdah_run_die(const char *name);
uint64_t howdah_run_timer(uint64_t ms, bool repeats);
bool howdah_run_timer_clear(uint64_t id);
/* Returns when a timer is due, in ms since the first one was created. */
uint64_t howdah_run_timer_due(uint64_t id);
/* Waits for the next timer in a process without a server. HOWDAH_DONE if there is none. */
void howdah_run_next_timer(howdah_run_event *event);
bool howdah_run_stats(howdah_run_stats_t *stats);
void howdah_run_date(char *out); /* 29 bytes */
int64_t howdah_run_seconds(void);
void howdah_run_log(bool warns, const char *line);
bool howdah_run_log_file(const char *path, char *error, size_t cap);
void howdah_run_log_talks(bool talks);

/* ---- parts of this mode ---- */

/* The settings of set() that the loop does not need (settings.c). */
typedef struct {
	bool compression;
	zend_long compression_level;
	size_t compression_min_length;
	char *compression_types; /* strings, each terminated by NUL, the last one empty; NULL: all types */
	bool parse_cookie, parse_post, parse_files;
	bool large_uploads; /* upload_max_filesize was set */
	char *pid_file;
} howdah_swoole_options;

extern howdah_swoole_options howdah_swoole;
extern howdah_run_settings howdah_swoole_loop;

/* Return the names of settings and events; NULL after the last one. */
const char *howdah_swoole_setting_name(size_t index);
const char *howdah_swoole_event_name(size_t index);

/* Applies the settings of $server->set(). Throws for a setting that is not supported. */
void howdah_swoole_set(HashTable *settings);
void howdah_swoole_set_defaults(void);
void howdah_swoole_check_settings(void);

extern zend_class_entry *howdah_swoole_exception_ce, *howdah_swoole_server_ce;

/* Whether this process is a worker of the server. */
extern bool howdah_swoole_in_worker;
/* Whether the server has been started. */
extern bool howdah_swoole_started;

void howdah_swoole_log(bool warns, const char *format, ...) ZEND_ATTRIBUTE_FORMAT(printf, 2, 3);
/* Throws Swoole\Exception "NotSupported: <what> <why>". */
void howdah_swoole_refuse(const char *what, const char *why);

/* Registers a class and its other names: "Swoole\X" also as "OpenSwoole\X", and as the older name if one is given. */
zend_class_entry *howdah_swoole_class(const char *name, const char *older, zend_class_entry *parent,
                                      const zend_function_entry *methods);

/* Refuses to unset a declared property, as Swoole's classes do. */
void howdah_swoole_keep_property(zend_object *object, zend_string *name, void **cache);

void howdah_swoole_register_server(void);
void howdah_swoole_register_request(void);
void howdah_swoole_register_response(void);
void howdah_swoole_register_timer(void);
void howdah_swoole_register_table(void);
void howdah_swoole_register_atomic(void);
/* Allocates memory that forked processes share. Returns NULL on failure. */
void *howdah_swoole_share(size_t len);
void howdah_swoole_register_constants(int module_number);

/* Calls a script's function. Returns false if it threw or exited, which has then been reported. */
bool howdah_swoole_call(zend_fcall_info *info, zend_fcall_info_cache *cache, uint32_t argc,
                        zval *argv, const char *what);

/* request.c */
void howdah_swoole_new_request(zval *object, uint64_t connection);
/* Called when the callback is over. Completes a request object to which the script still holds a reference. */
void howdah_swoole_settle_request(zval *object);
size_t howdah_swoole_read_post(char *buffer, size_t len);
void howdah_swoole_intern(void);

/* response.c */
void howdah_swoole_new_response(zval *object, uint64_t connection);
/* Called when the callback failed. Sends a 500 unless the response has begun. */
void howdah_swoole_fail_response(zval *object, const char *name);

/* timer.c */
/* Calls the timer's function. Returns false if it threw or exited. */
bool howdah_swoole_on_timer(uint64_t id, bool repeats);
void howdah_swoole_forget_timers(void);
/* Used without a server: calls timers until there are none, or one of them exits or throws. */
bool howdah_swoole_run_timers(void);

/* check.c: finds names of unsupported features when the script is compiled. */
void howdah_swoole_check_first_script(const char *script);

#define HOWDAH_SWOOLE_VERSION "5.1.0"
#define HOWDAH_SWOOLE_VERSION_ID 50100

#endif
