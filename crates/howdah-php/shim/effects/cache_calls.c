/* howdah_cache_purge() and howdah_cache_tag(): a script's requests to the page cache (docs/cache.md). They are sent to
 * the front as effects. The front parses them (howdah_cache::purge) and carries them out before it passes on the
 * script's further output. Only their form is checked here, so a mistake throws an exception at the line that contains
 * it.
 *
 * If there is no page cache to access, the functions warn and return false: visitors could keep getting stale pages
 * that the script believes to be purged. */
#include "effects/internal.h"

static bool is_heard(void)
{
	if (howdah_is_copy) {
		php_error_docref(NULL, E_WARNING,
		                 "A process created by pcntl_fork() cannot access the page cache; nothing was done");
		return false;
	}
	if (!howdah_current.open) {
		php_error_docref(NULL, E_WARNING,
		                 "No request is being served, so there is no page cache to access; nothing "
		                 "was done. Use howdah cache purge");
		return false;
	}
	if (!howdah_current.effects) {
		php_error_docref(NULL, E_WARNING,
		                 "The page cache of this site is off (cache = \"on\"); nothing was done");
		return false;
	}
	return true;
}

static bool begins(const zend_string *word, const char *start)
{
	size_t len = strlen(start);
	return ZSTR_LEN(word) > len && memcmp(ZSTR_VAL(word), start, len) == 0;
}

/* Returns a text of valid length without control characters; throws otherwise. */
static zend_string *text_of(zval *arg, uint32_t number, size_t most)
{
	if (Z_TYPE_P(arg) != IS_STRING) {
		zend_argument_type_error(number, "must be of type string, %s given", zend_zval_type_name(arg));
		return NULL;
	}
	const zend_string *word = Z_STR_P(arg);
	if (ZSTR_LEN(word) == 0 || ZSTR_LEN(word) > most) {
		zend_argument_value_error(number, "must have 1 to %zu bytes, %zu given", most, ZSTR_LEN(word));
		return NULL;
	}
	for (size_t i = 0; i < ZSTR_LEN(word); i++) {
		if ((unsigned char)ZSTR_VAL(word)[i] < 0x20 || ZSTR_VAL(word)[i] == 0x7f) {
			zend_argument_value_error(number, "must not contain control characters");
			return NULL;
		}
	}
	return Z_STR_P(arg);
}

static void tell(const char *name, const zend_string *text)
{
	char payload[sizeof(uint32_t) + 16 + HOWDAH_MAX_ASKED];
	uint32_t name_len = (uint32_t)strlen(name);
	size_t at = 0;
	memcpy(payload, &name_len, sizeof(name_len));
	at += sizeof(name_len);
	memcpy(payload + at, name, name_len);
	at += name_len;
	memcpy(payload + at, ZSTR_VAL(text), ZSTR_LEN(text));
	at += ZSTR_LEN(text);
	(void)howdah_write_frame(HOWDAH_KIND_EFFECT, payload, at);
}

static void show(void)
{
	if (howdah_current.finished) {
		(void)howdah_publish();
	} else {
		/* Waking the front would send output that the script has not flushed. The front reads this effect before later
		 * output. */
		howdah_show();
	}
}

/* howdah_cache_purge(string ...$what): bool */
PHP_FUNCTION(howdah_cache_purge)
{
	zval *args;
	uint32_t count;
	ZEND_PARSE_PARAMETERS_START(1, -1)
		Z_PARAM_VARIADIC('+', args, count)
	ZEND_PARSE_PARAMETERS_END();
	for (uint32_t i = 0; i < count; i++) {
		const zend_string *word = text_of(&args[i], i + 1, HOWDAH_MAX_ASKED);
		if (!word) {
			RETURN_THROWS();
		}
		bool tag = begins(word, "tag:");
		if (!tag && ZSTR_VAL(word)[0] != '/' && !zend_string_equals_literal(word, "*")
		    && !begins(word, "http://") && !begins(word, "https://")) {
			zend_argument_value_error(i + 1,
			                          "must be a path (/...), a URL (http://host/...), \"tag:NAME\" or \"*\", "
			                          "\"%s\" given", ZSTR_VAL(word));
			RETURN_THROWS();
		}
		if (tag && ZSTR_LEN(word) > HOWDAH_MAX_TAG + strlen("tag:")) {
			zend_argument_value_error(i + 1, "must not have a tag of more than %u bytes", HOWDAH_MAX_TAG);
			RETURN_THROWS();
		}
	}
	if (!is_heard()) {
		RETURN_FALSE;
	}
	for (uint32_t i = 0; i < count; i++) {
		tell(HOWDAH_EFFECT_PURGE, Z_STR(args[i]));
	}
	show();
	RETURN_TRUE;
}

/* howdah_cache_tag(string ...$tags): bool */
PHP_FUNCTION(howdah_cache_tag)
{
	zval *args;
	uint32_t count;
	ZEND_PARSE_PARAMETERS_START(1, -1)
		Z_PARAM_VARIADIC('+', args, count)
	ZEND_PARSE_PARAMETERS_END();
	for (uint32_t i = 0; i < count; i++) {
		if (!text_of(&args[i], i + 1, HOWDAH_MAX_TAG)) {
			RETURN_THROWS();
		}
	}
	if (!is_heard()) {
		RETURN_FALSE;
	}
	if (!howdah_current.frame) {
		php_error_docref(NULL, E_WARNING, "A script on the command line creates no page that could be tagged; nothing was done");
		RETURN_FALSE;
	}
	if (howdah_current.finished) {
		php_error_docref(NULL, E_WARNING,
		                 "The response is complete (fastcgi_finish_request()); its page gets no more tags");
		RETURN_FALSE;
	}
	for (uint32_t i = 0; i < count; i++) {
		tell(HOWDAH_EFFECT_TAG, Z_STR(args[i]));
	}
	RETURN_TRUE;
}
