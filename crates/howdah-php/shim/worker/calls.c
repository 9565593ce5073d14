/* State that lives in extensions and that only their own functions can read and set (mb_internal_encoding(),
 * date_default_timezone_set(), ...). It is read when the script has booted and after the first request, and it is set
 * after a request that has called the setter. The setters are wrapped to detect that, and a request that calls none
 * costs nothing. What extensions keep of their last failure or response is discarded after every request. */
#include "worker/internal.h"

typedef struct {
	const char *setter;
	/* The function that returns the value when called without arguments, or NULL if the value cannot be read. */
	const char *getter;
	/* The function that is called without arguments to undo the setter, or NULL if the setter is called with the value. */
	const char *undo;
	zend_function *function, *get, *put;
	zif_handler stock;
	zval value;
	bool touched;
} call;

static call calls[] = {
	{.setter = "date_default_timezone_set", .getter = "date_default_timezone_get"},
	{.setter = "libxml_set_external_entity_loader", .getter = "libxml_get_external_entity_loader"},
	{.setter = "libxml_use_internal_errors", .getter = "libxml_use_internal_errors"},
	{.setter = "mb_detect_order", .getter = "mb_detect_order"},
	{.setter = "mb_http_output", .getter = "mb_http_output"},
	{.setter = "mb_internal_encoding", .getter = "mb_internal_encoding"},
	{.setter = "mb_language", .getter = "mb_language"},
	{.setter = "mb_regex_encoding", .getter = "mb_regex_encoding"},
	{.setter = "mb_regex_set_options", .getter = "mb_regex_set_options"},
	{.setter = "mb_substitute_character", .getter = "mb_substitute_character"},
	{.setter = "output_add_rewrite_var", .undo = "output_reset_rewrite_vars"},
};

#define CALLS (sizeof(calls) / sizeof(*calls))

/* Functions that discard what any request may have left for a later call to read: libxml's messages, which quote the
 * document, the headers of the last response over HTTP (since PHP 8.4), and the errors of streams (since PHP 8.6). */
static const char *const discarding[] = {
	"http_clear_last_response_headers", "libxml_clear_errors", "stream_clear_errors",
};

#define DISCARDING (sizeof(discarding) / sizeof(*discarding))

static zend_function *discard[DISCARDING];

static void on_call(INTERNAL_FUNCTION_PARAMETERS)
{
	for (size_t i = 0; i < CALLS; i++) {
		if (calls[i].function == EX(func)) {
			/* A call without an argument only reads the state. */
			calls[i].touched = calls[i].touched || ZEND_NUM_ARGS() > 0;
			calls[i].stock(INTERNAL_FUNCTION_PARAM_PASSTHRU);
			return;
		}
	}
}

static zend_function *function_named(const char *name)
{
	return name ? zend_hash_str_find_ptr(CG(function_table), name, strlen(name)) : NULL;
}

void howdah_calls_prepare(void)
{
	for (size_t i = 0; i < CALLS; i++) {
		calls[i].get = function_named(calls[i].getter);
		calls[i].put = function_named(calls[i].undo ? calls[i].undo : calls[i].setter);
		calls[i].function = function_named(calls[i].setter);
		if (calls[i].function && calls[i].put && (calls[i].get || !calls[i].getter)) {
			calls[i].stock = howdah_wrap_function(calls[i].setter, on_call);
		}
	}
	for (size_t i = 0; i < DISCARDING; i++) {
		discard[i] = function_named(discarding[i]);
	}
}

void howdah_calls_keep(void)
{
	for (size_t i = 0; i < CALLS; i++) {
		if (calls[i].stock && calls[i].get && (calls[i].touched || Z_ISUNDEF(calls[i].value))) {
			zval_ptr_dtor(&calls[i].value);
			ZVAL_UNDEF(&calls[i].value);
			zend_call_known_function(calls[i].get, NULL, NULL, &calls[i].value, 0, NULL, NULL);
		}
		calls[i].touched = false;
	}
}

void howdah_calls_restore(void)
{
	for (size_t i = 0; i < CALLS; i++) {
		if (!calls[i].touched) {
			continue;
		}
		zval result;
		ZVAL_UNDEF(&result);
		if (calls[i].undo) {
			zend_call_known_function(calls[i].put, NULL, NULL, &result, 0, NULL, NULL);
		} else if (!Z_ISUNDEF(calls[i].value)) {
			zend_call_known_function(calls[i].put, NULL, NULL, &result, 1, &calls[i].value, NULL);
		}
		zval_ptr_dtor(&result);
		calls[i].touched = false;
	}
	for (size_t i = 0; i < DISCARDING; i++) {
		if (discard[i]) {
			zval result;
			ZVAL_UNDEF(&result);
			zend_call_known_function(discard[i], NULL, NULL, &result, 0, NULL, NULL);
			zval_ptr_dtor(&result);
		}
	}
}
