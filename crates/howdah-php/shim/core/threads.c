/* The start and end of PHP's engine, and the access to its globals, which differ in a thread-safe build (ZTS). In every
 * build, only the main thread of a process runs PHP, and the zygote forks its children from that thread. The pointer to
 * the globals is therefore set once and stays valid in the children. */
#include "core/core.h"

#include "zend_signal.h"

ZEND_TSRMLS_CACHE_DEFINE()

void howdah_engine_startup(sapi_module_struct *module)
{
#ifdef ZTS
	php_tsrm_startup();
	ZEND_TSRMLS_CACHE_UPDATE();
#endif
	zend_signal_startup();
	sapi_startup(module);
}

void howdah_engine_shutdown(void)
{
	php_module_shutdown();
	sapi_shutdown();
#ifdef ZTS
	tsrm_shutdown();
#endif
}

void *howdah_module_globals(const zend_module_entry *module)
{
#ifdef ZTS
	return module->globals_id_ptr ? ts_resource(*module->globals_id_ptr) : NULL;
#else
	return module->globals_ptr;
#endif
}
