/* Ends the line of text on php://stderr after each request. All processes of a pool print to one pipe, which is read by
 * lines. Text without a line end would be merged into one line with the text of the next request. */

#include <strings.h>
#include <unistd.h>

#include "core/internal.h"
#include "php_streams.h"

static const php_stream_wrapper *original;
static php_stream_wrapper_ops ops;
static php_stream_wrapper wrapper;

/* Whether this request has opened php://stderr, and whether a worker has, which may keep it open for all its
 * requests. */
static bool opened_now, opened_for_good;

static php_stream *open_stream(php_stream_wrapper *ours, const char *path, const char *mode, int options,
	zend_string **opened_path, php_stream_context *context STREAMS_DC)
{
	const char *name = path;
	if (strncasecmp(name, "php://", 6) == 0) {
		name += 6;
	}
	if (strcasecmp(name, "stderr") == 0) {
		*(howdah_is_worker() ? &opened_for_good : &opened_now) = true;
	}
	return original->wops->stream_opener((php_stream_wrapper *)original, path, mode, options, opened_path,
		context STREAMS_REL_CC);
}

void howdah_watch_stderr(void)
{
	HashTable *wrappers = php_stream_get_url_stream_wrappers_hash_global();
	original = zend_hash_str_find_ptr(wrappers, "php", 3);
	if (!original) {
		return;
	}
	wrapper = *original;
	ops = *original->wops;
	ops.stream_opener = open_stream;
	wrapper.wops = &ops;
	zend_hash_str_update_ptr(wrappers, "php", 3, &wrapper);
}

void howdah_end_stderr_line(void)
{
	if (opened_now || opened_for_good) {
		opened_now = false;
		/* An empty line is not logged. */
		(void)!write(STDERR_FILENO, "\n", 1);
	}
}
