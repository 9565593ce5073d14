/* The settings of $server->set(), by name, each checked when it is set. A setting that requests an unsupported feature
 * is refused by name at once, not in production; a setting without a meaning here is ignored; an unknown one causes a
 * warning. */
#include "swoole/internal.h"

#include <unistd.h>

#include "php_open_temporary_file.h"
#include "zend_exceptions.h"

howdah_swoole_options howdah_swoole;
howdah_run_settings howdah_swoole_loop;

typedef enum {
	NUMBER,   /* at least `least`, into `number` */
	SECONDS,  /* into `number` as milliseconds */
	SWITCH,   /* into `flag` */
	TEXT,     /* into `text` */
	SPECIAL,  /* see special() */
	NOTHING,  /* meaningless here, whatever its value */
	UNLESS,   /* refused unless false, 0 or empty */
	DOUBTFUL, /* causes a warning unless false, 0 or empty */
} kind_t;

typedef struct {
	const char *name;
	kind_t kind;
	zend_long least;
	void *into;
	/* The sentence for a refusal (UNLESS) or a warning (DOUBTFUL). */
	const char *why;
} setting_t;

static zend_long grace = -1;
static char *document_root_wanted;
static bool static_wanted;

#define COROUTINES "needs coroutines, which this server does not have"
#define TASKS "needs task workers, which this server does not have"
#define TLS "this server does not speak TLS; put `howdah serve` or another proxy in front"
#define HTTP_ALONE "this server speaks only HTTP/1.1"

static const setting_t settings[] = {
	{"worker_num", NUMBER, 1, &howdah_swoole_loop.workers, NULL},
	{"max_request", NUMBER, 0, &howdah_swoole_loop.max_requests, NULL},
	{"max_request_grace", SPECIAL, 0, NULL, NULL},
	{"package_max_length", NUMBER, 1, &howdah_swoole_loop.max_body, NULL},
	{"socket_buffer_size", NUMBER, 1, &howdah_swoole_loop.max_output, NULL},
	{"buffer_output_size", NUMBER, 1, &howdah_swoole_loop.max_output, NULL},
	{"output_buffer_size", NUMBER, 1, &howdah_swoole_loop.max_output, NULL},
	{"max_connection", NUMBER, 1, &howdah_swoole_loop.max_connections, NULL},
	{"max_conn", NUMBER, 1, &howdah_swoole_loop.max_connections, NULL},
	{"heartbeat_idle_time", SECONDS, 1, &howdah_swoole_loop.idle_ms, NULL},
	{"max_idle_time", SECONDS, 1, &howdah_swoole_loop.idle_ms, NULL},
	{"max_wait_time", SECONDS, 1, &howdah_swoole_loop.max_wait_ms, NULL},
	{"backlog", SPECIAL, 0, NULL, NULL},
	{"pid_file", TEXT, 0, &howdah_swoole.pid_file, NULL},
	{"log_file", SPECIAL, 0, NULL, NULL},
	{"log_level", SPECIAL, 0, NULL, NULL},
	{"user", TEXT, 0, (void *)&howdah_swoole_loop.user, NULL},
	{"group", TEXT, 0, (void *)&howdah_swoole_loop.group, NULL},
	{"document_root", TEXT, 0, &document_root_wanted, NULL},
	{"enable_static_handler", SWITCH, 0, &static_wanted, NULL},
	{"static_handler_locations", SPECIAL, 0, NULL, NULL},
	{"upload_tmp_dir", SPECIAL, 0, NULL, NULL},
	{"upload_max_filesize", SPECIAL, 0, NULL, NULL},
	{"http_parse_cookie", SWITCH, 0, &howdah_swoole.parse_cookie, NULL},
	{"http_parse_post", SWITCH, 0, &howdah_swoole.parse_post, NULL},
	{"http_parse_files", SWITCH, 0, &howdah_swoole.parse_files, NULL},
	{"http_compression", SWITCH, 0, &howdah_swoole.compression, NULL},
	{"http_compression_level", SPECIAL, 0, NULL, NULL},
	{"compression_level", SPECIAL, 0, NULL, NULL},
	{"http_gzip_level", SPECIAL, 0, NULL, NULL},
	{"http_compression_min_length", NUMBER, 0, &howdah_swoole.compression_min_length, NULL},
	{"compression_min_length", NUMBER, 0, &howdah_swoole.compression_min_length, NULL},
	{"http_compression_types", SPECIAL, 0, NULL, NULL},
	{"compression_types", SPECIAL, 0, NULL, NULL},

	{"task_worker_num", UNLESS, 0, NULL, TASKS},
	{"daemonize", UNLESS, 0, NULL, "run the server under systemd or another supervisor, which also collects its log"},
	{"chroot", UNLESS, 0, NULL, "this server does not change its root; use systemd's RootDirectory or a container"},
	{"dispatch_func", UNLESS, 0, NULL, "every worker accepts connections itself"},
	{"open_websocket_protocol", UNLESS, 0, NULL, HTTP_ALONE},
	{"open_http2_protocol", UNLESS, 0, NULL, HTTP_ALONE},
	{"open_mqtt_protocol", UNLESS, 0, NULL, HTTP_ALONE},
	{"open_redis_protocol", UNLESS, 0, NULL, HTTP_ALONE},
	{"open_eof_check", UNLESS, 0, NULL, HTTP_ALONE},
	{"open_eof_split", UNLESS, 0, NULL, HTTP_ALONE},
	{"open_length_check", UNLESS, 0, NULL, HTTP_ALONE},
	{"ssl_cert_file", UNLESS, 0, NULL, TLS},
	{"ssl_key_file", UNLESS, 0, NULL, TLS},
	{"url_rewrite_rules", UNLESS, 0, NULL, "rewrite URLs in the script, or use `howdah serve`"},
	{"http_autoindex", UNLESS, 0, NULL, "directories are never listed"},
	{"bootstrap", UNLESS, 0, NULL, "this setting is for Swoole's thread mode"},
	{"init_arguments", UNLESS, 0, NULL, "this setting is for Swoole's thread mode"},

	{"enable_coroutine", DOUBTFUL, 0, NULL, "a worker runs one request at a time"},
	{"hook_flags", DOUBTFUL, 0, NULL, COROUTINES},
	{"task_enable_coroutine", DOUBTFUL, 0, NULL, TASKS},
	{"enable_preemptive_scheduler", DOUBTFUL, 0, NULL, COROUTINES},
	{"stats_file", DOUBTFUL, 0, NULL, "no file is written; call $server->stats()"},
	{"http_index_files", DOUBTFUL, 0, NULL, "requests for directories are handled by the script"},

	{"reactor_num", NOTHING, 0, NULL, NULL},
	{"single_thread", NOTHING, 0, NULL, NULL},
	{"dispatch_mode", NOTHING, 0, NULL, NULL},
	{"send_yield", NOTHING, 0, NULL, NULL},
	{"send_timeout", NOTHING, 0, NULL, NULL},
	{"max_coroutine", NOTHING, 0, NULL, NULL},
	{"max_coro_num", NOTHING, 0, NULL, NULL},
	{"max_concurrency", NOTHING, 0, NULL, NULL},
	{"worker_max_concurrency", NOTHING, 0, NULL, NULL},
	{"max_queued_bytes", NOTHING, 0, NULL, NULL},
	{"enable_reuse_port", NOTHING, 0, NULL, NULL},
	{"reload_async", NOTHING, 0, NULL, NULL},
	{"heartbeat_check_interval", NOTHING, 0, NULL, NULL},
	{"discard_timeout_request", NOTHING, 0, NULL, NULL},
	{"enable_unsafe_event", NOTHING, 0, NULL, NULL},
	{"enable_delay_receive", NOTHING, 0, NULL, NULL},
	{"event_object", NOTHING, 0, NULL, NULL},
	{"task_use_object", NOTHING, 0, NULL, NULL},
	{"task_object", NOTHING, 0, NULL, NULL},
	{"task_ipc_mode", NOTHING, 0, NULL, NULL},
	{"task_tmpdir", NOTHING, 0, NULL, NULL},
	{"task_max_request", NOTHING, 0, NULL, NULL},
	{"task_max_request_grace", NOTHING, 0, NULL, NULL},
	{"message_queue_key", NOTHING, 0, NULL, NULL},
	{"start_session_id", NOTHING, 0, NULL, NULL},
	{"open_cpu_affinity", NOTHING, 0, NULL, NULL},
	{"cpu_affinity_ignore", NOTHING, 0, NULL, NULL},
	{"input_buffer_size", NOTHING, 0, NULL, NULL},
	{"buffer_input_size", NOTHING, 0, NULL, NULL},
	{"buffer_high_watermark", NOTHING, 0, NULL, NULL},
	{"buffer_low_watermark", NOTHING, 0, NULL, NULL},
	{"kernel_socket_recv_buffer_size", NOTHING, 0, NULL, NULL},
	{"kernel_socket_send_buffer_size", NOTHING, 0, NULL, NULL},
	{"open_tcp_nodelay", NOTHING, 0, NULL, NULL},
	{"open_tcp_keepalive", NOTHING, 0, NULL, NULL},
	{"tcp_defer_accept", NOTHING, 0, NULL, NULL},
	{"tcp_fastopen", NOTHING, 0, NULL, NULL},
	{"tcp_keepidle", NOTHING, 0, NULL, NULL},
	{"tcp_keepinterval", NOTHING, 0, NULL, NULL},
	{"tcp_keepcount", NOTHING, 0, NULL, NULL},
	{"tcp_user_timeout", NOTHING, 0, NULL, NULL},
	{"open_http_protocol", NOTHING, 0, NULL, NULL},
	{"websocket_compression", NOTHING, 0, NULL, NULL},
	{"log_date_format", NOTHING, 0, NULL, NULL},
	{"log_date_with_microseconds", NOTHING, 0, NULL, NULL},
	{"log_rotation", DOUBTFUL, 0, NULL, "the log file is never replaced; rotate it with copytruncate"},
	{"debug_mode", NOTHING, 0, NULL, NULL},
	{"trace_flags", NOTHING, 0, NULL, NULL},
	{"display_errors", NOTHING, 0, NULL, NULL},
	{"admin_server", UNLESS, 0, NULL, "there is no administration server"},
	{NULL, NOTHING, 0, NULL, NULL},
};

const char *howdah_swoole_setting_name(size_t index)
{
	return index < sizeof(settings) / sizeof(*settings) ? settings[index].name : NULL;
}

void howdah_swoole_set_defaults(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	howdah_swoole_loop = (howdah_run_settings){
		.workers = cores > 0 ? (uint64_t)cores : 1,
		.max_body = 2 << 20,
		.max_output = 2 << 20,
		.idle_ms = 75000,
		.max_wait_ms = 3000,
		.max_connections = 100000,
		.backlog = 512,
	};
	howdah_swoole = (howdah_swoole_options){
		.compression = true,
		.compression_level = 1,
		.compression_min_length = 20,
		.parse_cookie = true,
		.parse_post = true,
	};
}

/* Copies a text to memory that is never freed. */
static char *keep(zend_string *text)
{
	return strndup(ZSTR_VAL(text), ZSTR_LEN(text));
}

static void bad_value(const char *name, const char *wants)
{
	zend_throw_exception_ex(howdah_swoole_exception_ce, 0, "BadSetting: %s needs %s", name, wants);
}

static void set_directory_or_limit(const char *name, const char *ini, zval *value)
{
	zend_string *key = zend_string_init(ini, strlen(ini), 0);
	zend_string *text = zval_get_string(value);
	if (zend_alter_ini_entry(key, text, PHP_INI_SYSTEM, PHP_INI_STAGE_ACTIVATE) == FAILURE) {
		bad_value(name, "a value that php.ini would accept");
	}
	zend_string_release(text);
	zend_string_release(key);
}

/* Stores strings, each terminated by NUL, with one more NUL after the last. `first` is the character with which each
 * must begin, unless it is NUL. */
static void keep_list(const char *name, zval *value, char first, const char *wants, const char **into)
{
	if (Z_TYPE_P(value) != IS_ARRAY) {
		bad_value(name, wants);
		return;
	}
	size_t len = 1;
	zval *one;
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(value), one) {
		if (Z_TYPE_P(one) != IS_STRING || Z_STRLEN_P(one) == 0 || (first && Z_STRVAL_P(one)[0] != first)
		    || strlen(Z_STRVAL_P(one)) != Z_STRLEN_P(one)) {
			bad_value(name, wants);
			return;
		}
		len += Z_STRLEN_P(one) + 1;
	} ZEND_HASH_FOREACH_END();
	char *list = calloc(1, len), *at = list;
	if (!list) {
		return;
	}
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(value), one) {
		memcpy(at, Z_STRVAL_P(one), Z_STRLEN_P(one));
		at += Z_STRLEN_P(one) + 1;
	} ZEND_HASH_FOREACH_END();
	*into = list;
}

static void special(const char *name, zval *value)
{
	char error[512];
	if (strcmp(name, "max_request_grace") == 0) {
		grace = zval_get_long(value);
		if (grace < 0) {
			bad_value(name, "a number, 0 or more");
		}
	} else if (strcmp(name, "backlog") == 0) {
		zend_long backlog = zval_get_long(value);
		/* Swoole's samples set 0 for "the default". */
		howdah_swoole_loop.backlog = backlog > 0 ? (int)MIN(backlog, 65535) : 512;
	} else if (strcmp(name, "log_file") == 0) {
		zend_string *path = zval_get_string(value);
		if (ZSTR_LEN(path) && !howdah_run_log_file(ZSTR_VAL(path), error, sizeof(error))) {
			bad_value(name, error);
		}
		zend_string_release(path);
	} else if (strcmp(name, "log_level") == 0) {
		/* SWOOLE_LOG_DEBUG 0, TRACE 1, INFO 2, NOTICE 3, WARNING 4, ERROR 5. */
		howdah_run_log_talks(zval_get_long(value) <= 3);
	} else if (strcmp(name, "upload_tmp_dir") == 0) {
		set_directory_or_limit(name, "upload_tmp_dir", value);
	} else if (strcmp(name, "upload_max_filesize") == 0) {
		set_directory_or_limit(name, "upload_max_filesize", value);
		howdah_swoole.large_uploads = true;
	} else if (strcmp(name, "static_handler_locations") == 0) {
		keep_list(name, value, '/', "an array of path prefixes that begin with /", &howdah_swoole_loop.locations);
	} else if (strstr(name, "compression_types")) {
		keep_list(name, value, '\0', "an array of media types", (const char **)&howdah_swoole.compression_types);
	} else {
		/* Only the compression level remains. */
		zend_long level = zval_get_long(value);
		if (level < 0 || level > 9) {
			bad_value(name, "a level from 0 to 9");
			return;
		}
		howdah_swoole.compression_level = level ? level : 1;
	}
}

static void apply(const setting_t *setting, zval *value)
{
	switch (setting->kind) {
	case NUMBER:
	case SECONDS: {
		zend_long number = zval_get_long(value);
		if (number < setting->least || (Z_TYPE_P(value) == IS_STRING && !is_numeric_string(Z_STRVAL_P(value), Z_STRLEN_P(value), NULL, NULL, 0))) {
			zend_throw_exception_ex(howdah_swoole_exception_ce, 0,
			                        "BadSetting: %s needs a number of at least " ZEND_LONG_FMT,
			                        setting->name, setting->least);
			return;
		}
		*(uint64_t *)setting->into = (uint64_t)number * (setting->kind == SECONDS ? 1000 : 1);
		return;
	}
	case SWITCH:
		*(bool *)setting->into = zend_is_true(value);
		return;
	case TEXT: {
		zend_string *text = zval_get_string(value);
		*(char **)setting->into = ZSTR_LEN(text) ? keep(text) : NULL;
		zend_string_release(text);
		return;
	}
	case SPECIAL:
		special(setting->name, value);
		return;
	case UNLESS:
		if (zend_is_true(value)) {
			howdah_swoole_refuse(setting->name, setting->why);
		}
		return;
	case DOUBTFUL:
		if (zend_is_true(value)) {
			howdah_swoole_log(true, "SettingWithoutEffect: %s: %s", setting->name, setting->why);
		}
		return;
	case NOTHING:
		return;
	}
}

void howdah_swoole_set(HashTable *given)
{
	zend_string *name;
	zval *value;
	ZEND_HASH_FOREACH_STR_KEY_VAL(given, name, value) {
		if (!name) {
			continue;
		}
		ZVAL_DEREF(value);
		const setting_t *setting = settings;
		while (setting->name && strcmp(setting->name, ZSTR_VAL(name)) != 0) {
			setting++;
		}
		if (setting->name) {
			apply(setting, value);
		} else if (strncmp(ZSTR_VAL(name), "ssl_", 4) == 0) {
			howdah_swoole_refuse(ZSTR_VAL(name), TLS);
		} else {
			howdah_swoole_log(true, "UnknownSetting: %s has no meaning for this server", ZSTR_VAL(name));
		}
		if (EG(exception)) {
			return;
		}
	} ZEND_HASH_FOREACH_END();
	if (howdah_swoole_loop.workers > 1000) {
		bad_value("worker_num", "a number of at most 1000");
	}
	howdah_swoole_loop.document_root = static_wanted ? document_root_wanted : NULL;
	/* As in Swoole: half of max_request, spread over the workers. */
	howdah_run_jitter(grace >= 0 ? (uint64_t)grace : howdah_swoole_loop.max_requests / 2);
}

/* Called by start(), after which no setting changes any more. */
void howdah_swoole_check_settings(void)
{
	if (static_wanted && !document_root_wanted) {
		bad_value("enable_static_handler", "document_root to be set as well");
	}
	/* Swoole limits each file of a form but not their number; here all files share one limit. */
	if (howdah_swoole.large_uploads && PG(upload_max_filesize) > 0) {
		howdah_swoole_loop.max_uploads = howdah_swoole_loop.max_body + (uint64_t)PG(upload_max_filesize);
	}
	/* The directory into which PHP puts uploads, too. */
	const char *directory = PG(upload_tmp_dir) && *PG(upload_tmp_dir) ? PG(upload_tmp_dir)
	                                                                  : php_get_temporary_directory();
	howdah_swoole_loop.spill_directory = strdup(directory);
}
