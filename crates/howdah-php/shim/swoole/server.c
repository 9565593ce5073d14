/* Swoole\Server and Swoole\Http\Server: the object that a script creates, and its methods. What start() begins is in
 * life.c. There is one server per process, as in Swoole. */
#include "swoole/server.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "zend_exceptions.h"

zend_class_entry *howdah_swoole_exception_ce, *howdah_swoole_server_ce;
static zend_class_entry *http_server_ce;

void howdah_swoole_refuse(const char *what, const char *why)
{
	zend_throw_exception_ex(howdah_swoole_exception_ce, 0, "NotSupported: %s: %s", what, why);
}

static PHP_METHOD(Server, __construct)
{
	zend_string *host;
	zend_long port = 0, mode = 1, type = 1;
	ZEND_PARSE_PARAMETERS_START(1, 4)
		Z_PARAM_STR(host)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(port)
		Z_PARAM_LONG(mode)
		Z_PARAM_LONG(type)
	ZEND_PARSE_PARAMETERS_END();
	if (!instanceof_function(Z_OBJCE_P(ZEND_THIS), http_server_ce)) {
		howdah_swoole_refuse("Swoole\\Server", "this server speaks HTTP; use Swoole\\Http\\Server");
		RETURN_THROWS();
	}
	if (Z_TYPE(howdah_swoole_the_server) != IS_UNDEF) {
		howdah_swoole_refuse("a second server", "a process can have only one server");
		RETURN_THROWS();
	}
	if (mode == 3) {
		howdah_swoole_refuse("SWOOLE_THREAD", "workers are processes; use SWOOLE_BASE or SWOOLE_PROCESS");
		RETURN_THROWS();
	}
	if (type & 512) {
		howdah_swoole_refuse("SWOOLE_SSL", "this server does not speak TLS; put `howdah serve` or another proxy in front");
		RETURN_THROWS();
	}
	bool unix_socket = type == 5;
	if (type != 1 && type != 3 && !unix_socket) {
		howdah_swoole_refuse("the socket type", "use SWOOLE_SOCK_TCP, SWOOLE_SOCK_TCP6 or SWOOLE_SOCK_UNIX_STREAM");
		RETURN_THROWS();
	}
	if (port < 0 || port > 65535) {
		zend_throw_exception_ex(howdah_swoole_exception_ce, 0, "BadAddress: the port must be between 0 and 65535, not " ZEND_LONG_FMT, port);
		RETURN_THROWS();
	}
	char error[512];
	if (!howdah_run_bind(ZSTR_VAL(host), (uint16_t)port, unix_socket, error, sizeof(error))) {
		zend_throw_exception_ex(howdah_swoole_exception_ce, 0, "%s", error);
		RETURN_THROWS();
	}
	/* Kept until the process exits, because the loop calls it. */
	ZVAL_COPY(&howdah_swoole_the_server, ZEND_THIS);
	zend_update_property_str(howdah_swoole_server_ce, Z_OBJ_P(ZEND_THIS), "host", 4, host);
	howdah_swoole_set_number("port", howdah_run_port());
	howdah_swoole_set_number("mode", mode);
	howdah_swoole_set_number("type", type);
	zval ports;
	array_init(&ports);
	Z_ADDREF_P(ZEND_THIS);
	add_next_index_zval(&ports, ZEND_THIS);
	zend_update_property(howdah_swoole_server_ce, Z_OBJ_P(ZEND_THIS), "ports", 5, &ports);
	zval_ptr_dtor(&ports);
}

static PHP_METHOD(Server, set)
{
	zval *settings;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_ARRAY(settings)
	ZEND_PARSE_PARAMETERS_END();
	if (howdah_swoole_started) {
		php_error_docref(NULL, E_WARNING, "server is running, unable to set");
		RETURN_FALSE;
	}
	howdah_swoole_set(Z_ARRVAL_P(settings));
	if (EG(exception)) {
		RETURN_THROWS();
	}
	zval *before = zend_read_property(howdah_swoole_server_ce, Z_OBJ_P(ZEND_THIS), "setting", 7, 1, NULL);
	zval merged;
	if (before && Z_TYPE_P(before) == IS_ARRAY) {
		ZVAL_ARR(&merged, zend_array_dup(Z_ARR_P(before)));
		zend_hash_merge(Z_ARRVAL(merged), Z_ARRVAL_P(settings), zval_add_ref, true);
	} else {
		ZVAL_ARR(&merged, zend_array_dup(Z_ARR_P(settings)));
	}
	if (!zend_hash_str_exists(Z_ARRVAL(merged), "worker_num", 10)) {
		add_assoc_long(&merged, "worker_num", (zend_long)howdah_swoole_loop.workers);
	}
	zend_update_property(howdah_swoole_server_ce, Z_OBJ_P(ZEND_THIS), "setting", 7, &merged);
	zval_ptr_dtor(&merged);
	RETURN_TRUE;
}

static PHP_METHOD(Server, on)
{
	zend_string *name;
	zval *function;
	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_STR(name)
		Z_PARAM_ZVAL(function)
	ZEND_PARSE_PARAMETERS_END();
	if (howdah_swoole_started) {
		php_error_docref(NULL, E_WARNING, "server is running, unable to register event callback function");
		RETURN_FALSE;
	}
	on_t event = 0;
	while (event < EVENTS && strcasecmp(howdah_swoole_event_name(event), ZSTR_VAL(name)) != 0) {
		event++;
	}
	if (event == EVENTS) {
		char what[96];
		snprintf(what, sizeof(what), "on('%.60s')", ZSTR_VAL(name));
		howdah_swoole_refuse(what, "this server has only events of HTTP requests, and none of raw data, WebSocket, packets or pipe messages");
		RETURN_THROWS();
	}
	zend_fcall_info info;
	zend_fcall_info_cache cache;
	char *error = NULL;
	if (zend_fcall_info_init(function, 0, &info, &cache, NULL, &error) == FAILURE) {
		zend_throw_exception_ex(howdah_swoole_exception_ce, 0, "BadCallback: on('%s'): %s",
		                        ZSTR_VAL(name), error ? error : "not callable");
		efree(error);
		RETURN_THROWS();
	}
	if (howdah_swoole_callbacks[event].set) {
		zval_ptr_dtor(&howdah_swoole_callbacks[event].function);
	}
	ZVAL_COPY(&howdah_swoole_callbacks[event].function, function);
	howdah_swoole_callbacks[event].info = info;
	howdah_swoole_callbacks[event].cache = cache;
	howdah_swoole_callbacks[event].set = true;
	RETURN_TRUE;
}

static PHP_METHOD(Server, getCallback)
{
	zend_string *name;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STR(name)
	ZEND_PARSE_PARAMETERS_END();
	for (on_t event = 0; event < EVENTS; event++) {
		if (howdah_swoole_callbacks[event].set && strcasecmp(howdah_swoole_event_name(event), ZSTR_VAL(name)) == 0) {
			RETURN_COPY(&howdah_swoole_callbacks[event].function);
		}
	}
	RETURN_NULL();
}

static PHP_METHOD(Server, start)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (howdah_swoole_started) {
		zend_throw_exception_ex(howdah_swoole_exception_ce, 0, "AlreadyStarted: start() can be called only once");
		RETURN_THROWS();
	}
	if (!howdah_swoole_callbacks[ON_REQUEST].set) {
		zend_throw_exception_ex(howdah_swoole_exception_ce, 0,
		                        "NoCallback: on('request') must be set before start()");
		RETURN_THROWS();
	}
	howdah_swoole_check_settings();
	if (EG(exception)) {
		RETURN_THROWS();
	}
	howdah_swoole_loop.reports_connections = howdah_swoole_callbacks[ON_CONNECT].set || howdah_swoole_callbacks[ON_CLOSE].set;
	char error[512];
	if (!howdah_run_start(&howdah_swoole_loop, error, sizeof(error))) {
		zend_throw_exception_ex(howdah_swoole_exception_ce, 0, "%s", error);
		RETURN_THROWS();
	}
	howdah_swoole_run();
	RETURN_TRUE;
}

static void signal_manager(INTERNAL_FUNCTION_PARAMETERS, int signo)
{
	if (!howdah_swoole_started) {
		php_error_docref(NULL, E_WARNING, "server is not running");
		RETURN_FALSE;
	}
	RETURN_BOOL(kill(howdah_swoole_manager_pid, signo) == 0);
}

static PHP_METHOD(Server, reload)
{
	bool only_tasks = false;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_BOOL(only_tasks)
	ZEND_PARSE_PARAMETERS_END();
	if (only_tasks) {
		/* There are no task workers. */
		RETURN_TRUE;
	}
	signal_manager(INTERNAL_FUNCTION_PARAM_PASSTHRU, SIGUSR1);
}

static PHP_METHOD(Server, shutdown)
{
	ZEND_PARSE_PARAMETERS_NONE();
	signal_manager(INTERNAL_FUNCTION_PARAM_PASSTHRU, SIGTERM);
}

static PHP_METHOD(Server, stop)
{
	zend_long number = -1;
	bool wait = false;
	ZEND_PARSE_PARAMETERS_START(0, 2)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(number)
		Z_PARAM_BOOL(wait)
	ZEND_PARSE_PARAMETERS_END();
	if (!howdah_swoole_in_worker || (number >= 0 && number != (zend_long)howdah_swoole_worker_number)) {
		howdah_swoole_refuse("Server::stop() of another worker", "a worker can stop only itself; reload() replaces all workers");
		RETURN_THROWS();
	}
	howdah_run_leave();
	RETURN_TRUE;
}

static PHP_METHOD(Server, stats)
{
	ZEND_PARSE_PARAMETERS_NONE();
	howdah_run_stats_t stats;
	if (!howdah_run_stats(&stats)) {
		RETURN_FALSE;
	}
	static zend_long started_at;
	if (!started_at) {
		started_at = (zend_long)howdah_run_seconds();
	}
	array_init(return_value);
	add_assoc_long(return_value, "start_time", started_at);
	add_assoc_long(return_value, "connection_num", (zend_long)stats.connections);
	add_assoc_long(return_value, "accept_count", (zend_long)stats.accepted);
	add_assoc_long(return_value, "close_count", (zend_long)stats.closed);
	add_assoc_long(return_value, "request_count", (zend_long)stats.requests);
	add_assoc_long(return_value, "refused_count", (zend_long)stats.refused);
	add_assoc_long(return_value, "worker_num", (zend_long)howdah_swoole_loop.workers);
	add_assoc_long(return_value, "idle_worker_num", (zend_long)stats.ready);
	add_assoc_long(return_value, "tasking_num", 0);
	add_assoc_long(return_value, "worker_request_count", (zend_long)stats.own_requests);
	add_assoc_long(return_value, "worker_connection_num", (zend_long)stats.own_connections);
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_fd, 0, 0, 1)
	ZEND_ARG_INFO(0, fd)
ZEND_END_ARG_INFO()

static PHP_METHOD(Server, exists)
{
	zend_long fd;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(fd)
	ZEND_PARSE_PARAMETERS_END();
	RETURN_BOOL(fd > 0 && howdah_run_exists((uint64_t)fd, false));
}

static PHP_METHOD(Server, close)
{
	zend_long fd;
	bool reset = false;
	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_LONG(fd)
		Z_PARAM_OPTIONAL
		Z_PARAM_BOOL(reset)
	ZEND_PARSE_PARAMETERS_END();
	if (fd <= 0 || !howdah_run_exists((uint64_t)fd, false)) {
		RETURN_FALSE;
	}
	howdah_run_close((uint64_t)fd);
	RETURN_TRUE;
}

static PHP_METHOD(Server, getClientInfo)
{
	zend_long fd;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(fd)
	ZEND_PARSE_PARAMETERS_END();
	howdah_run_request_t request;
	if (fd <= 0 || !howdah_run_request((uint64_t)fd, &request)) {
		RETURN_FALSE;
	}
	array_init(return_value);
	add_assoc_long(return_value, "server_port", request.server_port);
	add_assoc_string(return_value, "remote_ip", request.remote_address);
	add_assoc_long(return_value, "remote_port", request.remote_port);
}

static PHP_METHOD(Server, getWorkerId)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!howdah_swoole_in_worker) {
		RETURN_FALSE;
	}
	RETURN_LONG((zend_long)howdah_swoole_worker_number);
}

static PHP_METHOD(Server, getWorkerPid)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!howdah_swoole_in_worker) {
		RETURN_FALSE;
	}
	RETURN_LONG(getpid());
}

static PHP_METHOD(Server, getMasterPid)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_LONG(howdah_swoole_manager_pid);
}

static PHP_METHOD(Server, getLastError)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_LONG(0);
}

/* Methods that only other kinds of servers have. */
static PHP_METHOD(Server, notHere)
{
	char what[96];
	snprintf(what, sizeof(what), "Swoole\\Server::%s()",
	         ZSTR_VAL(EX(func)->common.function_name));
	howdah_swoole_refuse(what, "this server has no task workers, no raw connections and no further addresses");
	RETURN_THROWS();
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_construct, 0, 0, 1)
	ZEND_ARG_INFO(0, host)
	ZEND_ARG_INFO(0, port)
	ZEND_ARG_INFO(0, mode)
	ZEND_ARG_INFO(0, sock_type)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_set, 0, 0, 1)
	ZEND_ARG_INFO(0, settings)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_on, 0, 0, 2)
	ZEND_ARG_INFO(0, event_name)
	ZEND_ARG_INFO(0, callback)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_any, 0, 0, 0)
	ZEND_ARG_VARIADIC_INFO(0, arguments)
ZEND_END_ARG_INFO()

#define METHOD(name, info) PHP_ME(Server, name, info, ZEND_ACC_PUBLIC)
#define ALIAS(name, of, info) PHP_MALIAS(Server, name, of, info, ZEND_ACC_PUBLIC)

static const zend_function_entry server_methods[] = {
	METHOD(__construct, arginfo_construct)
	METHOD(set, arginfo_set)
	METHOD(on, arginfo_on)
	METHOD(getCallback, arginfo_set)
	METHOD(start, arginfo_any)
	METHOD(stop, arginfo_any)
	METHOD(reload, arginfo_any)
	METHOD(shutdown, arginfo_any)
	METHOD(stats, arginfo_any)
	METHOD(exists, arginfo_fd)
	ALIAS(exist, exists, arginfo_fd)
	METHOD(close, arginfo_fd)
	METHOD(getClientInfo, arginfo_fd)
	ALIAS(connection_info, getClientInfo, arginfo_fd)
	METHOD(getWorkerId, arginfo_any)
	METHOD(getWorkerPid, arginfo_any)
	METHOD(getMasterPid, arginfo_any)
	ALIAS(getManagerPid, getMasterPid, arginfo_any)
	METHOD(getLastError, arginfo_any)
	ALIAS(task, notHere, arginfo_any)
	ALIAS(taskwait, notHere, arginfo_any)
	ALIAS(taskWaitMulti, notHere, arginfo_any)
	ALIAS(taskCo, notHere, arginfo_any)
	ALIAS(finish, notHere, arginfo_any)
	ALIAS(send, notHere, arginfo_any)
	ALIAS(sendto, notHere, arginfo_any)
	ALIAS(sendwait, notHere, arginfo_any)
	ALIAS(sendfile, notHere, arginfo_any)
	ALIAS(sendMessage, notHere, arginfo_any)
	ALIAS(addProcess, notHere, arginfo_any)
	ALIAS(addCommand, notHere, arginfo_any)
	ALIAS(command, notHere, arginfo_any)
	ALIAS(listen, notHere, arginfo_any)
	ALIAS(addListener, notHere, arginfo_any)
	ALIAS(bind, notHere, arginfo_any)
	ALIAS(pause, notHere, arginfo_any)
	ALIAS(resume, notHere, arginfo_any)
	ALIAS(protect, notHere, arginfo_any)
	ALIAS(getSocket, notHere, arginfo_any)
	ALIAS(getClientList, notHere, arginfo_any)
	ALIAS(connection_list, notHere, arginfo_any)
	ALIAS(heartbeat, notHere, arginfo_any)
	ALIAS(getWorkerStatus, notHere, arginfo_any)
	PHP_FE_END
};

static zend_object_handlers server_handlers;

static zend_object *create_server(zend_class_entry *ce)
{
	zend_object *server = zend_objects_new(ce);
	object_properties_init(server, ce);
	server->handlers = &server_handlers;
	return server;
}

void howdah_swoole_register_server(void)
{
	howdah_swoole_exception_ce = howdah_swoole_class("Swoole\\Exception", NULL, zend_ce_exception, NULL);
	howdah_swoole_server_ce =
	    howdah_swoole_class("Swoole\\Server", "swoole_server", NULL, server_methods);
	static const char *const nulls[] = {"setting", "connections", "ports", "stats_timer", "admin_server", "bootstrap"};
	for (size_t i = 0; i < sizeof(nulls) / sizeof(*nulls); i++) {
		zend_declare_property_null(howdah_swoole_server_ce, nulls[i], strlen(nulls[i]), ZEND_ACC_PUBLIC);
	}
	zend_declare_property_string(howdah_swoole_server_ce, "host", 4, "", ZEND_ACC_PUBLIC);
	static const struct {
		const char *name;
		zend_long value;
	} numbers[] = {
		{"port", 0}, {"type", 0}, {"mode", 0}, {"master_pid", 0}, {"manager_pid", 0}, {"worker_id", -1}, {"worker_pid", 0},
	};
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		zend_declare_property_long(howdah_swoole_server_ce, numbers[i].name, strlen(numbers[i].name),
		                           numbers[i].value, ZEND_ACC_PUBLIC);
	}
	zend_declare_property_bool(howdah_swoole_server_ce, "taskworker", 10, 0, ZEND_ACC_PUBLIC);
	zend_declare_property_bool(howdah_swoole_server_ce, "ssl", 3, 0, ZEND_ACC_PUBLIC);
	memcpy(&server_handlers, &std_object_handlers, sizeof(server_handlers));
	server_handlers.unset_property = howdah_swoole_keep_property;
	howdah_swoole_server_ce->create_object = create_server;
	/* Registered after create_object is set, which it inherits. */
	http_server_ce = howdah_swoole_class("Swoole\\Http\\Server", "swoole_http_server",
	                                     howdah_swoole_server_ce, NULL);
}
