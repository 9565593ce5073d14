/* The life of a Swoole server. howdah_swoole_run() makes the process the manager of forked workers and returns when all
 * of them have exited; a worker runs the loop and never returns. This file also has the calls of the script's callbacks
 * in both. */
#include "swoole/server.h"
#include "worker/worker.h"

#include <stdio.h>
#include <unistd.h>

#include "php_output.h"
#include "rfc1867.h"
#include "zend_exceptions.h"

bool howdah_swoole_in_worker, howdah_swoole_started;

static const char *const event_names[EVENTS] = {
	"start",       "beforeShutdown", "shutdown",     "managerStart", "managerStop", "workerStart",
	"workerStop",  "workerExit",     "beforeReload", "afterReload",  "connect",     "close",
	"request",     "task",           "finish",       "workerError",
};

const char *howdah_swoole_event_name(size_t index)
{
	return index < EVENTS ? event_names[index] : NULL;
}

callback_t howdah_swoole_callbacks[EVENTS];

/* The name of the last failure of a callback. */
static const char *failure;

zval howdah_swoole_the_server;
uint64_t howdah_swoole_worker_number;
pid_t howdah_swoole_manager_pid;
/* The workerStart callback of this worker has returned. */
static bool serves;

/* Called when a callback is over: writes and removes a session that it has opened. In Swoole the session's id and data
 * stay, and the next visitor's session_start() finds them. */
static void end_visit(void)
{
	if (!serves) {
		return;
	}
	howdah_session_forget();
	if (UNEXPECTED(CG(unclean_shutdown))) {
		/* PHP's session module has caught a bailout of the script's session handler. The state of the code that was jumped
		 * over is undefined, and the next visitor must not use it. */
		if (EG(exception)) {
			zend_clear_exception();
		}
		zend_bailout();
	}
	if (UNEXPECTED(EG(exception))) {
		/* The script's session handler has thrown it. */
		zend_exception_error(EG(exception), E_WARNING);
	}
}

bool howdah_swoole_call(zend_fcall_info *info, zend_fcall_info_cache *cache, uint32_t argc,
                        zval *argv, const char *what)
{
	zval returned;
	ZVAL_UNDEF(&returned);
	info->retval = &returned;
	info->param_count = argc;
	info->params = argv;
	zend_call_function(info, cache);
	zval_ptr_dtor(&returned);
	if (EXPECTED(!EG(exception))) {
		end_visit();
		return true;
	}
	if (UNEXPECTED(CG(unclean_shutdown))) {
		/* PHP has returned from a fatal error through the script's frames, as later releases do when memory runs out. No
		 * function can be called any more. */
		zend_clear_exception();
		zend_bailout();
	}
	if (zend_is_unwind_exit(EG(exception))) {
		failure = "ExitInCallback";
		/* exit() ends the callback but not the worker, which has other connections. */
		zend_clear_exception();
		/* Without a server it ends the script, as usual. */
		if (howdah_swoole_started) {
			howdah_swoole_log(true, "ExitInCallback: on%s called exit()", what);
		}
	} else {
		failure = "UncaughtException";
		zend_object *thrown = EG(exception);
		howdah_swoole_log(true, "UncaughtException: on%s threw %s", what, ZSTR_VAL(thrown->ce->name));
		/* Reports the place, as PHP does, and clears the exception. It is not a fatal error: the engine is intact. */
		zend_exception_error(thrown, E_WARNING);
		if (!howdah_swoole_started) {
			EG(exit_status) = 255;
		}
	}
	end_visit();
	return false;
}

static bool call_event(on_t event, uint32_t argc, zval *argv)
{
	if (!howdah_swoole_callbacks[event].set) {
		return true;
	}
	return howdah_swoole_call(&howdah_swoole_callbacks[event].info, &howdah_swoole_callbacks[event].cache, argc, argv,
	                          event_names[event]);
}

static bool call_with_server(on_t event)
{
	zval argv[1];
	ZVAL_COPY_VALUE(&argv[0], &howdah_swoole_the_server);
	return call_event(event, 1, argv);
}

static bool call_with_number(on_t event, zend_long number)
{
	zval argv[3];
	ZVAL_COPY_VALUE(&argv[0], &howdah_swoole_the_server);
	ZVAL_LONG(&argv[1], number);
	ZVAL_LONG(&argv[2], 0);
	return call_event(event, event == ON_CONNECT || event == ON_CLOSE ? 3 : 2, argv);
}

void howdah_swoole_set_number(const char *name, zend_long value)
{
	zend_update_property_long(howdah_swoole_server_ce, Z_OBJ(howdah_swoole_the_server), name, strlen(name), value);
}

/* ---- worker ---- */

static void on_request(uint64_t connection)
{
	zval argv[2];
	howdah_swoole_new_request(&argv[0], connection);
	howdah_swoole_new_response(&argv[1], connection);
	if (UNEXPECTED(!call_event(ON_REQUEST, 2, argv))) {
		howdah_swoole_fail_response(&argv[1], failure);
	}
	if (UNEXPECTED(GC_REFCOUNT(Z_OBJ(argv[0])) > 1)) {
		howdah_swoole_settle_request(&argv[0]);
	}
	zval_ptr_dtor(&argv[0]);
	/* A response that has not been ended and has no other reference is ended now. */
	zval_ptr_dtor(&argv[1]);
	howdah_run_returned();
}

static ZEND_COLD ZEND_NORETURN void run_worker(uint64_t number)
{
	howdah_swoole_in_worker = true;
	howdah_swoole_worker_number = number;
	howdah_forks_init_php();
	howdah_swoole_forget_timers();
	/* Printed output goes to the terminal or the log and begins no response. Sessions can therefore be started in every
	 * callback, whatever was printed before it, even by the manager. */
	SG(headers_sent) = 0;
	SG(request_info).no_headers = 1;
	char title[64];
	snprintf(title, sizeof(title), "howdah-php: swoole worker %llu", (unsigned long long)number);
	howdah_title_set(title);
	howdah_swoole_set_number("worker_id", (zend_long)number);
	howdah_swoole_set_number("worker_pid", getpid());
	if (!call_with_number(ON_WORKER_START, (zend_long)number)) {
		howdah_swoole_log(true, "WorkerStartFailed: worker %llu cannot serve", (unsigned long long)number);
		_exit(255);
	}
	/* Keeps what the script has set up so far, but not a session that it may have opened for itself. */
	howdah_session_find();
	howdah_session_keep();
	howdah_session_forget();
	serves = true;
	howdah_run_ready();
	for (;;) {
		howdah_run_event event;
		howdah_run_next(&event);
		switch (event.kind) {
		case HOWDAH_REQUEST:
			on_request(event.id);
			break;
		case HOWDAH_TIMER:
			howdah_swoole_on_timer(event.id, event.repeats);
			break;
		case HOWDAH_CONNECTED:
			call_with_number(ON_CONNECT, (zend_long)event.id);
			break;
		case HOWDAH_CLOSED:
			call_with_number(ON_CLOSE, (zend_long)event.id);
			break;
		default:
			call_with_number(ON_WORKER_EXIT, (zend_long)number);
			call_with_number(ON_WORKER_STOP, (zend_long)number);
			php_output_flush_all();
			if (SG(rfc1867_uploaded_files)) {
				destroy_uploaded_files_hash();
			}
			/* As in Swoole, no shutdown functions and destructors run: the script created them before it forked, and they belong
			 * to the manager. */
			_exit(0);
		}
	}
}

/* ---- manager ---- */

static void write_pid_file(void)
{
	if (!howdah_swoole.pid_file) {
		return;
	}
	FILE *file = fopen(howdah_swoole.pid_file, "w");
	if (file) {
		fprintf(file, "%d", (int)getpid());
		if (fclose(file) == 0) {
			return;
		}
	}
	howdah_swoole_log(true, "PidFileUnwritable: %s: %s", howdah_swoole.pid_file, strerror(errno));
}

static void manage(void)
{
	for (;;) {
		howdah_run_event event;
		howdah_run_manage(&event);
		switch (event.kind) {
		case HOWDAH_SPAWN:
			php_output_flush_all();
			if (howdah_run_fork(event.id) == 0) {
				run_worker(event.id);
			}
			break;
		case HOWDAH_TIMER:
			howdah_swoole_on_timer(event.id, event.repeats);
			break;
		case HOWDAH_RELOADED:
			call_with_server(ON_BEFORE_RELOAD);
			call_with_server(ON_AFTER_RELOAD);
			break;
		case HOWDAH_STOPPING:
			call_with_server(ON_BEFORE_SHUTDOWN);
			break;
		default:
			return;
		}
	}
}

void howdah_swoole_run(void)
{
	howdah_swoole_started = true;
	howdah_swoole_manager_pid = getpid();
	howdah_swoole_set_number("master_pid", howdah_swoole_manager_pid);
	howdah_swoole_set_number("manager_pid", howdah_swoole_manager_pid);
	write_pid_file();
	call_with_server(ON_START);
	call_with_server(ON_MANAGER_START);
	manage();
	call_with_server(ON_MANAGER_STOP);
	call_with_server(ON_SHUTDOWN);
	if (howdah_swoole.pid_file) {
		unlink(howdah_swoole.pid_file);
	}
	howdah_swoole_log(false, "stopped");
}
