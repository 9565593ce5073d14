/* PHP's session in a process that runs many requests: it is written and removed at the end of each request, so
 * session_start() in the next one finds nothing of this visitor. Handlers that the script has set up before its first
 * request stay. Used for worker scripts (state.c) and Swoole's. */
#include "worker/internal.h"

#include "ext/session/php_session.h"

static zend_module_entry *session_module;
static php_ps_globals *session;
/* An array of zvals, or since PHP 8.3 a struct that consists only of zvals. */
#define HANDLERS (sizeof(((php_ps_globals *)NULL)->mod_user_names) / sizeof(zval))
static zval session_handlers[HANDLERS];
/* The class of the handlers; since PHP 8.6, PHP stores only whether they are methods of an object. */
#if PHP_VERSION_ID >= 80600
static bool session_methods;
#else
static zend_string *session_class;
#endif
static bool session_implemented;

void howdah_session_keep(void)
{
	if (!session) {
		return;
	}
	const zval *set = (const zval *)&session->mod_user_names;
	for (size_t i = 0; i < HANDLERS; i++) {
		ZVAL_COPY(&session_handlers[i], &set[i]);
	}
#if PHP_VERSION_ID >= 80600
	session_methods = session->mod_user_uses_object_methods_as_handlers;
#else
	session_class = session->mod_user_class_name ? zend_string_copy(session->mod_user_class_name) : NULL;
#endif
	session_implemented = session->mod_user_implemented;
}

/* Restores the handlers that the boot registered, which the session module frees together with those of a request. */
static void put_back_session_handlers(void)
{
	zval *set = (zval *)&session->mod_user_names;
	for (size_t i = 0; i < HANDLERS; i++) {
		ZVAL_COPY(&set[i], &session_handlers[i]);
	}
#if PHP_VERSION_ID >= 80600
	session->mod_user_uses_object_methods_as_handlers = session_methods;
#else
	session->mod_user_class_name = session_class ? zend_string_copy(session_class) : NULL;
#endif
	session->mod_user_implemented = session_implemented;
}

void howdah_session_end(void)
{
	if (!session) {
		return;
	}
	/* Writes and closes the session, as PHP does at the end of a request. */
	session_module->request_shutdown_func(session_module->type, session_module->module_number);
	put_back_session_handlers();
	zend_hash_str_del(&EG(symbol_table), "_SESSION", sizeof("_SESSION") - 1);
	/* The constant cannot be removed, because compiled code may refer to it. */
	zval *sid = zend_get_constant_str("SID", sizeof("SID") - 1);
	if (sid && Z_TYPE_P(sid) == IS_STRING && Z_STRLEN_P(sid)) {
		zval_ptr_dtor(sid);
		ZVAL_EMPTY_STRING(sid);
	}
}

bool howdah_session_is_active(void)
{
	return session && session->session_status == php_session_active;
}

void howdah_session_let_handler_be_set(bool may)
{
	if (session) {
		session->set_handler = may;
	}
}

void howdah_session_begin(void)
{
	if (session && session_module->request_startup_func) {
		session_module->request_startup_func(session_module->type, session_module->module_number);
	}
}

void howdah_session_find(void)
{
	session_module = zend_hash_str_find_ptr(&module_registry, "session", sizeof("session") - 1);
	session = session_module ? howdah_module_globals(session_module) : NULL;
}

void howdah_session_forget(void)
{
	if (!session || !(session->id || session->session_status == php_session_active)) {
		return;
	}
	/* No request has arrived, so no session may be opened for one. */
	bool opens = session->auto_start;
	session->auto_start = false;
	howdah_session_end();
	howdah_session_begin();
	session->auto_start = opens;
}
