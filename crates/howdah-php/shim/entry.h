/* The functions of the shim that Rust calls (the extern block of src/ffi/mod.rs). The files that define them include
 * this header, so the C compiler checks the definitions against it; a test checks the Rust block, too. One prototype
 * per line. */
#ifndef HOWDAH_ENTRY_H
#define HOWDAH_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int howdah_php_startup(const char *ini_path, bool no_ini, const char *ini_entries);
void howdah_worker_prepare(void);
const char *howdah_php_check_host(void);
bool howdah_php_has_opcache(void);
const char *howdah_php_version(void);
size_t howdah_php_loaded(char *out, size_t cap);
bool howdah_php_has_setting(const char *name);
void howdah_php_enter_child(void);
int howdah_php_run(const char *frame);
void howdah_opcache_rest(void);
void howdah_forks_rest(void);
int howdah_php_run_worker(const char *frame, char *why, size_t cap);
int howdah_php_exit_status(void);
int howdah_run_script(const char *ini_path, bool no_ini, const char *ini_entries, int argc, char **argv);
void howdah_offer_served_functions(void);
int howdah_run_command_line(const char *ini_path, bool no_ini, const char *ini_entries, const char *code, bool tells, int argc, char **argv);
size_t howdah_php_trace(int memory, char *out, size_t cap);
void howdah_scripts_list(int to);
void howdah_scripts_compile(const char *paths, size_t len, uint32_t seconds);
void howdah_title_prepare(void);
void howdah_title_set(const char *title);

/* How a worker script ended (howdah_php_run_worker). */
#define HOWDAH_WORKER_ENDED 0       /* by itself, after it had asked for requests */
#define HOWDAH_WORKER_BROKEN 1      /* by a fatal error, after it had asked for requests */
#define HOWDAH_WORKER_COPY 2        /* this is a fork that the script made, at its end */
#define HOWDAH_WORKER_BOOT_FAILED 3 /* before it asked for a request */
#define HOWDAH_WORKER_NEVER_ASKED 4 /* without asking for a request and without an error */

#endif
