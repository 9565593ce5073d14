/* Effects: actions of a run, apart from its response, that forbid storing its page or that invalidate other pages.
 * They are reported to the front by name, with the place in the script that caused them (howdah_proto::effect). The
 * page cache decides what follows (docs/cache.md); nothing is prevented here. Effects are reported only if the front
 * asks for them, which it does for sites with a cache.
 *
 *     session   a session was opened, whether or not its cookie was sent (session.use_cookies=0, an
 *               id in the URL, a limiter that sends nothing). Its id stays set after
 *               session_write_close(), until the session module's RSHUTDOWN (php_rinit_session_globals).
 *     nocache   DONOTCACHEPAGE or LSCACHE_NO_CACHE is defined and true: the constants by which WooCommerce
 *               and other plugins instruct the caches of WordPress.
 *     cookie    a Set-Cookie header was set, even if it was removed again.
 *     fatal     the script ended by a fatal error or an uncaught exception (php_error_cb sets 255);
 *               its status may be 200 if output had been sent before.
 *     write     see statements.c
 *
 * Some effects are seen when they happen, so their place is known. The others are detected when the script has
 * ended and again after its shutdown functions and destructors. */
#include "effects/internal.h"

#include "ext/session/php_session.h"

/* Room for two places in a script (file:line), in bytes. */
#define PLACE_MAX 1024

enum { TOLD_SESSION = 1, TOLD_NO_CACHE = 2, TOLD_COOKIE = 4, TOLD_FATAL = 8 };
static unsigned told;
/* Set while session_start() runs. A bailout out of it ends the request. */
static bool opens_session;

static zif_handler stock_session_start, stock_define;
/* NULL without the extension. It is found by name, because it may be a shared one, whose symbols cannot be linked. */
static const php_ps_globals *session;

void howdah_effects_begin(void)
{
	told = 0;
	opens_session = false;
	howdah_statements_begin();
	howdah_shared_cache_begin();
}

bool howdah_effects_wanted(void)
{
	return howdah_current.open && howdah_current.effects && !howdah_is_copy;
}

/* Writes `file:line` of the running code. If that is library code, such as a database class, its caller is more
 * telling, so the first caller from another file follows. */
static size_t place_now(char *out, size_t cap)
{
	size_t len = 0;
	const zend_string *inner = NULL;
	for (const zend_execute_data *at = EG(current_execute_data); at; at = at->prev_execute_data) {
		if (!at->func || !ZEND_USER_CODE(at->func->common.type) || !at->opline) {
			continue;
		}
		const zend_string *file = at->func->op_array.filename;
		if (inner && zend_string_equals(file, inner)) {
			continue;
		}
		int n = snprintf(out + len, cap - len, "%s%s:%u", inner ? " < " : "", ZSTR_VAL(file),
		                 at->opline->lineno);
		if (n < 0 || (size_t)n >= cap - len) {
			return len;
		}
		len += (size_t)n;
		if (inner) {
			break;
		}
		inner = file;
	}
	return len;
}

static void tell_at(const char *name, const char *place, size_t place_len, const char *text, size_t len)
{
	uint32_t name_len = (uint32_t)strlen(name);
	char payload[sizeof(name_len) + 16 + PLACE_MAX + 1 + HOWDAH_MAX_DESCRIPTION];
	size_t at = 0;
	memcpy(payload, &name_len, sizeof(name_len));
	at += sizeof(name_len);
	memcpy(payload + at, name, name_len);
	at += name_len;
	memcpy(payload + at, place, place_len);
	at += place_len;
	if (len) {
		payload[at++] = '\0';
		memcpy(payload + at, text, len);
		at += len;
	}
	(void)howdah_write_frame(HOWDAH_KIND_EFFECT, payload, at);
}

void howdah_tell(const char *name, bool place, const char *text, size_t len)
{
	char where[PLACE_MAX];
	tell_at(name, where, place ? place_now(where, sizeof(where)) : 0, text, len);
}

static bool first_time(unsigned which)
{
	bool first = !(told & which);
	told |= which;
	return first;
}

static bool defined_and_true(const char *name)
{
	zval *value = zend_get_constant_str(name, strlen(name));
	return value && zend_is_true(value);
}

/* Returns whether the script has begun a session. */
static bool has_session(void)
{
	return session && session->id;
}

static bool is_no_cache_constant(void)
{
	return defined_and_true("DONOTCACHEPAGE") || defined_and_true("LSCACHE_NO_CACHE");
}

/* Called when the script has ended and before its response is complete, and again after its shutdown functions. Calls
 * nothing that can bail out: the constants are looked up without autoloading. */
void howdah_tell_effects(void)
{
	if (!howdah_effects_wanted() || howdah_current.finished) {
		return;
	}
	if (has_session() && first_time(TOLD_SESSION)) {
		howdah_tell(HOWDAH_EFFECT_SESSION, false, NULL, 0);
	}
	if (!(told & TOLD_NO_CACHE) && is_no_cache_constant()) {
		told |= TOLD_NO_CACHE;
		howdah_tell(HOWDAH_EFFECT_NO_CACHE, false, NULL, 0);
	}
	if (EG(exit_status) == 255 && first_time(TOLD_FATAL)) {
		char where[PLACE_MAX];
		int len = 0;
		if (PG(last_error_file)) {
			len = snprintf(where, sizeof(where), "%s:%d", ZSTR_VAL(PG(last_error_file)),
			               PG(last_error_lineno));
		}
		len = len < 0 || (size_t)len >= sizeof(where) ? 0 : len;
		tell_at(HOWDAH_EFFECT_FATAL, where, (size_t)len, NULL, 0);
	}
}

/* Looks for cookies among the headers that a script sets. Changes no header. */
int howdah_see_header(sapi_header_struct *header, sapi_header_op_enum op, sapi_headers_struct *headers)
{
	static const char name[] = "Set-Cookie:";
	if ((op == SAPI_HEADER_ADD || op == SAPI_HEADER_REPLACE) && howdah_effects_wanted()
	    && header->header_len >= sizeof(name) - 1
	    && strncasecmp(header->header, name, sizeof(name) - 1) == 0) {
		if (!opens_session) {
			if (first_time(TOLD_COOKIE)) {
				howdah_tell(HOWDAH_EFFECT_COOKIE, true, NULL, 0);
			}
		} else if (first_time(TOLD_SESSION)) {
			howdah_tell(HOWDAH_EFFECT_SESSION, true, NULL, 0);
		}
	}
	return SAPI_HEADER_ADD;
}

static void session_start(INTERNAL_FUNCTION_PARAMETERS)
{
	/* A cookie set during the call belongs to the session, so the session is the effect to report. */
	opens_session = true;
	stock_session_start(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	opens_session = false;
	if (has_session() && howdah_effects_wanted() && first_time(TOLD_SESSION)) {
		howdah_tell(HOWDAH_EFFECT_SESSION, true, NULL, 0);
	}
}

static void define(INTERNAL_FUNCTION_PARAMETERS)
{
	stock_define(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (!howdah_effects_wanted() || ZEND_CALL_NUM_ARGS(execute_data) < 2
	    || Z_TYPE_P(ZEND_CALL_ARG(execute_data, 1)) != IS_STRING) {
		return;
	}
	const zend_string *name = Z_STR_P(ZEND_CALL_ARG(execute_data, 1));
	if ((zend_string_equals_literal(name, "DONOTCACHEPAGE")
	     || zend_string_equals_literal(name, "LSCACHE_NO_CACHE"))
	    && !(told & TOLD_NO_CACHE) && is_no_cache_constant()) {
		told |= TOLD_NO_CACHE;
		howdah_tell(HOWDAH_EFFECT_NO_CACHE, true, NULL, 0);
	}
}

void howdah_wrap_effects(void)
{
	const zend_module_entry *module =
	    zend_hash_str_find_ptr(&module_registry, "session", sizeof("session") - 1);
	session = module ? howdah_module_globals(module) : NULL;
	stock_session_start = howdah_wrap_function("session_start", session_start);
	stock_define = howdah_wrap_function("define", define);
}
