/* The PHP functions that this SAPI adds, and the module that contains them. Names and behaviour are those of php-fpm,
 * mod_php and FrankenPHP, so applications find the functions that they test for with function_exists(). */
#include "core/internal.h"
#include "effects/cache_functions.h"
#include "effects/effects.h"

#include "ext/standard/head.h"
#include "ext/standard/info.h"
#include "php_output.h"

/* A function of php-fpm. Completes the client's response while the script continues. The process stays busy until the
 * end of the script. Returns false if it was already called. */
PHP_FUNCTION(fastcgi_finish_request)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!howdah_current.open || howdah_current.finished || howdah_is_copy) {
		RETURN_FALSE;
	}
	php_output_end_all();
	php_header();
	if (!howdah_current.head_sent) {
		howdah_send_headers(&SG(sapi_headers));
	}
	howdah_tell_effects();
	/* If the client is gone, there is nothing left to finish, and the result is still true. */
	(void)(howdah_write_frame(HOWDAH_KIND_FINISH, NULL, 0) && howdah_publish());
	howdah_current.finished = true;
	RETURN_TRUE;
}

/* getallheaders() returns the names of headers as php-fpm does, rebuilt from the variables. */
PHP_FUNCTION(apache_request_headers)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init_size(return_value, howdah_current.var_count);
	for (uint32_t i = 0; i < howdah_current.var_count; i++) {
		const howdah_var_ref *ref = &howdah_current.vars[i];
		size_t len;
		const char *name = howdah_var_name(ref, &len);
		if ((ref->id == HOWDAH_VAR_CONTENT_TYPE || ref->id == HOWDAH_VAR_CONTENT_LENGTH)
		    && ref->value_len == 0) {
			/* The variable is always set; the client did not send the header. */
			continue;
		}
		sapi_add_request_header(name, (unsigned int)len, (char *)howdah_text(ref->value_off),
		                        ref->value_len, return_value);
	}
}

PHP_FUNCTION(apache_response_headers)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	zend_llist_position at;
	for (sapi_header_struct *h = zend_llist_get_first_ex(&SG(sapi_headers).headers, &at); h;
	     h = zend_llist_get_next_ex(&SG(sapi_headers).headers, &at)) {
		const char *colon = memchr(h->header, ':', h->header_len), *end = h->header + h->header_len;
		if (!colon) {
			continue;
		}
		const char *value = colon + 1;
		while (value < end && (*value == ' ' || *value == '\t')) {
			value++;
		}
		add_assoc_stringl_ex(return_value, h->header, (size_t)(colon - h->header), value,
		                     (size_t)(end - value));
	}
}

/* A function of FrankenPHP. headers_send(103) sends the headers set so far as an informational response and keeps them.
 * Any other status sends the final header block now. */
static PHP_FUNCTION(headers_send)
{
	zend_long status = 200;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(status)
	ZEND_PARSE_PARAMETERS_END();
	if (status < 100 || status > 599 || status == 101) {
		zend_argument_value_error(1, "must be a status between 100 and 599, and not 101");
		RETURN_THROWS();
	}
	if (status < 200) {
		RETURN_LONG(howdah_send_informational(&SG(sapi_headers), (int)status));
	}
	SG(sapi_headers).http_response_code = (int)status;
	RETURN_LONG(sapi_send_headers());
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_finish, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers_send, 0, 0, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
	PHP_FE(fastcgi_finish_request, arginfo_finish)
	PHP_FE(apache_request_headers, arginfo_headers)
	PHP_FALIAS(getallheaders, apache_request_headers, arginfo_headers)
	PHP_FE(apache_response_headers, arginfo_headers)
	PHP_FE(headers_send, arginfo_headers_send)
	HOWDAH_CACHE_FUNCTIONS
	PHP_FE_END
};

static PHP_MINIT_FUNCTION(howdah)
{
	howdah_intern_names();
	howdah_opcache_check_memory();
	howdah_watch_stderr();
	howdah_watch_settings();
	return SUCCESS;
}

/* The file cache that a command line fills is also that of the pools. */
static PHP_MINIT_FUNCTION(howdah_command_line)
{
	howdah_watch_settings();
	return SUCCESS;
}

static PHP_MINFO_FUNCTION(howdah)
{
	php_info_print_table_start();
	php_info_print_table_row(2, "Howdah", "active");
	php_info_print_table_end();
}

/* Shutdown functions, destructors and output callbacks have run, and shared extensions have ended. The session and the
 * constants still exist. */
static PHP_RSHUTDOWN_FUNCTION(howdah)
{
	howdah_tell_effects();
	return SUCCESS;
}

/* Runs just before sapi_deactivate(), which would read the rest of a request body, for example of a multi-gigabyte
 * upload that the script did not read. The front discards the rest instead. */
static ZEND_MODULE_POST_ZEND_DEACTIVATE_D(howdah)
{
	SG(post_read) = 1;
	return SUCCESS;
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_set_title, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, title, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_get_title, 0, 0, IS_STRING, 1)
ZEND_END_ARG_INFO()

/* The functions that `howdah php` offers. */
static const zend_function_entry command_line_functions[] = {
	PHP_FE(cli_set_process_title, arginfo_set_title)
	PHP_FE(cli_get_process_title, arginfo_get_title)
	HOWDAH_CACHE_FUNCTIONS
	PHP_FE_END
};

zend_module_entry howdah_command_line_module = {
	STANDARD_MODULE_HEADER,
	"howdah",
	command_line_functions,
	PHP_MINIT(howdah_command_line),
	NULL, NULL, NULL, NULL,
	PHP_VERSION,
	STANDARD_MODULE_PROPERTIES,
};

zend_module_entry howdah_module = {
	STANDARD_MODULE_HEADER,
	"howdah",
	functions,
	PHP_MINIT(howdah),
	NULL,
	NULL,
	PHP_RSHUTDOWN(howdah),
	PHP_MINFO(howdah),
	PHP_VERSION,
	NO_MODULE_GLOBALS,
	ZEND_MODULE_POST_ZEND_DEACTIVATE_N(howdah),
	STANDARD_MODULE_PROPERTIES_EX
};

zif_handler howdah_wrap_function(const char *name, zif_handler ours)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	if (!function || function->type != ZEND_INTERNAL_FUNCTION) {
		return NULL;
	}
	zif_handler stock = function->internal_function.handler;
	function->internal_function.handler = ours;
	return stock;
}

zif_handler howdah_wrap_method(const char *class_name, const char *name, zif_handler ours)
{
	zend_class_entry *base = zend_hash_str_find_ptr(CG(class_table), class_name, strlen(class_name));
	zend_function *method =
	    base ? zend_hash_str_find_ptr(&base->function_table, name, strlen(name)) : NULL;
	if (!method || method->type != ZEND_INTERNAL_FUNCTION) {
		return NULL;
	}
	zif_handler stock = method->internal_function.handler;
	/* A class inherits an internal method as a copy, including its handler (zend_duplicate_internal_function). */
	zend_class_entry *class;
	ZEND_HASH_FOREACH_PTR(CG(class_table), class) {
		if (class->type != ZEND_INTERNAL_CLASS || !instanceof_function(class, base)) {
			continue;
		}
		method = zend_hash_str_find_ptr(&class->function_table, name, strlen(name));
		if (method && method->type == ZEND_INTERNAL_FUNCTION
		    && method->internal_function.handler == stock) {
			method->internal_function.handler = ours;
		}
	} ZEND_HASH_FOREACH_END();
	return stock;
}
