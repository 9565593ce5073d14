/* What a run did beside answering that forbids to give its page to others: told to the front as
 * effects, by name. The page cache decides (docs/cache.md); nothing is prevented here.
 *
 *   session   a session was opened, whether or not its cookie was sent (session.use_cookies=0, an
 *             id in the URL, a limiter that says nothing). PS(id) stays set after
 *             session_write_close(), until the session module's RSHUTDOWN (php_rinit_session_globals).
 *   nocache   DONOTCACHEPAGE or LSCACHE_NO_CACHE is defined and true: what WooCommerce and other
 *             plugins say to the caches of WordPress.
 *   fatal     the script ended by a fatal error or an uncaught exception (php_error_cb sets 255);
 *             its answer may be 200 if output had been sent before.
 *
 * Not seen: what functions registered for shutdown do, which run later. */
#include "howdah.h"

#include "ext/session/php_session.h"

static void tell(const char *name)
{
	uint32_t len = (uint32_t)strlen(name);
	char payload[sizeof(len) + 32];
	memcpy(payload, &len, sizeof(len));
	memcpy(payload + sizeof(len), name, len);
	(void)howdah_write_frame(HOWDAH_KIND_EFFECT, payload, sizeof(len) + len);
}

static bool defined_and_true(const char *name)
{
	zval *value = zend_get_constant_str(name, strlen(name));
	return value && zend_is_true(value);
}

/* Tells the effects so far. Called when the script is through and before its answer is complete;
 * calls nothing that can bail out: the constants are looked up without autoloading. */
void howdah_tell_effects(void)
{
	if (!howdah_current.open || howdah_is_copy || howdah_current.finished) {
		return;
	}
	if (PS(id)) {
		tell("session");
	}
	if (defined_and_true("DONOTCACHEPAGE") || defined_and_true("LSCACHE_NO_CACHE")) {
		tell("nocache");
	}
	if (EG(exit_status) == 255) {
		tell("fatal");
	}
}
