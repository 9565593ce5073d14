/* What all files of the shim need: PHP's headers, the functions that Rust calls, and the layout of the request frame,
 * which build.rs generates from howdah-proto into howdah_frame.h.
 *
 * The shim is the boundary between the Rust loop and PHP. C contains every zend_try and everything that may bail out (a
 * longjmp). The Rust functions that C calls are declared under "leaves" in the header of the folder that calls them.
 * They always return and call nothing of PHP, so no bailout ever crosses a Rust frame.
 *
 *     core     the SAPI, PHP's start, one request, and PHP as on a command line
 *     effects  what a run does apart from its response: database writes, cookies, calls of the caches
 *     worker   scripts that boot once for many requests
 *     swoole   scripts written for Swoole's HTTP server
 *
 * core, effects and worker have a header of their own name for what they offer to the other folders. swoole offers
 * nothing to them. internal.h in each folder is for its own files. Files include the headers of their own folder and
 * those of the folders above it in this list. core/core.h names the exceptions, and a test (src/ffi/tests.rs) finds
 * every other one. */
#ifndef HOWDAH_H
#define HOWDAH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "php.h"
#include "SAPI.h"
#include "php_main.h"
#include "php_variables.h"
#include "php_ini.h"
#include "zend_ini.h"

#include "entry.h"
#include "howdah_frame.h"

#endif
