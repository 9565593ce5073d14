/* `howdah-php run`: PHP as on a command line (core/cli.c), with the classes of Swoole's HTTP server. This file contains
 * the zend_try around the whole script. */
#include "swoole/internal.h"
#include "swoole/response.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "ext/standard/basic_functions.h"
#include "ext/standard/info.h"
#include "php_output.h"
#include "zend_exceptions.h"
#include "zend_signal.h"

void howdah_swoole_log(bool warns, const char *format, ...)
{
	char line[4096];
	va_list args;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	howdah_run_log(warns, line);
}

/* ---- the module, under both names that scripts pass to extension_loaded() ---- */

ZEND_BEGIN_ARG_INFO_EX(arginfo_none, 0, 0, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_title, 0, 0, 1)
	ZEND_ARG_TYPE_INFO(0, title, IS_STRING, 0)
ZEND_END_ARG_INFO()

static PHP_FUNCTION(swoole_version)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_STRING(HOWDAH_SWOOLE_VERSION);
}

static PHP_FUNCTION(swoole_cpu_num)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_LONG(MAX(1, sysconf(_SC_NPROCESSORS_ONLN)));
}

static PHP_FUNCTION(swoole_last_error)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_LONG(0);
}

/* ---- media types of files, by extension ---- */

static void set_mime(INTERNAL_FUNCTION_PARAMETERS, bool replaces)
{
	zend_string *suffix, *type;
	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_PATH_STR(suffix)
		Z_PARAM_STR(type)
	ZEND_PARSE_PARAMETERS_END();
	howdah_bytes known;
	if (!howdah_is_value(ZSTR_VAL(type), ZSTR_LEN(type)) || ZSTR_LEN(type) == 0) {
		php_error_docref(NULL, E_WARNING, "BadHeader: a media type must be one line of text");
		RETURN_FALSE;
	}
	if (!replaces && howdah_run_mime(ZSTR_VAL(suffix), &known)) {
		RETURN_FALSE;
	}
	howdah_run_set_mime(ZSTR_VAL(suffix), ZSTR_VAL(type));
	RETURN_TRUE;
}

static PHP_FUNCTION(swoole_mime_type_add)
{
	set_mime(INTERNAL_FUNCTION_PARAM_PASSTHRU, false);
}

static PHP_FUNCTION(swoole_mime_type_set)
{
	set_mime(INTERNAL_FUNCTION_PARAM_PASSTHRU, true);
}

static PHP_FUNCTION(swoole_mime_type_delete)
{
	zend_string *suffix;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_PATH_STR(suffix)
	ZEND_PARSE_PARAMETERS_END();
	howdah_bytes known;
	bool there = howdah_run_mime(ZSTR_VAL(suffix), &known);
	howdah_run_set_mime(ZSTR_VAL(suffix), NULL);
	RETURN_BOOL(there);
}

static PHP_FUNCTION(swoole_mime_type_get)
{
	zend_string *name;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_PATH_STR(name)
	ZEND_PARSE_PARAMETERS_END();
	howdah_bytes type = howdah_run_content_type(ZSTR_VAL(name));
	RETURN_STRINGL(type.at, type.len);
}

static PHP_FUNCTION(swoole_mime_type_exists)
{
	zend_string *name;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_PATH_STR(name)
	ZEND_PARSE_PARAMETERS_END();
	const char *dot = strrchr(ZSTR_VAL(name), '.');
	howdah_bytes type;
	RETURN_BOOL(howdah_run_mime(dot ? dot + 1 : ZSTR_VAL(name), &type));
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_mime, 0, 0, 2)
	ZEND_ARG_INFO(0, suffix)
	ZEND_ARG_INFO(0, mime_type)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_file, 0, 0, 1)
	ZEND_ARG_INFO(0, filename)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
	PHP_FE(swoole_version, arginfo_none)
	PHP_FE(swoole_cpu_num, arginfo_none)
	PHP_FE(swoole_last_error, arginfo_none)
	PHP_FALIAS(swoole_errno, swoole_last_error, arginfo_none)
	PHP_FALIAS(swoole_set_process_name, cli_set_process_title, arginfo_title)
	PHP_FE(swoole_mime_type_add, arginfo_mime)
	PHP_FE(swoole_mime_type_set, arginfo_mime)
	PHP_FE(swoole_mime_type_delete, arginfo_file)
	PHP_FE(swoole_mime_type_get, arginfo_file)
	PHP_FE(swoole_mime_type_exists, arginfo_file)
	PHP_FE(cli_set_process_title, arginfo_title)
	PHP_FE(cli_get_process_title, arginfo_none)
	PHP_FE_END
};

static PHP_MINIT_FUNCTION(swoole)
{
	howdah_swoole_intern();
	howdah_swoole_register_server();
	howdah_swoole_register_request();
	howdah_swoole_register_response();
	howdah_swoole_register_timer();
	howdah_swoole_register_table();
	howdah_swoole_register_atomic();
	howdah_swoole_register_constants(module_number);
	return SUCCESS;
}

static PHP_MINFO_FUNCTION(swoole)
{
	php_info_print_table_start();
	php_info_print_table_row(2, "Swoole scripts", "run by Howdah");
	php_info_print_table_end();
}

static zend_module_entry swoole_module = {
	STANDARD_MODULE_HEADER,
	"swoole",
	functions,
	PHP_MINIT(swoole),
	NULL,
	NULL,
	NULL,
	PHP_MINFO(swoole),
	HOWDAH_SWOOLE_VERSION,
	STANDARD_MODULE_PROPERTIES
};

static zend_module_entry openswoole_module = {
	STANDARD_MODULE_HEADER,
	"openswoole",
	NULL,
	NULL,
	NULL,
	NULL,
	NULL,
	NULL,
	HOWDAH_SWOOLE_VERSION,
	STANDARD_MODULE_PROPERTIES
};

zend_class_entry *howdah_swoole_class(const char *name, const char *older, zend_class_entry *parent,
                                      const zend_function_entry *methods)
{
	zend_class_entry ce;
	INIT_CLASS_ENTRY_EX(ce, name, strlen(name), methods);
	zend_class_entry *registered = zend_register_internal_class_ex(&ce, parent);
	char other[128];
	snprintf(other, sizeof(other), "Open%s", name);
	zend_register_class_alias_ex(other, strlen(other), registered, 1);
	if (older) {
		zend_register_class_alias_ex(older, strlen(older), registered, 1);
		snprintf(other, sizeof(other), "open%s", older);
		zend_register_class_alias_ex(other, strlen(other), registered, 1);
	}
	return registered;
}

void howdah_swoole_keep_property(zend_object *object, zend_string *name, void **cache)
{
	if (zend_hash_exists(&object->ce->properties_info, name)) {
		zend_throw_error(NULL, "Property %s of class %s cannot be unset", ZSTR_VAL(name), ZSTR_VAL(object->ce->name));
		return;
	}
	zend_std_unset_property(object, name, cache);
}

static int (*register_builtin)(void);

/* Adds the module to PHP's own, the one place before module startup where a second module can be added. */
static int register_modules(void)
{
	int result = register_builtin();
	return result == SUCCESS && zend_register_internal_module(&openswoole_module) ? SUCCESS : FAILURE;
}

static int startup(sapi_module_struct *module)
{
	register_builtin = php_register_internal_extensions_func;
	php_register_internal_extensions_func = register_modules;
	return php_module_startup(module, &swoole_module);
}

/* Accepts every variable unchanged. ext/filter's function would put the variables of a multipart body into $_POST, and
 * keep a copy of each for filter_input() until the process exits. */
static unsigned int accept_input(int source, const char *name, char **value, size_t len,
                                 size_t *new_len)
{
	if (new_len) {
		*new_len = len;
	}
	return 1;
}

/* ---- the script ---- */

/* Called in a worker when the script ends outside of a callback, by a fatal error or exit(). The current request is
 * answered, and the manager starts another worker. */
static void worker_ends(int status)
{
	howdah_run_die("ScriptDied");
	howdah_swoole_log(true, "ScriptDied: the worker ends with a fatal error; its request got a 500");
	_exit(status ? status : 255);
}

int howdah_run_script(const char *ini_path, bool no_ini, const char *ini_entries, int argc,
                      char **argv)
{
	volatile int status = 0;
	howdah_cli_sapi.pretty_name = "Howdah, Swoole scripts";
	howdah_cli_sapi.startup = startup;
	howdah_cli_sapi.read_post = howdah_swoole_read_post;
	howdah_cli_sapi.executable_location = argv[0];
	if (!howdah_cli_startup(ini_path, no_ini, ini_entries, argv[0], true)) {
		fprintf(stderr, "howdah run: PhpStartup: PHP did not start; the lines above give the reason\n");
		return 1;
	}
	sapi_register_input_filter(accept_input, NULL);
	howdah_swoole_set_defaults();

	const char *script_name = argv[0];
	zend_first_try {
		zend_file_handle file;
		if (!howdah_cli_begin(argc, argv)) {
			fprintf(stderr, "howdah run: PhpStartup: PHP could not begin the script\n");
			return 1;
		}
		if (!howdah_cli_open_script(&file)) {
			fprintf(stderr, "howdah run: ScriptUnreadable: %s: %s\n", script_name, strerror(errno));
			EG(exit_status) = 1;
		} else {
			howdah_cli_register_streams();
			howdah_swoole_check_first_script(script_name);
			file.primary_script = 1;
			php_execute_script(&file);
			/* As in Swoole, a script that has set timers ends with the last of them. */
			if (!howdah_swoole_started && !CG(unclean_shutdown) && !howdah_swoole_run_timers() &&
			    EG(exit_status) == 0) {
				fprintf(stderr,
				        "howdah run: NoServerStarted: %s ended without starting a Swoole server; `howdah php SCRIPT` "
				        "runs any other script, and `howdah serve DIR` serves a site\n",
				        script_name);
			}
			zend_destroy_file_handle(&file);
		}
	} zend_end_try();
	status = EG(exit_status);

	if (howdah_swoole_in_worker) {
		/* Not reached after $server->start(), which never returns here: the script died. Its shutdown functions run, among
		 * which are frameworks' error handlers. */
		zend_try {
			php_call_shutdown_functions();
		} zend_end_try();
		zend_try {
			php_output_end_all();
		} zend_end_try();
		worker_ends(status);
	}
	SG(request_info).path_translated = NULL;
	zend_try {
		php_request_shutdown(NULL);
	} zend_end_try();
	howdah_engine_shutdown();
	return status;
}
