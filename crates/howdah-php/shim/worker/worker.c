/* Worker mode: a script boots once and then asks for one request after another with frankenphp_handle_request()
 * (howdah_handle_request() is the same function under Howdah's name).
 *
 * ```
 * boot ─► asks ─► [begin: site's settings, input, superglobals] callback [end: shutdown functions,
 *          ▲       session, output, uploads; the response is complete] script's own code ─┐
 *          └──────────────── the changes of the request are undone ◄──────────────────────┘
 * ```
 * The semantics are FrankenPHP's (frankenphp_handle_request() of frankenphp.c), but more is reset, see state.c.
 * The steps are those of php_request_startup() and php_request_shutdown(), in their order, without those that would
 * free the script.
 *
 * exit() and fatal errors in a request end the script: cleanup code after the callback has not run, so the next request
 * gets a process that has booted afresh. The client gets what an ordinary script would send. An uncaught exception ends
 * only its request. */
#include "effects/effects.h"
#include "worker/internal.h"

#include <errno.h>
#include <syslog.h>

#include "ext/spl/spl_exceptions.h"
#include "ext/json/php_json.h"
#include "php_output.h"
#include "zend_exceptions.h"
#include "zend_signal.h"

/* The script has asked for a request at least once. */
static bool has_asked;
static uint64_t served;

/* Sends the output that the script has written outside of requests, buffered or not, to the log. */
static void end_own_output(void)
{
	php_output_end_all();
	php_output_deactivate();
	php_output_activate();
	zend_llist_clean(&SG(sapi_headers).headers);
}

/* Closes the body of a request, and every php://input that is still open on it: such a stream holds no reference to the
 * body and would read freed memory or the next client's body. */
static void close_body(php_stream *body)
{
	zend_resource *resource;
	const int stream_type = php_file_le_stream();
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource) {
		if (resource && resource->type == stream_type
		    && strcmp(((php_stream *)resource->ptr)->ops->label, "Input") == 0) {
			zend_list_close(resource);
		}
	} ZEND_HASH_FOREACH_END();
	php_stream_close(body);
}

/* Reports an exception as at the end of zend_execute_scripts(). */
static void report_exception(void)
{
	if (Z_TYPE(EG(user_exception_handler)) != IS_UNDEF) {
		zend_user_exception_handler();
	}
	if (EG(exception) && !zend_is_unwind_exit(EG(exception))) {
		zend_exception_error(EG(exception), E_ERROR);
	}
}

/* Reports an exception thrown by code at a request's end as it would be reported outside of all functions. An exit() is
 * set aside, since PHP calls no function while one is pending. */
static void settle(zend_object **exit)
{
	if (!EG(exception)) {
		return;
	}
	if (zend_is_unwind_exit(EG(exception)) || zend_is_graceful_exit(EG(exception))) {
		if (*exit) {
			OBJ_RELEASE(*exit);
		}
		*exit = EG(exception);
		EG(exception) = NULL;
	} else {
		report_exception();
	}
}

/* Performs the steps of php_request_shutdown() that finish a response. */
static void end_request(void)
{
	zend_object *exit = NULL;
	howdah_state_call_shutdown_functions();
	settle(&exit);
	zend_try {
		php_output_end_all();
	} zend_end_try();
	settle(&exit);
	howdah_tell_effects();
	/* The session module writes its session here. */
	howdah_state_end_modules();
	settle(&exit);
	if (++served == 1) {
		howdah_state_keep_first();
	}
	zend_try {
		php_output_deactivate();
	} zend_end_try();
	zend_try {
		php_stream *body = SG(request_info).request_body;
		SG(request_info).request_body = NULL;
		SG(post_read) = 1; /* the front discards what the script did not read of it */
#if PHP_VERSION_ID >= 80600
		if (ZEND_FCC_INITIALIZED(SG(send_header_fcc))) {
			zend_fcc_dtor(&SG(send_header_fcc));
		}
#else
		if (Z_TYPE(SG(callback_func)) != IS_UNDEF) {
			zval_ptr_dtor(&SG(callback_func));
			ZVAL_UNDEF(&SG(callback_func));
		}
#endif
		sapi_deactivate();
		if (body) {
			close_body(body);
		}
	} zend_end_try();
	if (SG(request_info).path_translated) {
		efree(SG(request_info).path_translated);
		SG(request_info).path_translated = NULL;
	}
	php_output_activate();
	zend_set_memory_limit(PG(memory_limit));
	howdah_worker = HOWDAH_WORKER_BETWEEN;
	settle(&exit);
	EG(exception) = exit;
}

/* Performs the steps of php_request_startup() that concern a request. */
static void begin_request(void)
{
	howdah_worker = HOWDAH_WORKER_SERVING;
	/* An uncaught exception of the previous request does not belong to this one. */
	EG(exit_status) = 0;
	PG(during_request_startup) = 1;
	PG(header_is_being_sent) = 0;
	PG(connection_status) = PHP_CONNECTION_NORMAL;
	PG(in_error_log) = 0;
	howdah_fill_request_info();
	howdah_apply_settings();
	howdah_state_begin_request();
	sapi_activate();
	SG(sapi_started) = 1;
	if (PG(open_basedir) && *PG(open_basedir)) {
		/* php_request_startup() does the same, because a path that was seen before must not be trusted. */
		zend_string *name = zend_string_init("realpath_cache_size", sizeof("realpath_cache_size") - 1, 0);
		zend_alter_ini_entry_chars(name, "0", 1, PHP_INI_SYSTEM, PHP_INI_STAGE_ACTIVATE);
		zend_string_release(name);
	}
	if (PG(expose_php)) {
		sapi_add_header(SAPI_PHP_VERSION_HEADER, sizeof(SAPI_PHP_VERSION_HEADER) - 1, 1);
	}
#if PHP_VERSION_ID >= 80600
	const char *output_handler = PG(output_handler) ? ZSTR_VAL(PG(output_handler)) : NULL;
#else
	const char *output_handler = PG(output_handler);
#endif
	if (output_handler && output_handler[0]) {
		zval handler;
		ZVAL_STRING(&handler, output_handler);
		php_output_start_user(&handler, 0, PHP_OUTPUT_HANDLER_STDFLAGS);
		zval_ptr_dtor(&handler);
	} else if (PG(output_buffering)) {
		php_output_start_user(NULL, PG(output_buffering) > 1 ? PG(output_buffering) : 0,
		                      PHP_OUTPUT_HANDLER_STDFLAGS);
	} else if (PG(implicit_flush)) {
		php_output_set_implicit_flush(1);
	}
	howdah_state_import_superglobals();
	howdah_state_begin_modules();
	zend_memory_reset_peak_usage();
	PG(during_request_startup) = 0;
	howdah_settle_settings();
	howdah_timer_before_worker_request();
}

/* A bailout that one of PHP's own zend_try blocks has caught leaves the engine unfit for more requests. */
static void stop_if_broken(void)
{
	if (CG(unclean_shutdown)) {
		zend_bailout();
	}
}

static PHP_FUNCTION(frankenphp_handle_request)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_FUNC(call, cache)
	ZEND_PARSE_PARAMETERS_END();

	if (howdah_is_copy) {
		/* A fork that the script made has no requests to wait for. */
		RETURN_FALSE;
	}
	switch (howdah_worker) {
	case HOWDAH_NO_WORKER:
	case HOWDAH_WORKER_SERVING:
		zend_throw_exception(spl_ce_RuntimeException,
		                     howdah_worker == HOWDAH_WORKER_SERVING
		                         ? "frankenphp_handle_request() called while it handles a request"
		                         : "frankenphp_handle_request() called while not in worker mode",
		                     0);
		RETURN_THROWS();
	case HOWDAH_WORKER_STOPPING:
		howdah_logf(LOG_WARNING, "WorkerIgnoresStop: the worker script asks for a request after it was told that there are no more (frankenphp_handle_request() returned false); the script is terminated");
		zend_throw_unwind_exit();
		RETURN_THROWS();
	case HOWDAH_WORKER_BOOTING:
		has_asked = true;
		end_own_output();
		SG(post_read) = 1;
		sapi_deactivate();
		howdah_worker = HOWDAH_WORKER_BETWEEN;
		howdah_state_keep_boot();
		break;
	case HOWDAH_WORKER_BETWEEN:
		if (php_output_get_level() > 0
		    || (php_output_get_status() & (PHP_OUTPUT_WRITTEN | PHP_OUTPUT_SENT))) {
			end_own_output();
		}
		zend_llist_clean(&SG(sapi_headers).headers);
		howdah_state_restore();
		break;
	}
	stop_if_broken();

	howdah_timer_after_worker_request();
	const char *frame = howdah_next_request();
	if (!frame || !howdah_open_frame(frame)) {
		howdah_worker = HOWDAH_WORKER_STOPPING;
		zend_release_fcall_info_cache(&cache);
		RETURN_FALSE;
	}
	begin_request();
	stop_if_broken();

	zval result;
	ZVAL_UNDEF(&result);
	call.retval = &result;
	if (!EG(exception)) {
		zend_call_function(&call, &cache);
	}
	zval_ptr_dtor(&result);
	if (EG(exception) && !zend_is_unwind_exit(EG(exception))
	    && !zend_is_graceful_exit(EG(exception))) {
		report_exception();
	}
	if (EG(exception)) {
		/* exit(): the script unwinds to its end, where the response is finished. */
		RETURN_THROWS();
	}
	if (howdah_is_copy) {
		/* pcntl_fork() in the callback: this is the copy, and it has run to its end. */
		zend_throw_unwind_exit();
		RETURN_THROWS();
	}
	end_request();
	stop_if_broken();
	if (EG(exception)) {
		RETURN_THROWS();
	}
	RETURN_TRUE;
}

/* A function of FrankenPHP. Logs a line with one of slog's levels, followed by the context as JSON. */
static PHP_FUNCTION(frankenphp_log)
{
	zend_string *message;
	zend_long level = 0;
	zval *context = NULL;
	ZEND_PARSE_PARAMETERS_START(1, 3)
		Z_PARAM_STR(message)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(level)
		Z_PARAM_ARRAY(context)
	ZEND_PARSE_PARAMETERS_END();
	int priority = level >= 8 ? LOG_ERR : level >= 4 ? LOG_WARNING : level >= 0 ? LOG_NOTICE : LOG_DEBUG;
	smart_str line = {0};
	smart_str_append(&line, message);
	if (context && zend_hash_num_elements(Z_ARRVAL_P(context))) {
		smart_str_appendc(&line, ' ');
		php_json_encode(&line, context, PHP_JSON_UNESCAPED_SLASHES | PHP_JSON_PARTIAL_OUTPUT_ON_ERROR);
	}
	smart_str_0(&line);
	if (line.s) {
		howdah_log(priority, ZSTR_VAL(line.s), ZSTR_LEN(line.s));
	}
	smart_str_free(&line);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_finish, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_log, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, message, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, level, IS_LONG, 0, "0")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, context, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_handle_request, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
	PHP_FE(frankenphp_handle_request, arginfo_handle_request)
	PHP_FALIAS(howdah_handle_request, frankenphp_handle_request, arginfo_handle_request)
	PHP_FALIAS(frankenphp_finish_request, fastcgi_finish_request, arginfo_finish)
	PHP_FALIAS(frankenphp_request_headers, apache_request_headers, arginfo_headers)
	PHP_FALIAS(frankenphp_response_headers, apache_response_headers, arginfo_headers)
	PHP_FE(frankenphp_log, arginfo_log)
	PHP_FE_END
};

/* opcache's memory can only be wiped when no process runs code from it, and a worker always does. The caller gets the
 * new code from new workers, which are requested from the front. */
static void reset_opcache(INTERNAL_FUNCTION_PARAMETERS)
{
	ZEND_PARSE_PARAMETERS_NONE();
	howdah_ask_for_restart();
	RETURN_TRUE;
}

/* Only a worker pool has these functions, because scripts detect worker mode by their existence. */
void howdah_worker_prepare(void)
{
	/* opcache's optimizer inspects the module of every internal function whose call it sees. */
	EG(current_module) = zend_hash_str_find_ptr(&module_registry, howdah_module.name,
	                                            strlen(howdah_module.name));
	zend_register_functions(NULL, functions, NULL, MODULE_PERSISTENT);
	EG(current_module) = NULL;
	static const struct {
		const char *name;
		zend_long value;
	} levels[] = {
		{"FRANKENPHP_LOG_LEVEL_DEBUG", -4}, {"FRANKENPHP_LOG_LEVEL_INFO", 0},
		{"FRANKENPHP_LOG_LEVEL_WARN", 4}, {"FRANKENPHP_LOG_LEVEL_ERROR", 8},
	};
	for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
		zend_register_long_constant(levels[i].name, strlen(levels[i].name), levels[i].value,
		                            CONST_PERSISTENT, 0);
	}
	howdah_wrap_function("opcache_reset", reset_opcache);
	howdah_state_prepare();
}

/* Explains why the script has ended without asking for a request: a fatal error, its exit status, or neither. */
static int explain(char *why, size_t cap)
{
	const int fatal = E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR | E_RECOVERABLE_ERROR;
	if (PG(last_error_message) && (PG(last_error_type) & fatal)) {
		snprintf(why, cap, "%s in %s on line %d", ZSTR_VAL(PG(last_error_message)),
		         PG(last_error_file) ? ZSTR_VAL(PG(last_error_file)) : "unknown",
		         PG(last_error_lineno));
		return HOWDAH_WORKER_BOOT_FAILED;
	}
	if (EG(exit_status) != 0) {
		snprintf(why, cap, "the script ended with exit status %d before it asked for a request",
		         EG(exit_status));
		return HOWDAH_WORKER_BOOT_FAILED;
	}
	snprintf(why, cap, "the script ended without calling frankenphp_handle_request()");
	return HOWDAH_WORKER_NEVER_ASKED;
}

/* Runs the worker script of the boot frame to its end. Returns a HOWDAH_WORKER_ value. With the two values for a script
 * that served nothing, `why` receives a sentence. */
int howdah_php_run_worker(const char *frame, char *why, size_t cap)
{
	volatile int outcome = HOWDAH_WORKER_ENDED;
	howdah_open_frame(frame);
	/* There is no client, so output goes to the log. */
	howdah_current.open = false;
	howdah_worker = HOWDAH_WORKER_BOOTING;
	zend_first_try {
		howdah_fill_request_info();
		howdah_phase = HOWDAH_BEGINNING;
		if (howdah_request_startup() == SUCCESS) {
			howdah_opcache_settle();
			howdah_phase = HOWDAH_RUNNING;
			/* A client that disconnects must not end the script (FrankenPHP does the same). */
			zend_string *name = zend_string_init("ignore_user_abort", sizeof("ignore_user_abort") - 1, 0);
			zend_alter_ini_entry_chars(name, "1", 1, PHP_INI_SYSTEM, PHP_INI_STAGE_ACTIVATE);
			zend_string_release(name);
			zend_file_handle file;
			if (php_fopen_primary_script(&file) == FAILURE) {
				snprintf(why, cap, "cannot open the worker script: %s", strerror(errno));
				outcome = HOWDAH_WORKER_BOOT_FAILED;
			} else {
				howdah_enter_script_directory(howdah_known(HOWDAH_VAR_SCRIPT_FILENAME));
				howdah_timer_before_script();
				EG(exit_status) = 0;
				php_execute_script(&file);
				if (!file.in_list) {
					zend_destroy_file_handle(&file);
				}
			}
		} else {
			snprintf(why, cap, "PHP's request startup failed");
			outcome = HOWDAH_WORKER_BOOT_FAILED;
		}
	} zend_end_try();

	if (!has_asked && outcome == HOWDAH_WORKER_ENDED) {
		outcome = explain(why, cap);
	} else if (has_asked && CG(unclean_shutdown)) {
		outcome = HOWDAH_WORKER_BROKEN;
	}
	howdah_phase = HOWDAH_ENDING;
	zend_first_try {
		if (howdah_worker == HOWDAH_WORKER_SERVING) {
			howdah_state_join_shutdown_functions();
		}
		if (SG(request_info).path_translated) {
			efree(SG(request_info).path_translated);
			SG(request_info).path_translated = NULL;
		}
		php_request_shutdown(NULL);
	} zend_end_try();
	howdah_opcache_end_use();
	if (howdah_is_copy) {
		return HOWDAH_WORKER_COPY;
	}
	if (howdah_current.open) {
		howdah_current.open = false;
		howdah_done();
	}
	return outcome;
}
