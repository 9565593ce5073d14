/* Swoole\Timer (tick, after, clear, exists, list, clearAll), the swoole_timer_* functions' classes,
 * Swoole\Process::kill(), Swoole\Util, and the constants scripts name. A timer's time is kept by
 * the loop; what it calls is kept here. */
#include "howdah.h"
#include "swoole.h"

#include <signal.h>
#include <unistd.h>

#include "zend_exceptions.h"

typedef struct {
	zval function;
	zend_fcall_info info;
	zend_fcall_info_cache cache;
	/* The timer's id before them when it ticks. */
	uint32_t count;
	zval *arguments;
	uint32_t running;
	bool cleared;
} howdah_timer_t;

static HashTable timers;
static bool ready;

static void free_timer(howdah_timer_t *timer)
{
	zval_ptr_dtor(&timer->function);
	for (uint32_t i = 0; i < timer->count; i++) {
		zval_ptr_dtor(&timer->arguments[i]);
	}
	if (timer->arguments) {
		efree(timer->arguments);
	}
	efree(timer);
}

static void forget(uint64_t id, howdah_timer_t *timer)
{
	zend_hash_index_del(&timers, id);
	if (timer->running) {
		timer->cleared = true;
	} else {
		free_timer(timer);
	}
}

/* In a forked worker: the timers made before are the manager's. */
void howdah_swoole_forget_timers(void)
{
	if (!ready) {
		return;
	}
	zend_ulong id;
	howdah_timer_t *timer;
	ZEND_HASH_FOREACH_NUM_KEY_PTR(&timers, id, timer) {
		(void)id;
		/* The one that is calling this, if any, is freed by its caller. */
		if (!timer->running) {
			free_timer(timer);
		}
	} ZEND_HASH_FOREACH_END();
	zend_hash_clean(&timers);
}

void howdah_swoole_on_timer(uint64_t id, bool repeats)
{
	howdah_timer_t *timer = ready ? zend_hash_index_find_ptr(&timers, id) : NULL;
	if (!timer) {
		return;
	}
	uint32_t first = repeats ? 1 : 0;
	zval *arguments = safe_emalloc(timer->count + first, sizeof(zval), sizeof(zval));
	if (repeats) {
		ZVAL_LONG(&arguments[0], (zend_long)id);
	}
	for (uint32_t i = 0; i < timer->count; i++) {
		ZVAL_COPY(&arguments[first + i], &timer->arguments[i]);
	}
	timer->running++;
	(void)howdah_swoole_call(&timer->info, &timer->cache, timer->count + first, arguments, "timer");
	timer->running--;
	for (uint32_t i = 0; i < timer->count; i++) {
		zval_ptr_dtor(&arguments[first + i]);
	}
	efree(arguments);
	if (timer->cleared) {
		free_timer(timer);
	} else if (!repeats) {
		forget(id, timer);
	}
}

static void make_timer(INTERNAL_FUNCTION_PARAMETERS, bool repeats)
{
	zend_long ms;
	zend_fcall_info info;
	zend_fcall_info_cache cache;
	zval *arguments = NULL;
	uint32_t count = 0;
	ZEND_PARSE_PARAMETERS_START(2, -1)
		Z_PARAM_LONG(ms)
		Z_PARAM_FUNC(info, cache)
		Z_PARAM_VARIADIC('*', arguments, count)
	ZEND_PARSE_PARAMETERS_END();
	if (ms < 1 || ms > 86400000000) {
		php_error_docref(NULL, E_WARNING, "Timer must be greater than or equal to 1");
		RETURN_FALSE;
	}
	if (!ready) {
		ready = true;
		zend_hash_init(&timers, 8, NULL, NULL, 0);
	}
	howdah_timer_t *timer = ecalloc(1, sizeof(*timer));
	timer->info = info;
	timer->cache = cache;
	ZVAL_COPY(&timer->function, &info.function_name);
	timer->count = count;
	if (count) {
		timer->arguments = safe_emalloc(count, sizeof(zval), 0);
		for (uint32_t i = 0; i < count; i++) {
			ZVAL_COPY(&timer->arguments[i], &arguments[i]);
		}
	}
	uint64_t id = howdah_run_timer((uint64_t)ms, repeats);
	zend_hash_index_add_ptr(&timers, id, timer);
	RETURN_LONG((zend_long)id);
}

static PHP_METHOD(Timer, tick)
{
	make_timer(INTERNAL_FUNCTION_PARAM_PASSTHRU, true);
}

static PHP_METHOD(Timer, after)
{
	make_timer(INTERNAL_FUNCTION_PARAM_PASSTHRU, false);
}

static PHP_METHOD(Timer, clear)
{
	zend_long id;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(id)
	ZEND_PARSE_PARAMETERS_END();
	howdah_timer_t *timer = ready && id > 0 ? zend_hash_index_find_ptr(&timers, (zend_ulong)id) : NULL;
	if (!timer) {
		RETURN_FALSE;
	}
	howdah_run_timer_clear((uint64_t)id);
	forget((uint64_t)id, timer);
	RETURN_TRUE;
}

static PHP_METHOD(Timer, clearAll)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (ready) {
		zend_ulong id;
		howdah_timer_t *timer;
		ZEND_HASH_FOREACH_NUM_KEY_PTR(&timers, id, timer) {
			howdah_run_timer_clear(id);
			forget(id, timer);
		} ZEND_HASH_FOREACH_END();
	}
	RETURN_TRUE;
}

static PHP_METHOD(Timer, exists)
{
	zend_long id;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(id)
	ZEND_PARSE_PARAMETERS_END();
	RETURN_BOOL(ready && id > 0 && zend_hash_index_exists(&timers, (zend_ulong)id));
}

static PHP_METHOD(Timer, list)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	zend_ulong id;
	void *timer;
	if (ready) {
		ZEND_HASH_FOREACH_NUM_KEY_PTR(&timers, id, timer) {
			(void)timer;
			add_next_index_long(return_value, (zend_long)id);
		} ZEND_HASH_FOREACH_END();
	}
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_timer, 0, 0, 2)
	ZEND_ARG_INFO(0, ms)
	ZEND_ARG_INFO(0, callback)
	ZEND_ARG_VARIADIC_INFO(0, params)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_id, 0, 0, 1)
	ZEND_ARG_INFO(0, timer_id)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_none, 0, 0, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry timer_methods[] = {
	PHP_ME(Timer, tick, arginfo_timer, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, after, arginfo_timer, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, clear, arginfo_id, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, clearAll, arginfo_none, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, exists, arginfo_id, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, list, arginfo_none, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_FE_END
};

/* ---- what else server scripts use ---- */

static PHP_METHOD(Process, kill)
{
	zend_long pid, signo = SIGTERM;
	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_LONG(pid)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(signo)
	ZEND_PARSE_PARAMETERS_END();
	if (kill((pid_t)pid, (int)signo) == 0) {
		RETURN_TRUE;
	}
	/* As in Swoole: asking whether a process is there is no error. */
	if (!(errno == ESRCH && signo == 0)) {
		php_error_docref(NULL, E_WARNING, "kill(" ZEND_LONG_FMT ", " ZEND_LONG_FMT ") failed: %s", pid, signo, strerror(errno));
	}
	RETURN_FALSE;
}

static PHP_METHOD(Process, __construct)
{
	ZEND_PARSE_PARAMETERS_START(0, -1)
	ZEND_PARSE_PARAMETERS_END();
	howdah_swoole_refuse("Swoole\\Process", "this server starts its own workers; use proc_open() for others");
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_kill, 0, 0, 1)
	ZEND_ARG_INFO(0, pid)
	ZEND_ARG_INFO(0, signal_no)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_any, 0, 0, 0)
	ZEND_ARG_VARIADIC_INFO(0, arguments)
ZEND_END_ARG_INFO()

static const zend_function_entry process_methods[] = {
	PHP_ME(Process, __construct, arginfo_any, ZEND_ACC_PUBLIC)
	PHP_ME(Process, kill, arginfo_kill, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_FE_END
};

static PHP_METHOD(Util, getCPUNum)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_LONG(MAX(1, sysconf(_SC_NPROCESSORS_ONLN)));
}

static PHP_METHOD(Util, getVersion)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_STRING(HOWDAH_SWOOLE_VERSION);
}

static const zend_function_entry util_methods[] = {
	PHP_ME(Util, getCPUNum, arginfo_none, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Util, getVersion, arginfo_none, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_FE_END
};

void howdah_swoole_register_timer(void)
{
	howdah_swoole_class("Swoole\\Timer", "swoole_timer", NULL, timer_methods);
	howdah_swoole_class("Swoole\\Process", "swoole_process", NULL, process_methods);
	howdah_swoole_class("Swoole\\Util", NULL, NULL, util_methods);
}

void howdah_swoole_register_constants(int module_number)
{
	static const struct {
		const char *name;
		zend_long value;
	} constants[] = {
		{"VERSION_ID", HOWDAH_SWOOLE_VERSION_ID},
		{"MAJOR_VERSION", 5},
		{"MINOR_VERSION", 1},
		{"RELEASE_VERSION", 0},
		{"BASE", 1},
		{"PROCESS", 2},
		{"THREAD", 3},
		{"SOCK_TCP", 1},
		{"SOCK_UDP", 2},
		{"SOCK_TCP6", 3},
		{"SOCK_UDP6", 4},
		{"SOCK_UNIX_STREAM", 5},
		{"SOCK_UNIX_DGRAM", 6},
		{"TCP", 1},
		{"TCP6", 3},
		{"UNIX_STREAM", 5},
		{"SSL", 512},
		{"LOG_DEBUG", 0},
		{"LOG_TRACE", 1},
		{"LOG_INFO", 2},
		{"LOG_NOTICE", 3},
		{"LOG_WARNING", 4},
		{"LOG_ERROR", 5},
		{"LOG_NONE", 6},
		{"DISPATCH_ROUND", 1},
		{"DISPATCH_FDMOD", 2},
		{"DISPATCH_IDLE_WORKER", 3},
		{"DISPATCH_IPMOD", 4},
		{"DISPATCH_UIDMOD", 5},
		{"HOOK_ALL", 2147481599},
	};
	static const char *const prefixes[] = {"SWOOLE_", "OPENSWOOLE_"};
	char name[64];
	for (size_t p = 0; p < 2; p++) {
		for (size_t i = 0; i < sizeof(constants) / sizeof(*constants); i++) {
			int len = snprintf(name, sizeof(name), "%s%s", prefixes[p], constants[i].name);
			zend_register_long_constant(name, (size_t)len, constants[i].value, CONST_PERSISTENT | CONST_CS, module_number);
		}
		int len = snprintf(name, sizeof(name), "%sVERSION", prefixes[p]);
		zend_register_string_constant(name, (size_t)len, HOWDAH_SWOOLE_VERSION, CONST_PERSISTENT | CONST_CS, module_number);
	}
}
