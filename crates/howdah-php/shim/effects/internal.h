/* Shared by the files of the effects only. */
#ifndef HOWDAH_EFFECTS_INTERNAL_H
#define HOWDAH_EFFECTS_INTERNAL_H

#include "effects/effects.h"

/* ---- leaves: written in Rust (src/ffi/mod.rs) ---- */

/* Makes what was written visible to the front when it next checks, without waking it. */
void howdah_show(void);
/* Classifies an SQL text (crate howdah-sql) as HOWDAH_READS, _CONTROLS or _WRITES. For a write, `out` receives the
 * description, at most HOWDAH_MAX_DESCRIPTION bytes. */
uint32_t howdah_describe(uint32_t dialect, const char *sql, size_t len, char *out, size_t cap, size_t *used);

/* The shared cache (src/ffi/shared_cache.rs). */

/* Bytes that are valid for the duration of a call. */
typedef struct {
	const char *at;
	size_t len;
} howdah_span;

/* Begins a request, which has read nothing from the cache yet. */
void howdah_shared_cache_begin(void);
/* Returns whether this process has a shared cache that may be used now. */
bool howdah_shared_cache_exists(void);
/* Returns the bytes of a value, valid until the next of these calls. Returns false if there is none. */
bool howdah_shared_cache_get(const char *key, size_t len, const char **bytes, size_t *bytes_len);
/* Stores a value for `ttl` seconds, 0 meaning without limit; with `only_new`, only if there is none. Returns whether
 * the value was stored. */
bool howdah_shared_cache_keep(const char *key, size_t len, const char *bytes, size_t bytes_len, uint64_t ttl,
                              const howdah_span *tags, size_t tag_count, bool only_new);
/* Removes a value. Returns whether there was one. */
bool howdah_shared_cache_delete(const char *key, size_t len);
/* Adds `step` to an integer. Returns false if the value is not an integer or the sum overflows. */
bool howdah_shared_cache_increment(const char *key, size_t len, int64_t step, int64_t *sum);
void howdah_shared_cache_delete_tag(const char *tag, size_t len);
/* Fills in size, used, values, hits, misses, evicted. Returns false if the pool has no shared cache. */
bool howdah_shared_cache_info(uint64_t *figures);

/* ---- effects.c ---- */

/* Returns whether effects must be reported. */
bool howdah_effects_wanted(void);
/* Reports the effect `name`. Its value is the place in the script, if `place` is set, followed by `len` bytes. */
void howdah_tell(const char *name, bool place, const char *text, size_t len);

/* ---- statements.c: what is sent to databases, by any extension ---- */

/* The kind of a statement and, for a write, its description for the front. */
typedef struct {
	uint32_t kind; /* HOWDAH_READS, _CONTROLS, _WRITES */
	size_t len;
	char text[HOWDAH_MAX_DESCRIPTION];
} howdah_statement;

/* Begins a request, none of whose writes has been reported. */
void howdah_statements_begin(void);
/* Returns whether statements are watched now. Called first, since most requests are for sites without a cache. */
bool howdah_statements_watched(void);
/* Classifies a statement's text. NULL means that the text is not known, which counts as a write to any table. */
void howdah_statement_read(howdah_statement *statement, uint32_t dialect, const char *sql, size_t len);
/* Called before a statement is executed and after it has been, the latter with its kind. */
void howdah_statement_starts(const howdah_statement *statement);
void howdah_statement_ended(uint32_t kind);
/* Classifies a text and reports that its execution begins. Returns its kind. */
uint32_t howdah_statement_begins(uint32_t dialect, const char *sql, size_t len);

/* ---- statements of the extensions ---- */

/* mysqlnd.c: mysqli and PDO_MySQL. database_calls.c: PDO, SQLite3. pgsql_calls.c: pgsql. */
/* Returns whether the extension `name` was built on mysqlnd and mysqlnd is watched. */
bool howdah_is_watched_below(const char *name);
void howdah_watch_mysqlnd(void);
void howdah_watch_database_calls(void);

#endif
