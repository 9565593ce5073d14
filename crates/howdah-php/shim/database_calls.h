/* What the wrappers around PHP's database functions share. Stock handlers do the work; what is done here
 * is to look at the text before and to say that it is through behind. */
#ifndef HOWDAH_DATABASE_CALLS_H
#define HOWDAH_DATABASE_CALLS_H

#include "howdah.h"

/* An argument's text; NULL when it is none (an object that becomes one). */
zend_string *howdah_argument_text(zend_execute_data *execute_data, uint32_t number);
/* howdah_statement_begins(); NULL: not known, and so a write to any table. */
uint32_t howdah_database_text(uint32_t dialect, const zend_string *sql);

/* pgsql_calls.c */
void howdah_watch_pgsql_calls(void);
/* The methods that PDO_PGSQL adds to a connection. */
void howdah_watch_pdo_pgsql(HashTable *methods);

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

#define METHOD(wrapper, class_name, name) \
	(stock_##wrapper = howdah_wrap_method(class_name, name, wrapper))
#define FUNCTION(wrapper) (stock_##wrapper = howdah_wrap_function(#wrapper, wrapper))

#endif
