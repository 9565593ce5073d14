/* mysqli and PDO_MySQL: both talk to the server through mysqlnd, whose method tables an extension may change
 * (mysqlnd_plugin.h; the PECL extensions mysqlnd_qc and mysqlnd_ms did). mysqlnd is a shared extension on Debian, so
 * its symbols are looked up in the module that PHP has loaded. Without mysqlnd, this file does nothing. An extension
 * built with libmysqlclient instead is not seen here; PDO_MySQL is then still seen by database_calls.c. */
#include "effects/internal.h"

#include <dlfcn.h>

static bool is_watched;

bool howdah_is_watched_below(const char *name)
{
	const zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, name, strlen(name));
	if (!is_watched || !module) {
		return false;
	}
	for (const zend_module_dep *dep = module->deps; dep && dep->name; dep++) {
		if (strcasecmp(dep->name, "mysqlnd") == 0) {
			return true;
		}
	}
	return false;
}

#if __has_include("ext/mysqlnd/mysqlnd.h")

#include "ext/mysqlnd/mysqlnd.h"
#include "ext/mysqlnd/mysqlnd_debug.h"
#include "ext/mysqlnd/mysqlnd_ext_plugin.h"
#include "ext/mysqlnd/mysqlnd_structs.h"

static func_mysqlnd_conn_data__send_query stock_send_query;
static func_mysqlnd_conn_data__reap_query stock_reap_query;
static func_mysqlnd_conn_data__next_result stock_next_result;
static func_mysqlnd_stmt__prepare stock_prepare;
static func_mysqlnd_stmt__execute stock_execute;
static func_mysqlnd_stmt__send_execute stock_send_execute;
static func_mysqlnd_stmt__dtor stock_stmt_dtor;

static unsigned int plugin;
static struct st_mysqlnd_plugin__plugin_area_getters *areas;

/* The kind of the last statement that was sent, until its result has been read. With several connections in use, the
 * highest kind of any of them. */
static uint32_t under_way;

/* Every query passes through here, including those of query() and of transactions. */
static enum_func_status send_query(MYSQLND_CONN_DATA *conn, const char *const query,
                                   const size_t query_len, zval *read_cb, zval *err_cb)
{
	if (howdah_statements_watched()) {
		uint32_t kind = howdah_statement_begins(HOWDAH_DIALECT_MYSQL, query, query_len);
		under_way = MAX(under_way, kind);
	}
	return stock_send_query(conn, query, query_len, read_cb, err_cb);
}

static enum_func_status reap_query(MYSQLND_CONN_DATA *conn)
{
	enum_func_status status = stock_reap_query(conn);
	howdah_statement_ended(under_way);
	under_way = HOWDAH_READS;
	return status;
}

/* If a text contains several statements, the server may have executed another one by now. */
static enum_func_status next_result(MYSQLND_CONN_DATA *conn)
{
	enum_func_status status = stock_next_result(conn);
	howdah_statement_ended(HOWDAH_WRITES);
	return status;
}

/* The description of a prepared statement is kept with the statement; NULL means that it reads. */
static howdah_statement **kept_of(MYSQLND_STMT *stmt)
{
	return (howdah_statement **)areas->get_stmt_area(stmt, plugin);
}

static enum_func_status prepare(MYSQLND_STMT *const stmt, const char *const query,
                                const size_t query_len)
{
	howdah_statement **kept = kept_of(stmt), statement;
	free(*kept);
	*kept = NULL;
	/* The text is read even outside of requests, since a worker may execute in a request a statement that it prepared
	 * before. */
	howdah_statement_read(&statement, HOWDAH_DIALECT_MYSQL, query, query_len);
	if (statement.kind != HOWDAH_READS) {
		*kept = pemalloc(sizeof(statement), 1);
		**kept = statement;
	}
	return stock_prepare(stmt, query, query_len);
}

static enum_func_status send_execute(MYSQLND_STMT *const stmt, const enum_mysqlnd_send_execute_type type,
                                     zval *read_cb, zval *err_cb)
{
	howdah_statement *kept = *kept_of(stmt);
	if (kept && howdah_statements_watched()) {
		howdah_statement_starts(kept);
	}
	return stock_send_execute(stmt, type, read_cb, err_cb);
}

static enum_func_status execute(MYSQLND_STMT *const stmt)
{
	howdah_statement *kept = *kept_of(stmt);
	if (kept && howdah_statements_watched()) {
		howdah_statement_starts(kept);
	}
	enum_func_status status = stock_execute(stmt);
	if (kept) {
		howdah_statement_ended(kept->kind);
	}
	return status;
}

static enum_func_status stmt_dtor(MYSQLND_STMT *const stmt, bool implicit)
{
	howdah_statement **kept = kept_of(stmt);
	free(*kept);
	*kept = NULL;
	return stock_stmt_dtor(stmt, implicit);
}

void howdah_watch_mysqlnd(void)
{
	zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, "mysqlnd", sizeof("mysqlnd") - 1);
	if (!module) {
		return;
	}
	/* A module without a handle is compiled into PHP. */
	void *where = module->handle ? module->handle : RTLD_DEFAULT;
	struct st_mysqlnd_plugin_methods_xetters *methods = dlsym(where, "mysqlnd_plugin_methods_xetters");
	unsigned int (*take_number)(void);
	*(void **)&take_number = dlsym(where, "mysqlnd_plugin_register");
	areas = dlsym(where, "mysqlnd_plugin_area_getters");
	if (!methods || !areas || !take_number) {
		fprintf(stderr,
		        "MysqlndUnwatched: the extension mysqlnd cannot be watched (%s); the page cache does not see writes by mysqli\n",
		        dlerror());
		return;
	}
	plugin = take_number();
	MYSQLND_CLASS_METHODS_TYPE(mysqlnd_conn_data) *connection = methods->connection_data.get();
	stock_send_query = connection->send_query;
	connection->send_query = send_query;
	stock_reap_query = connection->reap_query;
	connection->reap_query = reap_query;
	stock_next_result = connection->next_result;
	connection->next_result = next_result;
	MYSQLND_CLASS_METHODS_TYPE(mysqlnd_stmt) *statement = methods->statement.get();
	stock_prepare = statement->prepare;
	statement->prepare = prepare;
	stock_execute = statement->execute;
	statement->execute = execute;
	stock_send_execute = statement->send_execute;
	statement->send_execute = send_execute;
	stock_stmt_dtor = statement->dtor;
	statement->dtor = stmt_dtor;
	is_watched = true;
}

#else

void howdah_watch_mysqlnd(void)
{
	/* Built without mysqlnd's headers, so PHP has no mysqlnd. */
}

#endif
