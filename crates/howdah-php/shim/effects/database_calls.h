/* Shared by the wrappers around PHP's database functions. PHP's own handlers do the work; a wrapper inspects the
 * statement before the call and reports its end after the call. */
#ifndef HOWDAH_DATABASE_CALLS_H
#define HOWDAH_DATABASE_CALLS_H

#include "effects/internal.h"

/* Returns an argument's text, or NULL if the argument is not a string (for example an object that converts to one). */
zend_string *howdah_argument_text(zend_execute_data *execute_data, uint32_t number);
/* Calls howdah_statement_begins(). NULL means that the text is not known, which counts as a write to any table. */
uint32_t howdah_database_text(uint32_t dialect, const zend_string *sql);

/* pgsql_calls.c */
void howdah_watch_pgsql_calls(void);
/* Wraps the methods that PDO_PGSQL adds to a connection. */
void howdah_watch_pdo_pgsql(HashTable *methods);

/* Defines a wrapper `name` around the handler `stock_name`; `what` evaluates to the kind of the call. */
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

#define METHOD(wrapper, class_name, name) \
	(stock_##wrapper = howdah_wrap_method(class_name, name, wrapper))
#define FUNCTION(wrapper) (stock_##wrapper = howdah_wrap_function(#wrapper, wrapper))

#endif
