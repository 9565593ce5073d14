/* State that a request changes in PHP and that nothing undoes before the process ends. It is restored between two
 * requests of a worker. "The boot" is what the script did before it first asked for a request.
 *
 *     always as after the boot   settings (ini_set), time zone, mbstring and libxml switches, $_ENV,
 *                                putenv(), working directory, umask, locale, default stream context,
 *                                stream filters, tick functions
 *     removed                    $_SESSION, session id, SID, error_get_last(), strtok(), stat cache,
 *                                random seeds, zlib's choice of coding, filter_input()'s copies,
 *                                libxml's errors, http_get_last_response_headers(), stream_last_errors()
 *     as after the first request error and exception handlers, stream wrappers
 *
 * The last group is code that frameworks register once, and many of them boot in their first request (Symfony's kernel,
 * older Octane workers). A value that a request sets may be its visitor's choice (a time zone, a precision), so every
 * value is reset to the one after the boot.
 *
 * The following is not undone, since it is the purpose of a worker: global and static variables, classes, functions,
 * constants, autoloaders, open resources that the script still holds. */
#include "worker/internal.h"

#include <fcntl.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ext/standard/basic_functions.h"
#include "ext/standard/file.h"
#include "zend_stack.h"

/* ---- settings ---- */

typedef struct {
	zend_string *value;
	uint8_t modifiable;
} kept_setting;

static HashTable settings; /* by name; the settings that the boot has changed */

static void keep_setting(zend_string *name, const zend_ini_entry *entry)
{
	kept_setting kept = {
		.value = entry->value ? zend_string_copy(entry->value) : NULL,
		.modifiable = entry->modifiable,
	};
	zend_hash_update_mem(&settings, name, &kept, sizeof(kept));
}

static void free_setting(zval *value)
{
	kept_setting *kept = Z_PTR_P(value);
	if (kept->value) {
		zend_string_release(kept->value);
	}
	efree(kept);
}

/* Sets the value as zend_alter_ini_entry_ex() does, but in PHP's stage for restoring values, in which settings may
 * change even after headers have been sent or a session has begun. */
static void put_back(zend_ini_entry *entry, const kept_setting *kept)
{
	if (entry->on_modify) {
		entry->on_modify(entry, kept->value, entry->mh_arg1, entry->mh_arg2, entry->mh_arg3,
		                 ZEND_INI_STAGE_DEACTIVATE);
	}
	if (!entry->modified) {
		entry->orig_value = entry->value;
		entry->orig_modifiable = entry->modifiable;
		entry->modified = 1;
		if (!EG(modified_ini_directives)) {
			ALLOC_HASHTABLE(EG(modified_ini_directives));
			zend_hash_init(EG(modified_ini_directives), 8, NULL, NULL, 0);
		}
		zend_hash_add_ptr(EG(modified_ini_directives), entry->name, entry);
	} else if (entry->value && entry->value != entry->orig_value) {
		zend_string_release(entry->value);
	}
	entry->value = kept->value ? zend_string_copy(kept->value) : NULL;
	entry->modifiable = kept->modifiable;
}

static void restore_settings(void)
{
	zend_string *name;
	zend_ini_entry *entry;
	kept_setting *kept;
	if (EG(modified_ini_directives)) {
		ZEND_HASH_FOREACH_STR_KEY_PTR(EG(modified_ini_directives), name, entry) {
			if (!zend_hash_exists(&settings, name)) {
				zend_restore_ini_entry(entry->name, ZEND_INI_STAGE_DEACTIVATE);
			}
		} ZEND_HASH_FOREACH_END();
	}
	ZEND_HASH_FOREACH_STR_KEY_PTR(&settings, name, kept) {
		entry = zend_hash_find_ptr(EG(ini_directives), name);
		if (entry && (entry->value != kept->value || entry->modifiable != kept->modifiable)) {
			put_back(entry, kept);
		}
	} ZEND_HASH_FOREACH_END();
}

/* ---- error and exception handlers ---- */

typedef struct {
	zval handler;
	int depth;
} kept_handler;

static kept_handler error_handler, exception_handler;
static int error_handler_reporting;

static void keep_handler(kept_handler *kept, const zval *now, const zend_stack *below)
{
	zval_ptr_dtor(&kept->handler);
	ZVAL_COPY(&kept->handler, now);
	kept->depth = zend_stack_count(below);
}

static bool same_handler(const zval *a, const zval *b)
{
	return Z_TYPE_P(a) == Z_TYPE_P(b) && (Z_ISUNDEF_P(a) || Z_COUNTED_P(a) == Z_COUNTED_P(b));
}

/* Removes the handlers that the request has added. Handlers that it has removed from the stack cannot be restored. */
static bool restore_handler(const kept_handler *kept, zval *now, zend_stack *below)
{
	while (zend_stack_count(below) > kept->depth) {
		zval *top = zend_stack_top(below);
		zval_ptr_dtor(top);
		zend_stack_del_top(below);
	}
	if (same_handler(&kept->handler, now)) {
		return false;
	}
	zval old;
	ZVAL_COPY_VALUE(&old, now);
	ZVAL_COPY(now, &kept->handler);
	zval_ptr_dtor(&old);
	return true;
}

static void restore_handlers(void)
{
	if (restore_handler(&error_handler, &EG(user_error_handler), &EG(user_error_handlers))) {
		EG(user_error_handler_error_reporting) = error_handler_reporting;
	}
	while (zend_stack_count(&EG(user_error_handlers_error_reporting)) > zend_stack_count(&EG(user_error_handlers))) {
		zend_stack_del_top(&EG(user_error_handlers_error_reporting));
	}
	restore_handler(&exception_handler, &EG(user_exception_handler), &EG(user_exception_handlers));
}

/* ---- the process: environment, directory, umask, locale ---- */

static zval environment; /* $_ENV after the boot, if it existed */
static HashTable boot_putenv;
static int directory = -1;
static mode_t boot_umask;
static char *boot_locale;

static void keep_process(void)
{
	zval *env = zend_hash_find(&EG(symbol_table), ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV));
	if (env) {
		ZVAL_DEREF(env);
	}
	if (env && Z_TYPE_P(env) == IS_ARRAY) {
		ZVAL_ARR(&environment, zend_array_dup(Z_ARRVAL_P(env)));
	}
	/* The table contains the earlier value of each variable. With a separate table, a request's changes are reset to the
	 * values that the boot has set. */
	boot_putenv = BG(putenv_ht);
	zend_hash_init(&BG(putenv_ht), 1, NULL, boot_putenv.pDestructor, 0);
	directory = VCWD_OPEN(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	boot_umask = umask(0);
	umask(boot_umask);
	BG(umask) = -1;
	const char *locale = setlocale(LC_ALL, NULL);
	boot_locale = strdup(locale ? locale : "C");
	BG(locale_changed) = 0;
}

static void restore_process(void)
{
	if (zend_hash_num_elements(&BG(putenv_ht))) {
		zend_hash_graceful_reverse_destroy(&BG(putenv_ht));
		zend_hash_init(&BG(putenv_ht), 1, NULL, boot_putenv.pDestructor, 0);
	}
	howdah_return_to_directory(directory);
	if (BG(umask) != -1) {
		umask(boot_umask);
		BG(umask) = -1;
	}
	if (BG(locale_changed)) {
		setlocale(LC_ALL, boot_locale);
		zend_reset_lc_ctype_locale();
		zend_update_current_locale();
		if (BG(ctype_string)) {
			zend_string_release_ex(BG(ctype_string), 0);
			BG(ctype_string) = NULL;
		}
		const char *ctype = setlocale(LC_CTYPE, NULL);
		if (ctype && strcmp(ctype, "C") != 0) {
			BG(ctype_string) = zend_string_init(ctype, strlen(ctype), 0);
		}
		BG(locale_changed) = 0;
	}
}

/* ---- streams ---- */

static zval context_options;
static bool had_context, had_filters, had_ticks;
static HashTable *wrappers; /* after the first request; NULL: PHP's own */

static void keep_streams(void)
{
	had_context = FG(default_context) != NULL;
	if (had_context) {
		ZVAL_COPY(&context_options, &FG(default_context)->options);
	}
	had_filters = FG(stream_filters) != NULL;
	had_ticks = BG(user_tick_functions) != NULL;
}

static HashTable *copy_of(HashTable *table)
{
	if (!table) {
		return NULL;
	}
	HashTable *copy;
	ALLOC_HASHTABLE(copy);
	zend_hash_init(copy, zend_hash_num_elements(table), NULL, NULL, 0);
	zend_hash_copy(copy, table, NULL);
	return copy;
}

static void free_table(HashTable **table)
{
	if (*table) {
		zend_hash_destroy(*table);
		FREE_HASHTABLE(*table);
		*table = NULL;
	}
}

static void restore_streams(void)
{
	php_stream_context *context = FG(default_context);
	if (context && !had_context) {
		FG(default_context) = NULL;
		zend_list_delete(context->res);
	} else if (context && Z_ARRVAL(context->options) != Z_ARRVAL(context_options)) {
		zval_ptr_dtor(&context->options);
		ZVAL_COPY(&context->options, &context_options);
	}
	if (FG(stream_wrappers)) {
		free_table(&FG(stream_wrappers));
		FG(stream_wrappers) = copy_of(wrappers);
	}
	if (!had_filters && FG(stream_filters)) {
		free_table(&FG(stream_filters));
		free_table(&BG(user_filter_map));
	}
	if (!had_ticks && BG(user_tick_functions)) {
		/* The list is emptied but not freed: PHP has registered the function that runs it in another list, which is not
		 * accessible here. */
		zend_llist_clean(BG(user_tick_functions));
	}
}

/* ---- what is simply removed ---- */

static void forget(void)
{
	if (PG(last_error_message)) {
		zend_string_release(PG(last_error_message));
		PG(last_error_message) = NULL;
	}
	if (PG(last_error_file)) {
		zend_string_release(PG(last_error_file));
		PG(last_error_file) = NULL;
	}
	PG(last_error_type) = 0;
	PG(last_error_lineno) = 0;
	if (BG(strtok_string)) {
		zend_string_release(BG(strtok_string));
		BG(strtok_string) = NULL;
		BG(strtok_last) = NULL;
	}
	if (BG(CurrentStatFile) || BG(CurrentLStatFile)) {
		php_clear_stat_cache(0, NULL, 0);
	}
	EG(exit_status) = 0;
}

/* ---- modules ---- */

/* Modules whose request functions keep no state of the boot. */
static zend_module_entry *filter_module, *zlib_module, *random_module;

static void end_module(zend_module_entry *module)
{
	if (module && module->request_shutdown_func) {
		module->request_shutdown_func(module->type, module->module_number);
	}
}

static void begin_module(zend_module_entry *module)
{
	if (module && module->request_startup_func) {
		module->request_startup_func(module->type, module->module_number);
	}
}

void howdah_state_end_modules(void)
{
	howdah_session_end();
	end_module(zlib_module);
	end_module(filter_module);
}

void howdah_state_begin_modules(void)
{
	begin_module(random_module);
	begin_module(filter_module);
	begin_module(zlib_module);
	/* The session begins last, since with session.auto_start it reads cookies and sends headers. */
	howdah_session_begin();
}

/* ---- shutdown functions ---- */

static HashTable *own_shutdown_functions;

void howdah_state_begin_request(void)
{
	own_shutdown_functions = BG(user_shutdown_function_names);
	BG(user_shutdown_function_names) = NULL;
}

void howdah_state_call_shutdown_functions(void)
{
	if (BG(user_shutdown_function_names)) {
		php_call_shutdown_functions();
		php_free_shutdown_functions();
	}
	BG(user_shutdown_function_names) = own_shutdown_functions;
	own_shutdown_functions = NULL;
}

void howdah_state_join_shutdown_functions(void)
{
	HashTable *requests = BG(user_shutdown_function_names);
	if (!own_shutdown_functions) {
		return;
	}
	BG(user_shutdown_function_names) = own_shutdown_functions;
	own_shutdown_functions = NULL;
	if (requests) {
		php_shutdown_function_entry *entry;
		ZEND_HASH_FOREACH_PTR(requests, entry) {
			append_user_shutdown_function(entry);
		} ZEND_HASH_FOREACH_END();
		/* The entries have been moved, so the values that they refer to must not be released here. */
		requests->pDestructor = NULL;
		zend_hash_destroy(requests);
		FREE_HASHTABLE(requests);
	}
}

/* ---- superglobals ---- */

/* Does what zend_activate_auto_globals() does, except for the superglobals that PHP creates when code that names them
 * is compiled (auto_globals_jit). Here that code may have been compiled in an earlier request, so a superglobal that
 * was created once is created for every request. */
void howdah_state_import_superglobals(void)
{
	zval *files = &PG(http_globals)[TRACK_VARS_FILES];
	zval_ptr_dtor_nogc(files);
	ZVAL_UNDEF(files);
	zend_auto_global *global;
	ZEND_HASH_MAP_FOREACH_PTR(CG(auto_globals), global) {
		if (!global->auto_global_callback || global->name == ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV)) {
			continue;
		}
		if (!global->jit || !global->armed) {
			global->armed = global->auto_global_callback(global->name);
		}
	} ZEND_HASH_FOREACH_END();
}

static void restore_env(void)
{
	zend_auto_global *global = zend_hash_find_ptr(CG(auto_globals), ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV));
	if (!Z_ISUNDEF(environment)) {
		zval *now = zend_hash_find(&EG(symbol_table), ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV));
		if (!now || Z_TYPE_P(now) != IS_ARRAY || Z_ARRVAL_P(now) != Z_ARRVAL(environment)) {
			zval copy;
			ZVAL_COPY(&copy, &environment);
			zend_hash_update(&EG(symbol_table), ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV), &copy);
		}
	} else if (global && !global->armed) {
		global->armed = global->auto_global_callback(global->name);
	}
}

/* ---- all parts together ---- */

static zend_module_entry *module_named(const char *name)
{
	return zend_hash_str_find_ptr(&module_registry, name, strlen(name));
}

void howdah_state_prepare(void)
{
	filter_module = module_named("filter");
	zlib_module = module_named("zlib");
	random_module = module_named("random");
	howdah_session_find();
	howdah_calls_prepare();
}

static void keep_handlers(void)
{
	keep_handler(&error_handler, &EG(user_error_handler), &EG(user_error_handlers));
	error_handler_reporting = EG(user_error_handler_error_reporting);
	keep_handler(&exception_handler, &EG(user_exception_handler), &EG(user_exception_handlers));
}

void howdah_state_keep_boot(void)
{
	zend_string *name;
	zend_ini_entry *entry;
	zend_hash_init(&settings, 16, NULL, free_setting, 0);
	if (EG(modified_ini_directives)) {
		ZEND_HASH_FOREACH_STR_KEY_PTR(EG(modified_ini_directives), name, entry) {
			keep_setting(name, entry);
		} ZEND_HASH_FOREACH_END();
	}
	keep_handlers();
	keep_process();
	keep_streams();
	wrappers = copy_of(FG(stream_wrappers));
	howdah_session_keep();
	howdah_state_end_modules();
	howdah_calls_keep();
	howdah_signals_keep();
	forget();
}

void howdah_state_keep_first(void)
{
	keep_handlers();
	free_table(&wrappers);
	wrappers = copy_of(FG(stream_wrappers));
}

void howdah_state_restore(void)
{
	if (howdah_session_is_active()) {
		/* The script itself began a session after the response. */
		howdah_session_end();
	}
	howdah_session_let_handler_be_set(true);
	restore_settings();
	howdah_session_let_handler_be_set(false);
	restore_handlers();
	restore_process();
	restore_env();
	restore_streams();
	howdah_calls_restore();
	howdah_signals_between_requests();
	forget();
}
