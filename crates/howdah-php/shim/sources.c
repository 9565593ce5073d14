/* Whether all that a run's answer is made of, and all that the run changes for others, are tables of
 * databases whose names are known: the front then keeps its page through writes to other tables, and a
 * write of such a run makes no other pages old (docs/cache.md, "Table versions").
 *
 *   tracked   first of all: what is not told from here on, the run does not do
 *   read      a table that a statement can read or write, once, before the statement is executed
 *   beyond    the run is about to do something else, or something that is not understood; after that
 *             nothing is known of it, and no more is told
 *
 * What goes beyond: a function or method of an extension that is not on the list below (APCu, Redis,
 * Memcached, curl, shared memory, sockets …: a list of what is harmless, so that an extension nobody here
 * has heard of counts), a function of a harmless one that does (processes, sockets, links), a stream of
 * another machine, a file or directory written, a statement that is not understood, a connection that
 * outlives its request or reads statements in a way of its own. A worker script is never tracked: its
 * answers are made of what it remembers.
 *
 * Files that are only read do not count: who writes one goes beyond, and makes all pages old if it was a
 * request that may write. */
#include "howdah.h"

#include "worker.h"

#include "php_streams.h"
#include "zend_extensions.h"

/* Most tables told of a run. */
#define TABLES_MAX 64

/* Extensions that give nothing but what they are handed, or whose statements are looked at; in small
 * letters. */
static const char *const harmless[] = {
	"core", "standard", "date", "pcre", "ctype", "json", "hash", "random", "reflection", "spl", "mbstring",
	"iconv", "intl", "gettext", "calendar", "bcmath", "gmp", "tokenizer", "filter", "session", "dom",
	"libxml", "xml", "xmlreader", "xmlwriter", "simplexml", "xsl", "zlib", "fileinfo", "exif", "gd",
	"sodium", "openssl", "mysqlnd", "mysqli", "pdo", "pdo_mysql", "pdo_sqlite", "sqlite3", "igbinary",
	"msgpack", "posix", "howdah",
};

/* Functions of these that are not. */
static const char *const not_harmless[] = {
	"exec", "shell_exec", "system", "passthru", "popen", "proc_open", "fsockopen", "pfsockopen",
	"stream_socket_client", "stream_socket_server", "stream_socket_pair", "move_uploaded_file", "symlink",
	"link", "touch", "chmod", "chown", "chgrp", "lchown", "lchgrp", "tempnam", "imagegd", "imagegd2", "dl",
	"posix_mkfifo", "posix_mknod", "openssl_pkcs7_sign", "openssl_pkcs7_encrypt",
	"openssl_pkcs7_decrypt", "openssl_pkcs7_verify", "openssl_cms_sign", "openssl_cms_encrypt",
	"openssl_cms_decrypt", "openssl_cms_verify", "openssl_x509_export_to_file",
	"openssl_pkey_export_to_file", "openssl_csr_export_to_file", "openssl_pkcs12_export_to_file",
};

static const struct {
	const char *class_name, *name;
} not_harmless_methods[] = {
	{"sqlite3", "loadextension"},
	{"sqlite3", "openblob"},
	{"pdo\\sqlite", "loadextension"},
	{"pdo\\sqlite", "openblob"},
};

/* Where a function keeps its stock handler: a copy of it, by inheritance or as a closure, has it too. */
static int place;
static bool is_watched;
static bool tracked;
static uint64_t told[TABLES_MAX];
static size_t told_count;

void howdah_sources_begin(void)
{
	told_count = 0;
	tracked = is_watched && howdah_effects_wanted() && !howdah_is_worker();
	if (tracked) {
		howdah_tell(HOWDAH_EFFECT_TRACKED, false, NULL, 0);
	}
}

void howdah_beyond(const char *what, size_t len)
{
	if (!tracked || !howdah_effects_wanted()) {
		return;
	}
	tracked = false;
	howdah_tell(HOWDAH_EFFECT_BEYOND, true, what, MIN(len, HOWDAH_MAX_DESCRIPTION));
	/* Before it happens: this process may die of it. */
	howdah_show();
}

static void beyond(const char *what)
{
	howdah_beyond(what, strlen(what));
}

void howdah_sources_of(uint32_t dialect, const char *sql, size_t len)
{
	if (!tracked || !howdah_effects_wanted()) {
		return;
	}
	if (!sql) {
		beyond("a statement that is not seen");
		return;
	}
	char names[HOWDAH_MAX_MENTIONS];
	size_t used = 0;
	if (!howdah_mentioned(dialect, sql, len, names, sizeof(names), &used)) {
		howdah_beyond(names, used);
		return;
	}
	for (size_t at = 0; at < used;) {
		size_t length = strlen(names + at);
		uint64_t hash = zend_hash_func(names + at, length);
		bool known = false;
		for (size_t i = 0; i < told_count && !known; i++) {
			known = told[i] == hash;
		}
		if (!known) {
			if (told_count == TABLES_MAX) {
				beyond("more tables than are told");
				return;
			}
			told[told_count++] = hash;
			howdah_tell(HOWDAH_EFFECT_READ, false, names + at, length);
		}
		at += length + 1;
	}
}

/* ---- functions ---- */

static void outside(INTERNAL_FUNCTION_PARAMETERS)
{
	const zend_function *function = execute_data->func;
	zif_handler stock = (zif_handler)function->internal_function.reserved[place];
	if (tracked && function->common.function_name) {
		char name[256];
		const zend_class_entry *scope = function->common.scope;
		int len = snprintf(name, sizeof(name), "%s%s%s()", scope ? ZSTR_VAL(scope->name) : "",
		                   scope ? "::" : "", ZSTR_VAL(function->common.function_name));
		howdah_beyond(name, MIN((size_t)MAX(len, 0), sizeof(name) - 1));
	}
	stock(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static void wrap(zend_function *function)
{
	zend_internal_function *internal = &function->internal_function;
	if (function->type == ZEND_INTERNAL_FUNCTION && internal->handler && internal->handler != outside) {
		internal->reserved[place] = (void *)internal->handler;
		internal->handler = outside;
	}
}

static bool is_harmless(const zend_module_entry *module)
{
	for (size_t i = 0; module && i < sizeof(harmless) / sizeof(*harmless); i++) {
		if (strcasecmp(module->name, harmless[i]) == 0) {
			return true;
		}
	}
	return !module;
}

static void wrap_functions(void)
{
	zend_function *function;
	zend_class_entry *class;
	ZEND_HASH_FOREACH_PTR(CG(function_table), function) {
		if (function->type == ZEND_INTERNAL_FUNCTION && !is_harmless(function->internal_function.module)) {
			wrap(function);
		}
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_PTR(CG(class_table), class) {
		if (class->type != ZEND_INTERNAL_CLASS) {
			continue;
		}
		bool foreign = !is_harmless(class->info.internal.module);
		ZEND_HASH_FOREACH_PTR(&class->function_table, function) {
			if (function->type != ZEND_INTERNAL_FUNCTION) {
				continue;
			}
			const zend_module_entry *module = function->internal_function.module;
			if (module ? !is_harmless(module) : foreign) {
				wrap(function);
			}
		} ZEND_HASH_FOREACH_END();
	} ZEND_HASH_FOREACH_END();
	for (size_t i = 0; i < sizeof(not_harmless) / sizeof(*not_harmless); i++) {
		function = zend_hash_str_find_ptr(CG(function_table), not_harmless[i], strlen(not_harmless[i]));
		if (function) {
			wrap(function);
		}
	}
	for (size_t i = 0; i < sizeof(not_harmless_methods) / sizeof(*not_harmless_methods); i++) {
		const char *class_name = not_harmless_methods[i].class_name, *name = not_harmless_methods[i].name;
		class = zend_hash_str_find_ptr(CG(class_table), class_name, strlen(class_name));
		function = class ? zend_hash_str_find_ptr(&class->function_table, name, strlen(name)) : NULL;
		if (function) {
			wrap(function);
		}
	}
}

/* ---- streams ---- */

/* The wrappers of PHP and its extensions, each with operations of ours in front of its own. Those for
 * files go beyond only where they change something. */
#define WRAPPERS_MAX 24
static struct watched {
	php_stream_wrapper *wrapper;
	php_stream_wrapper copy;
	php_stream_wrapper_ops ops;
	const php_stream_wrapper_ops *stock;
	bool is_file;
} wrappers[WRAPPERS_MAX];
static size_t wrapper_count;

static const struct watched *watched_of(const php_stream_wrapper *wrapper)
{
	for (size_t i = 0; i < wrapper_count; i++) {
		if (wrappers[i].wrapper == wrapper) {
			return &wrappers[i];
		}
	}
	/* Only those in the table have these operations. */
	return NULL;
}

static php_stream *open_stream(php_stream_wrapper *wrapper, const char *filename, const char *mode,
                               int options, zend_string **opened_path, php_stream_context *context STREAMS_DC)
{
	const struct watched *watched = watched_of(wrapper);
	if (!watched->is_file) {
		beyond("a stream of another kind");
	} else if (strpbrk(mode, "waxc+")) {
		beyond("a file opened for writing");
	}
	return watched->stock->stream_opener(wrapper, filename, mode, options, opened_path,
	                                     context STREAMS_REL_CC);
}

static int remove_file(php_stream_wrapper *wrapper, const char *url, int options, php_stream_context *context)
{
	beyond("a file removed");
	return watched_of(wrapper)->stock->unlink(wrapper, url, options, context);
}

static int rename_file(php_stream_wrapper *wrapper, const char *from, const char *to, int options,
                       php_stream_context *context)
{
	beyond("a file renamed");
	return watched_of(wrapper)->stock->rename(wrapper, from, to, options, context);
}

static int make_directory(php_stream_wrapper *wrapper, const char *url, int mode, int options,
                          php_stream_context *context)
{
	beyond("a directory made");
	return watched_of(wrapper)->stock->stream_mkdir(wrapper, url, mode, options, context);
}

static int remove_directory(php_stream_wrapper *wrapper, const char *url, int options,
                            php_stream_context *context)
{
	beyond("a directory removed");
	return watched_of(wrapper)->stock->stream_rmdir(wrapper, url, options, context);
}

static int change_metadata(php_stream_wrapper *wrapper, const char *url, int options, void *value,
                           php_stream_context *context)
{
	beyond("a file touched, or its owner or mode changed");
	return watched_of(wrapper)->stock->stream_metadata(wrapper, url, options, value, context);
}

static int stat_url(php_stream_wrapper *wrapper, const char *url, int flags, php_stream_statbuf *ssb,
                    php_stream_context *context)
{
	const struct watched *watched = watched_of(wrapper);
	if (!watched->is_file) {
		beyond("a stream of another kind");
	}
	return watched->stock->url_stat(wrapper, url, flags, ssb, context);
}

static php_stream *open_directory(php_stream_wrapper *wrapper, const char *filename, const char *mode,
                                  int options, zend_string **opened_path,
                                  php_stream_context *context STREAMS_DC)
{
	const struct watched *watched = watched_of(wrapper);
	if (!watched->is_file) {
		beyond("a stream of another kind");
	}
	return watched->stock->dir_opener(wrapper, filename, mode, options, opened_path, context STREAMS_REL_CC);
}

static void watch(struct watched *watched, const php_stream_wrapper_ops *stock, bool is_file)
{
	watched->stock = stock;
	watched->is_file = is_file;
	watched->ops = *stock;
#define OURS(operation, ours) (watched->ops.operation = stock->operation ? (ours) : NULL)
	OURS(stream_opener, open_stream);
	OURS(url_stat, stat_url);
	OURS(dir_opener, open_directory);
	OURS(unlink, remove_file);
	OURS(rename, rename_file);
	OURS(stream_mkdir, make_directory);
	OURS(stream_rmdir, remove_directory);
	OURS(stream_metadata, change_metadata);
#undef OURS
	wrapper_count++;
}

/* False: there are too many kinds of streams. */
static bool watch_streams(void)
{
	/* They open what the others give them, or nothing outside of this process. */
	static const char *const inner[] = {"php", "glob", "data", "compress.zlib"};
	/* The one for files is not in its own table but by the name `file`; PHP has it for that not constant. */
	struct watched *files = &wrappers[0];
	files->wrapper = &php_plain_files_wrapper;
	watch(files, php_plain_files_wrapper.wops, true);
	php_plain_files_wrapper.wops = &files->ops;

	HashTable *all = php_stream_get_url_stream_wrappers_hash_global();
	zend_string *name;
	zval *value;
	ZEND_HASH_FOREACH_STR_KEY_VAL(all, name, value) {
		php_stream_wrapper *stock = Z_PTR_P(value);
		bool is_inner = stock == &php_plain_files_wrapper;
		for (size_t i = 0; name && i < sizeof(inner) / sizeof(*inner); i++) {
			is_inner |= strcmp(ZSTR_VAL(name), inner[i]) == 0;
		}
		if (is_inner) {
			continue;
		}
		if (wrapper_count == WRAPPERS_MAX) {
			return false;
		}
		struct watched *watched = &wrappers[wrapper_count];
		watched->copy = *stock;
		watched->wrapper = &watched->copy;
		watch(watched, stock->wops, false);
		watched->copy.wops = &watched->ops;
		ZVAL_PTR(value, &watched->copy);
	} ZEND_HASH_FOREACH_END();
	return true;
}

void howdah_watch_sources(void)
{
	int free_place = zend_get_resource_handle("howdah");
	if (free_place < 0) {
		fprintf(stderr,
		        "SourcesUnwatched: other extensions have taken all places in PHP's functions; the page cache knows of no page which tables it was made of\n");
		return;
	}
	place = free_place;
	wrap_functions();
	is_watched = watch_streams();
	if (!is_watched) {
		fprintf(stderr,
		        "SourcesUnwatched: there are more kinds of streams than %d; the page cache knows of no page which tables it was made of\n",
		        WRAPPERS_MAX);
	}
}
