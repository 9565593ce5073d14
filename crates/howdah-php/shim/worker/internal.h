/* Shared by the files of worker mode only: worker.c runs the script and its requests, state.c restores PHP's state
 * between them. */
#ifndef HOWDAH_WORKER_INTERNAL_H
#define HOWDAH_WORKER_INTERNAL_H

#include "core/core.h"
#include "worker/worker.h"

/* ---- leaves: written in Rust (src/ffi/mod.rs) ---- */

/* Waits for the next request, makes it the current one and returns its frame. Returns NULL when there will be none. The
 * first call reports that the script has booted. */
const char *howdah_next_request(void);
/* Asks the front to replace the pool's workers by newly booted ones. */
void howdah_ask_for_restart(void);

/* ---- state.c ---- */

/* Wraps the functions whose effect must be undone. Called once in the zygote, after PHP's start. */
void howdah_state_prepare(void);
/* Called when the script has booted. Keeps the state that it has set up for later requests. */
void howdah_state_keep_boot(void);
/* Called when the first request is over. Keeps what frameworks set up during it. */
void howdah_state_keep_first(void);
/* Undoes a request's changes to the kept state. */
void howdah_state_restore(void);
/* Called before a request. Separates the shutdown functions that it registers from the script's own. */
void howdah_state_begin_request(void);
/* Calls the shutdown functions that the request has registered, and removes them. */
void howdah_state_call_shutdown_functions(void);
/* Called when the script ends within a request. Puts the shutdown functions of the script before those of the
 * request. */
void howdah_state_join_shutdown_functions(void);
/* Fills $_GET and the other superglobals from the current request. */
void howdah_state_import_superglobals(void);
/* Ends and begins the extensions that keep state of a request. */
void howdah_state_end_modules(void);
void howdah_state_begin_modules(void);

/* ---- calls.c: state that only the extensions' own functions can read and set ---- */

void howdah_calls_prepare(void);
void howdah_calls_keep(void);
void howdah_calls_restore(void);

/* ---- sessions.c ---- */

bool howdah_session_is_active(void);
/* Allows or forbids to restore session.save_handler "user", which otherwise only session_set_save_handler() may set. */
void howdah_session_let_handler_be_set(bool may);
/* End and begin the session module's request, as PHP does around each request. */
void howdah_session_end(void);
void howdah_session_begin(void);

#endif
