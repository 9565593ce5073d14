/* Swoole\Http\Request. Its arrays are created when a script first reads them: the slots of the declared properties are
 * left undefined, so PHP's engine passes every access to the handlers in this file. A request that the script does not
 * inspect costs an object and no array.
 *
 * The bytes belong to the loop and exist while the callback runs. If the script keeps the object longer, all its arrays
 * are created when the callback returns. */
#include "swoole/internal.h"

#include <sys/time.h>
#include <unistd.h>

#include "ext/standard/url.h"
#include "rfc1867.h"
#include "zend_exceptions.h"

static zend_class_entry *request_ce;
static zend_object_handlers handlers;

/* The declared properties, in the order of their declaration. */
enum { FD, STREAM_ID, HEADER, SERVER, COOKIE, GET, FILES, POST, TMPFILES, PROPERTIES };

static const char *const names[PROPERTIES] = {
	"fd", "streamId", "header", "server", "cookie", "get", "files", "post", "tmpfiles",
};

typedef struct {
	uint64_t connection;
	/* The loop still has the bytes of the request. */
	bool live;
	/* One bit for each property that has not been created yet. */
	uint32_t missing;
	zend_string *content;
	zend_object std;
} request_t;

static request_t *of(zend_object *object)
{
	return (request_t *)((char *)object - offsetof(request_t, std));
}

/* ---- names known in advance ---- */

static zend_string *property_names[PROPERTIES];

enum {
	S_QUERY_STRING,
	S_REQUEST_METHOD,
	S_REQUEST_URI,
	S_PATH_INFO,
	S_REQUEST_TIME,
	S_REQUEST_TIME_FLOAT,
	S_SERVER_PROTOCOL,
	S_SERVER_PORT,
	S_REMOTE_PORT,
	S_REMOTE_ADDR,
	S_MASTER_TIME,
	S_HTTP_1_0,
	S_HTTP_1_1,
	S_GET,
	S_POST,
	S_LOOPBACK,
	STRINGS,
};

static const char *const string_texts[STRINGS] = {
	"query_string", "request_method",  "request_uri", "path_info",   "request_time", "request_time_float",
	"server_protocol", "server_port", "remote_port", "remote_addr", "master_time",  "HTTP/1.0",
	"HTTP/1.1",     "GET",             "POST",        "127.0.0.1",
};

static zend_string *strings[STRINGS];

static const char *const usual_headers[] = {
	"host",           "user-agent",     "accept",          "accept-encoding", "accept-language",   "connection",
	"content-type",   "content-length", "cache-control",   "pragma",          "referer",           "origin",
	"authorization",  "cookie",         "if-none-match",   "x-requested-with", "x-forwarded-for",  "x-forwarded-proto",
	"x-forwarded-host", "x-forwarded-port", "x-real-ip",   "upgrade-insecure-requests", "sec-fetch-mode", "sec-fetch-site",
	"sec-fetch-dest", "sec-fetch-user", "if-modified-since", "range",         "te",                "dnt",
};

static HashTable usual;

void howdah_swoole_intern(void)
{
	for (size_t i = 0; i < PROPERTIES; i++) {
		property_names[i] = zend_string_init_interned(names[i], strlen(names[i]), 1);
	}
	for (size_t i = 0; i < STRINGS; i++) {
		strings[i] = zend_string_init_interned(string_texts[i], strlen(string_texts[i]), 1);
	}
	size_t count = sizeof(usual_headers) / sizeof(*usual_headers);
	zend_hash_init(&usual, (uint32_t)count, NULL, NULL, 1);
	for (size_t i = 0; i < count; i++) {
		zend_string *name = zend_string_init_interned(usual_headers[i], strlen(usual_headers[i]), 1);
		zend_hash_add_ptr(&usual, name, name);
	}
}

static zend_string *header_name(const howdah_bytes *name)
{
	char lower[64];
	if (name->len < sizeof(lower)) {
		zend_str_tolower_copy(lower, name->at, name->len);
		zend_string *known = zend_hash_str_find_ptr(&usual, lower, name->len);
		return known ? known : zend_string_init(lower, name->len, 0);
	}
	zend_string *made = zend_string_alloc(name->len, 0);
	zend_str_tolower_copy(ZSTR_VAL(made), name->at, name->len);
	return made;
}

static bool is_name(const howdah_bytes *name, const char *wanted)
{
	return name->len == strlen(wanted) && strncasecmp(name->at, wanted, name->len) == 0;
}

/* ---- the arrays ---- */

static void make_header(request_t *request, zval *slot)
{
	array_init(slot);
	howdah_bytes name, value;
	for (size_t i = 0; howdah_run_field(request->connection, i, &name, &value); i++) {
		if (howdah_swoole.parse_cookie && is_name(&name, "cookie")) {
			/* As in Swoole, `header` does not contain it; it is in `cookie`. */
			continue;
		}
		zend_string *key = header_name(&name);
		zval text;
		ZVAL_STRINGL_FAST(&text, value.at, value.len);
		zval *before = zend_hash_find(Z_ARRVAL_P(slot), key);
		if (!before) {
			zend_hash_add_new(Z_ARRVAL_P(slot), key, &text);
		} else {
			if (Z_TYPE_P(before) != IS_ARRAY) {
				zval list;
				array_init(&list);
				add_next_index_zval(&list, before);
				ZVAL_COPY_VALUE(before, &list);
			}
			add_next_index_zval(before, &text);
		}
		zend_string_release(key);
	}
}

static void add(zval *array, int name, zval *value)
{
	zend_hash_add_new(Z_ARRVAL_P(array), strings[name], value);
}

static void add_bytes(zval *array, int name, const howdah_bytes *bytes)
{
	zval value;
	ZVAL_STRINGL_FAST(&value, bytes->at, bytes->len);
	add(array, name, &value);
}

static void add_known(zval *array, int name, int text)
{
	zval value;
	ZVAL_INTERNED_STR(&value, strings[text]);
	add(array, name, &value);
}

static void add_number(zval *array, int name, zend_long number)
{
	zval value;
	ZVAL_LONG(&value, number);
	add(array, name, &value);
}

/* Fills `server`, with the keys in Swoole's order. */
static void make_server(const howdah_run_request_t *request, zval *slot)
{
	array_init_size(slot, 16);
	if (request->query.at) {
		add_bytes(slot, S_QUERY_STRING, &request->query);
	}
	add_bytes(slot, S_REQUEST_METHOD, &request->method);
	add_bytes(slot, S_REQUEST_URI, &request->path);
	zval value;
	zend_string *path = zend_string_init(request->path.at, request->path.len, 0);
	ZSTR_LEN(path) = php_url_decode(ZSTR_VAL(path), ZSTR_LEN(path));
	ZVAL_STR(&value, path);
	add(slot, S_PATH_INFO, &value);
	struct timeval now;
	gettimeofday(&now, NULL);
	add_number(slot, S_REQUEST_TIME, now.tv_sec);
	ZVAL_DOUBLE(&value, (double)now.tv_sec + (double)now.tv_usec / 1e6);
	add(slot, S_REQUEST_TIME_FLOAT, &value);
	add_known(slot, S_SERVER_PROTOCOL, request->http11 ? S_HTTP_1_1 : S_HTTP_1_0);
	add_number(slot, S_SERVER_PORT, request->server_port);
	add_number(slot, S_REMOTE_PORT, request->remote_port);
	howdah_bytes address = {request->remote_address, strlen(request->remote_address)};
	add_bytes(slot, S_REMOTE_ADDR, &address);
	add_number(slot, S_MASTER_TIME, now.tv_sec);
}

/* Uses PHP's own cookie parser, so `cookie` equals what $_COOKIE would be: the first of two values counts, a cookie
 * without "=" is empty, names become variables, and max_input_vars applies. */
static void make_cookie(request_t *request, zval *slot)
{
	if (!howdah_swoole.parse_cookie) {
		return;
	}
	smart_str all = {0};
	howdah_bytes name, value;
	for (size_t i = 0; howdah_run_field(request->connection, i, &name, &value); i++) {
		if (is_name(&name, "cookie")) {
			if (all.s) {
				smart_str_appends(&all, "; ");
			}
			smart_str_appendl(&all, value.at, value.len);
		}
	}
	if (!all.s) {
		return;
	}
	smart_str_0(&all);
	zval *cookies = &PG(http_globals)[TRACK_VARS_COOKIE], cookies_before;
	char *data_before = SG(request_info).cookie_data;
	ZVAL_COPY_VALUE(&cookies_before, cookies);
	ZVAL_UNDEF(cookies);
	SG(request_info).cookie_data = ZSTR_VAL(all.s);
	sapi_module.treat_data(PARSE_COOKIE, NULL, NULL);
	SG(request_info).cookie_data = data_before;
	ZVAL_COPY_VALUE(slot, cookies);
	ZVAL_COPY_VALUE(cookies, &cookies_before);
	smart_str_free(&all);
}

/* Parses the text as PHP parses a query string, which frees its copy. */
static void make_pairs(const howdah_bytes *text, zval *slot)
{
	array_init(slot);
	sapi_module.treat_data(PARSE_STRING, estrndup(text->at, text->len), slot);
}

/* ---- bodies of forms ---- */

static howdah_bytes post_left;

size_t howdah_swoole_read_post(char *buffer, size_t len)
{
	size_t n = MIN(len, post_left.len);
	memcpy(buffer, post_left.at, n);
	post_left.at += n;
	post_left.len -= n;
	return n;
}

/* The keys of an uploaded file's array. */
enum { FACTS = 5 };

static const char *const fact_names[FACTS] = {"name", "type", "tmp_name", "error", "size"};

static void collect_tmpfiles(zval *node, zval *list)
{
	zval *one;
	if (Z_TYPE_P(node) == IS_ARRAY) {
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(node), one) {
			collect_tmpfiles(one, list);
		} ZEND_HASH_FOREACH_END();
	} else if (Z_TYPE_P(node) == IS_STRING && Z_STRLEN_P(node)) {
		Z_TRY_ADDREF_P(node);
		add_next_index_zval(list, node);
	}
}

static zval *same_key(HashTable *from, zend_ulong index, zend_string *name)
{
	return name ? zend_hash_find(from, name) : zend_hash_index_find(from, index);
}

/* Converts PHP's files["form"]["size"]["file"] to Swoole's files["form"]["file"]["size"] (unless `http_parse_files`
 * asks for PHP's form). PHP limits the depth (max_input_nesting_level). */
static void regroup(zval *into, zval *const facts[FACTS])
{
	array_init(into);
	if (Z_TYPE_P(facts[0]) != IS_ARRAY) {
		for (int i = 0; i < FACTS; i++) {
			Z_TRY_ADDREF_P(facts[i]);
			add_assoc_zval(into, fact_names[i], facts[i]);
		}
		return;
	}
	zend_ulong index;
	zend_string *name;
	zval *first;
	ZEND_HASH_FOREACH_KEY_VAL(Z_ARRVAL_P(facts[0]), index, name, first) {
		zval *below[FACTS] = {first}, made;
		int found = 1;
		while (found < FACTS && Z_TYPE_P(facts[found]) == IS_ARRAY
		       && (below[found] = same_key(Z_ARRVAL_P(facts[found]), index, name))) {
			found++;
		}
		if (found < FACTS) {
			continue;
		}
		regroup(&made, below);
		if (name) {
			zend_hash_update(Z_ARRVAL_P(into), name, &made);
		} else {
			zend_hash_index_update(Z_ARRVAL_P(into), index, &made);
		}
	} ZEND_HASH_FOREACH_END();
}

/* Converts one entry of $_FILES to Swoole's form. */
static void regroup_entry(zval *entry)
{
	zval *facts[FACTS], made;
	for (int i = 0; i < FACTS; i++) {
		facts[i] = zend_hash_str_find(Z_ARRVAL_P(entry), fact_names[i], strlen(fact_names[i]));
		if (!facts[i]) {
			return;
		}
	}
	if (Z_TYPE_P(facts[0]) == IS_ARRAY) {
		regroup(&made, facts);
		zval_ptr_dtor(entry);
		ZVAL_COPY_VALUE(entry, &made);
	}
}

/* Uses PHP's own parser for uploads, with its limits (max_file_uploads, upload_max_filesize). The limit of the whole
 * body is package_max_length, which the loop has enforced. */
static void make_form(request_t *request, const howdah_run_request_t *seen, const howdah_bytes *type,
                      zval *post, zval *files, zval *tmpfiles)
{
	HashTable *uploads_before = SG(rfc1867_uploaded_files);
	zval files_before;
	ZVAL_COPY_VALUE(&files_before, &PG(http_globals)[TRACK_VARS_FILES]);
	zend_long limit_before = SG(post_max_size);
	ZVAL_UNDEF(&PG(http_globals)[TRACK_VARS_FILES]);
	SG(post_max_size) = 0;
	SG(request_info).content_length = (zend_long)seen->body.len;
	SG(read_post_bytes) = 0;
	SG(post_read) = 0;
	SG(rfc1867_uploaded_files) = NULL;
	post_left = seen->body;
	array_init(post);
	char *copy = estrndup(type->at, type->len);
	rfc1867_post_handler(copy, post);
	efree(copy);
	SG(post_max_size) = limit_before;
	post_left.len = 0;

	zval *found = &PG(http_globals)[TRACK_VARS_FILES];
	if (Z_TYPE_P(found) == IS_ARRAY && zend_hash_num_elements(Z_ARRVAL_P(found))) {
		zval *one;
		SEPARATE_ARRAY(found);
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(found), one) {
			if (Z_TYPE_P(one) == IS_ARRAY) {
				/* Swoole has the same keys as PHP except for this one. */
				SEPARATE_ARRAY(one);
				zend_hash_str_del(Z_ARRVAL_P(one), "full_path", sizeof("full_path") - 1);
				zval *paths = zend_hash_str_find(Z_ARRVAL_P(one), "tmp_name", sizeof("tmp_name") - 1);
				if (paths) {
					if (Z_TYPE_P(tmpfiles) != IS_ARRAY) {
						array_init(tmpfiles);
					}
					collect_tmpfiles(paths, tmpfiles);
				}
				if (!howdah_swoole.parse_files) {
					regroup_entry(one);
				}
			}
		} ZEND_HASH_FOREACH_END();
		ZVAL_COPY(files, found);
	}
	zval_ptr_dtor(found);
	ZVAL_COPY_VALUE(&PG(http_globals)[TRACK_VARS_FILES], &files_before);
	/* is_uploaded_file() and move_uploaded_file() use one table, which may also contain files of earlier requests that
	 * the script has kept. */
	if (uploads_before) {
		if (SG(rfc1867_uploaded_files)) {
			zend_string *path;
			ZEND_HASH_FOREACH_STR_KEY(SG(rfc1867_uploaded_files), path) {
				if (path) {
					zend_hash_add_ptr(uploads_before, path, zend_string_copy(path));
				}
			} ZEND_HASH_FOREACH_END();
			zend_hash_destroy(SG(rfc1867_uploaded_files));
			FREE_HASHTABLE(SG(rfc1867_uploaded_files));
		}
		SG(rfc1867_uploaded_files) = uploads_before;
	}
	if (zend_hash_num_elements(Z_ARRVAL_P(post)) == 0) {
		zval_ptr_dtor(post);
		ZVAL_NULL(post);
	}
}

static void make_body(request_t *request, const howdah_run_request_t *seen, zval *post, zval *files,
                      zval *tmpfiles)
{
	const howdah_bytes *method = &seen->method;
	if (!howdah_swoole.parse_post || seen->body.len == 0
	    || !(is_name(method, "POST") || is_name(method, "PUT") || is_name(method, "DELETE")
	         || is_name(method, "PATCH"))) {
		return;
	}
	howdah_bytes name, type;
	for (size_t i = 0; howdah_run_field(request->connection, i, &name, &type); i++) {
		if (!is_name(&name, "content-type")) {
			continue;
		}
		static const char form[] = "application/x-www-form-urlencoded", parts[] = "multipart/form-data";
		if (type.len >= sizeof(form) - 1 && strncasecmp(type.at, form, sizeof(form) - 1) == 0) {
			make_pairs(&seen->body, post);
		} else if (type.len >= sizeof(parts) - 1 && strncasecmp(type.at, parts, sizeof(parts) - 1) == 0) {
			make_form(request, seen, &type, post, files, tmpfiles);
		}
		return;
	}
}

/* Creates the properties whose bits are set in `wanted`. */
static void make(request_t *request, uint32_t wanted)
{
	const uint32_t of_body = 1 << FILES | 1 << POST | 1 << TMPFILES;
	if (wanted & of_body) {
		wanted |= of_body;
	}
	wanted &= request->missing;
	if (!wanted) {
		return;
	}
	request->missing &= ~wanted;
	zval *slot = request->std.properties_table;
	for (int i = HEADER; i < PROPERTIES; i++) {
		if (wanted & (1u << i)) {
			ZVAL_NULL(&slot[i]);
		}
	}
	howdah_run_request_t seen;
	if (!request->live || !howdah_run_request(request->connection, &seen)) {
		return;
	}
	if (wanted & 1 << HEADER) {
		make_header(request, &slot[HEADER]);
	}
	if (wanted & 1 << SERVER) {
		make_server(&seen, &slot[SERVER]);
	}
	if (wanted & 1 << COOKIE) {
		make_cookie(request, &slot[COOKIE]);
	}
	if (wanted & 1 << GET && seen.query.at) {
		make_pairs(&seen.query, &slot[GET]);
	}
	if (wanted & of_body) {
		make_body(request, &seen, &slot[POST], &slot[FILES], &slot[TMPFILES]);
	}
}

static void make_named(request_t *request, zend_string *name)
{
	if (!request->missing) {
		return;
	}
	for (int i = HEADER; i < PROPERTIES; i++) {
		if (name == property_names[i] || zend_string_equals(name, property_names[i])) {
			make(request, 1u << i);
			return;
		}
	}
}

/* ---- the object ---- */

static zval *read_property(zend_object *object, zend_string *name, int type, void **cache, zval *rv)
{
	make_named(of(object), name);
	return zend_std_read_property(object, name, type, cache, rv);
}

static zval *write_property(zend_object *object, zend_string *name, zval *value, void **cache)
{
	make_named(of(object), name);
	return zend_std_write_property(object, name, value, cache);
}

static zval *get_property_ptr_ptr(zend_object *object, zend_string *name, int type, void **cache)
{
	make_named(of(object), name);
	return zend_std_get_property_ptr_ptr(object, name, type, cache);
}

static int has_property(zend_object *object, zend_string *name, int check, void **cache)
{
	make_named(of(object), name);
	return zend_std_has_property(object, name, check, cache);
}

static HashTable *get_properties(zend_object *object)
{
	make(of(object), of(object)->missing);
	return zend_std_get_properties(object);
}

static zend_object *create(zend_class_entry *ce)
{
	request_t *request = zend_object_alloc(sizeof(request_t), ce);
	request->connection = 0;
	request->live = false;
	request->missing = 0;
	request->content = NULL;
	zend_object_std_init(&request->std, ce);
	object_properties_init(&request->std, ce);
	request->std.handlers = &handlers;
	return &request->std;
}

static void destroy(zend_object *object)
{
	request_t *request = of(object);
	zval *tmpfiles = &object->properties_table[TMPFILES];
	if (UNEXPECTED(Z_TYPE_P(tmpfiles) == IS_ARRAY)) {
		zval *path;
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(tmpfiles), path) {
			HashTable *uploads = SG(rfc1867_uploaded_files);
			/* A file that the script has moved is no longer in the table; its name may belong to another file. */
			if (Z_TYPE_P(path) == IS_STRING && uploads && zend_hash_exists(uploads, Z_STR_P(path))) {
				unlink(Z_STRVAL_P(path));
				zend_hash_del(uploads, Z_STR_P(path));
			}
		} ZEND_HASH_FOREACH_END();
	}
	if (request->content) {
		zend_string_release(request->content);
	}
	zend_object_std_dtor(object);
}

void howdah_swoole_new_request(zval *object, uint64_t connection)
{
	zend_object *made = create(request_ce);
	request_t *request = of(made);
	ZVAL_OBJ(object, made);
	request->connection = connection;
	request->live = true;
	ZVAL_LONG(&made->properties_table[FD], (zend_long)connection);
	for (int i = HEADER; i < PROPERTIES; i++) {
		ZVAL_UNDEF(&made->properties_table[i]);
		request->missing |= 1u << i;
	}
}

static zend_string *content(request_t *request)
{
	if (!request->content) {
		howdah_run_request_t seen;
		if (!request->live || !howdah_run_request(request->connection, &seen)) {
			return NULL;
		}
		request->content = zend_string_init(seen.body.at, seen.body.len, 0);
	}
	return request->content;
}

void howdah_swoole_settle_request(zval *object)
{
	request_t *request = of(Z_OBJ_P(object));
	make(request, request->missing);
	(void)content(request);
	request->live = false;
}

/* ---- methods ---- */

static PHP_METHOD(Request, getContent)
{
	ZEND_PARSE_PARAMETERS_NONE();
	zend_string *text = content(of(Z_OBJ_P(ZEND_THIS)));
	if (!text) {
		RETURN_FALSE;
	}
	RETURN_STR_COPY(text);
}

/* Returns the request as it arrived, with a chunked body decoded. */
static PHP_METHOD(Request, getData)
{
	ZEND_PARSE_PARAMETERS_NONE();
	request_t *request = of(Z_OBJ_P(ZEND_THIS));
	howdah_run_request_t seen;
	if (!request->live || !howdah_run_request(request->connection, &seen)) {
		RETURN_FALSE;
	}
	zend_string *all = zend_string_alloc(seen.head.len + seen.body.len, 0);
	memcpy(ZSTR_VAL(all), seen.head.at, seen.head.len);
	memcpy(ZSTR_VAL(all) + seen.head.len, seen.body.at, seen.body.len);
	ZSTR_VAL(all)[ZSTR_LEN(all)] = '\0';
	RETURN_STR(all);
}

static PHP_METHOD(Request, getMethod)
{
	ZEND_PARSE_PARAMETERS_NONE();
	request_t *request = of(Z_OBJ_P(ZEND_THIS));
	howdah_run_request_t seen;
	if (request->live && howdah_run_request(request->connection, &seen)) {
		RETURN_STRINGL_FAST(seen.method.at, seen.method.len);
	}
	/* The request was kept beyond its callback, so this uses the arrays that were created then. */
	zval *server = &request->std.properties_table[SERVER];
	zval *method = Z_TYPE_P(server) == IS_ARRAY
	    ? zend_hash_find(Z_ARRVAL_P(server), strings[S_REQUEST_METHOD]) : NULL;
	if (!method) {
		RETURN_FALSE;
	}
	RETURN_COPY(method);
}

static PHP_METHOD(Request, isCompleted)
{
	ZEND_PARSE_PARAMETERS_NONE();
	/* The loop passes on only whole requests. */
	RETURN_BOOL(of(Z_OBJ_P(ZEND_THIS))->connection != 0);
}

static PHP_METHOD(Request, notHere)
{
	char what[96];
	snprintf(what, sizeof(what), "Swoole\\Http\\Request::%s()", ZSTR_VAL(EX(func)->common.function_name));
	howdah_swoole_refuse(what, "this method is for servers without an HTTP parser; this server parses the requests itself");
	RETURN_THROWS();
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_none, 0, 0, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_INFO_EX(arginfo_any, 0, 0, 0)
	ZEND_ARG_VARIADIC_INFO(0, arguments)
ZEND_END_ARG_INFO()

static const zend_function_entry methods[] = {
	PHP_ME(Request, getContent, arginfo_none, ZEND_ACC_PUBLIC)
	PHP_MALIAS(Request, rawContent, getContent, arginfo_none, ZEND_ACC_PUBLIC)
	PHP_ME(Request, getData, arginfo_none, ZEND_ACC_PUBLIC)
	PHP_ME(Request, getMethod, arginfo_none, ZEND_ACC_PUBLIC)
	PHP_ME(Request, isCompleted, arginfo_none, ZEND_ACC_PUBLIC)
	PHP_MALIAS(Request, create, notHere, arginfo_any, ZEND_ACC_PUBLIC | ZEND_ACC_STATIC)
	PHP_MALIAS(Request, parse, notHere, arginfo_any, ZEND_ACC_PUBLIC)
	PHP_FE_END
};

void howdah_swoole_register_request(void)
{
	zend_class_entry *ce =
	    howdah_swoole_class("Swoole\\Http\\Request", "swoole_http_request", NULL, methods);
	request_ce = ce;
	ce->create_object = create;
	ce->ce_flags |= ZEND_ACC_NOT_SERIALIZABLE;
	zend_declare_property_long(ce, names[FD], strlen(names[FD]), 0, ZEND_ACC_PUBLIC);
	zend_declare_property_long(ce, names[STREAM_ID], strlen(names[STREAM_ID]), 0, ZEND_ACC_PUBLIC);
	for (int i = HEADER; i < PROPERTIES; i++) {
		zend_declare_property_null(ce, names[i], strlen(names[i]), ZEND_ACC_PUBLIC);
	}
	memcpy(&handlers, &std_object_handlers, sizeof(handlers));
	handlers.offset = offsetof(request_t, std);
	handlers.free_obj = destroy;
	handlers.clone_obj = NULL;
	handlers.read_property = read_property;
	handlers.write_property = write_property;
	handlers.get_property_ptr_ptr = get_property_ptr_ptr;
	handlers.has_property = has_property;
	handlers.unset_property = howdah_swoole_keep_property;
	handlers.get_properties = get_properties;
}
