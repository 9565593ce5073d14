<?php
// Which functions, constants and extensions the server brings.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
fact('sapi', [php_sapi_name(), PHP_SAPI]);
foreach (['fastcgi_finish_request', 'getallheaders', 'apache_request_headers', 'apache_response_headers', 'fpm_get_status', 'apache_setenv', 'apache_getenv', 'apache_note', 'apache_get_modules', 'apache_get_version', 'apache_lookup_uri', 'virtual', 'headers_send', 'frankenphp_handle_request', 'cli_set_process_title', 'opcache_get_status', 'dl', 'pcntl_fork'] as $name) {
    fact("function.$name", function_exists($name));
}
foreach (get_loaded_extensions() as $extension) {
    fact("extension.$extension", true);
}
fact('zend_extensions', get_loaded_extensions(true));
fact('constants', [PHP_ZTS, PHP_DEBUG, PHP_OS_FAMILY, PHP_VERSION, PHP_EXTRA_VERSION, PHP_MAXPATHLEN]);
fact('stdin_constant', defined('STDIN'));
fact('wrappers', stream_get_wrappers());
fact('opcache.enabled', opcache_get_status(false)['opcache_enabled'] ?? false);
fact('opcache.this_script', opcache_is_script_cached(__FILE__));
fact('opcache.jit', opcache_get_status(false)['jit']['enabled'] ?? null);
fact('gc', gc_enabled());
fact('argv', [isset($argv), isset($argc), $_SERVER['argv'] ?? null]);
if (function_exists('fpm_get_status')) {
    fact('fpm_get_status', gettype(fpm_get_status()));
}
fact('uname_is_linux', php_uname('s'));
fact('binary_is_string', is_string(PHP_BINARY));
