/* Shared by the two halves of worker mode: worker.c runs the script and its requests, state.c restores PHP's
 * state between them. Other files do not include it. */
#ifndef HOWDAH_WORKER_H
#define HOWDAH_WORKER_H

#include "howdah.h"

typedef enum {
	HOWDAH_NO_WORKER, /* an ordinary child, or the zygote */
	HOWDAH_BOOTING,   /* the script runs and has not asked for a request yet */
	HOWDAH_BETWEEN,   /* the script has asked before and runs its own code now */
	HOWDAH_SERVING,   /* the callback runs, or code that belongs to its request */
	HOWDAH_STOPPING,  /* the script has been told that there are no more requests */
} howdah_worker_phase;

extern howdah_worker_phase howdah_worker;

/* state.c */

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
/* Called when the script ends within a request. Puts the script's own shutdown functions before the request's. */
void howdah_state_join_shutdown_functions(void);
/* Fills $_GET and the other superglobals from the current request. */
void howdah_state_import_superglobals(void);
/* Ends and begins the extensions that keep state of a request. */
void howdah_state_end_modules(void);
void howdah_state_begin_modules(void);

/* calls.c: state that only the extensions' own functions can read and set. */
void howdah_calls_prepare(void);
void howdah_calls_keep(void);
void howdah_calls_restore(void);

#endif
