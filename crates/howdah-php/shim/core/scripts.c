/* Compiling scripts in advance: the scripts in a pool's opcode cache are listed, and the pool that replaces it compiles
 * them before its first request. Each is done in a process of its own, which exits afterwards, and by opcache's own
 * functions within their rules (opcache.restrict_api, open_basedir). */
#include "core/internal.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

/* Begins a request without a script. The request never ends, because the process exits. */
static bool begin(void)
{
	if (howdah_request_startup() == FAILURE) {
		return false;
	}
	howdah_opcache_settle();
	EG(error_reporting) = 0;
	zend_set_memory_limit((size_t)ZEND_LONG_MAX);
	return true;
}

/* Calls a function of opcache. The result is null if there is no such function or it has thrown. */
static void call(const char *name, zval *argument, zval *result)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	ZVAL_NULL(result);
	if (function) {
		zend_call_known_function(function, NULL, NULL, result, 1, argument, NULL);
	}
}

static zval *element(zval *of, const char *name)
{
	return of && Z_TYPE_P(of) == IS_ARRAY ? zend_hash_str_find(Z_ARRVAL_P(of), name, strlen(name)) : NULL;
}

static void write_all(int to, const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t written = write(to, bytes, len);
		if (written < 0 && errno != EINTR) {
			return;
		}
		if (written > 0) {
			bytes += written;
			len -= (size_t)written;
		}
	}
}

static void list(int to)
{
	zval with_scripts, status, *script;
	ZVAL_TRUE(&with_scripts);
	call("opcache_get_status", &with_scripts, &status);
	zval *scripts = element(&status, "scripts");
	if (!scripts || Z_TYPE_P(scripts) != IS_ARRAY) {
		return;
	}
	smart_str paths = {0};
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(scripts), script) {
		zval *path = element(script, "full_path"), *hits = element(script, "hits");
		/* A script that has not been used since it was compiled in advance is not compiled again. */
		if (path && Z_TYPE_P(path) == IS_STRING && hits && Z_TYPE_P(hits) == IS_LONG && Z_LVAL_P(hits) > 0) {
			smart_str_appendl(&paths, Z_STRVAL_P(path), Z_STRLEN_P(path) + 1);
		}
	} ZEND_HASH_FOREACH_END();
	if (paths.s) {
		write_all(to, ZSTR_VAL(paths.s), ZSTR_LEN(paths.s));
	}
}

/* Writes the path of each script in the opcode cache that has been used, terminated by NUL. */
void howdah_scripts_list(int to)
{
	zend_first_try {
		if (begin()) {
			list(to);
		}
	} zend_end_try();
}

static void compile(const char *path, size_t len)
{
	uint32_t functions = CG(function_table)->nNumUsed, classes = CG(class_table)->nNumUsed;
	/* An uncaught parse error is a bailout. */
	zend_try {
		zval name, result;
		ZVAL_STRINGL(&name, path, len);
		call("opcache_compile_file", &name, &result);
		zval_ptr_dtor(&name);
	} zend_end_try();
	/* The file's declarations are removed, because another file may declare the same names. */
	zend_hash_discard(CG(function_table), functions);
	zend_hash_discard(CG(class_table), classes);
}

/* Compiles the scripts at these paths, each terminated by NUL, for at most `seconds` seconds. */
void howdah_scripts_compile(const char *paths, size_t len, uint32_t seconds)
{
	const char *end = paths + len;
	time_t until = time(NULL) + seconds;
	zend_first_try {
		const char *nul, *at = paths;
		if (begin()) {
			while (at < end && (nul = memchr(at, '\0', (size_t)(end - at))) && time(NULL) < until) {
				/* Only paths of the file system are compiled, since a stream could run code. */
				if (*at == '/') {
					compile(at, (size_t)(nul - at));
				}
				at = nul + 1;
			}
		}
	} zend_end_try();
}
