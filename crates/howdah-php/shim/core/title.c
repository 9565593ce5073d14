/* The process title shown by ps. The memory of argv and the environment is overwritten, after the environment has been
 * moved to the heap. */
#include "core/internal.h"
#include "entry.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static char *area;
static size_t area_len;
/* The title that the script has set. */
static char script_title[512];

void howdah_title_remember_arguments(int argc, char **argv)
{
	if (argc < 1 || !argv || !argv[0]) {
		return;
	}
	char *end = argv[0];
	for (int i = 0; i < argc; i++) {
		if (argv[i] == end) {
			end += strlen(end) + 1;
		}
	}
	area = argv[0];
	area_len = (size_t)(end - area);
}

/* Makes room: environment strings that follow argv are copied and may then be overwritten. Call once, before any thread
 * exists and before anything keeps a pointer into the environment. */
void howdah_title_prepare(void)
{
	if (!area) {
		return;
	}
	char *end = area + area_len;
	for (char **at = environ; at && *at; at++) {
		char *copy = strdup(*at);
		if (!copy) {
			return;
		}
		if (*at == end) {
			end += strlen(*at) + 1;
		}
		*at = copy;
	}
	area_len = (size_t)(end - area);
}

void howdah_title_set(const char *title)
{
	prctl(PR_SET_NAME, title, 0, 0, 0);
	if (!area || area_len < 2) {
		return;
	}
	size_t len = strlen(title);
	if (len > area_len - 1) {
		len = area_len - 1;
	}
	memset(area, 0, area_len);
	memcpy(area, title, len);
}

/* Does what this function of sapi/cli does, which only the main() of `php` registers. */
PHP_FUNCTION(cli_set_process_title)
{
	zend_string *title;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STR(title)
	ZEND_PARSE_PARAMETERS_END();
	snprintf(script_title, sizeof(script_title), "%s", ZSTR_VAL(title));
	howdah_title_set(script_title);
	RETURN_TRUE;
}

PHP_FUNCTION(cli_get_process_title)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_STRING(script_title);
}
