/* The SAPI: the functions that PHP's core calls to read a request and write a response. It follows
 * sapi/fpm/fpm/fpm_main.c and sapi/apache2handler/sapi_apache2.c of php-src; where those two differ, a comment says
 * which one this file follows. It knows nothing of the ring or of wake-ups, which are on the Rust side of the leaves.
 */
#include "core/internal.h"
#include "effects/effects.h"
#include "zend_exceptions.h"

#include <stdarg.h>
#include <stdio.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "php_output.h"

howdah_request howdah_current;
bool howdah_is_copy;
howdah_worker_phase howdah_worker;

/* Returns whether further output is discarded: the slot has been returned, the script has finished its response, or
 * this process is a fork that the script made. */
static bool output_goes_nowhere(void)
{
	return !howdah_current.open || howdah_current.finished || howdah_is_copy;
}

/* Does what php_handle_aborted_connection() does, but the script ends as by exit(): a bailout would cost the process,
 * and clients may disconnect at any rate they like. */
static void end_script_of_gone_client(void)
{
	PG(connection_status) = PHP_CONNECTION_ABORTED;
	php_output_set_status(PHP_OUTPUT_DISABLED);
	if (!PG(ignore_user_abort) && EG(current_execute_data) && !EG(exception)) {
		zend_throw_unwind_exit();
	}
}

/* Writes output as sapi_cgibin_ub_write() does, except after fastcgi_finish_request(): php-fpm then treats output as an
 * aborted connection and ends the script, while this function discards it, as LiteSpeed does. */
static size_t ub_write(const char *bytes, size_t len)
{
	if (len > 0 && howdah_worker_speaks_itself()) {
		fwrite(bytes, 1, len, stderr);
		return len;
	}
	if (len == 0 || output_goes_nowhere()) {
		return len;
	}
	if (!howdah_current.head_sent) {
		/* Output without headers (an extension set SG(request_info).no_headers): the frames need a header block before a
		 * body. */
		howdah_send_headers(&SG(sapi_headers));
	}
	if (!howdah_write_body(bytes, len)) {
		end_script_of_gone_client();
		return 0;
	}
	return len;
}

/* Flushes as php_apache_sapi_flush() does: headers are sent with the first flush even before any output. */
static void flush(void *server_context)
{
	if (output_goes_nowhere()) {
		return;
	}
	if (!SG(headers_sent)) {
		sapi_send_headers();
	}
	if (howdah_current.open && !howdah_publish()) {
		end_script_of_gone_client();
	}
}

static size_t read_post(char *buffer, size_t len)
{
	if (!howdah_current.open || howdah_is_copy) {
		return 0;
	}
	return howdah_read_body(buffer, len);
}

/* Writes one message for the error log: as a frame of this request while its response is open, otherwise as a line on
 * stderr (the front's log pipe). */
void howdah_log(int level, const char *text, size_t len)
{
	if (len > HOWDAH_MAX_LOG - sizeof(uint32_t)) {
		len = HOWDAH_MAX_LOG - sizeof(uint32_t);
	}
	if (howdah_current.open && !howdah_is_copy) {
		uint32_t number = (uint32_t)level & 7;
		char *payload = malloc(sizeof(number) + len);
		if (payload) {
			memcpy(payload, &number, sizeof(number));
			memcpy(payload + sizeof(number), text, len);
			bool sent = howdah_write_frame(HOWDAH_KIND_LOG, payload, sizeof(number) + len);
			free(payload);
			if (sent) {
				/* The message is shown at once, unless that would cut a small response in two. */
				if (!howdah_current.head_sent || howdah_current.finished) {
					(void)howdah_publish();
				}
				return;
			}
		}
	}
	fprintf(stderr, "%.*s\n", (int)len, text);
}

void howdah_logf(int level, const char *format, ...)
{
	char line[4096];
	va_list args;
	va_start(args, format);
	int len = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (len > 0) {
		howdah_log(level, line, MIN((size_t)len, sizeof(line) - 1));
	}
}

static void log_message(const char *message, int syslog_type)
{
	/* error_log($message, 4) passes -1, which is not a level; the message gets the level of error_log($message). */
	howdah_log(syslog_type < 0 ? LOG_NOTICE : syslog_type, message, strlen(message));
}

static zend_result get_request_time(double *seconds)
{
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME, &now) != 0) {
		return FAILURE;
	}
	*seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
	return SUCCESS;
}

static int activate(void)
{
	/* Also called by module startup, without a request. */
	return howdah_current.frame ? howdah_activate_user_ini() : SUCCESS;
}

/* Ends the response: shutdown functions and destructors have run, output and session are closed. The client does not
 * wait for the memory to be freed. */
static int deactivate(void)
{
	howdah_end_stderr_line();
	if (!howdah_current.open || howdah_is_copy) {
		return SUCCESS;
	}
	if (!howdah_current.head_sent) {
		howdah_send_headers(&SG(sapi_headers));
	}
	if (CG(unclean_shutdown)) {
		(void)howdah_write_frame(HOWDAH_KIND_BAILED_OUT, NULL, 0);
	}
	howdah_current.open = false;
	howdah_done();
	/* These pointed into the frame, which belongs to the front again. */
	howdah_current.frame = NULL;
	howdah_current.var_count = howdah_current.ini_count = 0;
	memset(howdah_current.known, 0, sizeof(howdah_current.known));
	SG(request_info).request_method = NULL;
	SG(request_info).query_string = NULL;
	SG(request_info).request_uri = NULL;
	SG(request_info).content_type = NULL;
	SG(request_info).cookie_data = NULL;
	SG(server_context) = NULL;
	return SUCCESS;
}

static int startup(sapi_module_struct *module)
{
	return php_module_startup(module, &howdah_module);
}

sapi_module_struct howdah_sapi = {
	/* A name that opcache accepts (accel_find_sapi) and that applications know. */
	.name = "fpm-fcgi",
	.pretty_name = "Howdah",
	.startup = startup,
	.shutdown = php_module_shutdown_wrapper,
#if PHP_VERSION_ID >= 80500
	/* As under php-fpm, a .user.ini applies before the body of a POST request is read. */
	.pre_request_init = activate,
#else
	.activate = activate,
#endif
	.deactivate = deactivate,
	.ub_write = ub_write,
	.flush = flush,
	.getenv = howdah_getenv,
	.sapi_error = php_error,
	.header_handler = howdah_see_header,
	.send_headers = howdah_send_headers,
	.read_post = read_post,
	.read_cookies = howdah_read_cookies,
	.register_server_variables = howdah_register_server_variables,
	.log_message = log_message,
	.get_request_time = get_request_time,
	.php_ini_ignore_cwd = 1,
};
