/* Finds names of features that are not supported: coroutines, WebSocket, raw servers. The script's own code is searched
 * when it is compiled, before any of it runs, so a script that names one stops at its start and not in production.
 * Libraries that it loads are not searched, since many name coroutines on paths that are never taken; there PHP reports
 * an unknown class or function when such a path runs. */
#include "swoole/internal.h"

#include "zend_compile.h"
#include "zend_exceptions.h"

/* Lower-case, without a leading "open". A trailing backslash matches all names below. */
static const struct {
	const char *name, *why;
} missing[] = {
	{"swoole\\coroutine", "needs coroutines, which this server does not have"},
	{"swoole\\coroutine\\", "needs coroutines, which this server does not have"},
	{"co", "needs coroutines, which this server does not have"},
	{"co\\", "needs coroutines, which this server does not have"},
	{"chan", "needs coroutines, which this server does not have"},
	{"go", "needs coroutines, which this server does not have"},
	{"swoole\\runtime", "needs coroutines, which this server does not have"},
	{"swoole\\websocket\\", "this server speaks HTTP/1.1 but not WebSocket"},
	{"swoole_websocket_server", "this server speaks HTTP/1.1 but not WebSocket"},
	{"swoole\\http2\\", "this server speaks only HTTP/1.1"},
	{"swoole\\redis\\", "this server speaks only HTTP/1.1"},
	{"swoole\\process\\pool", "this server starts its own workers"},
	{"swoole\\event", "the server runs the event loop itself"},
	{"swoole\\client", "use PHP's streams or curl"},
	{"swoole\\async\\", "use PHP's own functions"},
	{"swoole\\thread", "workers are processes"},
	{"swoole\\thread\\", "workers are processes"},
	{"swoole\\lock", "use Swoole\\Atomic, Swoole\\Table or flock()"},
};

static const char *why_missing(const char *name, size_t len)
{
	char lower[160];
	if (len == 0 || len >= sizeof(lower)) {
		return NULL;
	}
	zend_str_tolower_copy(lower, name, len);
	const char *at = lower;
	if (*at == '\\') {
		at++;
	}
	if (strncmp(at, "openswoole", 10) == 0) {
		at += 4;
	}
	for (size_t i = 0; i < sizeof(missing) / sizeof(*missing); i++) {
		size_t known = strlen(missing[i].name);
		bool below = missing[i].name[known - 1] == '\\';
		if (below ? strncmp(at, missing[i].name, known) == 0 : strcmp(at, missing[i].name) == 0) {
			return missing[i].why;
		}
	}
	return NULL;
}

/* Refuses the constant operand if it names an unsupported feature that the script does not define itself. */
static bool check_literal(const zend_op_array *code, const zend_op *op, zval *literal, bool class)
{
	if (Z_TYPE_P(literal) != IS_STRING) {
		return true;
	}
	const char *why = why_missing(Z_STRVAL_P(literal), Z_STRLEN_P(literal));
	if (!why) {
		return true;
	}
	zend_string *lower = zend_string_tolower(Z_STR_P(literal));
	bool defined = zend_hash_exists(class ? EG(class_table) : EG(function_table), lower);
	zend_string_release(lower);
	if (defined) {
		return true;
	}
	zend_throw_exception_ex(howdah_swoole_exception_ce, 0, "NotSupported: %s in %s on line %u: %s",
	                        Z_STRVAL_P(literal), ZSTR_VAL(code->filename), op->lineno, why);
	return false;
}

static bool check_code(const zend_op_array *code)
{
	for (uint32_t i = 0; i < code->last; i++) {
		const zend_op *op = &code->opcodes[i];
		bool fine = true;
		switch (op->opcode) {
		case ZEND_NEW:
		case ZEND_FETCH_CLASS_CONSTANT:
		case ZEND_INIT_STATIC_METHOD_CALL:
			if (op->op1_type == IS_CONST) {
				fine = check_literal(code, op, RT_CONSTANT(op, op->op1), true);
			}
			break;
		case ZEND_INIT_FCALL:
		case ZEND_INIT_FCALL_BY_NAME:
		case ZEND_INIT_NS_FCALL_BY_NAME:
			if (op->op2_type == IS_CONST) {
				fine = check_literal(code, op, RT_CONSTANT(op, op->op2), false);
			}
			break;
		default:
			break;
		}
		if (!fine) {
			return false;
		}
	}
	for (uint32_t i = 0; i < code->num_dynamic_func_defs; i++) {
		if (!check_code(code->dynamic_func_defs[i])) {
			return false;
		}
	}
	return true;
}

static bool is_of(const zend_function *function, const zend_string *file)
{
	return function->type == ZEND_USER_FUNCTION && zend_string_equals(function->op_array.filename, file);
}

static bool check_all(const zend_op_array *script)
{
	zend_function *function;
	zend_class_entry *class;
	if (!check_code(script)) {
		return false;
	}
	ZEND_HASH_FOREACH_PTR(EG(function_table), function) {
		if (is_of(function, script->filename) && !check_code(&function->op_array)) {
			return false;
		}
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_PTR(EG(class_table), class) {
		if (class->type != ZEND_USER_CLASS) {
			continue;
		}
		ZEND_HASH_FOREACH_PTR(&class->function_table, function) {
			if (is_of(function, script->filename) && !check_code(&function->op_array)) {
				return false;
			}
		} ZEND_HASH_FOREACH_END();
	} ZEND_HASH_FOREACH_END();
	return true;
}

static zend_op_array *(*compile)(zend_file_handle *file, int type);
static const char *first_script;

static zend_op_array *compile_first(zend_file_handle *file, int type)
{
	zend_op_array *script = compile(file, type);
	/* The first file compiled may be auto_prepend_file. */
	if (script && file->filename && strcmp(ZSTR_VAL(file->filename), first_script) == 0) {
		zend_compile_file = compile;
		if (!check_all(script)) {
			destroy_op_array(script);
			efree_size(script, sizeof(zend_op_array));
			return NULL;
		}
	}
	return script;
}

void howdah_swoole_check_first_script(const char *script)
{
	first_script = script;
	compile = zend_compile_file;
	zend_compile_file = compile_first;
}
