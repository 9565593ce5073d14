/* Shared by response.c (the object and its methods), cookie.c and head.c (the header block with which it is
 * sent). */
#ifndef HOWDAH_SWOOLE_RESPONSE_H
#define HOWDAH_SWOOLE_RESPONSE_H

#include "swoole/internal.h"

/* Properties, in the order of declaration. */
enum { FD, SOCKET, HEADER, COOKIE, TRAILER, PROPERTIES };

typedef struct {
	uint64_t connection; /* 0: created by the script with `new` */
	int status;          /* 0: not set */
	zend_string *reason;
	bool head_sent, chunked, ended, detached;
	/* Set with the header block: the connection stays open after the response. */
	bool keep;
	zend_object std;
} response_t;

/* Returns the response that a method may act on, or NULL, with a warning as in Swoole, if it has ended. */
response_t *howdah_usable_response(zval *this);
/* Returns the array in a property, which is created if there is none. */
HashTable *howdah_response_array(response_t *response, int property);
/* cookie(), or rawcookie() without `encode`. */
void howdah_swoole_cookie(INTERNAL_FUNCTION_PARAMETERS, bool encode);

/* The output buffer: the header block of the current response, and its body if it is small. Reused for the next
 * response. */
extern char *howdah_out;
extern size_t howdah_out_len;
void howdah_out_empty(void);
void howdah_out_put(const char *bytes, size_t len);
#define PUT(literal) howdah_out_put(literal, sizeof(literal) - 1)

typedef enum { LENGTH, CHUNKED, UNTIL_CLOSE, NONE } framing_t;

/* Appends the header block. Returns whether the connection stays open. */
bool howdah_out_head(response_t *response, framing_t framing, size_t length, const char *encoding,
                     const char *type, size_t type_len, bool is_head);

/* Appends the trailers, one per line. */
void howdah_out_trailers(response_t *response);

bool howdah_is_token(const char *text, size_t len);
bool howdah_is_trailer(const char *name, size_t len);
bool howdah_is_value(const char *text, size_t len);
/* Returns whether a response with this status has no body (RFC 9110 §6.4.1). */
bool howdah_has_no_body(int status);
bool howdah_is_head_request(response_t *response, bool *http11);

/* Returns the body as gzip if the client accepts that and the script has not encoded it, otherwise NULL. */
zend_string *howdah_compressed(response_t *response, zend_string *body);

#endif
