/* Converts the status and headers that SAPI collected to the head payload of howdah_proto::response. Which status takes
 * precedence follows sapi_cgi_send_headers() of php-fpm. */
#include "core/internal.h"

#include <syslog.h>

static bool has_prefix(const sapi_header_struct *h, const char *prefix, size_t len)
{
	return h->header_len > len && strncasecmp(h->header, prefix, len) == 0;
}

/* Returns the number at the start of "404 Not Found" and sets `reason` to the phrase after it. */
static int parse_status(const char *text, const char **reason)
{
	int status = howdah_number(text, reason);
	*reason += strspn(*reason, " ");
	return status >= 0 && status <= 99999 ? status : 0;
}

/* Chooses the status: a line set by header('HTTP/1.x NNN ...') takes precedence, then a "Status:" header, then
 * http_response_code. */
static int choose_status(sapi_headers_struct *headers, const char **reason)
{
	*reason = "";
	const char *line = headers->http_status_line;
	if (line && strncasecmp(line, "HTTP/", 5) == 0) {
		const char *space = strchr(line, ' ');
		if (space) {
			int status = parse_status(space + 1, reason);
			if (status) {
				return status;
			}
		}
	}
	zend_llist_position at;
	for (sapi_header_struct *h = zend_llist_get_first_ex(&headers->headers, &at); h;
	     h = zend_llist_get_next_ex(&headers->headers, &at)) {
		if (has_prefix(h, "Status:", 7)) {
			const char *value = h->header + 7;
			while (*value == ' ' || *value == '\t') {
				value++;
			}
			int status = parse_status(value, reason);
			if (status) {
				return status;
			}
		}
	}
	*reason = "";
	return headers->http_response_code ? headers->http_response_code : 200;
}

static void append_u16(smart_str *out, uint16_t n)
{
	smart_str_appendl(out, (const char *)&n, sizeof(n));
}

static void append_u32(smart_str *out, uint32_t n)
{
	smart_str_appendl(out, (const char *)&n, sizeof(n));
}

/* Appends one "Name: value" line. Returns false if it has no colon and so is not a header. */
static bool append_header(smart_str *out, const sapi_header_struct *h)
{
	const char *colon = memchr(h->header, ':', h->header_len);
	if (!colon || colon == h->header) {
		return false;
	}
	const char *end = h->header + h->header_len, *value = colon + 1;
	while (value < end && (*value == ' ' || *value == '\t')) {
		value++;
	}
	while (end > value && (end[-1] == ' ' || end[-1] == '\t')) {
		end--;
	}
	size_t name_len = (size_t)(colon - h->header);
	append_u32(out, (uint32_t)name_len);
	append_u32(out, (uint32_t)(end - value));
	smart_str_appendl(out, h->header, name_len);
	smart_str_appendl(out, value, (size_t)(end - value));
	return true;
}

static void build_head(smart_str *out, sapi_headers_struct *headers, int status,
                       const char *reason, bool with_headers)
{
	size_t reason_len = MIN(strlen(reason), 1024);
	append_u16(out, (uint16_t)status);
	append_u16(out, (uint16_t)reason_len);
	append_u32(out, 0);
	smart_str_appendl(out, reason, reason_len);
	if (!with_headers) {
		return;
	}
	uint32_t count = 0;
	zend_llist_position at;
	for (sapi_header_struct *h = zend_llist_get_first_ex(&headers->headers, &at); h;
	     h = zend_llist_get_next_ex(&headers->headers, &at)) {
		if (has_prefix(h, "Status:", 7)) {
			continue;
		}
		/* RFC 9110 15.4.5: no representation metadata with 304. php-fpm drops this header, too. */
		if (status == 304 && has_prefix(h, "Content-Type:", 13)) {
			continue;
		}
		count += append_header(out, h);
	}
	memcpy(ZSTR_VAL(out->s) + 4, &count, sizeof(count));
}

/* Sends the final header block. Called once by sapi_send_headers(), and by callbacks of this SAPI when PHP wrote output
 * without it. */
int howdah_send_headers(sapi_headers_struct *headers)
{
	if (!howdah_current.open || howdah_current.head_sent || howdah_is_copy) {
		return SAPI_HEADER_SENT_SUCCESSFULLY;
	}
	const char *reason;
	int status = choose_status(headers, &reason);
	if (status < 200 || status > 999) {
		howdah_logf(LOG_ERR, "BadStatus: the script set status %d; the client gets a 500", status);
		status = 500;
		reason = "";
	}
	smart_str out = {0};
	build_head(&out, headers, status, reason, true);
	if (ZSTR_LEN(out.s) > HOWDAH_MAX_HEAD) {
		howdah_logf(LOG_ERR, "HeadTooLong: the script's headers have %zu bytes, but at most %u can be sent; the client gets a 500",
		            ZSTR_LEN(out.s), HOWDAH_MAX_HEAD);
		smart_str_free(&out);
		build_head(&out, headers, 500, "", false);
	}
	howdah_current.head_sent = true;
	(void)howdah_write_frame(HOWDAH_KIND_HEAD, ZSTR_VAL(out.s), ZSTR_LEN(out.s));
	smart_str_free(&out);
	/* The next write notices that a client is gone, outside of header processing. */
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}

/* Sends a 1xx header block with the headers set so far, which stay set for the final one (RFC 8297 3). */
int howdah_send_informational(sapi_headers_struct *headers, int status)
{
	if (!howdah_current.open || howdah_current.head_sent || howdah_is_copy) {
		return SAPI_HEADER_SEND_FAILED;
	}
	smart_str out = {0};
	build_head(&out, headers, status, "", true);
	bool sent = ZSTR_LEN(out.s) <= HOWDAH_MAX_HEAD
	    && howdah_write_frame(HOWDAH_KIND_INFORMATIONAL, ZSTR_VAL(out.s), ZSTR_LEN(out.s))
	    && howdah_publish();
	smart_str_free(&out);
	return sent ? SAPI_HEADER_SENT_SUCCESSFULLY : SAPI_HEADER_SEND_FAILED;
}
