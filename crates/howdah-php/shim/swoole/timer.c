/* Swoole\Timer and the swoole_timer_* functions, Swoole\Process::kill() and Swoole\Util. The loop keeps a timer's due
 * time; the function that it calls is kept here. */
#include "swoole/internal.h"

#include <signal.h>
#include <unistd.h>

#include "ext/spl/spl_array.h"
#include "zend_exceptions.h"

typedef struct {
	zval function;
	zend_fcall_info info;
	zend_fcall_info_cache cache;
	/* The arguments; the timer's id precedes them if the timer repeats. */
	uint32_t count;
	zval *arguments;
	uint32_t running;
	bool cleared;
	/* The values that Timer::info() shows. */
	zend_long interval, calls, round;
} howdah_timer_t;

/* Timers that have run so far. */
static zend_long rounds;
/* The timer whose callback is running: the callback may call info() for its own timer after clearing it. */
static howdah_timer_t *current;
static uint64_t current_id;

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

/* Called in a forked worker: the timers created before belong to the manager. */
void howdah_swoole_forget_timers(void)
{
	if (!ready) {
		return;
	}
	zend_ulong id;
	howdah_timer_t *timer;
	ZEND_HASH_FOREACH_NUM_KEY_PTR(&timers, id, timer) {
		(void)id;
		/* A timer whose callback is running is freed by its caller. */
		if (!timer->running) {
			free_timer(timer);
		}
	} ZEND_HASH_FOREACH_END();
	zend_hash_clean(&timers);
}

bool howdah_swoole_on_timer(uint64_t id, bool repeats)
{
	howdah_timer_t *timer = ready ? zend_hash_index_find_ptr(&timers, id) : NULL;
	if (!timer) {
		return true;
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
	timer->calls++;
	rounds++;
	current = timer;
	current_id = id;
	bool fine = howdah_swoole_call(&timer->info, &timer->cache, timer->count + first, arguments, "timer");
	current = NULL;
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
	return fine;
}

bool howdah_swoole_run_timers(void)
{
	for (bool has_run = false;; has_run = true) {
		howdah_run_event event;
		howdah_run_next_timer(&event);
		if (event.kind != HOWDAH_TIMER) {
			return has_run;
		}
		if (!howdah_swoole_on_timer(event.id, event.repeats)) {
			return true;
		}
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
	timer->interval = repeats ? ms : 0;
	timer->round = rounds;
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

static zend_class_entry *iterator_ce;

static PHP_METHOD(Timer, list)
{
	ZEND_PARSE_PARAMETERS_NONE();
	zval ids;
	array_init(&ids);
	zend_ulong id;
	void *timer;
	if (ready) {
		ZEND_HASH_FOREACH_NUM_KEY_PTR(&timers, id, timer) {
			(void)timer;
			add_next_index_long(&ids, (zend_long)id);
		} ZEND_HASH_FOREACH_END();
	}
	object_init_ex(return_value, iterator_ce);
	zend_call_known_instance_method_with_1_params(iterator_ce->constructor, Z_OBJ_P(return_value), NULL, &ids);
	zval_ptr_dtor(&ids);
}

static PHP_METHOD(Timer, info)
{
	zend_long id;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(id)
	ZEND_PARSE_PARAMETERS_END();
	if (!ready) {
		RETURN_FALSE;
	}
	howdah_timer_t *timer = id > 0 ? zend_hash_index_find_ptr(&timers, (zend_ulong)id) : NULL;
	if (!timer && current && current_id == (uint64_t)id) {
		timer = current;
	}
	if (!timer) {
		RETURN_NULL();
	}
	array_init(return_value);
	add_assoc_long(return_value, "exec_msec", (zend_long)howdah_run_timer_due((uint64_t)id));
	add_assoc_long(return_value, "exec_count", timer->calls);
	add_assoc_long(return_value, "interval", timer->interval);
	add_assoc_long(return_value, "round", timer->round);
	add_assoc_bool(return_value, "removed", timer->cleared);
}

static PHP_METHOD(Timer, stats)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	add_assoc_bool(return_value, "initialized", ready);
	add_assoc_long(return_value, "num", ready ? (zend_long)zend_hash_num_elements(&timers) : 0);
	add_assoc_long(return_value, "round", rounds);
}

/* The only setting is whether callbacks are coroutines, which they never are. */
static PHP_METHOD(Timer, set)
{
	zval *settings;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_ARRAY(settings)
	ZEND_PARSE_PARAMETERS_END();
	zval *wanted = zend_hash_str_find(Z_ARRVAL_P(settings), "enable_coroutine", sizeof("enable_coroutine") - 1);
	if (wanted && zend_is_true(wanted)) {
		howdah_swoole_log(true, "SettingWithoutEffect: enable_coroutine: timers are called one after the other");
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

ZEND_BEGIN_ARG_WITH_RETURN_OBJ_INFO_EX(arginfo_list, 0, 0, Swoole\\Timer\\Iterator, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_settings, 0, 0, 1)
	ZEND_ARG_INFO(0, settings)
ZEND_END_ARG_INFO()

static const zend_function_entry timer_methods[] = {
	PHP_ME(Timer, tick, arginfo_timer, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, after, arginfo_timer, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, clear, arginfo_id, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, clearAll, arginfo_none, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, exists, arginfo_id, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, list, arginfo_list, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, info, arginfo_id, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, stats, arginfo_none, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_ME(Timer, set, arginfo_settings, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC | ZEND_ACC_DEPRECATED)
	PHP_FE_END
};

static const zend_function_entry timer_functions[] = {
	ZEND_NAMED_FE(swoole_timer_tick, ZEND_MN(Timer_tick), arginfo_timer)
	ZEND_NAMED_FE(swoole_timer_after, ZEND_MN(Timer_after), arginfo_timer)
	ZEND_NAMED_FE(swoole_timer_clear, ZEND_MN(Timer_clear), arginfo_id)
	ZEND_NAMED_FE(swoole_timer_clear_all, ZEND_MN(Timer_clearAll), arginfo_none)
	ZEND_NAMED_FE(swoole_timer_exists, ZEND_MN(Timer_exists), arginfo_id)
	ZEND_NAMED_FE(swoole_timer_list, ZEND_MN(Timer_list), arginfo_list)
	ZEND_NAMED_FE(swoole_timer_info, ZEND_MN(Timer_info), arginfo_id)
	ZEND_NAMED_FE(swoole_timer_stats, ZEND_MN(Timer_stats), arginfo_none)
	ZEND_NAMED_FE(swoole_timer_set, ZEND_MN(Timer_set), arginfo_settings)
	PHP_FE_END
};

/* ---- other functions that server scripts use ---- */

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
	/* As in Swoole, it is not an error to ask whether a process exists. */
	if (!(errno == ESRCH && signo == 0)) {
		php_error_docref(NULL, E_WARNING, "kill(" ZEND_LONG_FMT ", " ZEND_LONG_FMT ") failed: %s", pid, signo, strerror(errno));
	}
	RETURN_FALSE;
}

static PHP_METHOD(Process, __construct)
{
	ZEND_PARSE_PARAMETERS_START(0, -1)
	ZEND_PARSE_PARAMETERS_END();
	howdah_swoole_refuse("Swoole\\Process", "this server starts its own workers; use proc_open() for other processes");
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
	iterator_ce = howdah_swoole_class("Swoole\\Timer\\Iterator", NULL, spl_ce_ArrayIterator, NULL);
	zend_register_functions(NULL, timer_functions, NULL, MODULE_PERSISTENT);
	howdah_swoole_class("Swoole\\Process", "swoole_process", NULL, process_methods);
	howdah_swoole_class("Swoole\\Util", NULL, NULL, util_methods);
}
