/* Functions that only the later releases of a series of PHP export, although all releases of a series have the same API
 * number (howdah.h). A caller that passes `fallible` wants to continue when the memory limit is exceeded. No caller in
 * the shim does so: as in the earlier releases, exceeding the limit ends the request. */
#include "core/core.h"

bool ZEND_FASTCALL howdah_smart_str_ferealloc(smart_str *str, size_t len, bool fallible)
{
	smart_str_erealloc(str, len);
	return true;
}

bool ZEND_FASTCALL howdah_smart_str_frealloc(smart_str *str, size_t len, bool fallible)
{
	smart_str_realloc(str, len);
	return true;
}
