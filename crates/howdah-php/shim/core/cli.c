/* PHP as on a command line: the SAPI "cli" that `howdah run` and `howdah php` share, and the script of `howdah php`. It
 * follows main() and do_cli() of sapi/cli/php_cli.c. Interactive mode, the development server and the options that only
 * print something (-i, -l, -m …) are left to php itself. This file contains the zend_try around the script.
 *
 * The SAPI's name is "cli", since Symfony Console, Laravel, WP-CLI and Swoole itself test for it. As under php, opcache
 * is off for this SAPI unless php.ini or -d set opcache.enable_cli=1.
 *
 * A script's writes to databases (effects/statements.c) and its purges are reported as in a request, but to a
 * descriptor that `howdah php` reads (src/current_request.rs). */
#include "core/internal.h"
#include "effects/effects.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "php_output.h"
#include "zend_exceptions.h"

static const char *script_name = "";
/* Whether the script ends when no process reads its output any more (EPIPE). */
static bool unread_ends_script = true;

/* ---- SAPI ---- */

/* Writes all bytes, like sapi_cli_ub_write(). Another process can make standard output non-blocking, because it shares the
 * descriptor. The function then waits until there is room. */
static size_t ub_write(const char *bytes, size_t len)
{
	size_t done = 0;
	while (done < len) {
		ssize_t n = write(STDOUT_FILENO, bytes + done, len - done);
		if (n >= 0) {
			done += (size_t)n;
			continue;
		}
		struct pollfd room = {.fd = STDOUT_FILENO, .events = POLLOUT};
		if (errno == EINTR || (errno == EAGAIN && (poll(&room, 1, -1) > 0 || errno == EINTR))) {
			continue;
		}
		/* A closed terminal must not end a server. */
		if (unread_ends_script) {
			EG(exit_status) = 255;
			php_handle_aborted_connection();
		}
		break;
	}
	return len;
}

static void flush(void *server_context)
{
}

static void send_header(sapi_header_struct *header, void *server_context)
{
}

/* Does nothing: sapi_cli_header_handler() also ignores header(). */
static int header_handler(sapi_header_struct *header, sapi_header_op_enum op,
                          sapi_headers_struct *headers)
{
	return 0;
}

static int send_headers(sapi_headers_struct *headers)
{
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}

static char *read_cookies(void)
{
	return NULL;
}

static void log_message(const char *message, int syslog_type)
{
	fprintf(stderr, "%s\n", message);
}

static void register_variables(zval *array)
{
	php_import_environment_variables(array);
	const char *names[] = {"PHP_SELF", "SCRIPT_NAME", "SCRIPT_FILENAME", "PATH_TRANSLATED"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		php_register_variable(names[i], script_name, array);
	}
	php_register_variable("DOCUMENT_ROOT", "", array);
}

static void ini_defaults(HashTable *configuration)
{
	zval one;
	ZVAL_NEW_STR(&one, zend_string_init("1", 1, 1));
	zend_hash_str_update(configuration, "display_errors", sizeof("display_errors") - 1, &one);
}

static int startup(sapi_module_struct *module)
{
	return php_module_startup(module, &howdah_command_line_module);
}

sapi_module_struct howdah_cli_sapi = {
	.name = "cli",
	.pretty_name = "Howdah, command line",
	.startup = startup,
	.shutdown = php_module_shutdown_wrapper,
	.ub_write = ub_write,
	.flush = flush,
	.sapi_error = php_error,
	.header_handler = header_handler,
	.send_headers = send_headers,
	.send_header = send_header,
	.read_cookies = read_cookies,
	.register_server_variables = register_variables,
	.log_message = log_message,
	.ini_defaults = ini_defaults,
	.php_ini_ignore_cwd = 1,
	.phpinfo_as_text = 1,
};

bool howdah_cli_startup(const char *ini_path, bool no_ini, const char *ini_entries, const char *script,
                        bool is_server)
{
	script_name = script;
	unread_ends_script = !is_server;
	howdah_title_prepare();
	signal(SIGPIPE, SIG_IGN);
	/* Lets a crash kill the process: the Rust runtime's handlers look for Rust's own stack overflows. */
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	howdah_engine_startup(&howdah_cli_sapi);
	howdah_cli_sapi.php_ini_path_override = (char *)ini_path;
	howdah_cli_sapi.php_ini_ignore = no_ini;
	howdah_cli_sapi.ini_entries = (char *)ini_entries;
	SG(options) |= SAPI_OPTION_NO_CHDIR;
	howdah_crashes_watch();
	int started = howdah_cli_sapi.startup(&howdah_cli_sapi);
	howdah_crashes_unwatch();
	if (started == FAILURE) {
		return false;
	}
	howdah_opcache_started();
	return true;
}

bool howdah_cli_begin(int argc, char **argv)
{
	SG(request_info).argc = argc;
	SG(request_info).argv = argv;
	SG(request_info).path_translated = (char *)script_name;
	if (php_request_startup() == FAILURE) {
		return false;
	}
	CG(skip_shebang) = 1;
	zend_is_auto_global(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_SERVER));
	PG(during_request_startup) = 0;
	return true;
}

/* Defines STDIN, STDOUT and STDERR, as cli_register_file_handles() does. A script that becomes a daemon closes them, so
 * that the files that it opens next take their places. In a server they stay open, because a client's connection could
 * otherwise become the standard output. */
void howdah_cli_register_streams(void)
{
	static const struct {
		const char *name, *url, *mode;
	} streams[] = {
		{"STDIN", "php://stdin", "rb"}, {"STDOUT", "php://stdout", "wb"}, {"STDERR", "php://stderr", "wb"},
	};
	for (size_t i = 0; i < 3; i++) {
		php_stream *stream =
		    php_stream_open_wrapper_ex(streams[i].url, streams[i].mode, 0, NULL, NULL);
		if (!stream) {
			continue;
		}
		stream->flags |= unread_ends_script ? PHP_STREAM_FLAG_NO_RSCR_DTOR_CLOSE : PHP_STREAM_FLAG_NO_CLOSE;
		zend_constant constant;
		php_stream_to_zval(stream, &constant.value);
		ZEND_CONSTANT_SET_FLAGS(&constant, 0, 0);
		constant.name = zend_string_init_interned(streams[i].name, strlen(streams[i].name), 0);
		zend_register_constant(&constant);
	}
}

/* Opens the script as cli_seek_file_begin() does. By its name alone, PHP would search for it in include_path. */
bool howdah_cli_open_script(zend_file_handle *file)
{
	FILE *script = VCWD_FOPEN(script_name, "rb");
	struct stat found;
	if (script && fstat(fileno(script), &found) == 0 && S_ISDIR(found.st_mode)) {
		fclose(script);
		errno = EISDIR;
		return false;
	}
	if (script) {
		zend_stream_init_fp(file, script, script_name);
	}
	return script != NULL;
}

/* ---- howdah php ---- */

static void run(const char *code)
{
	if (code) {
		howdah_cli_register_streams();
		zend_eval_string_ex(code, NULL, "Command line code", true);
		return;
	}
	zend_file_handle file;
	if (strcmp(script_name, "-") == 0) {
		/* Standard input contains the script itself, so the script has no other input. */
		zend_stream_init_fp(&file, stdin, "Standard input code");
	} else if (!howdah_cli_open_script(&file)) {
		fprintf(stderr, "howdah php: ScriptUnreadable: %s: %s\n", script_name, strerror(errno));
		EG(exit_status) = 1;
		return;
	}
	howdah_cli_register_streams();
	file.primary_script = 1;
	php_execute_script(&file);
	zend_destroy_file_handle(&file);
}

bool howdah_is_command_line(void)
{
	return sapi_module.name == howdah_cli_sapi.name && unread_ends_script;
}

/* Gives the command line the functions that scripts have in requests. Since PHP 8.4, the directory in which opcache's
 * file cache stores compiled files depends on the names of all internal functions. */
void howdah_offer_served_functions(void)
{
	howdah_command_line_module.functions = howdah_module.functions;
}

/* Runs `code`, or the script that is the first argument (`-`: standard input). If `tells` is true, writes to databases
 * are reported. Returns the exit status. */
int howdah_run_command_line(const char *ini_path, bool no_ini, const char *ini_entries, const char *code,
                            bool tells, int argc, char **argv)
{
	if (!howdah_cli_startup(ini_path, no_ini, ini_entries, argv[0], false)) {
		fprintf(stderr, "howdah php: PhpStartup: PHP did not start; the lines above give the reason\n");
		return 1;
	}
	if (tells) {
		howdah_watch_databases();
		/* Opens a request whose header block is never sent. */
		howdah_current.open = true;
		howdah_current.effects = true;
		howdah_effects_begin();
	}
	zend_first_try {
		if (!howdah_cli_begin(argc, argv)) {
			fprintf(stderr, "howdah php: PhpStartup: PHP could not begin the script\n");
			return 1;
		}
		EG(exit_status) = 0;
		run(code);
	} zend_end_try();
	SG(request_info).path_translated = NULL;
	zend_try {
		php_request_shutdown(NULL);
	} zend_end_try();
	int status = EG(exit_status);
	howdah_engine_shutdown();
	return status;
}
