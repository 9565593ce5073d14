/* howdah_cache_get(), _set(), _add(), _delete(), _increment(), _delete_tag() and _info(): values that PHP keeps from
 * one request to the next (docs/shared-cache.md). Rust manages the memory (src/shared_cache); this file converts values
 * to bytes and back.
 *
 *     value  = 'n' | 'f' | 't' | 'i' int64 | 'd' double | 's' bytes to the end | 'a' array | 'o' array | 'p' bytes
 *     array  = uint32 count, { key, nested }
 *     key    = 'i' int64 | 's' uint32 length, bytes
 *     nested = a value; an 's' has a uint32 length before the bytes
 *
 * 'o' is a stdClass. 'p' is the output of serialize() for every value that has references, other classes, or one object
 * in two places. A value that cannot be decoded is treated as absent.
 *
 * A process that a script forks has no cache, because the zygote would not be notified if it was killed in the middle
 * of a change. On a command line there is no cache either, but a change makes the server remove all values: they may
 * come from the database to which the command line writes. */
#include "effects/internal.h"

#include "ext/standard/php_var.h"

#define MOST_NESTED 64

/* Returns whether there is no cache, so the call has no effect. A change on a command line is reported to the server.
 */
static bool is_absent(bool changes)
{
	if (howdah_is_copy) {
		return true;
	}
	if (howdah_shared_cache_exists()) {
		return false;
	}
	if (changes && howdah_is_command_line()) {
		howdah_tell(HOWDAH_EFFECT_FORGET, false, NULL, 0);
	}
	return true;
}

/* ---- bytes of a value ---- */

static void put_length(smart_str *to, uint32_t length)
{
	smart_str_appendl(to, (const char *)&length, sizeof(length));
}

static void put_integer(smart_str *to, zend_long number)
{
	int64_t wide = number;
	smart_str_appendc(to, 'i');
	smart_str_appendl(to, (const char *)&wide, sizeof(wide));
}

static bool put(smart_str *to, zval *value, unsigned depth);

static bool put_table(smart_str *to, char kind, HashTable *table, unsigned depth)
{
	zend_ulong index;
	zend_string *key;
	zval *value;
	smart_str_appendc(to, kind);
	put_length(to, zend_hash_num_elements(table));
	ZEND_HASH_FOREACH_KEY_VAL_IND(table, index, key, value) {
		if (!key) {
			put_integer(to, (zend_long)index);
		} else if (ZSTR_LEN(key) > UINT32_MAX) {
			return false;
		} else {
			smart_str_appendc(to, 's');
			put_length(to, (uint32_t)ZSTR_LEN(key));
			smart_str_append(to, key);
		}
		if (!put(to, value, depth + 1)) {
			return false;
		}
	} ZEND_HASH_FOREACH_END();
	return true;
}

/* Appends a value. Returns false if only serialize() can encode it. */
static bool put(smart_str *to, zval *value, unsigned depth)
{
	if (depth > MOST_NESTED) {
		return false;
	}
	switch (Z_TYPE_P(value)) {
	case IS_NULL:
		smart_str_appendc(to, 'n');
		return true;
	case IS_FALSE:
		smart_str_appendc(to, 'f');
		return true;
	case IS_TRUE:
		smart_str_appendc(to, 't');
		return true;
	case IS_LONG:
		put_integer(to, Z_LVAL_P(value));
		return true;
	case IS_DOUBLE:
		smart_str_appendc(to, 'd');
		smart_str_appendl(to, (const char *)&Z_DVAL_P(value), sizeof(double));
		return true;
	case IS_STRING:
		if (Z_STRLEN_P(value) > UINT32_MAX) {
			return false;
		}
		smart_str_appendc(to, 's');
		if (depth > 0) {
			put_length(to, (uint32_t)Z_STRLEN_P(value));
		}
		smart_str_append(to, Z_STR_P(value));
		return true;
	case IS_ARRAY:
		return put_table(to, 'a', Z_ARRVAL_P(value), depth);
	case IS_OBJECT:
		/* An object with other references could be in the value twice. */
		if (Z_OBJCE_P(value) != zend_standard_class_def || (depth > 0 && Z_REFCOUNT_P(value) > 1)) {
			return false;
		}
		return put_table(to, 'o', zend_std_get_properties(Z_OBJ_P(value)), depth);
	default:
		return false;
	}
}

/* Encodes a value, with serialize() if necessary. Returns false if serialize() has thrown. */
static bool encode(smart_str *to, zval *value)
{
	if (put(to, value, 0)) {
		smart_str_0(to);
		return true;
	}
	if (to->s) {
		ZSTR_LEN(to->s) = 0;
	}
	smart_str_appendc(to, 'p');
	php_serialize_data_t seen;
	PHP_VAR_SERIALIZE_INIT(seen);
	php_var_serialize(to, value, &seen);
	PHP_VAR_SERIALIZE_DESTROY(seen);
	smart_str_0(to);
	return !EG(exception);
}

typedef struct {
	const char *at, *end;
} bytes_t;

static bool take(bytes_t *from, void *out, size_t len)
{
	if ((size_t)(from->end - from->at) < len) {
		return false;
	}
	memcpy(out, from->at, len);
	from->at += len;
	return true;
}

/* Reads bytes that are preceded by their length. */
static bool take_span(bytes_t *from, const char **bytes, uint32_t *len)
{
	if (!take(from, len, sizeof(*len)) || (size_t)(from->end - from->at) < *len) {
		return false;
	}
	*bytes = from->at;
	from->at += *len;
	return true;
}

static bool get(bytes_t *from, zval *value, unsigned depth);

static bool get_table(bytes_t *from, HashTable *table, uint32_t count, unsigned depth)
{
	for (uint32_t i = 0; i < count; i++) {
		char kind;
		int64_t index = 0;
		const char *bytes = NULL;
		uint32_t len = 0;
		zval value;
		if (!take(from, &kind, 1)
		    || !(kind == 'i' ? take(from, &index, sizeof(index)) : kind == 's' && take_span(from, &bytes, &len))
		    || !get(from, &value, depth + 1)) {
			return false;
		}
		if (kind == 'i') {
			zend_hash_index_update(table, (zend_ulong)index, &value);
		} else {
			zend_hash_str_update(table, bytes, len, &value);
		}
	}
	return true;
}

/* Reads one value. Returns false, with nothing to free, if the bytes are invalid. */
static bool get(bytes_t *from, zval *value, unsigned depth)
{
	char kind;
	int64_t number;
	uint32_t len;
	const char *bytes;
	if (depth > MOST_NESTED || !take(from, &kind, 1)) {
		return false;
	}
	switch (kind) {
	case 'n':
		ZVAL_NULL(value);
		return true;
	case 'f':
		ZVAL_FALSE(value);
		return true;
	case 't':
		ZVAL_TRUE(value);
		return true;
	case 'i':
		if (!take(from, &number, sizeof(number))) {
			return false;
		}
		ZVAL_LONG(value, (zend_long)number);
		return true;
	case 'd':
		ZVAL_DOUBLE(value, 0);
		return take(from, &Z_DVAL_P(value), sizeof(double));
	case 's':
		if (depth == 0) {
			ZVAL_STRINGL_FAST(value, from->at, (size_t)(from->end - from->at));
			return true;
		}
		if (!take_span(from, &bytes, &len)) {
			return false;
		}
		ZVAL_STRINGL_FAST(value, bytes, len);
		return true;
	case 'a':
	case 'o':
		/* An element has at least three bytes, so no claimed count makes a table larger than the data. */
		if (!take(from, &len, sizeof(len)) || len > (size_t)(from->end - from->at) / 3) {
			return false;
		}
		if (kind == 'a' && len == 0) {
			ZVAL_EMPTY_ARRAY(value);
			return true;
		}
		if (kind == 'a') {
			array_init_size(value, len);
		} else {
			object_init(value);
		}
		if (!get_table(from, kind == 'a' ? Z_ARRVAL_P(value) : zend_std_get_properties(Z_OBJ_P(value)), len, depth)) {
			zval_ptr_dtor(value);
			return false;
		}
		return true;
	default:
		return false;
	}
}

/* Reads into `value`. Returns false, with nothing to free, if that fails. */
static bool unserialize(bytes_t *from, zval *value)
{
	php_unserialize_data_t seen;
	const unsigned char *at = (const unsigned char *)from->at;
	ZVAL_NULL(value);
	PHP_VAR_UNSERIALIZE_INIT(seen);
	bool ok = php_var_unserialize(value, &at, (const unsigned char *)from->end, &seen);
	/* Runs __wakeup() and __unserialize(). */
	PHP_VAR_UNSERIALIZE_DESTROY(seen);
	if (!ok || EG(exception)) {
		zval_ptr_dtor(value);
		return false;
	}
	if (Z_ISREF_P(value)) {
		zend_unwrap_reference(value);
	}
	return true;
}

static bool decode(const char *bytes, size_t len, zval *value)
{
	bytes_t from = {bytes, bytes + len};
	if (len > 0 && *bytes == 'p') {
		from.at++;
		/* Constructors and __wakeup() may call these functions, which reuse the memory of `bytes`. */
		zend_string *own = zend_string_init(from.at, (size_t)(from.end - from.at), 0);
		from.at = ZSTR_VAL(own);
		from.end = from.at + ZSTR_LEN(own);
		bool ok = unserialize(&from, value);
		zend_string_release(own);
		return ok;
	}
	if (!get(&from, value, 0)) {
		return false;
	}
	if (from.at != from.end && Z_TYPE_P(value) != IS_STRING) {
		zval_ptr_dtor(value);
		return false;
	}
	return true;
}

/* ---- arguments ---- */

static bool is_key(const zend_string *key)
{
	if (ZSTR_LEN(key) > HOWDAH_SHARED_MAX_KEY) {
		zend_argument_value_error(1, "must have at most %u bytes, %zu given", HOWDAH_SHARED_MAX_KEY, ZSTR_LEN(key));
		return false;
	}
	return true;
}

static bool is_tag(zval *tag, uint32_t number)
{
	if (Z_TYPE_P(tag) != IS_STRING || Z_STRLEN_P(tag) == 0 || Z_STRLEN_P(tag) > HOWDAH_SHARED_MAX_TAG) {
		zend_argument_value_error(number, "must name tags: strings of 1 to %u bytes", HOWDAH_SHARED_MAX_TAG);
		return false;
	}
	return true;
}

static void keep(INTERNAL_FUNCTION_PARAMETERS, bool only_new)
{
	zend_string *key;
	zval *value;
	zend_long ttl = 0;
	HashTable *tags = NULL;
	ZEND_PARSE_PARAMETERS_START(2, 4)
		Z_PARAM_STR(key)
		Z_PARAM_ZVAL(value)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(ttl)
		Z_PARAM_ARRAY_HT(tags)
	ZEND_PARSE_PARAMETERS_END();
	if (!is_key(key)) {
		RETURN_THROWS();
	}
	if (ttl < 0) {
		zend_argument_value_error(3, "must be 0 or more seconds");
		RETURN_THROWS();
	}
	howdah_span names[HOWDAH_SHARED_MAX_TAGS];
	uint32_t count = 0;
	if (tags) {
		zval *tag;
		if (zend_hash_num_elements(tags) > HOWDAH_SHARED_MAX_TAGS) {
			zend_argument_value_error(4, "must have at most %u tags", HOWDAH_SHARED_MAX_TAGS);
			RETURN_THROWS();
		}
		ZEND_HASH_FOREACH_VAL(tags, tag) {
			ZVAL_DEREF(tag);
			if (!is_tag(tag, 4)) {
				RETURN_THROWS();
			}
			names[count].at = Z_STRVAL_P(tag);
			names[count++].len = Z_STRLEN_P(tag);
		} ZEND_HASH_FOREACH_END();
	}
	if (is_absent(true)) {
		RETURN_FALSE;
	}
	smart_str bytes = {0};
	if (!encode(&bytes, value)) {
		smart_str_free(&bytes);
		RETURN_THROWS();
	}
	bool kept = howdah_shared_cache_keep(ZSTR_VAL(key), ZSTR_LEN(key), ZSTR_VAL(bytes.s), ZSTR_LEN(bytes.s),
	                                     (uint64_t)ttl, names, count, only_new);
	smart_str_free(&bytes);
	RETURN_BOOL(kept);
}

/* howdah_cache_set(string $key, mixed $value, int $ttl = 0, array $tags = []): bool */
PHP_FUNCTION(howdah_cache_set)
{
	keep(INTERNAL_FUNCTION_PARAM_PASSTHRU, false);
}

/* howdah_cache_add(string $key, mixed $value, int $ttl = 0, array $tags = []): bool */
PHP_FUNCTION(howdah_cache_add)
{
	keep(INTERNAL_FUNCTION_PARAM_PASSTHRU, true);
}

/* howdah_cache_get(string $key, mixed $default = null): mixed */
PHP_FUNCTION(howdah_cache_get)
{
	zend_string *key;
	zval *fallback = NULL;
	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_STR(key)
		Z_PARAM_OPTIONAL
		Z_PARAM_ZVAL(fallback)
	ZEND_PARSE_PARAMETERS_END();
	if (!is_key(key)) {
		RETURN_THROWS();
	}
	const char *bytes;
	size_t len;
	if (!is_absent(false) && howdah_shared_cache_get(ZSTR_VAL(key), ZSTR_LEN(key), &bytes, &len)
	    && decode(bytes, len, return_value)) {
		return;
	}
	if (EG(exception)) {
		RETURN_THROWS();
	}
	if (fallback) {
		RETURN_COPY_DEREF(fallback);
	}
	RETURN_NULL();
}

/* howdah_cache_delete(string $key): bool */
PHP_FUNCTION(howdah_cache_delete)
{
	zend_string *key;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STR(key)
	ZEND_PARSE_PARAMETERS_END();
	if (!is_key(key)) {
		RETURN_THROWS();
	}
	RETURN_BOOL(!is_absent(true) && howdah_shared_cache_delete(ZSTR_VAL(key), ZSTR_LEN(key)));
}

/* howdah_cache_increment(string $key, int $step = 1): int|false */
PHP_FUNCTION(howdah_cache_increment)
{
	zend_string *key;
	zend_long step = 1;
	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_STR(key)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(step)
	ZEND_PARSE_PARAMETERS_END();
	if (!is_key(key)) {
		RETURN_THROWS();
	}
	int64_t sum;
	if (is_absent(true) || !howdah_shared_cache_increment(ZSTR_VAL(key), ZSTR_LEN(key), step, &sum)) {
		RETURN_FALSE;
	}
	RETURN_LONG((zend_long)sum);
}

/* howdah_cache_delete_tag(string ...$tags): bool */
PHP_FUNCTION(howdah_cache_delete_tag)
{
	zval *tags;
	uint32_t count;
	ZEND_PARSE_PARAMETERS_START(1, -1)
		Z_PARAM_VARIADIC('+', tags, count)
	ZEND_PARSE_PARAMETERS_END();
	for (uint32_t i = 0; i < count; i++) {
		if (!is_tag(&tags[i], i + 1)) {
			RETURN_THROWS();
		}
	}
	if (is_absent(true)) {
		RETURN_FALSE;
	}
	for (uint32_t i = 0; i < count; i++) {
		howdah_shared_cache_delete_tag(Z_STRVAL(tags[i]), Z_STRLEN(tags[i]));
	}
	RETURN_TRUE;
}

/* howdah_cache_info(): ?array */
PHP_FUNCTION(howdah_cache_info)
{
	ZEND_PARSE_PARAMETERS_NONE();
	static const char *const names[] = {"size", "used", "values", "hits", "misses", "evicted"};
	uint64_t figures[sizeof(names) / sizeof(*names)];
	if (howdah_is_copy || !howdah_shared_cache_info(figures)) {
		RETURN_NULL();
	}
	array_init(return_value);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		add_assoc_long(return_value, names[i], (zend_long)figures[i]);
	}
}
