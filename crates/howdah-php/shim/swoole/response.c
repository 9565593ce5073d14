/* Swoole\Http\Response: a script's response. Its header block is written in head.c, its cookies in cookie.c. */
#include "swoole/response.h"

#include <ctype.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static zend_class_entry *response_ce;
static zend_object_handlers handlers;

static const char *const names[PROPERTIES] = {"fd", "socket", "header", "cookie", "trailer"};

static response_t *of(zend_object *object)
{
	return (response_t *)((char *)object - offsetof(response_t, std));
}

static const char html[] = "text/html";

response_t *howdah_usable_response(zval *this)
{
	response_t *response = of(Z_OBJ_P(this));
	if (UNEXPECTED(!response->connection || response->ended || response->detached)) {
		php_error_docref(NULL, E_WARNING, "http response is unavailable (maybe it has been ended or detached)");
		return NULL;
	}
	return response;
}

/* ---- sending ---- */

static void over(response_t *response, bool keep)
{
	response->ended = true;
	howdah_run_answered(response->connection, keep);
}

static bool end_chunks(response_t *response, zend_string *body)
{
	howdah_out_empty();
	if (response->chunked) {
		bool http11, is_head = howdah_is_head_request(response, &http11);
		if (body && ZSTR_LEN(body) && !is_head) {
			if (http11) {
				char size[24];
				howdah_out_put(size, (size_t)snprintf(size, sizeof(size), "%zx\r\n", ZSTR_LEN(body)));
			}
			howdah_out_put(ZSTR_VAL(body), ZSTR_LEN(body));
			if (http11) {
				PUT("\r\n");
			}
		}
		if (http11 && !is_head) {
			PUT("0\r\n");
			howdah_out_trailers(response);
			PUT("\r\n");
		}
		bool alive = howdah_run_send(response->connection, howdah_out, howdah_out_len, NULL, 0);
		over(response, response->keep);
		return alive;
	}
	return true;
}

/* Bodies up to this size share the output buffer with the header block, and one send without a second piece. */
#define SMALL 4096

static bool end(response_t *response, zend_string *body)
{
	if (UNEXPECTED(response->chunked)) {
		return end_chunks(response, body);
	}
	size_t len = body ? ZSTR_LEN(body) : 0;
	bool http11, is_head = howdah_is_head_request(response, &http11);
	const char *encoding = NULL;
	zend_string *packed = NULL;
	if (len > 0 && (packed = howdah_compressed(response, body))) {
		encoding = "gzip";
		body = packed;
		len = ZSTR_LEN(packed);
	}
	framing_t framing = UNEXPECTED(howdah_has_no_body(response->status)) ? NONE : LENGTH;
	howdah_out_empty();
	bool keep = howdah_out_head(response, framing, len, encoding, html, sizeof(html) - 1, is_head);
	if (is_head || framing == NONE) {
		len = 0;
	}
	bool alive;
	if (len <= SMALL) {
		if (len) {
			howdah_out_put(ZSTR_VAL(body), len);
		}
		alive = howdah_run_send(response->connection, howdah_out, howdah_out_len, NULL, 0);
	} else {
		alive = howdah_run_send(response->connection, howdah_out, howdah_out_len, ZSTR_VAL(body), len);
	}
	if (packed) {
		zend_string_release(packed);
	}
	over(response, keep);
	return alive;
}

/* Sends the server's own 500 unless a response has begun. */
static void fail(response_t *response, const char *name)
{
	if (response->head_sent) {
		/* The connection is cut, so the client sees that the response is incomplete. */
		response->ended = true;
		howdah_run_close(response->connection);
		return;
	}
	zval *slots = response->std.properties_table;
	zval_ptr_dtor(&slots[HEADER]);
	zval_ptr_dtor(&slots[COOKIE]);
	ZVAL_NULL(&slots[COOKIE]);
	array_init(&slots[HEADER]);
	add_assoc_string(&slots[HEADER], "Howdah-Error", (char *)name);
	add_assoc_string(&slots[HEADER], "Connection", "close");
	response->status = 500;
	if (response->reason) {
		zend_string_release(response->reason);
		response->reason = NULL;
	}
	end(response, NULL);
}

/* ---- the object ---- */

static zend_object *create(zend_class_entry *ce)
{
	response_t *response = zend_object_alloc(sizeof(response_t), ce);
	memset(response, 0, offsetof(response_t, std));
	zend_object_std_init(&response->std, ce);
	object_properties_init(&response->std, ce);
	response->std.handlers = &handlers;
	return &response->std;
}

/* The script has released the object. As in Swoole, the response is ended, with the status that was set or 500. */
static void destroy(zend_object *object)
{
	response_t *response = of(object);
	if (UNEXPECTED(response->connection && !response->ended && !response->detached)
	    && howdah_run_exists(response->connection, true)) {
		if (!response->head_sent && response->status == 0) {
			howdah_swoole_log(true, "ResponseNotEnded: a response was dropped without end(); the client gets a 500");
			fail(response, "ResponseNotEnded");
		} else {
			end(response, NULL);
		}
	}
	if (response->reason) {
		zend_string_release(response->reason);
	}
	zend_object_std_dtor(object);
}

void howdah_swoole_new_response(zval *object, uint64_t connection)
{
	zend_object *made = create(response_ce);
	of(made)->connection = connection;
	ZVAL_LONG(&made->properties_table[FD], (zend_long)connection);
	ZVAL_OBJ(object, made);
}

void howdah_swoole_fail_response(zval *object, const char *name)
{
	response_t *response = of(Z_OBJ_P(object));
	if (!response->ended && !response->detached) {
		fail(response, name);
	}
}

/* ---- methods ---- */

static PHP_METHOD(Response, end)
{
	zval *data = NULL;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_ZVAL_OR_NULL(data)
	ZEND_PARSE_PARAMETERS_END();
	response_t *response = howdah_usable_response(ZEND_THIS);
	if (!response) {
		RETURN_FALSE;
	}
	zend_string *made = NULL, *body = NULL;
	if (data && !(body = zval_try_get_tmp_string(data, &made))) {
		RETURN_THROWS();
	}
	RETVAL_BOOL(end(response, body));
	zend_tmp_string_release(made);
}

static PHP_METHOD(Response, write)
{
	zend_string *data;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STR(data)
	ZEND_PARSE_PARAMETERS_END();
	response_t *response = howdah_usable_response(ZEND_THIS);
	if (!response) {
		RETURN_FALSE;
	}
	if (ZSTR_LEN(data) == 0) {
		php_error_docref(NULL, E_WARNING, "data to send is empty");
		RETURN_FALSE;
	}
	bool http11, is_head = howdah_is_head_request(response, &http11);
	bool no_body = is_head || howdah_has_no_body(response->status);
	howdah_out_empty();
	if (!response->head_sent) {
		framing_t framing = no_body ? NONE : http11 ? CHUNKED : UNTIL_CLOSE;
		howdah_out_head(response, framing, 0, NULL, html, sizeof(html) - 1, is_head);
		response->chunked = true;
	}
	if (!no_body) {
		if (http11) {
			char size[24];
			howdah_out_put(size, (size_t)snprintf(size, sizeof(size), "%zx\r\n", ZSTR_LEN(data)));
		}
		howdah_out_put(ZSTR_VAL(data), ZSTR_LEN(data));
		if (http11) {
			PUT("\r\n");
		}
	}
	RETURN_BOOL(howdah_run_send(response->connection, howdah_out, howdah_out_len, NULL, 0)
	            && howdah_run_make_room(response->connection));
}

static PHP_METHOD(Response, sendfile)
{
	zend_string *path;
	zend_long offset = 0, length = 0;
	ZEND_PARSE_PARAMETERS_START(1, 3)
		Z_PARAM_PATH_STR(path)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(offset)
		Z_PARAM_LONG(length)
	ZEND_PARSE_PARAMETERS_END();
	response_t *response = howdah_usable_response(ZEND_THIS);
	if (!response) {
		RETURN_FALSE;
	}
	if (response->chunked) {
		php_error_docref(NULL, E_WARNING, "can't use sendfile when HTTP chunk is enabled");
		RETURN_FALSE;
	}
	struct stat file;
	if (ZSTR_LEN(path) == 0 || stat(ZSTR_VAL(path), &file) != 0 || access(ZSTR_VAL(path), R_OK) != 0) {
		php_error_docref(NULL, E_WARNING, "cannot send %s: %s", ZSTR_VAL(path), strerror(errno));
		RETURN_FALSE;
	}
	if (!S_ISREG(file.st_mode)) {
		php_error_docref(NULL, E_WARNING, "parameter $file[%s] given is not a regular file", ZSTR_VAL(path));
		RETURN_FALSE;
	}
	if (offset < 0 || offset > file.st_size || length < 0 || length > file.st_size - offset) {
		php_error_docref(NULL, E_WARNING, "the requested part exceeds the file size");
		RETURN_FALSE;
	}
	if (length == 0) {
		length = file.st_size - offset;
	}
	bool http11, is_head = howdah_is_head_request(response, &http11);
	howdah_bytes type = howdah_run_content_type(ZSTR_VAL(path));
	framing_t framing = howdah_has_no_body(response->status) ? NONE : LENGTH;
	howdah_out_empty();
	bool keep = howdah_out_head(response, framing, (size_t)length, NULL, type.at, type.len, is_head);
	bool alive = howdah_run_send(response->connection, howdah_out, howdah_out_len, NULL, 0);
	if (alive && !is_head && framing == LENGTH && length > 0) {
		alive = howdah_run_send_file(response->connection, ZSTR_VAL(path), (uint64_t)offset, (uint64_t)length);
		if (!alive) {
			/* The header block has promised more than will be sent. */
			howdah_run_close(response->connection);
		}
	}
	over(response, keep);
	RETURN_BOOL(alive);
}

static PHP_METHOD(Response, status)
{
	zend_long status;
	zend_string *reason = NULL;
	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_LONG(status)
		Z_PARAM_OPTIONAL
		Z_PARAM_STR(reason)
	ZEND_PARSE_PARAMETERS_END();
	response_t *response = howdah_usable_response(ZEND_THIS);
	if (!response) {
		RETURN_FALSE;
	}
	if (status < 200 || status > 999 || (reason && !howdah_is_value(ZSTR_VAL(reason), ZSTR_LEN(reason)))) {
		php_error_docref(NULL, E_WARNING, "BadStatus: a final status must be between 200 and 999, and its reason one line of text");
		RETURN_FALSE;
	}
	response->status = (int)status;
	if (response->reason) {
		zend_string_release(response->reason);
	}
	response->reason = reason && ZSTR_LEN(reason) ? zend_string_copy(reason) : NULL;
	RETURN_TRUE;
}

HashTable *howdah_response_array(response_t *response, int property)
{
	zval *slot = &response->std.properties_table[property];
	ZVAL_DEREF(slot);
	if (EXPECTED(Z_TYPE_P(slot) != IS_ARRAY)) {
		zval_ptr_dtor(slot);
		array_init(slot);
	}
	SEPARATE_ARRAY(slot);
	return Z_ARRVAL_P(slot);
}

/* "content-type" → "Content-Type": http_header_key_format() of Swoole. Returns the name itself if it is already written
 * that way. */
static zend_string *formatted(zend_string *name)
{
	bool begins = true;
	for (size_t i = 0; i < ZSTR_LEN(name); i++) {
		char c = ZSTR_VAL(name)[i];
		if (begins ? (c >= 'a' && c <= 'z') : (c >= 'A' && c <= 'Z')) {
			zend_string *made = zend_string_init(ZSTR_VAL(name), ZSTR_LEN(name), 0);
			for (size_t j = i; j < ZSTR_LEN(made); j++) {
				char *at = &ZSTR_VAL(made)[j];
				if (begins) {
					*at = (char)toupper((unsigned char)*at);
					begins = false;
				} else if (*at == '-') {
					begins = true;
				} else {
					*at = (char)tolower((unsigned char)*at);
				}
			}
			return made;
		}
		begins = !begins && c == '-';
	}
	return zend_string_copy(name);
}

static PHP_METHOD(Response, header)
{
	zend_string *name;
	zval *value;
	bool format = true;
	ZEND_PARSE_PARAMETERS_START(2, 3)
		Z_PARAM_STR(name)
		Z_PARAM_ZVAL(value)
		Z_PARAM_OPTIONAL
		Z_PARAM_BOOL(format)
	ZEND_PARSE_PARAMETERS_END();
	response_t *response = howdah_usable_response(ZEND_THIS);
	if (!response) {
		RETURN_FALSE;
	}
	if (UNEXPECTED(ZSTR_LEN(name) > 127 || !howdah_is_token(ZSTR_VAL(name), ZSTR_LEN(name)))) {
		php_error_docref(NULL, E_WARNING, "BadHeader: the name of a header must be a token of at most 127 characters");
		RETURN_FALSE;
	}
	zend_string *key = format ? formatted(name) : zend_string_copy(name);
	Z_TRY_ADDREF_P(value);
	zend_hash_update(howdah_response_array(response, HEADER), key, value);
	zend_string_release(key);
	RETURN_TRUE;
}

/* Adds a header after the body of a response that write() has made chunked. */
static PHP_METHOD(Response, trailer)
{
	zend_string *name, *value;
	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_STR(name)
		Z_PARAM_STR_OR_NULL(value)
	ZEND_PARSE_PARAMETERS_END();
	response_t *response = howdah_usable_response(ZEND_THIS);
	if (!response) {
		RETURN_FALSE;
	}
	if (ZSTR_LEN(name) > 127 || !howdah_is_trailer(ZSTR_VAL(name), ZSTR_LEN(name))) {
		php_error_docref(NULL, E_WARNING, "BadHeader: the name of a trailer must be a token of at most 127 characters, and must not be a header about the body, such as Content-Length");
		RETURN_FALSE;
	}
	zval text;
	if (value) {
		ZVAL_STR_COPY(&text, value);
	} else {
		ZVAL_NULL(&text);
	}
	zend_string *key = zend_string_tolower(name);
	zend_hash_update(howdah_response_array(response, TRAILER), key, &text);
	zend_string_release(key);
	RETURN_TRUE;
}

static PHP_METHOD(Response, cookie)
{
	howdah_swoole_cookie(INTERNAL_FUNCTION_PARAM_PASSTHRU, true);
}

static PHP_METHOD(Response, rawcookie)
{
	howdah_swoole_cookie(INTERNAL_FUNCTION_PARAM_PASSTHRU, false);
}

static PHP_METHOD(Response, redirect)
{
	zend_string *url;
	zend_long status = 302;
	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_STR(url)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(status)
	ZEND_PARSE_PARAMETERS_END();
	response_t *response = howdah_usable_response(ZEND_THIS);
	if (!response) {
		RETURN_FALSE;
	}
	if (status < 300 || status > 399 || !howdah_is_value(ZSTR_VAL(url), ZSTR_LEN(url))) {
		php_error_docref(NULL, E_WARNING, "BadRedirect: a redirect must have a status from 300 to 399 and an address without control characters");
		RETURN_FALSE;
	}
	zval value;
	ZVAL_STR_COPY(&value, url);
	zend_hash_str_update(howdah_response_array(response, HEADER), "Location", 8, &value);
	response->status = (int)status;
	RETURN_BOOL(end(response, NULL));
}

static PHP_METHOD(Response, isWritable)
{
	ZEND_PARSE_PARAMETERS_NONE();
	response_t *response = of(Z_OBJ_P(ZEND_THIS));
	RETURN_BOOL(response->connection && !response->ended && !response->detached
	            && howdah_run_exists(response->connection, true));
}

static PHP_METHOD(Response, detach)
{
	ZEND_PARSE_PARAMETERS_NONE();
	response_t *response = howdah_usable_response(ZEND_THIS);
	if (!response) {
		RETURN_FALSE;
	}
	response->detached = true;
	RETURN_TRUE;
}

/* Swoole accepts (server, fd) or (fd). Only connections of this worker are accessible. */
static PHP_METHOD(Response, create)
{
	zval *server;
	zend_long fd = -1;
	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_ZVAL(server)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(fd)
	ZEND_PARSE_PARAMETERS_END();
	if (Z_TYPE_P(server) == IS_LONG) {
		fd = Z_LVAL_P(server);
	}
	if (fd <= 0 || !howdah_run_exists((uint64_t)fd, true)) {
		php_error_docref(NULL, E_WARNING, "parameter $2 must be valid connection session id");
		RETURN_FALSE;
	}
	howdah_swoole_new_response(return_value, (uint64_t)fd);
}

static PHP_METHOD(Response, initHeader)
{
	ZEND_PARSE_PARAMETERS_NONE();
	response_t *response = howdah_usable_response(ZEND_THIS);
	if (!response) {
		RETURN_FALSE;
	}
	howdah_response_array(response, HEADER);
	howdah_response_array(response, COOKIE);
	RETURN_TRUE;
}

static PHP_METHOD(Response, close)
{
	ZEND_PARSE_PARAMETERS_NONE();
	response_t *response = of(Z_OBJ_P(ZEND_THIS));
	if (!response->connection || response->ended || !howdah_run_exists(response->connection, true)) {
		RETURN_FALSE;
	}
	response->ended = true;
	howdah_run_close(response->connection);
	RETURN_TRUE;
}

static PHP_METHOD(Response, notHere)
{
	char what[96];
	snprintf(what, sizeof(what), "Swoole\\Http\\Response::%s()", ZSTR_VAL(EX(func)->common.function_name));
	howdah_swoole_refuse(what, "this method is for HTTP/2 or WebSocket; this server speaks only HTTP/1.1");
	RETURN_THROWS();
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_any, 0, 0, 0)
	ZEND_ARG_VARIADIC_INFO(0, arguments)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_end, 0, 0, 0)
	ZEND_ARG_INFO(0, content)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_sendfile, 0, 0, 1)
	ZEND_ARG_INFO(0, filename)
	ZEND_ARG_INFO(0, offset)
	ZEND_ARG_INFO(0, length)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_status, 0, 0, 1)
	ZEND_ARG_INFO(0, http_code)
	ZEND_ARG_INFO(0, reason)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_header, 0, 0, 2)
	ZEND_ARG_INFO(0, key)
	ZEND_ARG_INFO(0, value)
	ZEND_ARG_INFO(0, format)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_trailer, 0, 0, 2)
	ZEND_ARG_INFO(0, key)
	ZEND_ARG_INFO(0, value)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_cookie, 0, 0, 1)
	ZEND_ARG_INFO(0, name_or_object)
	ZEND_ARG_INFO(0, value)
	ZEND_ARG_INFO(0, expires)
	ZEND_ARG_INFO(0, path)
	ZEND_ARG_INFO(0, domain)
	ZEND_ARG_INFO(0, secure)
	ZEND_ARG_INFO(0, httponly)
	ZEND_ARG_INFO(0, samesite)
	ZEND_ARG_INFO(0, priority)
	ZEND_ARG_INFO(0, partitioned)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_redirect, 0, 0, 1)
	ZEND_ARG_INFO(0, location)
	ZEND_ARG_INFO(0, http_code)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_create, 0, 0, 1)
	ZEND_ARG_INFO(0, server)
	ZEND_ARG_INFO(0, fd)
ZEND_END_ARG_INFO()

#define METHOD(name, info) PHP_ME(Response, name, info, ZEND_ACC_PUBLIC)
#define ALIAS(name, of, info) PHP_MALIAS(Response, name, of, info, ZEND_ACC_PUBLIC)

static const zend_function_entry methods[] = {
	METHOD(end, arginfo_end)
	METHOD(write, arginfo_end)
	METHOD(sendfile, arginfo_sendfile)
	METHOD(status, arginfo_status)
	ALIAS(setStatusCode, status, arginfo_status)
	METHOD(header, arginfo_header)
	ALIAS(setHeader, header, arginfo_header)
	METHOD(cookie, arginfo_cookie)
	ALIAS(setCookie, cookie, arginfo_cookie)
	METHOD(rawcookie, arginfo_cookie)
	ALIAS(setRawCookie, rawcookie, arginfo_cookie)
	METHOD(redirect, arginfo_redirect)
	METHOD(isWritable, arginfo_any)
	METHOD(detach, arginfo_any)
	PHP_ME(Response, create, arginfo_create, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	METHOD(initHeader, arginfo_any)
	METHOD(close, arginfo_any)
	METHOD(trailer, arginfo_trailer)
	ALIAS(ping, notHere, arginfo_any)
	ALIAS(goaway, notHere, arginfo_any)
	ALIAS(upgrade, notHere, arginfo_any)
	ALIAS(push, notHere, arginfo_any)
	ALIAS(recv, notHere, arginfo_any)
	ALIAS(disconnect, notHere, arginfo_any)
	PHP_FE_END
};

void howdah_swoole_register_response(void)
{
	zend_class_entry *ce =
	    howdah_swoole_class("Swoole\\Http\\Response", "swoole_http_response", NULL, methods);
	response_ce = ce;
	ce->create_object = create;
	ce->ce_flags |= ZEND_ACC_NOT_SERIALIZABLE;
	zend_declare_property_long(ce, names[FD], strlen(names[FD]), 0, ZEND_ACC_PUBLIC);
	for (int i = SOCKET; i < PROPERTIES; i++) {
		zend_declare_property_null(ce, names[i], strlen(names[i]), ZEND_ACC_PUBLIC);
	}
	memcpy(&handlers, &std_object_handlers, sizeof(handlers));
	handlers.offset = offsetof(response_t, std);
	handlers.free_obj = destroy;
	handlers.clone_obj = NULL;
	handlers.unset_property = howdah_swoole_keep_property;
}
