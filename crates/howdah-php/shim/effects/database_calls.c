/* PDO (with any driver) and SQLite3: wraps each of PHP's own methods that execute a statement. For pgsql, see
 * pgsql_calls.c. */
#include "effects/database_calls.h"

#include "ext/pdo/php_pdo_driver.h"
#include "zend_exceptions.h"
#include "zend_interfaces.h"

zend_string *howdah_argument_text(zend_execute_data *execute_data, uint32_t number)
{
	if (ZEND_CALL_NUM_ARGS(execute_data) < number) {
		return NULL;
	}
	zval *argument = ZEND_CALL_ARG(execute_data, number);
	ZVAL_DEREF(argument);
	return Z_TYPE_P(argument) == IS_STRING ? Z_STR_P(argument) : NULL;
}

uint32_t howdah_database_text(uint32_t dialect, const zend_string *sql)
{
	return howdah_statement_begins(dialect, sql ? ZSTR_VAL(sql) : NULL, sql ? ZSTR_LEN(sql) : 0);
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

/* PDO_MySQL puts the values into a statement before it sends it, so mysqlnd.c sees the statement with its values. */
static bool pdo_mysql_is_watched;

static uint32_t pdo_text(const pdo_dbh_t *dbh, const zend_string *sql)
{
	uint32_t dialect = pdo_dialect(dbh);
	if (dialect == HOWDAH_DIALECT_MYSQL && pdo_mysql_is_watched) {
		return HOWDAH_READS;
	}
	return howdah_database_text(dialect, sql);
}

static uint32_t pdo_statement(zend_execute_data *execute_data)
{
	const pdo_stmt_t *stmt = Z_PDO_STMT_P(ZEND_THIS);
	if (!stmt->query_string) {
		/* The statement was never prepared, so the call fails. */
		return HOWDAH_READS;
	}
	return pdo_text(stmt->dbh, stmt->query_string);
}

#define PDO_TEXT pdo_text(Z_PDO_DBH_P(ZEND_THIS), howdah_argument_text(execute_data, 1))

WRAPPER(pdo_exec, PDO_TEXT)
WRAPPER(pdo_query, PDO_TEXT)
WRAPPER(pdo_execute, pdo_statement(execute_data))
WRAPPER(pdo_commit, HOWDAH_CONTROLS)

/* Each connection has its own copies of the methods that its driver adds (pdo_hash_methods()). PDO makes them when the
 * first of them is looked up. */
static void pdo_connected(zend_object *object)
{
	pdo_dbh_t *dbh = php_pdo_dbh_fetch_inner(object);
	if (pdo_dialect(dbh) != HOWDAH_DIALECT_POSTGRES) {
		return;
	}
	zend_string *any = zend_string_init("pgsqlcopyfromarray", sizeof("pgsqlcopyfromarray") - 1, 0);
	(void)object->handlers->get_method(&object, any, NULL);
	zend_string_release(any);
	HashTable *methods = dbh->cls_methods[PDO_DBH_DRIVER_METHOD_KIND_DBH];
	if (methods) {
		howdah_watch_pdo_pgsql(methods);
	}
}

static zif_handler stock_pdo_construct, stock_pdo_connect;

static void pdo_construct(INTERNAL_FUNCTION_PARAMETERS)
{
	stock_pdo_construct(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (!EG(exception)) {
		pdo_connected(Z_OBJ_P(ZEND_THIS));
	}
}

/* PDO::connect(), since PHP 8.4, constructs the object itself. */
static void pdo_connect(INTERNAL_FUNCTION_PARAMETERS)
{
	stock_pdo_connect(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (!EG(exception) && Z_TYPE_P(return_value) == IS_OBJECT) {
		pdo_connected(Z_OBJ_P(return_value));
	}
}

/* ---- SQLite3 ---- */

static zend_function *get_sql;

/* Reads the text of a prepared statement. The extension's structures are not in PHP's headers. */
static uint32_t sqlite_statement(zend_execute_data *execute_data)
{
	zval sql;
	ZVAL_UNDEF(&sql);
	if (get_sql) {
		zend_call_known_instance_method_with_0_params(get_sql, Z_OBJ_P(ZEND_THIS), &sql);
	}
	if (EG(exception)) {
		/* The call itself will throw the same exception. */
		zend_clear_exception();
	}
	uint32_t kind = howdah_database_text(HOWDAH_DIALECT_SQLITE, Z_TYPE(sql) == IS_STRING ? Z_STR(sql) : NULL);
	zval_ptr_dtor(&sql);
	return kind;
}

/* A blob is opened read-only unless the fifth argument says otherwise. */
static uint32_t blob(zend_execute_data *execute_data)
{
	return ZEND_CALL_NUM_ARGS(execute_data) < 5 ? HOWDAH_READS : howdah_database_text(HOWDAH_DIALECT_SQLITE, NULL);
}

#define SQLITE_TEXT howdah_database_text(HOWDAH_DIALECT_SQLITE, howdah_argument_text(execute_data, 1))

WRAPPER(sqlite_exec, SQLITE_TEXT)
WRAPPER(sqlite_query, SQLITE_TEXT)
WRAPPER(sqlite_query_single, SQLITE_TEXT)
WRAPPER(sqlite_execute, sqlite_statement(execute_data))
WRAPPER(sqlite_open_blob, blob(execute_data))
WRAPPER(sqlite_backup, howdah_database_text(HOWDAH_DIALECT_SQLITE, NULL))

/* ---- wrapping ---- */

void howdah_watch_database_calls(void)
{
	pdo_mysql_is_watched = howdah_is_watched_below("pdo_mysql");
	METHOD(pdo_construct, "pdo", "__construct");
	METHOD(pdo_connect, "pdo", "connect");
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

	howdah_watch_pgsql_calls();
}
