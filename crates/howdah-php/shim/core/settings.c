/* PHP settings of one request: php_value and php_admin_value of the site (from the frame), [HOST=] and [PATH=] sections
 * of php.ini, and .user.ini files. PHP itself undoes all of them at the end of the request (zend_ini_deactivate). This
 * follows apply_config() of sapi/apache2handler for the site's values and sapi_cgi_activate() of php-fpm for the rest.
 *
 * Settings of a whole pool (php.ini, -d) are not here: they are set before PHP starts. */
#include "core/internal.h"

#include "zend_ini.h"

#include <syslog.h>

/* Directives that PHP reads only once, at its start. Set for a request, they would be accepted and shown by ini_get(),
 * but have no effect. */
static const char *const pool_level[] = {
	"disable_functions", "disable_classes", "extension", "zend_extension", "extension_dir",
};

static bool is_pool_level(const char *name)
{
	for (size_t i = 0; i < sizeof(pool_level) / sizeof(*pool_level); i++) {
		if (strcmp(name, pool_level[i]) == 0) {
			return true;
		}
	}
	return strncmp(name, "opcache.preload", sizeof("opcache.preload") - 1) == 0;
}

/* Reports a refused setting once per process and name, not at every request. */
static void report_refused(const howdah_ini_ref *ref, const char *why)
{
	static HashTable said;
	static bool ready;
	if (!ready) {
		zend_hash_init(&said, 8, NULL, NULL, 1);
		ready = true;
	}
	const char *name = howdah_text(ref->name_off);
	if (zend_hash_num_elements(&said) > 256 || zend_hash_str_exists(&said, name, ref->name_len)) {
		return;
	}
	/* A persistent copy of the key, since the hash table outlives the request. */
	zend_string *key = zend_string_init(name, ref->name_len, 1);
	zval yes;
	ZVAL_TRUE(&yes);
	zend_hash_add(&said, key, &yes);
	zend_string_release_ex(key, 1);
	howdah_logf(LOG_WARNING, "SettingRefused: %s %s = \"%s\": %s",
	            ref->kind == HOWDAH_INI_ADMIN_VALUE ? "php_admin_value" : "php_value", name,
	            howdah_text(ref->value_off), why);
}

/* Called before php_request_startup(), so post_max_size, output_buffering, memory_limit and the like already apply to
 * the startup (mod_php does the same). */
void howdah_apply_settings(void)
{
	for (uint32_t i = 0; i < howdah_current.ini_count; i++) {
		const howdah_ini_ref *ref = &howdah_current.inis[i];
		if (ref->kind == HOWDAH_INI_ENVIRONMENT) {
			continue;
		}
		const char *name = howdah_text(ref->name_off);
		if (is_pool_level(name)) {
			report_refused(ref, "the setting applies to a whole pool; set it in the pool's php.ini or with -d");
			continue;
		}
		zend_string *key = zend_string_init(name, ref->name_len, 0);
		int type = ref->kind == HOWDAH_INI_ADMIN_VALUE ? PHP_INI_SYSTEM : PHP_INI_PERDIR;
		if (zend_alter_ini_entry_chars(key, howdah_text(ref->value_off), ref->value_len, type,
		                               PHP_INI_STAGE_ACTIVATE)
		    == FAILURE) {
			report_refused(ref, zend_hash_exists(EG(ini_directives), key)
			        ? "the setting cannot be changed here, or the value is not accepted (a PHP_INI_SYSTEM setting needs php_admin_value)"
			        : "PHP has no such directive");
		}
		zend_string_release(key);
	}
}

/* ---- opcache and ini_get() ---- */

/* opcache compiles ini_get() of a directive into its value if the directive can only be set by the system
 * (zend_optimizer_eval_special_func_call: `modifiable` is exactly ZEND_INI_SYSTEM). All sites of a pool share the
 * compiled script, so they would get the value of the site that happened to compile it (php-src issue 8699). This bit
 * has no meaning to PHP. It makes `modifiable` another number, and grants nothing. */
#define VARIES_BY_SITE 8

static void keep_variable(zend_ini_entry *entry)
{
	if (entry->modifiable == ZEND_INI_SYSTEM) {
		entry->modifiable |= VARIES_BY_SITE;
	}
}

/* PHP makes a directive that it sets for a request one of the system, and undoes this at the end of the request. */
void howdah_settle_settings(void)
{
	if (EG(modified_ini_directives)) {
		zend_ini_entry *entry;
		ZEND_HASH_FOREACH_PTR(EG(modified_ini_directives), entry) {
			keep_variable(entry);
		} ZEND_HASH_FOREACH_END();
	}
}

static zif_handler php_ini_get_all;

/* ini_get_all(), without the bit. */
static ZEND_NAMED_FUNCTION(ini_get_all)
{
	php_ini_get_all(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (Z_TYPE_P(return_value) != IS_ARRAY) {
		return;
	}
	zval *directive;
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(return_value), directive) {
		zval *access = Z_TYPE_P(directive) == IS_ARRAY
		                       ? zend_hash_str_find(Z_ARRVAL_P(directive), ZEND_STRL("access"))
		                       : NULL;
		if (access && Z_TYPE_P(access) == IS_LONG) {
			Z_LVAL_P(access) &= ZEND_INI_ALL;
		}
	} ZEND_HASH_FOREACH_END();
}

static zend_result (*next_post_startup)(void);

static zend_result keep_all_variable(void)
{
	php_ini_get_all = howdah_wrap_function("ini_get_all", ini_get_all);
	zend_ini_entry *entry;
	ZEND_HASH_FOREACH_PTR(EG(ini_directives), entry) {
		keep_variable(entry);
	} ZEND_HASH_FOREACH_END();
	return next_post_startup ? next_post_startup() : SUCCESS;
}

/* Called by a module's startup. When PHP calls the function, all extensions have registered their directives, and
 * opcache, whose own function calls this one first, has not preloaded anything. */
void howdah_watch_settings(void)
{
	next_post_startup = zend_post_startup_cb;
	zend_post_startup_cb = keep_all_variable;
}

/* ---- .user.ini ---- */

typedef struct {
	/* CLOCK_REALTIME seconds after which the files are read again. */
	time_t expires;
	HashTable values;
} user_ini;

/* Maximum number of directories in the cache, which is emptied beyond that, so a client cannot make it grow. */
#define USER_INI_MAX 4096

static HashTable user_inis;
static bool user_inis_ready;

static void drop_value(zval *value)
{
	if (Z_TYPE_P(value) == IS_STRING) {
		zend_string_release_ex(Z_STR_P(value), 1);
	}
}

static void drop_user_ini(zval *value)
{
	user_ini *entry = Z_PTR_P(value);
	zend_hash_destroy(&entry->values);
	pefree(entry, 1);
}

/* Reads the files from the document root down to `dir` (which ends in '/'); outside of the document root, only the one
 * in `dir`. */
static void read_user_inis(char *dir, size_t len, const char *root, HashTable *values)
{
	const char *file = PG(user_ini_filename);
	size_t root_len = root ? strlen(root) : 0;
	while (root_len > 0 && root[root_len - 1] == '/') {
		root_len--;
	}
	bool inside = root && root_len < len && strncmp(dir, root, root_len) == 0 && dir[root_len] == '/';
	char *slash = inside ? dir + root_len : dir + len - 1;
	for (; slash; slash = strchr(slash + 1, '/')) {
		/* The root directory itself stays "/". */
		char *end = slash == dir ? slash + 1 : slash;
		char kept = *end;
		*end = '\0';
		php_parse_user_ini_file(dir, file, values);
		*end = kept;
	}
}

static void activate_user_ini_of(char *dir, size_t len)
{
	if (!user_inis_ready) {
		zend_hash_init(&user_inis, 8, NULL, drop_user_ini, 1);
		user_inis_ready = true;
	}
	const char *root = howdah_known(HOWDAH_VAR_DOCUMENT_ROOT);
	time_t now = (time_t)sapi_get_request_time();
	/* The key is the directory and the document root, since two sites of a pool may have different roots. */
	char key[2 * MAXPATHLEN];
	size_t root_len = root ? strlen(root) : 0;
	if (root_len >= MAXPATHLEN) {
		return;
	}
	memcpy(key, dir, len);
	key[len] = '\0';
	memcpy(key + len + 1, root ? root : "", root_len);
	size_t key_len = len + 1 + root_len;
	user_ini *entry = zend_hash_str_find_ptr(&user_inis, key, key_len);
	if (!entry) {
		if (zend_hash_num_elements(&user_inis) >= USER_INI_MAX) {
			zend_hash_clean(&user_inis);
		}
		entry = pemalloc(sizeof(*entry), 1);
		entry->expires = 0;
		zend_hash_init(&entry->values, 0, NULL, drop_value, 1);
		zend_hash_str_update_ptr(&user_inis, key, key_len, entry);
	}
	if (now > entry->expires) {
		zend_hash_clean(&entry->values);
		read_user_inis(dir, len, root, &entry->values);
		entry->expires = now + PG(user_ini_cache_ttl);
	}
	if (zend_hash_num_elements(&entry->values)) {
		php_ini_activate_config(&entry->values, PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
	}
}

int howdah_activate_user_ini(void)
{
	const char *script = SG(request_info).path_translated;
	/* The settings of a worker script are read when it boots; its requests name another script. */
	if (!script || howdah_worker == HOWDAH_WORKER_SERVING) {
		return SUCCESS;
	}
	/* If the site has no configured name, SERVER_NAME comes from the client and must not select a section. */
	if (php_ini_has_per_host_config() && howdah_current.own_name) {
		const char *host = howdah_known(HOWDAH_VAR_SERVER_NAME);
		if (host) {
			char *lower = estrdup(host);
			zend_str_tolower(lower, strlen(lower));
			php_ini_activate_per_host_config(lower, strlen(lower));
			efree(lower);
		}
	}
	bool per_dir = php_ini_has_per_dir_config();
	bool user = PG(user_ini_filename) && *PG(user_ini_filename);
	if (!per_dir && !user) {
		return SUCCESS;
	}
	const char *slash = strrchr(script, '/');
	if (!slash) {
		return SUCCESS;
	}
	char dir[MAXPATHLEN];
	size_t len = (size_t)(slash + 1 - script);
	if (len >= sizeof(dir)) {
		return SUCCESS;
	}
	memcpy(dir, script, len);
	dir[len] = '\0';
	if (per_dir) {
		php_ini_activate_per_dir_config(dir, len);
	}
	if (user) {
		activate_user_ini_of(dir, len);
	}
	return SUCCESS;
}
