/* The life cycle of PHP in this process: module startup (zygote), entering a child, and one request. It follows
 * main() of sapi/fpm/fpm/fpm_main.c and php_handler() of sapi/apache2handler. This file contains every outermost
 * zend_try. */
#include "core/internal.h"
#include "effects/effects.h"

#include <errno.h>
#include <pthread.h>
#include <syslog.h>
#include <unistd.h>

#include "zend_exceptions.h"
#include "zend_extensions.h"
#include "zend_modules.h"

#if ZEND_DEBUG
# error "howdah-php runs the release build of PHP"
#endif

/* ---- zygote ---- */

/* Called in the new process when a script forked itself (pcntl_fork). The copy may continue to run, but the request and
 * the row in the pool belong to its parent. A child forked by the zygote resets this (howdah_php_enter_child). */
static void in_forked_copy(void)
{
	howdah_is_copy = true;
}

/* Starts PHP. `ini_path` is the path of a php.ini; if it is NULL, PHP searches for one. If `no_ini` is set, no
 * php.ini is read. `ini_entries` are "name=value" lines that override php.ini and must stay valid. Returns 0 on
 * success. */
int howdah_php_startup(const char *ini_path, bool no_ini, const char *ini_entries)
{
	howdah_engine_startup(&howdah_sapi);
	/* Set after the engine's startup, which clears ini_entries. */
	howdah_sapi.php_ini_path_override = (char *)ini_path;
	howdah_sapi.php_ini_ignore = no_ini;
	howdah_sapi.ini_entries = (char *)ini_entries;
	SG(options) |= SAPI_OPTION_NO_CHDIR; /* cwd.c does it */
	howdah_crashes_watch();
	int started = howdah_sapi.startup(&howdah_sapi);
	howdah_crashes_unwatch();
	if (started == FAILURE) {
		return -1;
	}
	howdah_hook_environment();
	howdah_wrap_filters();
	howdah_wrap_signals();
	howdah_wrap_effects();
	howdah_watch_databases();
	howdah_opcache_started();
	return pthread_atfork(NULL, howdah_forks_seen, in_forked_copy);
}

/* Returns whether opcache is loaded, enabled and has taken over compilation for this SAPI. */
bool howdah_php_has_opcache(void)
{
	return zend_get_extension("Zend OPcache") && zend_compile_file != compile_file
	    && zend_ini_long("opcache.enable", sizeof("opcache.enable") - 1, 0);
}

/* Returns whether a part of PHP has registered this setting, as far as that can be determined. Without opcache, all of
 * its settings count as known, since the absence of opcache is reported elsewhere. */
bool howdah_php_has_setting(const char *name)
{
	static const char *const only_at_start[] = {"extension", "zend_extension"};
	for (size_t i = 0; i < sizeof(only_at_start) / sizeof(*only_at_start); i++) {
		if (strcmp(name, only_at_start[i]) == 0) {
			return true;
		}
	}
	if (strncmp(name, "opcache.", 8) == 0 && !zend_get_extension("Zend OPcache")) {
		return true;
	}
	return zend_hash_str_exists(EG(ini_directives), name, strlen(name));
}

/* Returns the version of the PHP that has started. It may be a later release than the headers that this library was
 * built with, but it is of the same series. */
const char *howdah_php_version(void)
{
	const char *version = zend_get_module_version("standard");
	return version ? version : PHP_VERSION;
}

/* The directories from which PHP reads additional .ini files (main/php_ini.c). No header declares this variable. */
extern char *php_ini_scanned_path __attribute__((weak));

/* Appends a line to `out` if it fits. Returns the new length. */
static size_t add_line(char *out, size_t cap, size_t len, const char *word, const char *value, size_t value_len)
{
	int n = snprintf(out + len, cap - len, "%s %.*s\n", word, (int)value_len, value);
	return n > 0 && (size_t)n < cap - len ? len + (size_t)n : len;
}

/* Writes a line for each loaded extension ("extension NAME") and for each directory from which PHP reads extensions
 * and additional .ini files ("directory PATH"). Returns the length of the lines; a line that does not fit is
 * skipped. */
size_t howdah_php_loaded(char *out, size_t cap)
{
	size_t len = 0;
	zend_module_entry *module;
	ZEND_HASH_FOREACH_PTR(&module_registry, module) {
		len = add_line(out, cap, len, "extension", module->name, strlen(module->name));
	} ZEND_HASH_FOREACH_END();
	for (zend_llist_element *at = zend_extensions.head; at; at = at->next) {
		const zend_extension *extension = (const zend_extension *)at->data;
		len = add_line(out, cap, len, "extension", extension->name, strlen(extension->name));
	}
	if (PG(extension_dir)) {
		len = add_line(out, cap, len, "directory", PG(extension_dir), strlen(PG(extension_dir)));
	}
	/* Several directories are separated by colons. An empty one means the built-in directory, whose name only the
	 * host knows. */
	const char *paths = &php_ini_scanned_path ? php_ini_scanned_path : NULL;
	while (paths && *paths) {
		size_t own = strcspn(paths, ":");
		if (own) {
			len = add_line(out, cap, len, "directory", paths, own);
		}
		paths += own + (paths[own] == ':');
	}
	return len;
}

/* Compares the PHP that hosts this library with the headers used at build time. Returns NULL, or a description of the
 * difference. */
const char *howdah_php_check_host(void)
{
	static char text[256];
	const zend_module_entry *host =
	    zend_hash_str_find_ptr(&module_registry, "standard", sizeof("standard") - 1);
	if (host && host->zend_api == ZEND_MODULE_API_NO && host->build_id
	    && strcmp(host->build_id, ZEND_MODULE_BUILD_ID) == 0) {
		return NULL;
	}
	snprintf(text, sizeof(text),
	         "the library is built for PHP %s (%s), but the build of the PHP program is %s; install the library for this PHP",
	         PHP_VERSION, ZEND_MODULE_BUILD_ID, host && host->build_id ? host->build_id : "unknown");
	return text;
}

int howdah_php_exit_status(void)
{
	return EG(exit_status);
}

/* ---- child ---- */

/* Prepares PHP in a new child. The random sources need no preparation: since PHP 8.2 each request seeds them
 * (PHP_RINIT(random)), whatever a preload script did in the zygote. */
void howdah_php_enter_child(void)
{
	howdah_is_copy = false;
	howdah_forks_init_php();
	howdah_forks_enter_child();
	howdah_signals_enter_child();
}

bool howdah_open_frame(const char *frame)
{
	memset(&howdah_current, 0, sizeof(howdah_current));
	uint32_t magic, var_table, ini_table;
	memcpy(&magic, frame + HOWDAH_OFF_MAGIC, 4);
	howdah_current.frame = frame;
	howdah_current.open = true;
	if (magic != HOWDAH_MAGIC) {
		return false;
	}
	memcpy(&howdah_current.var_count, frame + HOWDAH_OFF_VAR_COUNT, 4);
	memcpy(&var_table, frame + HOWDAH_OFF_VAR_TABLE, 4);
	memcpy(&howdah_current.ini_count, frame + HOWDAH_OFF_INI_COUNT, 4);
	memcpy(&ini_table, frame + HOWDAH_OFF_INI_TABLE, 4);
	howdah_current.vars = (const howdah_var_ref *)(frame + var_table);
	howdah_current.inis = (const howdah_ini_ref *)(frame + ini_table);
	uint32_t flags;
	memcpy(&flags, frame + HOWDAH_OFF_FLAGS, 4);
	howdah_current.effects = flags & HOWDAH_FLAG_EFFECTS;
	howdah_current.own_name = flags & HOWDAH_FLAG_OWN_NAME;
	howdah_effects_begin();
	for (uint32_t i = 0; i < howdah_current.var_count; i++) {
		if (howdah_current.vars[i].id < HOWDAH_VAR_COUNT) {
			howdah_current.known[howdah_current.vars[i].id] = &howdah_current.vars[i];
		}
	}
	return true;
}

/* Returns whether a path has a ".." segment; such a script is not run (is_valid_path of php-fpm). */
static bool climbs(const char *path)
{
	for (const char *at = path; (at = strstr(at, "..")); at += 2) {
		if ((at == path || at[-1] == '/') && (at[2] == '\0' || at[2] == '/')) {
			return true;
		}
	}
	return false;
}

/* Returns the status that a script has before it sets one. An error document starts with the status of the error, as
 * under mod_php. */
static int first_status(void)
{
	const char *text = howdah_known(HOWDAH_VAR_REDIRECT_STATUS);
	int status = text ? howdah_number(text, NULL) : 200;
	return status >= 400 && status < 600 ? status : 200;
}

/* Fills SG(request_info), as init_request_info() of php-fpm does. The front has already split off PATH_INFO. */
void howdah_fill_request_info(void)
{
	int64_t length;
	memcpy(&length, howdah_current.frame + HOWDAH_OFF_CONTENT_LENGTH, 8);
	const char *script = howdah_known(HOWDAH_VAR_SCRIPT_FILENAME);
	const char *type = howdah_known(HOWDAH_VAR_CONTENT_TYPE);

	SG(server_context) = &howdah_current;
	SG(sapi_headers).http_response_code = first_status();
	SG(request_info).request_method = howdah_known(HOWDAH_VAR_REQUEST_METHOD);
	SG(request_info).query_string = (char *)howdah_known(HOWDAH_VAR_QUERY_STRING);
	/* "request_uri" is the script's URI in every SAPI. */
	SG(request_info).request_uri = (char *)howdah_known(HOWDAH_VAR_SCRIPT_NAME);
	SG(request_info).content_type = type ? type : "";
	/* An unknown length (chunked) is 0, as under mod_php; the body is then read to its end. */
	SG(request_info).content_length = length > 0 ? (zend_long)length : 0;
	SG(request_info).path_translated =
	    script && *script && !climbs(script) ? estrdup(script) : NULL;
	php_handle_auth_data(howdah_known(HOWDAH_VAR_HTTP_AUTHORIZATION));
}

/* Sends an error response. The value of its header Howdah-Error is the name with which the log message begins. */
static void refuse(int status, const char *name, const char *text)
{
	zend_try {
		char line[64];
		sapi_header_line header = {.line = line};
		header.line_len = (size_t)snprintf(line, sizeof(line), "Howdah-Error: %s", name);
		sapi_header_op(SAPI_HEADER_REPLACE, &header);
		SG(sapi_headers).http_response_code = status;
		PUTS(text);
	} zend_end_try();
}

int howdah_request_startup(void)
{
	howdah_opcache_begin_use();
	return php_request_startup();
}

static void execute(void)
{
	zend_file_handle file;
	const char *path = SG(request_info).path_translated;
	if (!path) {
		howdah_logf(LOG_ERR, "ScriptUnknown: Primary script unknown");
		refuse(404, "ScriptUnknown", "File not found.\n");
		return;
	}
	/* PHP's own warning is suppressed, because it does not name the script. The message below does. */
	int reporting = EG(error_reporting);
	EG(error_reporting) = 0;
	int opened = php_fopen_primary_script(&file), why = errno;
	EG(error_reporting) = reporting;
	if (opened == FAILURE) {
		/* php_fopen_primary_script() has freed path_translated. */
		const char *script = howdah_known(HOWDAH_VAR_SCRIPT_FILENAME);
		if (access(script, R_OK) != 0) {
			why = errno;
		} else {
			/* The warning of this function names the allowed paths. */
			(void)php_check_open_basedir(script);
		}
		if (why == EACCES) {
			howdah_logf(LOG_ERR, "ScriptUnreadable: Unable to open primary script: %s (%s)", script,
			            strerror(why));
			refuse(403, "ScriptUnreadable", "Access denied.\n");
		} else {
			howdah_logf(LOG_ERR, "ScriptUnknown: Unable to open primary script: %s (%s)", script,
			            strerror(why));
			refuse(404, "ScriptUnknown", "File not found.\n");
		}
		return;
	}
	/* The directory is entered again, because code of the request's startup may have left it. */
	howdah_enter_script_directory(path);
	howdah_timer_before_script();
	EG(exit_status) = 0;
	php_execute_script(&file);
	/* With opcache the handle is not in CG(open_files) from the second request on. */
	if (!file.in_list) {
		zend_destroy_file_handle(&file);
	}
}

/* Runs one request. Returns 0 if the process is fit for the next one; 1 if it must exit because a bailout escaped
 * PHP's own shutdown; 2 if this is a fork that the script made; 3 if it must exit because PHP bailed out of the
 * request. Except with 2, the request has been returned to the front.
 *
 * A bailout is a longjmp over whatever C code was running: references that the code held, flags that it had set and
 * pointers that it had not yet cleared stay as they are, and a later request would use them (the condition of
 * CVE-2026-109618). exit() and uncaught exceptions unwind and are not bailouts. php_request_shutdown() itself
 * handles bailouts of shutdown functions, destructors and output handlers, so CG(unclean_shutdown) is checked again. */
int howdah_php_run(const char *frame)
{
	volatile int outcome = 0;
	CG(unclean_shutdown) = 0;
	if (!howdah_open_frame(frame)) {
		howdah_logf(LOG_CRIT, "FrameCorrupt: the request frame has no magic");
		howdah_current.open = false;
		howdah_done();
		return 1;
	}
	howdah_forks_begin();
	zend_first_try {
		howdah_fill_request_info();
		howdah_enter_script_directory(SG(request_info).path_translated);
		howdah_apply_settings();
		howdah_timer_before_input();
		howdah_phase = HOWDAH_BEGINNING;
		/* A failed startup has already reported the reason (such as the memory limit while reading a POST). As under mod_php,
		 * the request is then ended in the ordinary way. */
		if (howdah_request_startup() == SUCCESS) {
			howdah_opcache_settle();
			howdah_settle_settings();
			howdah_phase = HOWDAH_RUNNING;
			execute();
		} else if (SG(sapi_headers).http_response_code == 200 && !SG(headers_sent)) {
			SG(sapi_headers).http_response_code = 500;
		}
	} zend_end_try();

	volatile bool bailed_out = CG(unclean_shutdown);
	howdah_phase = HOWDAH_ENDING;
	zend_first_try {
		howdah_tell_effects();
		if (SG(request_info).path_translated) {
			efree(SG(request_info).path_translated);
			SG(request_info).path_translated = NULL;
		}
		php_request_shutdown(NULL);
	} zend_catch {
		outcome = 1;
	} zend_end_try();

	howdah_opcache_end_use();
	howdah_phase = HOWDAH_OUTSIDE;
	if (howdah_is_copy) {
		return 2;
	}
	if (howdah_current.open) {
		howdah_current.open = false;
		howdah_done();
	}
	howdah_signals_between_requests();
	howdah_forks_reap();
	if (outcome == 0 && (bailed_out || CG(unclean_shutdown))) {
		return 3;
	}
	return outcome;
}
