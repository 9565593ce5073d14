/* The working directory. A script runs in its own directory, as under every web SAPI, and so does the startup of its
 * request: uploads are stored, sessions are opened and the script is found in the same directory, whichever request
 * came before (relative upload_tmp_dir, session.save_path, open_basedir = "."). Under php-fpm and mod_php that startup
 * runs in the server's own directory, where "." is of no use.
 *
 * php_execute_script() would call getcwd, chdir and chdir back for each request. Here the directory is remembered and
 * set only when it differs, when a script has changed it, or when it was set more than a second ago (a deployment may
 * have put another directory under the same name).
 *
 * Unlike under php-fpm, shutdown functions and destructors still find the script's directory.
 *
 * A thread-safe build of PHP (ZTS) has a virtual working directory for each thread, against which it resolves relative
 * paths itself (zend_virtual_cwd.c). chdir() in a script changes only the virtual directory, and PHP resets it at the
 * beginning of each request to the directory in which the process started. Both directories are therefore set. */
#include "core/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char current[MAXPATHLEN];
#ifdef ZTS
/* `current` without symbolic links. PHP would resolve them with its cache, which may be minutes old. */
static char resolved[MAXPATHLEN] = "/";
#endif
static size_t current_len;
static time_t current_since;
/* Whether the directory was left since howdah_return_to_directory(). */
static bool left = true;

/* Every way in which a script can change the directory ends in one of these two functions. They replace the C library's
 * for PHP, because this library comes before it in the search for a symbol (src/ffi/interpose.rs). (Shared extensions
 * are loaded with RTLD_DEEPBIND and bypass them, but none of PHP's changes the directory, and such a change would be
 * corrected within a second.) */
int howdah_chdir(const char *path)
{
	current_len = 0;
	left = true;
	return (int)syscall(SYS_chdir, path);
}

int howdah_fchdir(int fd)
{
	current_len = 0;
	left = true;
	return (int)syscall(SYS_fchdir, fd);
}

/* Whether stat() is called for a directory in which the process is already. */
static bool is_entered;

/* virtual_chdir() asks for the type of the directory. */
int howdah_stat(const char *path, struct stat *found)
{
	if (is_entered) {
		memset(found, 0, sizeof(*found));
		found->st_mode = S_IFDIR | 0755;
		return 0;
	}
	return fstatat(AT_FDCWD, path, found, 0);
}

#ifdef ZTS
/* Enters the directory of the process, whose path is `directory`. */
static void enter_virtual(const char *directory)
{
	virtual_cwd_activate();
	size_t len;
	char *now = virtual_getcwd_ex(&len);
	bool is_there = strcmp(now, directory) == 0;
	efree(now);
	if (is_there) {
		return;
	}
	is_entered = true;
	int entered = virtual_chdir(directory);
	is_entered = false;
	if (entered != 0) {
		(void)virtual_chdir("/");
	}
}
#endif

static void enter_process(const char *script, size_t len)
{
	time_t now = (time_t)sapi_get_request_time();
	if (len == current_len && now == current_since && memcmp(current, script, len) == 0) {
		return;
	}
	memcpy(current, script, len);
	current[len] = '\0';
	if (syscall(SYS_chdir, current) != 0) {
		/* The process may not enter the directory, but it must never stay in another site's directory. */
		current_len = 0;
		(void)!syscall(SYS_chdir, "/");
		return;
	}
	current_len = len;
	current_since = now;
#ifdef ZTS
	if (!getcwd(resolved, sizeof(resolved))) {
		memcpy(resolved, "/", 2);
	}
#endif
}

void howdah_enter_script_directory(const char *script)
{
	const char *slash = script ? strrchr(script, '/') : NULL;
	if (!slash || slash - script >= MAXPATHLEN) {
		script = slash = "/";
	}
	enter_process(script, slash == script ? 1 : (size_t)(slash - script));
#ifdef ZTS
	enter_virtual(current_len ? resolved : "/");
#endif
}

void howdah_return_to_directory(int fd)
{
	if (left) {
		left = false;
		current_len = 0;
		if (fd < 0 || syscall(SYS_fchdir, fd) != 0) {
			(void)!syscall(SYS_chdir, "/");
		}
#ifdef ZTS
		if (!getcwd(resolved, sizeof(resolved))) {
			memcpy(resolved, "/", 2);
		}
#endif
	}
#ifdef ZTS
	enter_virtual(resolved);
#endif
}
