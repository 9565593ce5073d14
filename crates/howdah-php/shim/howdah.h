/* The declarations that all files of the shim need: PHP's headers, the functions that Rust calls, and the request
 * frame, whose layout build.rs generates from howdah-proto into howdah_frame.h.
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

/* A thread-safe build of PHP (ZTS) has its globals once for each thread. As in an extension, the macros find them
 * through a pointer that this library defines (core/threads.c). In other builds the two definitions have no effect. */
#define ZEND_COMPILE_DL_EXT 1
#define ZEND_ENABLE_STATIC_TSRMLS_CACHE 1

/* With the headers of a release that fixes CVE-2026-109618 (8.2.35), code that appends to a smart_str calls two
 * functions that earlier releases of the same series lack. The shim must run in those, too, so core/releases.c defines
 * them. */
#define smart_str_ferealloc howdah_smart_str_ferealloc
#define smart_str_frealloc howdah_smart_str_frealloc
#include "zend.h"
#include "zend_smart_str.h"
#undef smart_str_ferealloc
#undef smart_str_frealloc

#include "php.h"
#include "SAPI.h"
#include "php_main.h"
#include "php_variables.h"
#include "php_ini.h"
#include "zend_ini.h"

#include "entry.h"
#include "howdah_frame.h"

#endif
