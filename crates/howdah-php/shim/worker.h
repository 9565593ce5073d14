/* What the two halves of worker mode share: worker.c runs the script and its requests,
 * worker_state.c puts PHP's state back between them. Not for others. */
#ifndef HOWDAH_WORKER_H
#define HOWDAH_WORKER_H

#include "howdah.h"

typedef enum {
	HOWDAH_NO_WORKER, /* an ordinary child, or the zygote */
	HOWDAH_BOOTING,   /* the script runs and has not asked for a request yet */
	HOWDAH_BETWEEN,   /* it has asked before and runs code of its own now */
	HOWDAH_SERVING,   /* the callback runs, or what belongs to its request */
	HOWDAH_STOPPING,  /* it knows that there are no more requests */
} howdah_worker_phase;

extern howdah_worker_phase howdah_worker;

/* worker_state.c */

/* Wraps the functions whose effect is to be undone. Once in the zygote, after PHP's start. */
void howdah_state_prepare(void);
/* The script has booted: what it has set up is what later requests find. */
void howdah_state_keep_boot(void);
/* The first request is over: keeps what frameworks set up in it. */
void howdah_state_keep_first(void);
/* Undoes what a request has changed in the kept state. */
void howdah_state_restore(void);
/* Before a request: tells the shutdown functions it registers from the script's own. */
void howdah_state_begin_request(void);
/* Calls the shutdown functions that the request has registered, and forgets them. */
void howdah_state_call_shutdown_functions(void);
/* The script ends within a request: its own shutdown functions come before the request's. */
void howdah_state_join_shutdown_functions(void);
/* Fills $_GET and the other superglobals from the present request. */
void howdah_state_import_superglobals(void);
/* The extensions that keep something of a request: ended and begun as for one. */
void howdah_state_end_modules(void);
void howdah_state_begin_modules(void);

/* worker_calls.c: state that only the extensions' own functions can read and set. */
void howdah_calls_prepare(void);
void howdah_calls_keep(void);
void howdah_calls_restore(void);

#endif
