/* What the effects offer to the other folders: the core and the workers tell them when a run begins and ends.
 *
 * The effects use the core and nothing of the folders worker and swoole. The core uses this header against the
 * direction of includes; see core/core.h. */
#ifndef HOWDAH_EFFECTS_H
#define HOWDAH_EFFECTS_H

#include "core/core.h"

/* Wraps PHP's functions that have effects. Called once, after PHP's start. */
void howdah_wrap_effects(void);
/* Wraps the functions of all extensions that send statements to databases. Called once, after PHP's start. */
void howdah_watch_databases(void);
/* Begins a request, none of whose effects has been reported. */
void howdah_effects_begin(void);
/* Reports, once each, the effects that are detected at the end of the run. */
void howdah_tell_effects(void);
/* The SAPI's header_handler, which sees each header that a script sets. */
int howdah_see_header(sapi_header_struct *header, sapi_header_op_enum op, sapi_headers_struct *headers);

#endif
