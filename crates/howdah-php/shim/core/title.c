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
