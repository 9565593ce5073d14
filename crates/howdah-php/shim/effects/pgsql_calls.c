/* pgsql, and what PDO_PGSQL adds to PDO: wraps PHP's functions that send something to PostgreSQL.
 *
 * A statement prepared by pg_prepare() is known by connection and name, from its success until another statement takes
 * the name. Executing any other name counts as a write to any table: a name from pg_send_prepare() or SQL's PREPARE,
 * a name on an omitted connection, and a name on a connection kept from an earlier request. */
#include "effects/database_calls.h"

/* Texts of prepared statements, by `handle NUL name`. They outlive the request. */
static HashTable *prepared;
#define PREPARED_MAX 1024
#define PREPARED_TEXT_MAX (64 << 10)

#define PG_ANY howdah_database_text(HOWDAH_DIALECT_POSTGRES, NULL)

/* ---- statements by their text ---- */

/* Returns whether the first argument is a connection rather than the text. */
static bool names_connection(zend_execute_data *execute_data)
{
	return ZEND_CALL_NUM_ARGS(execute_data) >= 1
	       && Z_TYPE_P(ZEND_CALL_ARG(execute_data, 1)) == IS_OBJECT;
}

static bool has_word(const zend_string *sql, const char *word)
{
	const char *end = ZSTR_VAL(sql) + ZSTR_LEN(sql);
	size_t len = strlen(word);
	for (const char *at = ZSTR_VAL(sql); (size_t)(end - at) >= len; at++) {
		if (zend_binary_strncasecmp(at, (size_t)(end - at), word, len, len) == 0) {
			return true;
		}
	}
	return false;
}

static uint32_t pg_text(zend_execute_data *execute_data)
{
	zend_string *sql = howdah_argument_text(execute_data, names_connection(execute_data) ? 2 : 1);
	uint32_t kind = howdah_database_text(HOWDAH_DIALECT_POSTGRES, sql);
	/* Other statements may take the names afterwards. */
	if (kind != HOWDAH_READS && (!sql || has_word(sql, "deallocate") || has_word(sql, "discard"))) {
		zend_hash_clean(prepared);
	}
	return kind;
}

/* ---- prepared statements ---- */

/* Builds the key of a prepared statement. Returns false if the connection or the name is not known. */
static bool key_of(zend_execute_data *execute_data, const zend_string *name, smart_str *key)
{
	zval *connection = ZEND_CALL_NUM_ARGS(execute_data) >= 1 ? ZEND_CALL_ARG(execute_data, 1) : NULL;
	if (!connection || !name || Z_TYPE_P(connection) != IS_OBJECT) {
		return false;
	}
	smart_str_append_unsigned(key, Z_OBJ_HANDLE_P(connection));
	smart_str_appendc(key, '\0');
	smart_str_append(key, name);
	smart_str_0(key);
	return true;
}

/* Notes that the statement `name` of this connection is `sql`; NULL means that its text is not known. */
static void remember(zend_execute_data *execute_data, const zend_string *name, const zend_string *sql)
{
	smart_str key = {0};
	if (!key_of(execute_data, name, &key)) {
		return;
	}
	if (sql && ZSTR_LEN(sql) <= PREPARED_TEXT_MAX) {
		if (zend_hash_num_elements(prepared) >= PREPARED_MAX) {
			zend_hash_clean(prepared);
		}
		zval text;
		ZVAL_STR(&text, zend_string_init(ZSTR_VAL(sql), ZSTR_LEN(sql), 1));
		zend_hash_str_update(prepared, ZSTR_VAL(key.s), ZSTR_LEN(key.s), &text);
	} else {
		zend_hash_del(prepared, key.s);
	}
	smart_str_free(&key);
}

static zif_handler stock_pg_prepare;

static void pg_prepare(INTERNAL_FUNCTION_PARAMETERS)
{
	stock_pg_prepare(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	/* A failed call has left an existing statement of that name unchanged. */
	if (Z_TYPE_P(return_value) == IS_OBJECT) {
		remember(execute_data, howdah_argument_text(execute_data, 2),
		         howdah_argument_text(execute_data, 3));
	}
}

static uint32_t pg_known(zend_execute_data *execute_data)
{
	smart_str key = {0};
	zval *text = NULL;
	if (key_of(execute_data, howdah_argument_text(execute_data, 2), &key)) {
		text = zend_hash_find(prepared, key.s);
		smart_str_free(&key);
	}
	return howdah_database_text(HOWDAH_DIALECT_POSTGRES, text ? Z_STR_P(text) : NULL);
}

/* A text with parameters becomes the connection's unnamed statement. */
static uint32_t pg_unnamed(zend_execute_data *execute_data)
{
	remember(execute_data, ZSTR_EMPTY_ALLOC(), NULL);
	return pg_text(execute_data);
}

static uint32_t pg_prepares(zend_execute_data *execute_data)
{
	remember(execute_data, howdah_argument_text(execute_data, 2), NULL);
	return HOWDAH_READS;
}

/* Another connection to the server may reuse the number of an earlier one. */
static uint32_t pg_forget(void)
{
	zend_hash_clean(prepared);
	return HOWDAH_READS;
}

/* ---- statements that PHP builds from a table's name ---- */

/* Returns whether the argument is just a name, possibly with its schema. */
static bool is_plain(const zend_string *table)
{
	size_t len = table ? ZSTR_LEN(table) : 0;
	return len > 0
	       && strspn(ZSTR_VAL(table),
	                 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")
	              == len;
}

static uint32_t pg_table(const char *verb, zend_string *table, const char *rest)
{
	if (!is_plain(table)) {
		return PG_ANY;
	}
	zend_string *sql = zend_string_concat3(verb, strlen(verb), ZSTR_VAL(table), ZSTR_LEN(table), rest,
	                                       strlen(rest));
	uint32_t kind = howdah_database_text(HOWDAH_DIALECT_POSTGRES, sql);
	zend_string_release(sql);
	return kind;
}

#define PG_TABLE(verb, at, rest) pg_table(verb " ", howdah_argument_text(execute_data, at), rest)
/* COPY also accepts a statement in place of a table. */
#define PG_READS(at) (is_plain(howdah_argument_text(execute_data, at)) ? HOWDAH_READS : PG_ANY)

/* ---- wrapping ---- */

WRAPPER(pg_query, pg_text(execute_data))
WRAPPER(pg_exec, pg_text(execute_data))
WRAPPER(pg_query_params, pg_unnamed(execute_data))
WRAPPER(pg_send_query, pg_text(execute_data))
WRAPPER(pg_send_query_params, pg_unnamed(execute_data))
WRAPPER(pg_send_prepare, pg_prepares(execute_data))
WRAPPER(pg_execute, pg_known(execute_data))
WRAPPER(pg_send_execute, pg_known(execute_data))
WRAPPER(pg_pconnect, pg_forget())
/* Fetches the result of a statement that was sent before. */
WRAPPER(pg_get_result, HOWDAH_CONTROLS)
WRAPPER(pg_end_copy, HOWDAH_CONTROLS)
WRAPPER(pg_insert, PG_TABLE("INSERT INTO", 2, ""))
WRAPPER(pg_update, PG_TABLE("UPDATE", 2, " SET any = 1"))
WRAPPER(pg_delete, PG_TABLE("DELETE FROM", 2, ""))
WRAPPER(pg_copy_from, PG_TABLE("INSERT INTO", 2, ""))
WRAPPER(pg_copy_to, PG_READS(2))
WRAPPER(pg_put_line, PG_ANY)
WRAPPER(pg_lo_create, PG_ANY)
WRAPPER(pg_locreate, PG_ANY)
WRAPPER(pg_lo_import, PG_ANY)
WRAPPER(pg_loimport, PG_ANY)
WRAPPER(pg_lo_write, PG_ANY)
WRAPPER(pg_lowrite, PG_ANY)
WRAPPER(pg_lo_truncate, PG_ANY)
WRAPPER(pg_lo_unlink, PG_ANY)
WRAPPER(pg_lounlink, PG_ANY)

WRAPPER(pdo_copy_from_array, PG_TABLE("INSERT INTO", 1, ""))
WRAPPER(pdo_copy_from_file, PG_TABLE("INSERT INTO", 1, ""))
WRAPPER(pdo_copy_to_array, PG_READS(1))
WRAPPER(pdo_copy_to_file, PG_READS(1))
WRAPPER(pdo_lob_create, PG_ANY)
WRAPPER(pdo_lob_unlink, PG_ANY)

/* A large object is opened read-only unless the second argument says otherwise. Writes to the stream are not seen; they
 * belong to the transaction that the connection must have open. */
static uint32_t pdo_lob_mode(zend_execute_data *execute_data)
{
	if (ZEND_CALL_NUM_ARGS(execute_data) < 2) {
		return HOWDAH_READS;
	}
	zend_string *mode = howdah_argument_text(execute_data, 2);
	return mode && !strpbrk(ZSTR_VAL(mode), "+w") ? HOWDAH_READS : PG_ANY;
}

WRAPPER(pdo_lob_open, pdo_lob_mode(execute_data))

/* The same methods in the class Pdo\Pgsql (since PHP 8.4), where they are ordinary methods. */
WRAPPER(class_copy_from_array, PG_TABLE("INSERT INTO", 1, ""))
WRAPPER(class_copy_from_file, PG_TABLE("INSERT INTO", 1, ""))
WRAPPER(class_copy_to_array, PG_READS(1))
WRAPPER(class_copy_to_file, PG_READS(1))
WRAPPER(class_lob_create, PG_ANY)
WRAPPER(class_lob_open, pdo_lob_mode(execute_data))
WRAPPER(class_lob_unlink, PG_ANY)

void howdah_watch_pdo_pgsql(HashTable *methods)
{
	static const struct {
		const char *name;
		zif_handler ours, *stock;
	} all[] = {
		{"pgsqlcopyfromarray", pdo_copy_from_array, &stock_pdo_copy_from_array},
		{"pgsqlcopyfromfile", pdo_copy_from_file, &stock_pdo_copy_from_file},
		{"pgsqlcopytoarray", pdo_copy_to_array, &stock_pdo_copy_to_array},
		{"pgsqlcopytofile", pdo_copy_to_file, &stock_pdo_copy_to_file},
		{"pgsqllobcreate", pdo_lob_create, &stock_pdo_lob_create},
		{"pgsqllobopen", pdo_lob_open, &stock_pdo_lob_open},
		{"pgsqllobunlink", pdo_lob_unlink, &stock_pdo_lob_unlink},
	};
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		zend_internal_function *method =
		    zend_hash_str_find_ptr(methods, all[i].name, strlen(all[i].name));
		/* The methods of a persistent connection have been wrapped before. */
		if (method && method->handler != all[i].ours) {
			*all[i].stock = method->handler;
			method->handler = all[i].ours;
		}
	}
}

static void release_text(zval *text)
{
	zend_string_release_ex(Z_STR_P(text), true);
}

void howdah_watch_pgsql_calls(void)
{
	prepared = pemalloc(sizeof(*prepared), 1);
	zend_hash_init(prepared, 8, NULL, release_text, 1);
	METHOD(class_copy_from_array, "pdo\\pgsql", "copyfromarray");
	METHOD(class_copy_from_file, "pdo\\pgsql", "copyfromfile");
	METHOD(class_copy_to_array, "pdo\\pgsql", "copytoarray");
	METHOD(class_copy_to_file, "pdo\\pgsql", "copytofile");
	METHOD(class_lob_create, "pdo\\pgsql", "lobcreate");
	METHOD(class_lob_open, "pdo\\pgsql", "lobopen");
	METHOD(class_lob_unlink, "pdo\\pgsql", "lobunlink");
	FUNCTION(pg_query);
	FUNCTION(pg_exec);
	FUNCTION(pg_query_params);
	FUNCTION(pg_send_query);
	FUNCTION(pg_send_query_params);
	FUNCTION(pg_prepare);
	FUNCTION(pg_send_prepare);
	FUNCTION(pg_execute);
	FUNCTION(pg_send_execute);
	FUNCTION(pg_pconnect);
	FUNCTION(pg_get_result);
	FUNCTION(pg_end_copy);
	FUNCTION(pg_insert);
	FUNCTION(pg_update);
	FUNCTION(pg_delete);
	FUNCTION(pg_copy_from);
	FUNCTION(pg_copy_to);
	FUNCTION(pg_put_line);
	FUNCTION(pg_lo_create);
	FUNCTION(pg_locreate);
	FUNCTION(pg_lo_import);
	FUNCTION(pg_loimport);
	FUNCTION(pg_lo_write);
	FUNCTION(pg_lowrite);
	FUNCTION(pg_lo_truncate);
	FUNCTION(pg_lo_unlink);
	FUNCTION(pg_lounlink);
}
