/* Statements on their way to a database, from any extension: reports writes to the front.
 *
 * `write` is reported before a writing statement is executed, once per request for the same table and values. The front
 * can see it from then on, so if this process dies meanwhile, the front knows that something may have been written.
 * Other processes may see the written data only after the statement, or its COMMIT, has been executed, and a page
 * rendered before that is stale. The front assumes that a run that has reported a write may have been writing until its
 * response is sent. Only statements executed after that need an effect of their own, `wrote`. It is reported when the
 * header block has been handed over, when the client has been released (fastcgi_finish_request()), and periodically in
 * a script that runs for long.
 *
 * A write that a worker script makes outside of its requests is reported by its next request (`outside`). A worker's
 * transaction may outlast the request that wrote in it; its COMMIT is reported as a write of the request that executes
 * it.
 *
 * Writes that bypass PHP's extensions (FFI, another process) are not seen. */
#include "effects/internal.h"

#include <time.h>

/* Maximum number of different writes of a request that are remembered. Any further write is reported each time. */
#define REMEMBERED 64
/* Milliseconds after which a writing script counts as running for long, and reports `wrote` again. */
#define NOW_AND_THEN 100

static uint64_t remembered[REMEMBERED];
static size_t remembered_count;
/* Whether the run has reported a write, and when it last did so, in milliseconds. */
static bool has_written;
static uint64_t said_at;
/* The worker script wrote while it handled no request. */
static bool wrote_outside;
/* The last write may be in a transaction that is still open, because no transaction has begun or ended since. */
static bool unsettled;

static uint64_t milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool is_outside(void)
{
	return !howdah_current.open && howdah_worker_speaks_itself();
}

void howdah_statements_begin(void)
{
	remembered_count = 0;
	has_written = false;
	if (!howdah_is_worker()) {
		/* An ordinary child's connections end with a request, and so do their transactions. */
		unsettled = false;
	}
	if (wrote_outside && howdah_effects_wanted()) {
		wrote_outside = false;
		howdah_tell(HOWDAH_EFFECT_OUTSIDE, false, NULL, 0);
	}
}

bool howdah_statements_watched(void)
{
	return howdah_effects_wanted() || is_outside();
}

void howdah_statement_read(howdah_statement *statement, uint32_t dialect, const char *sql, size_t len)
{
	if (sql) {
		statement->kind = howdah_describe(dialect, sql, len, statement->text,
		                                  sizeof(statement->text), &statement->len);
	} else {
		static const char any[] = "UNREADABLE\0";
		statement->kind = HOWDAH_WRITES;
		statement->len = sizeof(any);
		memcpy(statement->text, any, sizeof(any));
	}
}

static bool is_new(const howdah_statement *statement)
{
	uint64_t hash = zend_hash_func(statement->text, statement->len);
	for (size_t i = 0; i < remembered_count; i++) {
		if (remembered[i] == hash) {
			return false;
		}
	}
	if (remembered_count < REMEMBERED) {
		remembered[remembered_count++] = hash;
	}
	return true;
}

void howdah_statement_starts(const howdah_statement *statement)
{
	if (statement->kind != HOWDAH_WRITES) {
		return;
	}
	unsettled = true;
	if (is_outside()) {
		wrote_outside = true;
		return;
	}
	if (!howdah_effects_wanted() || !is_new(statement)) {
		return;
	}
	if (!has_written) {
		has_written = true;
		said_at = milliseconds();
	}
	howdah_tell(HOWDAH_EFFECT_WRITE, true, statement->text, statement->len);
	howdah_show();
}

/* Called when a transaction has begun or ended in which an earlier request of this worker may have written. */
static void settled_late(void)
{
	static const char any[] = "COMMIT\0";
	if (is_outside()) {
		wrote_outside = true;
	} else if (howdah_effects_wanted() && !has_written) {
		has_written = true;
		said_at = milliseconds();
		howdah_tell(HOWDAH_EFFECT_WRITE, true, any, sizeof(any));
		howdah_show();
	}
}

void howdah_statement_ended(uint32_t kind)
{
	if (kind == HOWDAH_CONTROLS && unsettled) {
		unsettled = false;
		settled_late();
	}
	if (kind == HOWDAH_READS || !has_written || !howdah_effects_wanted()) {
		return;
	}
	bool waits = !howdah_current.head_sent && !howdah_current.finished;
	if (waits && milliseconds() - said_at < NOW_AND_THEN) {
		return;
	}
	howdah_tell(HOWDAH_EFFECT_WROTE, false, NULL, 0);
	if (!waits && !howdah_current.finished) {
		/* Waking the front would send output that the script has not flushed. The front reads this effect before later
		 * output. */
		howdah_show();
		return;
	}
	said_at = milliseconds();
	(void)howdah_publish();
}

uint32_t howdah_statement_begins(uint32_t dialect, const char *sql, size_t len)
{
	howdah_statement statement;
	howdah_statement_read(&statement, dialect, sql, len);
	howdah_statement_starts(&statement);
	return statement.kind;
}

void howdah_watch_databases(void)
{
	howdah_watch_mysqlnd();
	howdah_watch_database_calls();
}
