/* Swoole\Atomic and Swoole\Atomic\Long: a number that a server's processes share, created before they are forked.
 * wait() blocks the whole worker, as in Swoole without coroutines. */
#include "swoole/internal.h"

#include <math.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "zend_exceptions.h"

/* From linux/futex.h, which the C library's own headers do not include on musl. */
#define FUTEX_WAIT 0
#define FUTEX_WAKE 1

static zend_object_handlers atomic_handlers;

typedef struct {
	int64_t *value;
	bool narrow; /* Swoole\Atomic: 32 bits, unsigned */
	zend_object std;
} atomic_t;

static zend_class_entry *atomic_ce;

static atomic_t *atomic_of(zval *this)
{
	return (atomic_t *)((char *)Z_OBJ_P(this) - offsetof(atomic_t, std));
}

static zend_object *create_atomic(zend_class_entry *ce)
{
	atomic_t *atomic = zend_object_alloc(sizeof(atomic_t), ce);
	zend_object_std_init(&atomic->std, ce);
	object_properties_init(&atomic->std, ce);
	atomic->std.handlers = &atomic_handlers;
	atomic->narrow = instanceof_function(ce, atomic_ce);
	atomic->value = howdah_swoole_share(sizeof(int64_t));
	if (!atomic->value) {
		zend_error_noreturn(E_ERROR, "AtomicTooMany: there is no shared memory for another Swoole\\Atomic");
	}
	return &atomic->std;
}

static void destroy_atomic(zend_object *object)
{
	atomic_t *atomic = (atomic_t *)((char *)object - offsetof(atomic_t, std));
	munmap(atomic->value, sizeof(int64_t));
	zend_object_std_dtor(object);
}

static zend_long shown(atomic_t *atomic, int64_t value)
{
	return atomic->narrow ? (zend_long)(uint32_t)value : (zend_long)value;
}

static bool number(INTERNAL_FUNCTION_PARAMETERS, zend_long *value)
{
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(*value)
	ZEND_PARSE_PARAMETERS_END_EX(return false);
	return true;
}

static PHP_METHOD(Atomic, __construct)
{
	zend_long value = 0;
	if (number(INTERNAL_FUNCTION_PARAM_PASSTHRU, &value)) {
		__atomic_store_n(atomic_of(ZEND_THIS)->value, value, __ATOMIC_SEQ_CST);
	}
}

static PHP_METHOD(Atomic, add)
{
	zend_long by = 1;
	if (number(INTERNAL_FUNCTION_PARAM_PASSTHRU, &by)) {
		atomic_t *atomic = atomic_of(ZEND_THIS);
		RETURN_LONG(shown(atomic, __atomic_add_fetch(atomic->value, by, __ATOMIC_SEQ_CST)));
	}
}

static PHP_METHOD(Atomic, sub)
{
	zend_long by = 1;
	if (number(INTERNAL_FUNCTION_PARAM_PASSTHRU, &by)) {
		atomic_t *atomic = atomic_of(ZEND_THIS);
		RETURN_LONG(shown(atomic, __atomic_sub_fetch(atomic->value, by, __ATOMIC_SEQ_CST)));
	}
}

static PHP_METHOD(Atomic, get)
{
	ZEND_PARSE_PARAMETERS_NONE();
	atomic_t *atomic = atomic_of(ZEND_THIS);
	RETURN_LONG(shown(atomic, __atomic_load_n(atomic->value, __ATOMIC_SEQ_CST)));
}

static PHP_METHOD(Atomic, set)
{
	zend_long value = 0;
	if (number(INTERNAL_FUNCTION_PARAM_PASSTHRU, &value)) {
		__atomic_store_n(atomic_of(ZEND_THIS)->value, value, __ATOMIC_SEQ_CST);
	}
}

static PHP_METHOD(Atomic, cmpset)
{
	zend_long expected, value;
	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_LONG(expected)
		Z_PARAM_LONG(value)
	ZEND_PARSE_PARAMETERS_END();
	int64_t seen = expected;
	RETURN_BOOL(__atomic_compare_exchange_n(atomic_of(ZEND_THIS)->value, &seen, (int64_t)value, false,
	                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}

/* Returns the 32 bits that Swoole\Atomic shows and on which the kernel waits. */
static uint32_t *word_of(zval *this)
{
	uint32_t *words = (uint32_t *)atomic_of(this)->value;
	return &words[__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 1];
}

static bool swap(uint32_t *word, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Sets a 1 back to 0. If the value is 0, waits until another process has set it to 1. */
static PHP_METHOD(Atomic, wait)
{
	double seconds = 1.0;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_DOUBLE(seconds)
	ZEND_PARSE_PARAMETERS_END();
	uint32_t *word = word_of(ZEND_THIS);
	if (swap(word, 1, 0)) {
		RETURN_TRUE;
	}
	/* As in Swoole, 0 and less means without limit; here, so does a time that no clock can represent. */
	bool limited = seconds > 0 && seconds < 1e9;
	struct timespec limit = {
		.tv_sec = limited ? (time_t)seconds : 0,
		.tv_nsec = limited ? (long)((seconds - floor(seconds)) * 1e9) : 0,
	};
	long woken = syscall(SYS_futex, word, FUTEX_WAIT, 0, limited ? &limit : NULL, NULL, 0);
	/* EAGAIN: the word is not 0 any more. */
	RETURN_BOOL((woken == 0 || errno == EAGAIN) && swap(word, 1, 0));
}

static PHP_METHOD(Atomic, wakeup)
{
	zend_long count = 1;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(count)
	ZEND_PARSE_PARAMETERS_END();
	uint32_t *word = word_of(ZEND_THIS);
	if (swap(word, 0, 1)) {
		syscall(SYS_futex, word, FUTEX_WAKE, (int)MAX(1, MIN(count, INT_MAX)), NULL, NULL, 0);
	}
	RETURN_TRUE;
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_none, 0, 0, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_value, 0, 0, 0)
	ZEND_ARG_INFO(0, value)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_cmpset, 0, 0, 2)
	ZEND_ARG_INFO(0, cmp_value)
	ZEND_ARG_INFO(0, new_value)
ZEND_END_ARG_INFO()

/* Swoole\Atomic\Long has all methods but the first two, because the kernel waits on 32 bits. */
enum { WAITING = 2 };
static const zend_function_entry atomic_methods[] = {
	PHP_ME(Atomic, wait, arginfo_value, ZEND_ACC_PUBLIC)
	PHP_ME(Atomic, wakeup, arginfo_value, ZEND_ACC_PUBLIC)
	PHP_ME(Atomic, __construct, arginfo_value, ZEND_ACC_PUBLIC)
	PHP_ME(Atomic, add, arginfo_value, ZEND_ACC_PUBLIC)
	PHP_ME(Atomic, sub, arginfo_value, ZEND_ACC_PUBLIC)
	PHP_ME(Atomic, get, arginfo_none, ZEND_ACC_PUBLIC)
	PHP_ME(Atomic, set, arginfo_value, ZEND_ACC_PUBLIC)
	PHP_ME(Atomic, cmpset, arginfo_cmpset, ZEND_ACC_PUBLIC)
	PHP_FE_END
};

void howdah_swoole_register_atomic(void)
{
	memcpy(&atomic_handlers, &std_object_handlers, sizeof(atomic_handlers));
	atomic_handlers.offset = offsetof(atomic_t, std);
	atomic_handlers.free_obj = destroy_atomic;
	atomic_handlers.clone_obj = NULL;
	atomic_handlers.unset_property = howdah_swoole_keep_property;
	atomic_ce = howdah_swoole_class("Swoole\\Atomic", "swoole_atomic", NULL, atomic_methods);
	atomic_ce->create_object = create_atomic;
	howdah_swoole_class("Swoole\\Atomic\\Long", "swoole_atomic_long", NULL, atomic_methods + WAITING)->create_object = create_atomic;
}
