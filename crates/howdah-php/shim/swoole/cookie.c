/* cookie() and rawcookie() of Swoole\Http\Response, which build the value of a Set-Cookie header. */
#include "swoole/response.h"

#include "ext/date/php_date.h"
#include "ext/standard/url.h"

static bool is_attribute(const zend_string *text)
{
	return howdah_is_value(ZSTR_VAL(text), ZSTR_LEN(text)) && !memchr(ZSTR_VAL(text), ';', ZSTR_LEN(text));
}

/* 9999-12-31T23:59:59Z: a cookie's date has four digits for the year. */
#define LAST_EXPIRY ((zend_long)253402300799)

void howdah_swoole_cookie(INTERNAL_FUNCTION_PARAMETERS, bool encode)
{
	zval *name_or_object;
	zend_string *value = NULL, *path = NULL, *domain = NULL, *samesite = NULL, *priority = NULL;
	zend_long expires = 0;
	bool secure = false, httponly = false, partitioned = false;
	ZEND_PARSE_PARAMETERS_START(1, 10)
		Z_PARAM_ZVAL(name_or_object)
		Z_PARAM_OPTIONAL
		Z_PARAM_STR_OR_NULL(value)
		Z_PARAM_LONG(expires)
		Z_PARAM_STR_OR_NULL(path)
		Z_PARAM_STR_OR_NULL(domain)
		Z_PARAM_BOOL(secure)
		Z_PARAM_BOOL(httponly)
		Z_PARAM_STR_OR_NULL(samesite)
		Z_PARAM_STR_OR_NULL(priority)
		Z_PARAM_BOOL(partitioned)
	ZEND_PARSE_PARAMETERS_END();
	response_t *response = howdah_usable_response(ZEND_THIS);
	if (!response) {
		RETURN_FALSE;
	}
	if (Z_TYPE_P(name_or_object) != IS_STRING) {
		howdah_swoole_refuse("Swoole\\Http\\Cookie", "give the cookie's name, value and attributes");
		RETURN_THROWS();
	}
	zend_string *name = Z_STR_P(name_or_object);
	if (!howdah_is_token(ZSTR_VAL(name), ZSTR_LEN(name))) {
		php_error_docref(NULL, E_WARNING, "Cookie names can't contain any of the following '=,; \\t\\r\\n\\013\\014'");
		RETURN_FALSE;
	}
	const zend_string *const attributes[] = {path, domain, samesite, priority};
	for (size_t i = 0; i < 4; i++) {
		if (attributes[i] && !is_attribute(attributes[i])) {
			php_error_docref(NULL, E_WARNING, "BadCookie: an attribute contains a control character or ';'");
			RETURN_FALSE;
		}
	}
	if (!encode && value && !is_attribute(value)) {
		php_error_docref(NULL, E_WARNING, "BadCookie: a raw value contains a control character or ';'");
		RETURN_FALSE;
	}
	if (expires > LAST_EXPIRY) {
		php_error_docref(NULL, E_WARNING, "Expiry date can't be a year greater than 9999");
		RETURN_FALSE;
	}
	smart_str line = {0};
	smart_str_append(&line, name);
	smart_str_appendc(&line, '=');
	if (!value || ZSTR_LEN(value) == 0) {
		/* As PHP's setcookie() does: an empty value deletes the cookie. */
		smart_str_appends(&line, "deleted; expires=");
		expires = 1;
	} else {
		zend_string *text = encode ? php_url_encode(ZSTR_VAL(value), ZSTR_LEN(value)) : zend_string_copy(value);
		smart_str_append(&line, text);
		zend_string_release(text);
		if (expires > 0) {
			smart_str_appends(&line, "; expires=");
		}
	}
	if (expires > 0) {
		zend_string *date = php_format_date("D, d-M-Y H:i:s \\G\\M\\T", sizeof("D, d-M-Y H:i:s \\G\\M\\T") - 1, expires, 0);
		smart_str_append(&line, date);
		zend_string_release(date);
		smart_str_appends(&line, "; Max-Age=");
		smart_str_append_long(&line, MAX(0, expires - (zend_long)howdah_run_seconds()));
	}
	static const char *const labels[] = {"; path=", "; domain=", "; samesite=", "; priority="};
	for (size_t i = 0; i < 2; i++) {
		if (attributes[i] && ZSTR_LEN(attributes[i])) {
			smart_str_appends(&line, labels[i]);
			smart_str_appendl(&line, ZSTR_VAL(attributes[i]), ZSTR_LEN(attributes[i]));
		}
	}
	if (secure) {
		smart_str_appends(&line, "; secure");
	}
	if (httponly) {
		smart_str_appends(&line, "; httponly");
	}
	for (size_t i = 2; i < 4; i++) {
		if (attributes[i] && ZSTR_LEN(attributes[i])) {
			smart_str_appends(&line, labels[i]);
			smart_str_appendl(&line, ZSTR_VAL(attributes[i]), ZSTR_LEN(attributes[i]));
		}
	}
	if (partitioned) {
		smart_str_appends(&line, "; partitioned");
	}
	smart_str_0(&line);
	zval made;
	ZVAL_STR(&made, line.s);
	zend_hash_next_index_insert(howdah_response_array(response, COOKIE), &made);
	RETURN_TRUE;
}
