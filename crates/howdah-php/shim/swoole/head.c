/* The header block of a Swoole\Http\Response, written into one reusable buffer together with a small body, so that a
 * response is one send; and the compression of its body.
 *
 * This is stricter than Swoole where a script could break the protocol: the server alone decides the framing
 * (Content-Length, Transfer-Encoding), a header whose name is not a token or whose value contains a control character
 * is dropped with a warning, and no body is announced where none is allowed. */
#include "swoole/response.h"

#include <ctype.h>

/* ---- the output buffer ---- */

char *howdah_out;
size_t howdah_out_len;
static size_t capacity;

static void room_for(size_t more)
{
	if (UNEXPECTED(howdah_out_len + more > capacity)) {
		capacity = (howdah_out_len + more) * 2 + 4096;
		howdah_out = perealloc(howdah_out, capacity, 1);
	}
}

void howdah_out_put(const char *bytes, size_t len)
{
	room_for(len);
	memcpy(howdah_out + howdah_out_len, bytes, len);
	howdah_out_len += len;
}

static void put_number(zend_ulong number)
{
	char text[24];
	char *end = text + sizeof(text) - 1, *at = zend_print_ulong_to_buf(end, number);
	howdah_out_put(at, (size_t)(end - at));
}

/* Empties the buffer, and frees it after a large response. */
void howdah_out_empty(void)
{
	howdah_out_len = 0;
	if (UNEXPECTED(capacity > 1 << 20)) {
		pefree(howdah_out, 1);
		howdah_out = NULL;
		capacity = 0;
	}
}

/* ---- header block ---- */

static const char *reason_of(int status)
{
	switch (status) {
	case 200: return "OK";
	case 201: return "Created";
	case 202: return "Accepted";
	case 203: return "Non-Authoritative Information";
	case 204: return "No Content";
	case 205: return "Reset Content";
	case 206: return "Partial Content";
	case 207: return "Multi-Status";
	case 208: return "Already Reported";
	case 226: return "IM Used";
	case 300: return "Multiple Choices";
	case 301: return "Moved Permanently";
	case 302: return "Found";
	case 303: return "See Other";
	case 304: return "Not Modified";
	case 305: return "Use Proxy";
	case 307: return "Temporary Redirect";
	case 308: return "Permanent Redirect";
	case 400: return "Bad Request";
	case 401: return "Unauthorized";
	case 402: return "Payment Required";
	case 403: return "Forbidden";
	case 404: return "Not Found";
	case 405: return "Method Not Allowed";
	case 406: return "Not Acceptable";
	case 407: return "Proxy Authentication Required";
	case 408: return "Request Timeout";
	case 409: return "Conflict";
	case 410: return "Gone";
	case 411: return "Length Required";
	case 412: return "Precondition Failed";
	case 413: return "Content Too Large";
	case 414: return "URI Too Long";
	case 415: return "Unsupported Media Type";
	case 416: return "Range Not Satisfiable";
	case 417: return "Expectation Failed";
	case 418: return "I'm a teapot";
	case 421: return "Misdirected Request";
	case 422: return "Unprocessable Content";
	case 423: return "Locked";
	case 424: return "Failed Dependency";
	case 425: return "Too Early";
	case 426: return "Upgrade Required";
	case 428: return "Precondition Required";
	case 429: return "Too Many Requests";
	case 431: return "Request Header Fields Too Large";
	case 451: return "Unavailable For Legal Reasons";
	case 500: return "Internal Server Error";
	case 501: return "Not Implemented";
	case 502: return "Bad Gateway";
	case 503: return "Service Unavailable";
	case 504: return "Gateway Timeout";
	case 505: return "HTTP Version Not Supported";
	case 506: return "Variant Also Negotiates";
	case 507: return "Insufficient Storage";
	case 508: return "Loop Detected";
	case 510: return "Not Extended";
	case 511: return "Network Authentication Required";
	default: return "";
	}
}

bool howdah_is_token(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		if (!(isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c)))) {
			return false;
		}
	}
	return len > 0;
}

bool howdah_is_value(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		if ((c < ' ' && c != '\t') || c == 0x7f) {
			return false;
		}
	}
	return true;
}

enum {
	SEEN_SERVER = 1,
	SEEN_DATE = 2,
	SEEN_TYPE = 4,
	SEEN_ENCODING = 8,
	SEEN_LENGTH = 16,
	SEEN_CLOSE = 32,
	SEEN_VARY = 64,
};

/* Returns the meaning of a header name for the framing and the defaults. 0: none; -1: the server writes this header. */
static int meaning(const char *name, size_t len)
{
#define IS(literal) (len == sizeof(literal) - 1 && strncasecmp(name, literal, len) == 0)
	switch (len) {
	case 4: return IS("Date") ? SEEN_DATE : IS("Vary") ? SEEN_VARY : 0;
	case 6: return IS("Server") ? SEEN_SERVER : 0;
	case 10: return IS("Connection") ? SEEN_CLOSE : IS("Keep-Alive") ? -1 : 0;
	case 12: return IS("Content-Type") ? SEEN_TYPE : 0;
	case 14: return IS("Content-Length") ? SEEN_LENGTH : 0;
	case 16: return IS("Content-Encoding") ? SEEN_ENCODING : 0;
	case 17: return IS("Transfer-Encoding") ? -1 : 0;
	default: return 0;
	}
#undef IS
}

/* Returns whether a header may be a trailer. A header that frames a message, routes it or describes its body may not
 * (RFC 9110 §6.5.1): it would mislead a recipient that merged it into the header section. */
bool howdah_is_trailer(const char *name, size_t len)
{
	static const char *const never[] = {
		"content-length", "transfer-encoding", "content-encoding", "content-type",  "content-range", "connection",
		"keep-alive",     "trailer",           "te",               "upgrade",       "host",          "set-cookie",
		"cache-control",  "expires",           "date",             "location",      "vary",          "www-authenticate",
	};
	for (size_t i = 0; i < sizeof(never) / sizeof(*never); i++) {
		if (strlen(never[i]) == len && strncasecmp(never[i], name, len) == 0) {
			return false;
		}
	}
	return howdah_is_token(name, len);
}

static void put_header(const char *name, size_t name_len, zval *value)
{
	zend_string *made = NULL, *text = zval_get_tmp_string(value, &made);
	size_t len = ZSTR_LEN(text);
	while (len > 0 && isspace((unsigned char)ZSTR_VAL(text)[len - 1])) {
		len--;
	}
	if (EXPECTED(howdah_is_value(ZSTR_VAL(text), len))) {
		room_for(name_len + len + 4);
		char *at = howdah_out + howdah_out_len;
		memcpy(at, name, name_len);
		at += name_len;
		*at++ = ':';
		*at++ = ' ';
		memcpy(at, ZSTR_VAL(text), len);
		at += len;
		*at++ = '\r';
		*at++ = '\n';
		howdah_out_len += name_len + len + 4;
	} else {
		php_error_docref(NULL, E_WARNING, "BadHeader: the value of %.*s contains a control character; it is not sent",
		                 (int)name_len, name);
	}
	zend_tmp_string_release(made);
}

static bool says_close(zval *value)
{
	return Z_TYPE_P(value) == IS_STRING && Z_STRLEN_P(value) == 5
	    && strcasecmp(Z_STRVAL_P(value), "close") == 0;
}

/* Writes the headers that the script has set. */
static int put_fields(response_t *response, zend_long *own_length)
{
	int seen = 0;
	zval *headers = &response->std.properties_table[HEADER];
	ZVAL_DEREF(headers);
	if (Z_TYPE_P(headers) != IS_ARRAY) {
		return 0;
	}
	zend_string *name;
	zval *value;
	ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL_P(headers), name, value) {
		ZVAL_DEREF(value);
		if (!name || Z_TYPE_P(value) == IS_NULL) {
			continue;
		}
		if (UNEXPECTED(!howdah_is_token(ZSTR_VAL(name), ZSTR_LEN(name)))) {
			php_error_docref(NULL, E_WARNING, "BadHeader: the name of a header is not a token; it is not sent");
			continue;
		}
		int means = meaning(ZSTR_VAL(name), ZSTR_LEN(name));
		if (UNEXPECTED(means < 0)) {
			continue;
		}
		if (UNEXPECTED(means && Z_TYPE_P(value) == IS_STRING && Z_STRLEN_P(value) == 0)) {
			/* As in Swoole, an empty value suppresses the header, including the server's own of that name. Scripts switch off
			 * compression for one response that way. The server still decides the framing. */
			seen |= means & ~(SEEN_CLOSE | SEEN_LENGTH);
			continue;
		}
		if (UNEXPECTED(means == SEEN_CLOSE)) {
			seen |= says_close(value) ? SEEN_CLOSE : 0;
			continue;
		}
		if (UNEXPECTED(means == SEEN_LENGTH)) {
			*own_length = zval_get_long(value);
			seen |= SEEN_LENGTH;
			continue;
		}
		seen |= means;
		if (UNEXPECTED(Z_TYPE_P(value) == IS_ARRAY)) {
			zval *one;
			ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(value), one) {
				ZVAL_DEREF(one);
				if (Z_TYPE_P(one) != IS_NULL) {
					put_header(ZSTR_VAL(name), ZSTR_LEN(name), one);
				}
			} ZEND_HASH_FOREACH_END();
		} else {
			put_header(ZSTR_VAL(name), ZSTR_LEN(name), value);
		}
	} ZEND_HASH_FOREACH_END();
	return seen;
}

static void put_cookies(response_t *response)
{
	zval *cookies = &response->std.properties_table[COOKIE], *one;
	ZVAL_DEREF(cookies);
	if (EXPECTED(Z_TYPE_P(cookies) != IS_ARRAY)) {
		return;
	}
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(cookies), one) {
		if (Z_TYPE_P(one) == IS_STRING) {
			put_header("Set-Cookie", sizeof("Set-Cookie") - 1, one);
		}
	} ZEND_HASH_FOREACH_END();
}

/* Writes the trailers, which follow the last chunk. */
void howdah_out_trailers(response_t *response)
{
	zval *trailers = &response->std.properties_table[TRAILER], *value;
	ZVAL_DEREF(trailers);
	if (Z_TYPE_P(trailers) != IS_ARRAY) {
		return;
	}
	zend_string *name;
	ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL_P(trailers), name, value) {
		ZVAL_DEREF(value);
		/* A script may have written the property itself. */
		if (name && Z_TYPE_P(value) != IS_NULL && howdah_is_trailer(ZSTR_VAL(name), ZSTR_LEN(name))) {
			put_header(ZSTR_VAL(name), ZSTR_LEN(name), value);
		}
	} ZEND_HASH_FOREACH_END();
}

/* Writes "Date: ...\r\n", which is built once a second. */
static void put_date(void)
{
	static char line[] = "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
	static int64_t at = -1;
	int64_t now = howdah_run_seconds();
	if (now != at) {
		at = now;
		howdah_run_date(line + 6);
	}
	howdah_out_put(line, sizeof(line) - 1);
}

/* Writes the header block into the output buffer. Returns whether the connection stays open. */
bool howdah_out_head(response_t *response, framing_t framing, size_t length, const char *encoding,
                     const char *type, size_t type_len, bool is_head)
{
	int status = response->status ? response->status : 200;
	if (EXPECTED(status == 200 && !response->reason)) {
		PUT("HTTP/1.1 200 OK\r\n");
	} else {
		PUT("HTTP/1.1 ");
		put_number((zend_ulong)status);
		PUT(" ");
		if (response->reason) {
			howdah_out_put(ZSTR_VAL(response->reason), ZSTR_LEN(response->reason));
		} else {
			const char *reason = reason_of(status);
			howdah_out_put(reason, strlen(reason));
		}
		PUT("\r\n");
	}
	zend_long own_length = -1;
	int seen = put_fields(response, &own_length);
	put_cookies(response);
	if (EXPECTED(!(seen & SEEN_SERVER))) {
		PUT("Server: swoole-http-server\r\n");
	}
	if (EXPECTED(!(seen & SEEN_DATE))) {
		put_date();
	}
	bool keep = howdah_run_keeps(response->connection) && !(seen & SEEN_CLOSE) && framing != UNTIL_CLOSE;
	if (EXPECTED(keep)) {
		PUT("Connection: keep-alive\r\n");
	} else {
		PUT("Connection: close\r\n");
	}
	if (!(seen & SEEN_TYPE)) {
		PUT("Content-Type: ");
		howdah_out_put(type, type_len);
		PUT("\r\n");
	}
	if (UNEXPECTED(encoding)) {
		PUT("Content-Encoding: ");
		howdah_out_put(encoding, strlen(encoding));
		PUT("\r\n");
		if (!(seen & SEEN_VARY)) {
			PUT("Vary: Accept-Encoding\r\n");
		}
	}
	switch (framing) {
	case LENGTH:
		/* For HEAD, the length that a GET would have, if the script sets it (RFC 9110 §9.3.2). */
		if (is_head && length == 0) {
			if (own_length >= 0) {
				PUT("Content-Length: ");
				put_number((zend_ulong)own_length);
				PUT("\r\n");
			}
			break;
		}
		PUT("Content-Length: ");
		put_number(length);
		PUT("\r\n");
		break;
	case CHUNKED:
		PUT("Transfer-Encoding: chunked\r\n");
		break;
	case UNTIL_CLOSE:
	case NONE:
		break;
	}
	PUT("\r\n");
	response->head_sent = true;
	response->keep = keep;
	return keep;
}

/* Returns whether a response with this status has no body (RFC 9110 §6.4.1). */
bool howdah_has_no_body(int status)
{
	return status == 204 || status == 304;
}

bool howdah_is_head_request(response_t *response, bool *http11)
{
	uint32_t traits = howdah_run_traits(response->connection);
	*http11 = traits & HOWDAH_HTTP11;
	return traits & HOWDAH_HEAD;
}

/* ---- compression, with PHP's own zlib ---- */

static bool accepts_gzip(response_t *response)
{
	howdah_bytes name, value;
	for (size_t i = 0; howdah_run_field(response->connection, i, &name, &value); i++) {
		if (name.len == 15 && strncasecmp(name.at, "accept-encoding", 15) == 0) {
			const char *found = php_memnistr(value.at, "gzip", 4, value.at + value.len);
			if (!found) {
				return false;
			}
			/* "gzip;q=0" is a refusal. */
			const char *after = found + 4, *end = value.at + value.len;
			if (after + 4 <= end && strncasecmp(after, ";q=0", 4) == 0) {
				const char *digit = after + 4;
				while (digit < end && (*digit == '.' || *digit == '0')) {
					digit++;
				}
				return digit < end && *digit >= '1' && *digit <= '9';
			}
			return true;
		}
	}
	return false;
}

static zend_string *gzip(zend_string *body)
{
	zval function, returned, arguments[2];
	ZVAL_STRINGL(&function, "gzencode", sizeof("gzencode") - 1);
	ZVAL_STR(&arguments[0], body);
	ZVAL_LONG(&arguments[1], howdah_swoole.compression_level);
	ZVAL_UNDEF(&returned);
	zend_string *result = NULL;
	if (zend_hash_str_exists(EG(function_table), "gzencode", sizeof("gzencode") - 1)
	    && call_user_function(NULL, NULL, &function, &returned, 2, arguments) == SUCCESS
	    && Z_TYPE(returned) == IS_STRING) {
		result = zend_string_copy(Z_STR(returned));
	}
	zval_ptr_dtor(&returned);
	zval_ptr_dtor(&function);
	return result;
}

/* Returns the header of this meaning that the script has set, or NULL. */
static zval *own_field(response_t *response, int wanted)
{
	zval *headers = &response->std.properties_table[HEADER], *value;
	ZVAL_DEREF(headers);
	zend_string *name;
	if (Z_TYPE_P(headers) == IS_ARRAY) {
		ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL_P(headers), name, value) {
			if (name && meaning(ZSTR_VAL(name), ZSTR_LEN(name)) == wanted) {
				ZVAL_DEREF(value);
				return value;
			}
		} ZEND_HASH_FOREACH_END();
	}
	return NULL;
}

/* Returns whether compression_types contains the response's media type. Parameters do not count. */
static bool is_compressed_type(response_t *response)
{
	if (!howdah_swoole.compression_types) {
		return true;
	}
	zval *field = own_field(response, SEEN_TYPE);
	bool named = field && Z_TYPE_P(field) == IS_STRING;
	const char *type = named ? Z_STRVAL_P(field) : "text/html";
	size_t len = strcspn(type, "; \t");
	for (const char *at = howdah_swoole.compression_types; *at; at += strlen(at) + 1) {
		if (strlen(at) == len && strncasecmp(at, type, len) == 0) {
			return true;
		}
	}
	return false;
}

zend_string *howdah_compressed(response_t *response, zend_string *body)
{
	if (ZSTR_LEN(body) < howdah_swoole.compression_min_length || !howdah_swoole.compression
	    || howdah_has_no_body(response->status) || !accepts_gzip(response)
	    || own_field(response, SEEN_ENCODING) || !is_compressed_type(response)) {
		return NULL;
	}
	return gzip(body);
}
