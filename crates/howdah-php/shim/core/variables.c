/* $_SERVER, $_ENV, getenv() and cookies from the request frame. Known names are interned once and inserted directly
 * into the hash table, since php_register_variable_safe() for each would double the cost of a small request. This
 * follows sapi_cgi_register_variables() and cgi_php_load_environment_variables() of php-fpm. */
#include "core/internal.h"

#include <unistd.h>

static zend_string *names[HOWDAH_VAR_COUNT];

#define AS_TEXT(name) name,
static const char *const name_texts[] = {HOWDAH_KNOWN_NAMES(AS_TEXT)};
#undef AS_TEXT

void howdah_intern_names(void)
{
	for (size_t i = 0; i < HOWDAH_VAR_COUNT; i++) {
		names[i] = zend_string_init_interned(name_texts[i], strlen(name_texts[i]), 1);
	}
}

const char *howdah_var_name(const howdah_var_ref *ref, size_t *len)
{
	if (ref->id == HOWDAH_VAR_ID_TEXT) {
		*len = ref->name_len;
		return howdah_text(ref->name_off);
	}
	*len = ZSTR_LEN(names[ref->id]);
	return ZSTR_VAL(names[ref->id]);
}

static const howdah_ini_ref *site_environment(const char *name, size_t len)
{
	for (uint32_t i = 0; i < howdah_current.ini_count; i++) {
		const howdah_ini_ref *ref = &howdah_current.inis[i];
		if (ref->kind == HOWDAH_INI_ENVIRONMENT && ref->name_len == len
		    && memcmp(howdah_text(ref->name_off), name, len) == 0) {
			return ref;
		}
	}
	return NULL;
}

/* getenv(): searches the request's variables as under php-fpm and mod_php, then the site's environment. PHP itself then
 * searches the process environment. */
char *howdah_getenv(const char *name, size_t len)
{
	if (!howdah_current.frame) {
		return NULL;
	}
	for (uint32_t i = 0; i < howdah_current.var_count; i++) {
		const howdah_var_ref *ref = &howdah_current.vars[i];
		size_t name_len;
		const char *have = howdah_var_name(ref, &name_len);
		if (name_len == len && memcmp(have, name, len) == 0) {
			return (char *)howdah_text(ref->value_off);
		}
	}
	const howdah_ini_ref *ref = site_environment(name, len);
	return ref ? (char *)howdah_text(ref->value_off) : NULL;
}

char *howdah_read_cookies(void)
{
	return (char *)howdah_known(HOWDAH_VAR_HTTP_COOKIE);
}

static void (*stock_import)(zval *array);
static void (*stock_load)(zval *array);

static void add_site_environment(zval *array)
{
	for (uint32_t i = 0; i < howdah_current.ini_count; i++) {
		const howdah_ini_ref *ref = &howdah_current.inis[i];
		if (ref->kind == HOWDAH_INI_ENVIRONMENT) {
			add_assoc_stringl_ex(array, howdah_text(ref->name_off), ref->name_len,
			                     howdah_text(ref->value_off), ref->value_len);
		}
	}
}

/* The process environment as import_environment_variable() of php-src would add it, kept in strings that are never
 * freed, because a server's environment may be larger than a request. */
static HashTable ready_environment;
static char **seen_entries;
static size_t seen_count;

/* Creates a string as permanent as those that PHP interns at its start, since PHP cannot intern any more by now. */
static zend_string *permanent_string(const char *text, size_t len)
{
	zend_string *string = zend_string_init(text, len, 1);
	zend_string_hash_val(string);
	GC_ADD_FLAGS(string, IS_STR_INTERNED | IS_STR_PERMANENT);
	return string;
}

/* Called once in the zygote, after PHP's start. */
static void remember_environment(void)
{
	zend_hash_init(&ready_environment, 16, NULL, NULL, 1);
	while (environ && environ[seen_count]) {
		seen_count++;
	}
	seen_entries = pemalloc(seen_count * sizeof(char *) + 1, 1);
	if (seen_count) {
		memcpy(seen_entries, environ, seen_count * sizeof(char *));
	}
	for (size_t i = 0; i < seen_count; i++) {
		const char *name = environ[i], *equals = strchr(name, '=');
		size_t len = equals ? (size_t)(equals - name) : 0;
		if (len == 0 || memchr(name, ' ', len) || memchr(name, '.', len) || memchr(name, '[', len)) {
			continue;
		}
		zval value;
		ZVAL_INTERNED_STR(&value, permanent_string(equals + 1, strlen(equals + 1)));
		zend_ulong number;
		if (ZEND_HANDLE_NUMERIC_STR(name, len, number)) {
			zend_hash_index_update(&ready_environment, number, &value);
		} else {
			zend_hash_update(&ready_environment, permanent_string(name, len), &value);
		}
	}
}

/* Returns whether the environment is unchanged since remember_environment(). putenv() of a script and setenv() of an
 * extension put another pointer into the list. */
static bool environment_is_as_seen(void)
{
	if (!environ) {
		return seen_count == 0;
	}
	for (size_t i = 0; i < seen_count; i++) {
		if (environ[i] != seen_entries[i]) {
			return false;
		}
	}
	return !environ[seen_count];
}

/* Fills $_ENV, and the environment's part of $_SERVER. Unlike under php-fpm, the request's own variables are not
 * repeated in $_ENV: a client's header is not part of the environment. */
static void import_environment(zval *array)
{
	if (environment_is_as_seen()) {
		zend_hash_copy(Z_ARRVAL_P(array), &ready_environment, NULL);
	} else {
		stock_import(array);
	}
	add_site_environment(array);
}

/* Fills the array that getenv() without arguments returns. */
static void load_environment(zval *array)
{
	stock_load(array);
	add_site_environment(array);
}

void howdah_hook_environment(void)
{
	remember_environment();
	stock_import = php_import_environment_variables;
	stock_load = php_load_environment_variables;
	php_import_environment_variables = import_environment;
	php_load_environment_variables = load_environment;
}

/* Sets the value with ZVAL_STRINGL_FAST, which needs no allocation for empty and one-byte strings. */
static void set_value(zval *to, const howdah_var_ref *ref)
{
	ZVAL_STRINGL_FAST(to, howdah_text(ref->value_off), ref->value_len);
}

static void register_filtered(const howdah_var_ref *ref, zval *array)
{
	size_t name_len, len = ref->value_len;
	const char *name = howdah_var_name(ref, &name_len);
	char *value = estrndup(howdah_text(ref->value_off), len);
	if (sapi_module.input_filter(PARSE_SERVER, name, &value, len, &len)) {
		php_register_variable_safe(name, value, len, array);
	}
	efree(value);
}

void howdah_register_server_variables(zval *array)
{
	HashTable *hash = Z_ARRVAL_P(array);
	zend_hash_extend(hash, howdah_current.var_count + 16, 0);
	import_environment(array);

	bool plain = howdah_filter_is_default();
	if (!plain) {
		howdah_current.filter_fed = true;
	}
	for (uint32_t i = 0; i < howdah_current.var_count; i++) {
		const howdah_var_ref *ref = &howdah_current.vars[i];
		if (!plain) {
			register_filtered(ref, array);
			continue;
		}
		zval value;
		set_value(&value, ref);
		if (ref->id != HOWDAH_VAR_ID_TEXT) {
			zend_hash_update(hash, names[ref->id], &value);
		} else {
			/* A header's name cannot be a number or contain brackets, but the name of a site's parameter might be a number,
			 * which PHP's arrays store as an integer key. */
			zend_symtable_str_update(hash, howdah_text(ref->name_off), ref->name_len, &value);
		}
	}
}
