/* What the workers offer to the other folders: sessions.c, by which a Swoole script's sessions are ended, too.
 *
 * The workers use the core, and worker.c uses effects/effects.h. No file of the core or of the effects uses this
 * header: they read howdah_worker (core/core.h). Rust starts a worker's parts by the functions in entry.h. */
#ifndef HOWDAH_WORKER_H
#define HOWDAH_WORKER_H

#include "howdah.h"

/* Finds the session module. Called once, after PHP's start. */
void howdah_session_find(void);
/* Keeps the handlers that are set now; every request begins with them. */
void howdah_session_keep(void);
/* Ends and begins the session module's request if there has been a session; session.auto_start opens none. */
void howdah_session_forget(void);

#endif
