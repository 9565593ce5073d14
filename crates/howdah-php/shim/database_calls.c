/* PDO (whatever its driver), SQLite3 and pgsql: PHP's own functions and methods that execute a
 * statement, each wrapped. Stock handlers do the work; what is done here is to look at the text before
 * and to say that it is through behind. */
#include "howdah.h"

#include "ext/pdo/php_pdo_driver.h"
#include "zend_exceptions.h"
#include "zend_interfaces.h"

/* An argument's text; NULL when it is none (an object that becomes one). */
static zend_string *text_of(zend_execute_data *execute_data, uint32_t number)
{
	if (ZEND_CALL_NUM_ARGS(execute_data) < number) {
		return NULL;
	}
	zval *argument = ZEND_CALL_ARG(execute_data, number);
	ZVAL_DEREF(argument);
	return Z_TYPE_P(argument) == IS_STRING ? Z_STR_P(argument) : NULL;
}

static uint32_t begins(uint32_t dialect, const zend_string *sql)
{
	return howdah_statement_begins(dialect, sql ? ZSTR_VAL(sql) : NULL, sql ? ZSTR_LEN(sql) : 0);
}

/* A wrapper `name` around the handler `stock_name`; `kind` says what the call does. */
#define WRAPPER(name, what)                                              \
	static zif_handler stock_##name;                                     \
	static void name(INTERNAL_FUNCTION_PARAMETERS)                       \
	{                                                                    \
		if (!howdah_statements_watched()) {                              \
			stock_##name(INTERNAL_FUNCTION_PARAM_PASSTHRU);              \
			return;                                                      \
		}                                                                \
		uint32_t kind = (what);                                          \
		stock_##name(INTERNAL_FUNCTION_PARAM_PASSTHRU);                  \
		howdah_statement_ended(kind);                                    \
	}

/* ---- PDO ---- */

static uint32_t pdo_dialect(const pdo_dbh_t *dbh)
{
	static const struct {
		const char *driver;
		uint32_t dialect;
	} drivers[] = {
		{"mysql", HOWDAH_DIALECT_MYSQL},
		{"sqlite", HOWDAH_DIALECT_SQLITE},
		{"pgsql", HOWDAH_DIALECT_POSTGRES},
	};
	for (size_t i = 0; dbh && dbh->driver && i < sizeof(drivers) / sizeof(*drivers); i++) {
		if (strcmp(dbh->driver->driver_name, drivers[i].driver) == 0) {
			return drivers[i].dialect;
		}
	}
	return HOWDAH_DIALECT_OTHER;
}

/* PDO_MySQL puts the values into a statement before it sends it, and mysqlnd.c sees it with them. */
static bool pdo_mysql_is_watched;

static uint32_t pdo_text(const pdo_dbh_t *dbh, const zend_string *sql)
{
	uint32_t dialect = pdo_dialect(dbh);
	if (dialect == HOWDAH_DIALECT_MYSQL && pdo_mysql_is_watched) {
		return HOWDAH_READS;
	}
	return begins(dialect, sql);
}

static uint32_t pdo_statement(zend_execute_data *execute_data)
{
	const pdo_stmt_t *stmt = Z_PDO_STMT_P(ZEND_THIS);
	if (!stmt->query_string) {
		/* Never prepared: the call fails. */
		return HOWDAH_READS;
	}
	return pdo_text(stmt->dbh, stmt->query_string);
}

#define PDO_TEXT pdo_text(Z_PDO_DBH_P(ZEND_THIS), text_of(execute_data, 1))

WRAPPER(pdo_exec, PDO_TEXT)
WRAPPER(pdo_query, PDO_TEXT)
WRAPPER(pdo_execute, pdo_statement(execute_data))
WRAPPER(pdo_commit, HOWDAH_CONTROLS)

/* ---- SQLite3 ---- */

static zend_function *get_sql;

/* A prepared statement's text; the extension's structures are not in PHP's headers. */
static uint32_t sqlite_statement(zend_execute_data *execute_data)
{
	zval sql;
	ZVAL_UNDEF(&sql);
	if (get_sql) {
		zend_call_known_instance_method_with_0_params(get_sql, Z_OBJ_P(ZEND_THIS), &sql);
	}
	if (EG(exception)) {
		/* The call itself will throw the same. */
		zend_clear_exception();
	}
	uint32_t kind = begins(HOWDAH_DIALECT_SQLITE, Z_TYPE(sql) == IS_STRING ? Z_STR(sql) : NULL);
	zval_ptr_dtor(&sql);
	return kind;
}

/* A blob is opened for reading unless the fourth argument says otherwise. */
static uint32_t blob(zend_execute_data *execute_data)
{
	return ZEND_CALL_NUM_ARGS(execute_data) < 5 ? HOWDAH_READS : begins(HOWDAH_DIALECT_SQLITE, NULL);
}

#define SQLITE_TEXT begins(HOWDAH_DIALECT_SQLITE, text_of(execute_data, 1))

WRAPPER(sqlite_exec, SQLITE_TEXT)
WRAPPER(sqlite_query, SQLITE_TEXT)
WRAPPER(sqlite_query_single, SQLITE_TEXT)
WRAPPER(sqlite_execute, sqlite_statement(execute_data))
WRAPPER(sqlite_open_blob, blob(execute_data))
WRAPPER(sqlite_backup, begins(HOWDAH_DIALECT_SQLITE, NULL))

/* ---- pgsql ---- */

/* Texts of prepared statements by name; whatever connection they belong to, a write wins. */
static HashTable *prepared;
#define PREPARED_MAX 1024

static uint32_t pg_text(zend_execute_data *execute_data, uint32_t with_connection, uint32_t position)
{
	/* The connection may be left out. */
	bool named = ZEND_CALL_NUM_ARGS(execute_data) >= with_connection;
	return begins(HOWDAH_DIALECT_POSTGRES, text_of(execute_data, named ? position : position - 1));
}

static uint32_t pg_remember(zend_execute_data *execute_data)
{
	bool named = ZEND_CALL_NUM_ARGS(execute_data) >= 3;
	zend_string *name = text_of(execute_data, named ? 2 : 1);
	zend_string *sql = text_of(execute_data, named ? 3 : 2);
	howdah_statement statement;
	howdah_statement_read(&statement, HOWDAH_DIALECT_POSTGRES, sql ? ZSTR_VAL(sql) : NULL,
	                      sql ? ZSTR_LEN(sql) : 0);
	if (!name) {
		return HOWDAH_READS;
	}
	if (zend_hash_num_elements(prepared) >= PREPARED_MAX) {
		zend_hash_clean(prepared);
	}
	/* The most that anything of this name does, as a number: its table may be another's. */
	zval *known = zend_hash_find(prepared, name), kind;
	ZVAL_LONG(&kind, known ? MAX(Z_LVAL_P(known), (zend_long)statement.kind) : (zend_long)statement.kind);
	/* The table outlives the request, and so must its keys. */
	zend_hash_str_update(prepared, ZSTR_VAL(name), ZSTR_LEN(name), &kind);
	return HOWDAH_READS;
}

static uint32_t pg_known(zend_execute_data *execute_data, uint32_t with_connection)
{
	bool named = ZEND_CALL_NUM_ARGS(execute_data) >= with_connection;
	zend_string *name = text_of(execute_data, named ? 2 : 1);
	zval *kind = name ? zend_hash_find(prepared, name) : NULL;
	if (kind && Z_LVAL_P(kind) != HOWDAH_WRITES) {
		return (uint32_t)Z_LVAL_P(kind);
	}
	return begins(HOWDAH_DIALECT_POSTGRES, NULL);
}

#define PG_ANY begins(HOWDAH_DIALECT_POSTGRES, NULL)

WRAPPER(pg_query, pg_text(execute_data, 2, 2))
WRAPPER(pg_query_params, pg_text(execute_data, 3, 2))
WRAPPER(pg_send_query, pg_text(execute_data, 2, 2))
WRAPPER(pg_send_query_params, pg_text(execute_data, 2, 2))
WRAPPER(pg_prepare, pg_remember(execute_data))
WRAPPER(pg_send_prepare, pg_remember(execute_data))
WRAPPER(pg_execute, pg_known(execute_data, 3))
WRAPPER(pg_send_execute, pg_known(execute_data, 3))
/* The result of what was sent before. */
WRAPPER(pg_get_result, HOWDAH_CONTROLS)
WRAPPER(pg_insert, PG_ANY)
WRAPPER(pg_update, PG_ANY)
WRAPPER(pg_delete, PG_ANY)
WRAPPER(pg_copy_from, PG_ANY)
WRAPPER(pg_put_line, PG_ANY)
WRAPPER(pg_lo_create, PG_ANY)
WRAPPER(pg_lo_import, PG_ANY)
WRAPPER(pg_lo_write, PG_ANY)
WRAPPER(pg_lo_truncate, PG_ANY)
WRAPPER(pg_lo_unlink, PG_ANY)

/* ---- wrapping ---- */

#define METHOD(wrapper, class_name, name) \
	(stock_##wrapper = howdah_wrap_method(class_name, name, wrapper))
#define FUNCTION(wrapper) (stock_##wrapper = howdah_wrap_function(#wrapper, wrapper))

void howdah_watch_database_calls(void)
{
	pdo_mysql_is_watched = howdah_is_watched_below("pdo_mysql");
	METHOD(pdo_exec, "pdo", "exec");
	METHOD(pdo_query, "pdo", "query");
	METHOD(pdo_commit, "pdo", "commit");
	METHOD(pdo_execute, "pdostatement", "execute");

	METHOD(sqlite_exec, "sqlite3", "exec");
	METHOD(sqlite_query, "sqlite3", "query");
	METHOD(sqlite_query_single, "sqlite3", "querysingle");
	METHOD(sqlite_open_blob, "sqlite3", "openblob");
	METHOD(sqlite_backup, "sqlite3", "backup");
	METHOD(sqlite_execute, "sqlite3stmt", "execute");
	zend_class_entry *class =
	    zend_hash_str_find_ptr(CG(class_table), "sqlite3stmt", sizeof("sqlite3stmt") - 1);
	get_sql = class ? zend_hash_str_find_ptr(&class->function_table, "getsql", sizeof("getsql") - 1) : NULL;

	prepared = pemalloc(sizeof(*prepared), 1);
	zend_hash_init(prepared, 8, NULL, NULL, 1);
	FUNCTION(pg_query);
	FUNCTION(pg_query_params);
	FUNCTION(pg_send_query);
	FUNCTION(pg_send_query_params);
	FUNCTION(pg_prepare);
	FUNCTION(pg_send_prepare);
	FUNCTION(pg_execute);
	FUNCTION(pg_send_execute);
	FUNCTION(pg_get_result);
	FUNCTION(pg_insert);
	FUNCTION(pg_update);
	FUNCTION(pg_delete);
	FUNCTION(pg_copy_from);
	FUNCTION(pg_put_line);
	FUNCTION(pg_lo_create);
	FUNCTION(pg_lo_import);
	FUNCTION(pg_lo_write);
	FUNCTION(pg_lo_truncate);
	FUNCTION(pg_lo_unlink);
}
