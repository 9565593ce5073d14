/* Swoole\Table: memory that a server's processes share, created before they are forked. It has fixed columns and a
 * maximum number of rows. One lock guards it, which stays usable if a process dies while it holds it (a robust mutex).
 */
#include "swoole/internal.h"

#include <pthread.h>
#include <sys/mman.h>

#include "zend_exceptions.h"
#include "zend_interfaces.h"

#define KEY_MAX 63

enum { TYPE_INT = 1, TYPE_FLOAT = 2, TYPE_STRING = 3 };

enum { EMPTY = 0, USED = 1, DELETED = 2 };

typedef struct {
	pthread_mutex_t lock;
	uint32_t rows;
	/* Rows whose first slot was taken when they were created, and the largest distance of a row from its first slot. */
	uint32_t conflicts, farthest;
	uint64_t inserts, updates, deletes;
} shared_t;

typedef struct {
	uint8_t state, key_len;
	char key[KEY_MAX + 1];
	/* The values of the columns follow. */
} row_t;

typedef struct {
	zend_string *name;
	int type;
	uint32_t offset, size; /* for a string: a length of 4 bytes, then this many bytes */
} column_t;

typedef struct {
	uint32_t wanted, slots; /* slots: a power of two */
	size_t row_size, memory;
	column_t *columns;
	uint32_t column_count;
	shared_t *shared;
	char *first;
	uint32_t at; /* the current slot of the iteration */
	zend_object std;
} table_t;

static zend_object_handlers table_handlers;

static table_t *of(zend_object *object)
{
	return (table_t *)((char *)object - offsetof(table_t, std));
}

void *howdah_swoole_share(size_t len)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

static zend_object *create_table(zend_class_entry *ce)
{
	table_t *table = zend_object_alloc(sizeof(table_t), ce);
	memset(table, 0, offsetof(table_t, std));
	zend_object_std_init(&table->std, ce);
	object_properties_init(&table->std, ce);
	table->std.handlers = &table_handlers;
	return &table->std;
}

static void destroy_table(zend_object *object)
{
	table_t *table = of(object);
	for (uint32_t i = 0; i < table->column_count; i++) {
		zend_string_release(table->columns[i].name);
	}
	if (table->columns) {
		efree(table->columns);
	}
	if (table->shared) {
		munmap(table->shared, table->memory);
	}
	zend_object_std_dtor(object);
}

/* Returns the table of a method. Throws if it has no memory yet. */
static table_t *made(zval *this)
{
	table_t *table = of(Z_OBJ_P(this));
	if (!table->shared) {
		zend_throw_exception_ex(howdah_swoole_exception_ce, 0, "TableNotCreated: call create() first");
		return NULL;
	}
	return table;
}

static void lock(table_t *table)
{
	if (pthread_mutex_lock(&table->shared->lock) == EOWNERDEAD) {
		/* A process died while it held the lock. It has left at most one row half written. */
		pthread_mutex_consistent(&table->shared->lock);
	}
}

static void unlock(table_t *table)
{
	pthread_mutex_unlock(&table->shared->lock);
}

static row_t *row_at(table_t *table, uint32_t slot)
{
	return (row_t *)(table->first + (size_t)slot * table->row_size);
}

/* Returns the key's row, or with `make` a new one. Returns NULL if there is none, or no room. */
static row_t *find(table_t *table, zend_string *key, bool make)
{
	uint32_t slot = (uint32_t)zend_hash_func(ZSTR_VAL(key), ZSTR_LEN(key)) & (table->slots - 1);
	/* The first slot on the way that holds no row, and its distance from the key's own slot. */
	row_t *vacant = NULL;
	uint32_t steps = 0;
	for (uint32_t i = 0; i < table->slots; i++, slot = (slot + 1) & (table->slots - 1)) {
		row_t *row = row_at(table, slot);
		if (row->state == USED && row->key_len == ZSTR_LEN(key)
		    && memcmp(row->key, ZSTR_VAL(key), ZSTR_LEN(key)) == 0) {
			table->shared->updates += make;
			return row;
		}
		if (row->state != USED && !vacant) {
			vacant = row;
			steps = i;
		}
		if (row->state == EMPTY) {
			break;
		}
	}
	if (!make || !vacant || table->shared->rows >= table->wanted) {
		return NULL;
	}
	memset(vacant, 0, table->row_size);
	vacant->key_len = (uint8_t)ZSTR_LEN(key);
	memcpy(vacant->key, ZSTR_VAL(key), ZSTR_LEN(key));
	vacant->state = USED;
	table->shared->rows++;
	table->shared->inserts++;
	table->shared->conflicts += steps > 0;
	table->shared->farthest = MAX(table->shared->farthest, steps);
	return vacant;
}

static bool good_key(zend_string *key)
{
	if (ZSTR_LEN(key) == 0 || ZSTR_LEN(key) > KEY_MAX) {
		php_error_docref(NULL, E_WARNING, "key[%s] is empty or longer than %d bytes", ZSTR_VAL(key), KEY_MAX);
		return false;
	}
	return true;
}

static column_t *column_of(table_t *table, zend_string *name)
{
	for (uint32_t i = 0; i < table->column_count; i++) {
		if (zend_string_equals(table->columns[i].name, name)) {
			return &table->columns[i];
		}
	}
	return NULL;
}

static void write_column(row_t *row, const column_t *column, zval *value)
{
	char *at = (char *)row + column->offset;
	if (column->type == TYPE_INT) {
		int64_t number = zval_get_long(value);
		memcpy(at, &number, sizeof(number));
	} else if (column->type == TYPE_FLOAT) {
		double number = zval_get_double(value);
		memcpy(at, &number, sizeof(number));
	} else {
		zend_string *text = Z_STR_P(value);
		uint32_t len = (uint32_t)MIN(ZSTR_LEN(text), column->size);
		memcpy(at, &len, sizeof(len));
		memcpy(at + sizeof(len), ZSTR_VAL(text), len);
	}
}

static void read_column(const row_t *row, const column_t *column, zval *value)
{
	const char *at = (const char *)row + column->offset;
	if (column->type == TYPE_INT) {
		int64_t number;
		memcpy(&number, at, sizeof(number));
		ZVAL_LONG(value, number);
	} else if (column->type == TYPE_FLOAT) {
		double number;
		memcpy(&number, at, sizeof(number));
		ZVAL_DOUBLE(value, number);
	} else {
		uint32_t len;
		memcpy(&len, at, sizeof(len));
		ZVAL_STRINGL(value, at + sizeof(len), MIN(len, column->size));
	}
}

static void read_row(table_t *table, const row_t *row, zval *value)
{
	array_init_size(value, table->column_count);
	for (uint32_t i = 0; i < table->column_count; i++) {
		zval one;
		read_column(row, &table->columns[i], &one);
		zend_hash_update(Z_ARRVAL_P(value), table->columns[i].name, &one);
	}
}

static PHP_METHOD(Table, __construct)
{
	zend_long size;
	double conflicts = 0.2;
	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_LONG(size)
		Z_PARAM_OPTIONAL
		Z_PARAM_DOUBLE(conflicts)
	ZEND_PARSE_PARAMETERS_END();
	if (size < 1 || size > 1 << 26) {
		zend_throw_exception_ex(howdah_swoole_exception_ce, 0, "BadTable: a table must have 1 to %d rows", 1 << 26);
		RETURN_THROWS();
	}
	table_t *table = of(Z_OBJ_P(ZEND_THIS));
	table->row_size = sizeof(row_t);
	table->wanted = 64;
	while (table->wanted < size) {
		table->wanted *= 2; /* as in Swoole */
	}
	table->slots = table->wanted * 2;
}

static PHP_METHOD(Table, column)
{
	zend_string *name;
	zend_long type, size = 0;
	ZEND_PARSE_PARAMETERS_START(2, 3)
		Z_PARAM_STR(name)
		Z_PARAM_LONG(type)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(size)
	ZEND_PARSE_PARAMETERS_END();
	table_t *table = of(Z_OBJ_P(ZEND_THIS));
	if (table->shared) {
		php_error_docref(NULL, E_WARNING, "unable to add column after table has been created");
		RETURN_FALSE;
	}
	if (type < TYPE_INT || type > TYPE_STRING || (type == TYPE_STRING && (size < 1 || size > 1 << 24))) {
		php_error_docref(NULL, E_WARNING, "the length of string type values must be greater than zero, and the type must be one of Table::TYPE_*");
		RETURN_FALSE;
	}
	table->columns = safe_erealloc(table->columns, table->column_count + 1, sizeof(column_t), 0);
	column_t *column = &table->columns[table->column_count++];
	column->name = zend_string_copy(name);
	column->type = (int)type;
	column->offset = (uint32_t)table->row_size;
	column->size = type == TYPE_STRING ? (uint32_t)size : 8;
	table->row_size += type == TYPE_STRING ? ZEND_MM_ALIGNED_SIZE((size_t)size + 4) : 8;
	RETURN_TRUE;
}

static PHP_METHOD(Table, create)
{
	ZEND_PARSE_PARAMETERS_NONE();
	table_t *table = of(Z_OBJ_P(ZEND_THIS));
	if (table->shared || table->column_count == 0) {
		php_error_docref(NULL, E_WARNING, "a table can be created only once, after its columns");
		RETURN_FALSE;
	}
	size_t head = ZEND_MM_ALIGNED_SIZE(sizeof(shared_t));
	table->memory = head + table->row_size * table->slots;
	table->shared = howdah_swoole_share(table->memory);
	if (!table->shared) {
		zend_throw_exception_ex(howdah_swoole_exception_ce, 0, "TableTooLarge: there is no memory for %zu bytes", table->memory);
		RETURN_THROWS();
	}
	table->first = (char *)table->shared + head;
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&table->shared->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
	zend_update_property_long(Z_OBJCE_P(ZEND_THIS), Z_OBJ_P(ZEND_THIS), "size", 4, table->wanted);
	zend_update_property_long(Z_OBJCE_P(ZEND_THIS), Z_OBJ_P(ZEND_THIS), "memorySize", 10, (zend_long)table->memory);
	RETURN_TRUE;
}

static PHP_METHOD(Table, set)
{
	zend_string *key;
	zval *values;
	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_STR(key)
		Z_PARAM_ARRAY(values)
	ZEND_PARSE_PARAMETERS_END();
	table_t *table = made(ZEND_THIS);
	if (!table) {
		RETURN_THROWS();
	}
	if (!good_key(key)) {
		RETURN_FALSE;
	}
	/* Conversions may run PHP code, so they happen before the lock is taken. */
	zval plain;
	array_init(&plain);
	zend_string *name;
	zval *value;
	ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL_P(values), name, value) {
		column_t *column = name ? column_of(table, name) : NULL;
		if (!column) {
			continue;
		}
		zval one;
		if (column->type == TYPE_STRING) {
			ZVAL_STR(&one, zval_get_string(value));
			if (Z_STRLEN(one) > column->size) {
				php_error_docref(NULL, E_WARNING, "[key=%s,field=%s]string value is too long", ZSTR_VAL(key), ZSTR_VAL(name));
			}
		} else if (column->type == TYPE_INT) {
			ZVAL_LONG(&one, zval_get_long(value));
		} else {
			ZVAL_DOUBLE(&one, zval_get_double(value));
		}
		zend_hash_update(Z_ARRVAL(plain), name, &one);
	} ZEND_HASH_FOREACH_END();
	if (EG(exception)) {
		zval_ptr_dtor(&plain);
		RETURN_THROWS();
	}
	lock(table);
	row_t *row = find(table, key, true);
	if (row) {
		ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL(plain), name, value) {
			write_column(row, column_of(table, name), value);
		} ZEND_HASH_FOREACH_END();
	}
	unlock(table);
	zval_ptr_dtor(&plain);
	if (!row) {
		php_error_docref(NULL, E_WARNING, "failed to set('%s'), unable to allocate memory: the table is full", ZSTR_VAL(key));
	}
	RETURN_BOOL(row != NULL);
}

/* Returns the key's row, if there is one. Called under the lock. */
static row_t *there(table_t *table, zend_string *key)
{
	return ZSTR_LEN(key) <= KEY_MAX ? find(table, key, false) : NULL;
}

/* Returns the table of a method whose one argument is a key, locked. Returns NULL if it has thrown. */
static table_t *locked_for(INTERNAL_FUNCTION_PARAMETERS, zend_string **key)
{
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STR(*key)
	ZEND_PARSE_PARAMETERS_END_EX(return NULL);
	table_t *table = made(ZEND_THIS);
	if (table) {
		lock(table);
	}
	return table;
}

static PHP_METHOD(Table, get)
{
	zend_string *key, *field = NULL;
	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_STR(key)
		Z_PARAM_OPTIONAL
		Z_PARAM_STR_OR_NULL(field)
	ZEND_PARSE_PARAMETERS_END();
	table_t *table = made(ZEND_THIS);
	if (!table) {
		RETURN_THROWS();
	}
	column_t *column = field ? column_of(table, field) : NULL;
	if (field && !column) {
		RETURN_FALSE;
	}
	RETVAL_FALSE;
	/* The row is copied first: creating PHP values may end in a bailout, which would leave the lock held. */
	row_t *copy = emalloc(table->row_size);
	lock(table);
	row_t *row = there(table, key);
	if (row) {
		memcpy(copy, row, table->row_size);
	}
	unlock(table);
	if (row && column) {
		read_column(copy, column, return_value);
	} else if (row) {
		read_row(table, copy, return_value);
	}
	efree(copy);
}

static PHP_METHOD(Table, del)
{
	zend_string *key;
	table_t *table = locked_for(INTERNAL_FUNCTION_PARAM_PASSTHRU, &key);
	if (!table) {
		RETURN_THROWS();
	}
	row_t *row = there(table, key);
	if (row) {
		/* If no row follows, the slot becomes empty instead of deleted, so searches can end here again. */
		uint32_t slot = (uint32_t)(((char *)row - table->first) / (ptrdiff_t)table->row_size);
		row->state = row_at(table, (slot + 1) & (table->slots - 1))->state == EMPTY ? EMPTY : DELETED;
		while (row->state == EMPTY) {
			slot = (slot - 1) & (table->slots - 1);
			row_t *before = row_at(table, slot);
			if (before->state != DELETED) {
				break;
			}
			before->state = EMPTY;
			row = before;
		}
		table->shared->rows--;
		table->shared->deletes++;
	}
	unlock(table);
	RETURN_BOOL(row != NULL);
}

static PHP_METHOD(Table, exists)
{
	zend_string *key;
	table_t *table = locked_for(INTERNAL_FUNCTION_PARAM_PASSTHRU, &key);
	if (!table) {
		RETURN_THROWS();
	}
	bool found = there(table, key) != NULL;
	unlock(table);
	RETURN_BOOL(found);
}

static void change(INTERNAL_FUNCTION_PARAMETERS, int sign)
{
	zend_string *key, *field;
	zval *by = NULL;
	ZEND_PARSE_PARAMETERS_START(2, 3)
		Z_PARAM_STR(key)
		Z_PARAM_STR(field)
		Z_PARAM_OPTIONAL
		Z_PARAM_NUMBER(by)
	ZEND_PARSE_PARAMETERS_END();
	table_t *table = made(ZEND_THIS);
	if (!table) {
		RETURN_THROWS();
	}
	column_t *column = column_of(table, field);
	if (!column || column->type == TYPE_STRING || !good_key(key)) {
		php_error_docref(NULL, E_WARNING, "column[%s] does not exist or is a string", ZSTR_VAL(field));
		RETURN_FALSE;
	}
	zval number;
	ZVAL_FALSE(&number);
	lock(table);
	row_t *row = find(table, key, true);
	if (row) {
		read_column(row, column, &number);
		if (column->type == TYPE_INT) {
			zend_ulong step = (zend_ulong)(by ? zval_get_long(by) : 1);
			zend_ulong sum = (zend_ulong)Z_LVAL(number) + (sign > 0 ? step : 0 - step);
			ZVAL_LONG(&number, (zend_long)sum);
		} else {
			ZVAL_DOUBLE(&number, Z_DVAL(number) + sign * (by ? zval_get_double(by) : 1.0));
		}
		write_column(row, column, &number);
	}
	unlock(table);
	RETURN_COPY_VALUE(&number);
}

static PHP_METHOD(Table, incr)
{
	change(INTERNAL_FUNCTION_PARAM_PASSTHRU, 1);
}

static PHP_METHOD(Table, decr)
{
	change(INTERNAL_FUNCTION_PARAM_PASSTHRU, -1);
}

static PHP_METHOD(Table, count)
{
	/* Swoole takes a mode and ignores it. */
	table_t *table = made(ZEND_THIS);
	if (!table) {
		RETURN_THROWS();
	}
	lock(table);
	uint32_t rows = table->shared->rows;
	unlock(table);
	RETURN_LONG(rows);
}

/* Swoole keeps rows in conflict in separate slices; here every slot counts as one. */
static PHP_METHOD(Table, stats)
{
	ZEND_PARSE_PARAMETERS_NONE();
	table_t *table = made(ZEND_THIS);
	if (!table) {
		RETURN_THROWS();
	}
	lock(table);
	shared_t seen = *table->shared;
	unlock(table);
	array_init(return_value);
	add_assoc_long(return_value, "num", seen.rows);
	add_assoc_long(return_value, "conflict_count", seen.conflicts);
	add_assoc_long(return_value, "conflict_max_level", seen.farthest);
	add_assoc_long(return_value, "insert_count", (zend_long)seen.inserts);
	add_assoc_long(return_value, "update_count", (zend_long)seen.updates);
	add_assoc_long(return_value, "delete_count", (zend_long)seen.deletes);
	add_assoc_long(return_value, "available_slice_num", table->slots - seen.rows);
	add_assoc_long(return_value, "total_slice_num", table->slots);
}

static PHP_METHOD(Table, getSize)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_LONG(of(Z_OBJ_P(ZEND_THIS))->wanted);
}

static PHP_METHOD(Table, getMemorySize)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_LONG((zend_long)of(Z_OBJ_P(ZEND_THIS))->memory);
}

static PHP_METHOD(Table, destroy)
{
	ZEND_PARSE_PARAMETERS_NONE();
	/* The memory is freed with the last object. */
	RETURN_TRUE;
}

/* ---- iteration: from slot to slot; rows may be added and removed meanwhile ---- */

static void to_used(table_t *table)
{
	while (table->at < table->slots && row_at(table, table->at)->state != USED) {
		table->at++;
	}
}

static PHP_METHOD(Table, rewind)
{
	ZEND_PARSE_PARAMETERS_NONE();
	table_t *table = made(ZEND_THIS);
	if (table) {
		table->at = 0;
		to_used(table);
	}
}

static PHP_METHOD(Table, next)
{
	ZEND_PARSE_PARAMETERS_NONE();
	table_t *table = made(ZEND_THIS);
	if (table) {
		table->at++;
		to_used(table);
	}
}

static PHP_METHOD(Table, valid)
{
	ZEND_PARSE_PARAMETERS_NONE();
	table_t *table = made(ZEND_THIS);
	RETURN_BOOL(table && table->at < table->slots);
}

/* Returns a copy of the iteration's current row, which the caller frees. Returns NULL at the end, or if it has thrown.
 */
static row_t *current_copy(table_t *table)
{
	if (!table || table->at >= table->slots) {
		return NULL;
	}
	row_t *copy = emalloc(table->row_size);
	lock(table);
	memcpy(copy, row_at(table, table->at), table->row_size);
	unlock(table);
	return copy;
}

static PHP_METHOD(Table, current)
{
	ZEND_PARSE_PARAMETERS_NONE();
	table_t *table = made(ZEND_THIS);
	row_t *copy = current_copy(table);
	if (!copy) {
		RETURN_NULL();
	}
	read_row(table, copy, return_value);
	efree(copy);
}

static PHP_METHOD(Table, key)
{
	ZEND_PARSE_PARAMETERS_NONE();
	row_t *copy = current_copy(made(ZEND_THIS));
	if (!copy) {
		RETURN_NULL();
	}
	RETVAL_STRINGL(copy->key, MIN(copy->key_len, KEY_MAX));
	efree(copy);
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_construct, 0, 0, 1)
	ZEND_ARG_TYPE_INFO(0, table_size, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, conflict_proportion, IS_DOUBLE, 0, "0.2")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_column, 0, 0, 2)
	ZEND_ARG_TYPE_INFO(0, name, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, type, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, size, IS_LONG, 0, "0")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_set, 0, 0, 2)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, value, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_get, 0, 0, 1)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, field, IS_STRING, 1, "null")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_change, 0, 0, 2)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, column, IS_STRING, 0)
	ZEND_ARG_INFO(0, by)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_key, 0, 0, 1)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_count, 0, 0, IS_LONG, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_void, 0, 0, IS_VOID, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_bool, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_mixed, 0, 0, IS_MIXED, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_none, 0, 0, 0)
ZEND_END_ARG_INFO()

#define METHOD(name, info) PHP_ME(Table, name, info, ZEND_ACC_PUBLIC)

static const zend_function_entry table_methods[] = {
	METHOD(__construct, arginfo_construct)
	METHOD(column, arginfo_column)
	METHOD(create, arginfo_none)
	METHOD(destroy, arginfo_none)
	METHOD(set, arginfo_set)
	METHOD(get, arginfo_get)
	METHOD(del, arginfo_key)
	PHP_MALIAS(Table, delete, del, arginfo_key, ZEND_ACC_PUBLIC)
	METHOD(exists, arginfo_key)
	PHP_MALIAS(Table, exist, exists, arginfo_key, ZEND_ACC_PUBLIC)
	METHOD(incr, arginfo_change)
	METHOD(decr, arginfo_change)
	METHOD(count, arginfo_count)
	METHOD(getSize, arginfo_none)
	METHOD(getMemorySize, arginfo_none)
	METHOD(stats, arginfo_none)
	METHOD(rewind, arginfo_void)
	METHOD(next, arginfo_void)
	METHOD(valid, arginfo_bool)
	METHOD(current, arginfo_mixed)
	METHOD(key, arginfo_mixed)
	PHP_FE_END
};

void howdah_swoole_register_table(void)
{
	zend_class_entry *ce = howdah_swoole_class("Swoole\\Table", "swoole_table", NULL, table_methods);
	zend_class_implements(ce, 2, zend_ce_iterator, zend_ce_countable);
	ce->create_object = create_table;
	ce->ce_flags |= ZEND_ACC_NOT_SERIALIZABLE;
	zend_declare_class_constant_long(ce, "TYPE_INT", 8, TYPE_INT);
	zend_declare_class_constant_long(ce, "TYPE_FLOAT", 10, TYPE_FLOAT);
	zend_declare_class_constant_long(ce, "TYPE_STRING", 11, TYPE_STRING);
	zend_declare_property_null(ce, "size", 4, ZEND_ACC_PUBLIC);
	zend_declare_property_null(ce, "memorySize", 10, ZEND_ACC_PUBLIC);
	memcpy(&table_handlers, &std_object_handlers, sizeof(table_handlers));
	table_handlers.offset = offsetof(table_t, std);
	table_handlers.free_obj = destroy_table;
	table_handlers.clone_obj = NULL;
	table_handlers.unset_property = howdah_swoole_keep_property;
}
