//! Words of nginx, Apache, Caddy, php-fpm and php.ini, with the option of ours that does the same. Unknown keys and
//! `howdah check --explain` take their hints from this one table.

/// Words of another program's configuration with the same meaning for us.
#[derive(Debug, PartialEq, Eq)]
pub struct ForeignWord {
    /// The words as the other program spells them.
    pub words: &'static [&'static str],
    /// The program whose configuration has these words.
    pub program: &'static str,
    /// The full names of our options, the most useful one first; empty if there is none.
    pub options: &'static [&'static str],
    /// What to do instead: a clause that follows a colon.
    pub advice: &'static str,
}

impl ForeignWord {
    /// Returns the hint of an error message: where the word comes from, and what to do instead.
    pub fn hint(&self) -> String {
        format!("it comes from {}: {}", self.program, self.advice)
    }
}

const PHP_SETTING: &str =
    "write PHP settings in [site.php_value], or for all sites of a pool in [pool.NAME.php_value]";
const PHP_OPTIONS: &[&str] = &["site.php_value", "site.php_admin_value", "pool.*.php_value"];

macro_rules! words {
    ($($program:literal { $($($word:literal)|+ => [$($option:literal),*] $advice:expr;)* })*) => {
        /// All words, by program.
        pub const FOREIGN_WORDS: &[ForeignWord] = &[$($(ForeignWord {
            words: &[$($word),+],
            program: $program,
            options: &[$($option),*],
            advice: $advice,
        },)*)*];
    };
}

words! {
    "nginx" {
        "server" | "http" => ["site.hosts", "site.root"] "write a [[site]] for each server, with `hosts` and `root`";
        "server_name" => ["site.hosts"] "use `hosts` in [[site]]";
        "location" => ["site.rule.prefix", "site.rule.regex"] "use a [[site.rule]] with `prefix`, `path`, `glob` or `regex`";
        "upstream" => ["site.rule.proxy", "pool.*.fastcgi"] "list the servers in `proxy` of a [[site.rule]], or in `fastcgi` of a pool";
        "alias" => ["site.rule.rewrite", "site.sendfile"] "use a [[site.rule]] with `rewrite`, or a symbolic link below the root";
        "client_max_body_size" => ["site.max_body_size"] "use `max_body_size` in [[site]]; the default is 1G";
        "client_body_buffer_size" | "client_body_temp_path" => ["limits.spill_directory"] "bodies beyond 64 KiB are stored in `spill_directory` of [limits]";
        "client_body_timeout" => ["timeouts.body"] "use `body` in [timeouts]";
        "client_header_timeout" => ["timeouts.header"] "use `header` in [timeouts]";
        "client_header_buffer_size" | "large_client_header_buffers" => ["limits.header"] "use `header` in [limits]";
        "send_timeout" => ["timeouts.send"] "use `send` in [timeouts]";
        "keepalive_timeout" => ["timeouts.keepalive"] "use `keepalive` in [timeouts]";
        "worker_processes" => ["threads"] "use `threads`; the default is one for each core";
        "worker_connections" | "worker_rlimit_nofile" => ["limits.connections"] "use `connections` in [limits]";
        "gzip" | "gzip_comp_level" | "gzip_min_length" | "gzip_proxied" | "gzip_vary" | "gzip_static" | "brotli" | "brotli_types"
            => ["compression.codings", "compression.types"] "text is compressed by default; `codings` in [compression] lists the codings";
        "gzip_types" => ["compression.types"] "use `types` in [compression]; the usual text types are compressed by default";
        "limit_req" | "limit_req_zone" => ["site.rule.rate", "site.rule.burst"] "use a [[site.rule]] with `rate` and `burst`";
        "limit_conn" | "limit_conn_zone" => ["site.rule.connections"] "use a [[site.rule]] with `connections`";
        "limit_rate" => ["limits.min_rate"] "Howdah does not slow down responses; `connections` and `rate` of a [[site.rule]] limit a client";
        "satisfy" => ["site.rule.from", "site.rule.not"] "add the exception `not = { from = \"10.0.0.0/8\" }` to the [[site.rule]] with `auth_basic`";
        "access_log" => ["log.access"] "use `access` in [log]";
        "log_format" => ["log.access_format"] "choose one of the formats of `access_format` in [log]";
        "expires" => ["site.rule.cache_control"] "use a [[site.rule]] with `cache_control`, such as `max-age=86400`";
        "error_page" => ["site.error_pages"] "use [site.error_pages], as in `404 = \"404.html\"`";
        "autoindex" => [] "Howdah never lists directories";
        "ssl" => ["listen"] "append `tls` to the address in `listen`, as in \"0.0.0.0:443 tls\"";
        "ssl_certificate" => ["site.certificate.file", "site.certificate.key"] "write a [[site.certificate]] with `file` and `key`, or omit it: Howdah then orders certificates for the site's `hosts`";
        "ssl_certificate_key" => ["site.certificate.key"] "write a [[site.certificate]] with `file` and `key`";
        "ssl_client_certificate" => ["tls.client_ca"] "use `client_ca` in [tls]";
        "ssl_verify_client" => ["tls.verify_client"] "use `verify_client` in [tls]";
        "ssl_session_ticket_key" => ["tls.ticket_keys"] "use `ticket_keys` in [tls]";
        "ssl_protocols" | "ssl_ciphers" | "ssl_prefer_server_ciphers" | "ssl_dhparam" | "ssl_session_cache" | "ssl_session_timeout"
            => [] "remove it, because Howdah offers TLS 1.2 and 1.3 with the safe ciphers only";
        "ssl_stapling" => [] "remove it, because Howdah does not use OCSP, which Let's Encrypt no longer offers";
        "http2" => ["listen"] "`tls` in `listen` includes HTTP/2; `h2c` is HTTP/2 without TLS";
        "quic" => ["listen"] "append `tls http3` to the address in `listen`";
        "proxy_pass" => ["site.rule.proxy"] "use a [[site.rule]] with `proxy = \"http://127.0.0.1:3000\"`";
        "proxy_set_header" => ["site.rule.proxy"] "`proxy` rules pass on `Host` and set the `X-Forwarded` headers themselves";
        "proxy_read_timeout" | "proxy_send_timeout" => ["site.rule.proxy_timeout"] "use `proxy_timeout` in the [[site.rule]] with `proxy`";
        "proxy_buffering" => ["site.rule.proxy"] "remove it, because a slow client never occupies the other server";
        "proxy_cache" | "proxy_cache_path" | "proxy_cache_valid" | "fastcgi_cache" | "fastcgi_cache_path" | "fastcgi_cache_valid"
            => ["site.cache", "cache.memory"] "use `cache = \"on\"` or `cache = \"rfc\"` in [[site]]";
        "fastcgi_pass" => ["pool.*.fastcgi", "pool.*.mode"] "Howdah runs PHP itself; to use php-fpm, write a pool with `mode = \"fastcgi\"` and the option `fastcgi`";
        "fastcgi_param" => ["site.env"] "use [site.env]";
        "fastcgi_index" => ["site.index"] "use `index` in [[site]]";
        "fastcgi_split_path_info" => [] "remove it, because PATH_INFO works without it";
        "fastcgi_read_timeout" => ["pool.*.request_terminate_timeout", "pool.*.read_timeout"] "use `request_terminate_timeout` in [pool.NAME]";
        "fastcgi_buffers" | "fastcgi_buffer_size" | "fastcgi_buffering" | "proxy_buffers" | "proxy_buffer_size"
            => ["limits.header"] "remove it, because Howdah sizes its buffers itself";
        "set_real_ip_from" => ["trusted_proxies.networks"] "use `networks` in [trusted_proxies]";
        "real_ip_header" => ["trusted_proxies.header"] "use `header` in [trusted_proxies]";
        "stub_status" => ["status.listen", "status.path"] "use `listen` or `path` in [status]";
        "internal" => ["site.sendfile"] "use [site.sendfile]";
        "valid_referers" => ["site.rule.header"] "use a [[site.rule]] with `header` and `deny`";
        "default_type" => ["site.types"] "use [site.types]";
        "sendfile_max_chunk" | "tcp_nopush" | "tcp_nodelay" | "server_tokens" | "multi_accept" | "events" | "open_file_cache" | "aio"
            => [] "remove it, because Howdah needs no setting for this";
        "merge_slashes" => [] "remove it, because rules always see the path with single slashes";
        "resolver" => [] "remove it, because the system's resolver is used";
        "disable_symlinks" => ["site.symlinks"] "use `symlinks` in [[site]]";
    }
    "Apache" {
        "DocumentRoot" => ["site.root"] "use `root` in [[site]]";
        "ServerName" | "ServerAlias" => ["site.hosts"] "use `hosts` in [[site]]";
        "VirtualHost" => ["site.hosts", "site.root"] "write a [[site]] for each host, with `hosts` and `root`";
        "DirectoryIndex" => ["site.index"] "use `index` in [[site]]";
        "FallbackResource" => ["site.front_controller"] "use `front_controller` in [[site]]";
        "AllowOverride" | "AccessFileName" => ["site.htaccess"] "use `htaccess` in [[site]]: `on`, `deny` or `off`";
        "RewriteEngine" | "RewriteRule" | "RewriteCond" => ["site.rule.rewrite", "site.htaccess"] "use a [[site.rule]] with `rewrite` or `redirect`, or keep the lines in `.htaccess` and set `htaccess = \"on\"`";
        "RedirectMatch" | "RedirectPermanent" => ["site.rule.redirect", "site.rule.status"] "use a [[site.rule]] with `redirect` and `status = 301`";
        "ErrorDocument" => ["site.error_pages"] "use [site.error_pages], as in `404 = \"404.html\"`";
        "CustomLog" | "TransferLog" => ["log.access", "log.access_format"] "use `access` and `access_format` in [log]";
        "ErrorLog" => ["log.error"] "use `error` in [log]";
        "LogLevel" => ["log.level"] "use `level` in [log]";
        "LogFormat" => ["log.access_format"] "choose one of the formats of `access_format` in [log]";
        "LimitRequestBody" => ["site.max_body_size"] "use `max_body_size` in [[site]]";
        "LimitRequestFieldSize" | "LimitRequestLine" => ["limits.header"] "use `header` in [limits]";
        "RequestReadTimeout" => ["timeouts.header", "timeouts.body", "limits.min_rate"] "use `header` and `body` in [timeouts], and `min_rate` in [limits]";
        "KeepAlive" | "KeepAliveTimeout" => ["timeouts.keepalive"] "use `keepalive` in [timeouts]";
        "MaxKeepAliveRequests" => ["limits.keepalive_requests"] "use `keepalive_requests` in [limits]";
        "MaxRequestWorkers" | "MaxClients" | "ServerLimit" => ["pool.*.max_children", "limits.connections"] "use `max_children` in [pool.NAME] for PHP, and `connections` in [limits] for clients";
        "MaxConnectionsPerChild" | "MaxRequestsPerChild" => ["pool.*.max_requests"] "use `max_requests` in [pool.NAME]";
        "StartServers" | "MinSpareServers" | "MaxSpareServers" => ["pool.*.min_spare_servers", "pool.*.max_spare_servers"] "use `min_spare_servers` and `max_spare_servers` in [pool.NAME]";
        "SetEnv" | "PassEnv" => ["site.env"] "use [site.env]";
        "AuthType" | "AuthName" => ["site.rule.auth_basic"] "use a [[site.rule]] with `auth_basic` and `auth_basic_user_file`";
        "AuthUserFile" => ["site.rule.auth_basic_user_file"] "use `auth_basic_user_file` in a [[site.rule]]";
        "Require" => ["site.rule.from", "site.rule.auth_basic_require"] "use a [[site.rule]] with `deny` and `from`, or with `auth_basic_require`";
        "ProxyPass" | "ProxyPassMatch" | "ProxyPassReverse" => ["site.rule.proxy"] "use a [[site.rule]] with `proxy`";
        "SetHandler" | "AddHandler" => ["site.php_extensions", "site.rule.cgi"] "use `php_extensions` in [[site]] for PHP, and a [[site.rule]] with `cgi` for programs";
        "SSLEngine" => ["listen"] "append `tls` to the address in `listen`, as in \"0.0.0.0:443 tls\"";
        "SSLCertificateFile" | "SSLCertificateKeyFile" | "SSLCertificateChainFile" => ["site.certificate.file", "site.certificate.key"] "write a [[site.certificate]] with `file` and `key`";
        "SSLProtocol" | "SSLCipherSuite" => [] "remove it, because Howdah offers TLS 1.2 and 1.3 with the safe ciphers only";
        "ExpiresActive" | "ExpiresByType" | "ExpiresDefault" => ["site.rule.cache_control"] "use a [[site.rule]] with `cache_control`";
        "RequestHeader" => ["site.env"] "PHP sees the client's headers; for variables use [site.env]";
        "AddType" => ["site.types", "site.rule.type"] "use [site.types]";
        "AddOutputFilterByType" => ["compression.types"] "text is compressed by default; use `types` in [compression] for more";
        "RemoteIPHeader" => ["trusted_proxies.header"] "use `header` in [trusted_proxies]";
        "RemoteIPTrustedProxy" | "RemoteIPInternalProxy" => ["trusted_proxies.networks"] "use `networks` in [trusted_proxies]";
        "XSendFile" | "XSendFilePath" => ["site.sendfile"] "use [site.sendfile]";
        "FollowSymLinks" | "SymLinksIfOwnerMatch" => ["site.symlinks"] "use `symlinks` in [[site]]";
        "LoadModule" => [] "remove it, because Howdah has no modules";
        "ScriptAlias" => ["site.rule.cgi"] "use a [[site.rule]] with `cgi`";
    }
    "Caddy" {
        "reverse_proxy" => ["site.rule.proxy"] "use a [[site.rule]] with `proxy = \"http://127.0.0.1:3000\"`";
        "php_fastcgi" => ["pool.*.fastcgi", "site.front_controller"] "Howdah runs PHP itself; to use php-fpm, write a pool with `mode = \"fastcgi\"` and the option `fastcgi`";
        "php_server" | "frankenphp" => ["site.root", "site.front_controller"] "a [[site]] with `root` runs PHP; `front_controller` gets the requests for missing files";
        "file_server" => ["site.root"] "remove it, because a [[site]] sends the files of its `root`";
        "encode" => ["compression.codings"] "text is compressed by default; `codings` in [compression] lists the codings";
        "redir" => ["site.rule.redirect"] "use a [[site.rule]] with `redirect`";
        "respond" => ["site.rule.return", "site.rule.body"] "use a [[site.rule]] with `return` and `body`";
        "handle" | "handle_path" | "route" => ["site.rule.prefix"] "use a [[site.rule]] with `prefix`";
        "handle_errors" => ["site.error_pages"] "use [site.error_pages]";
        "basic_auth" | "basicauth" => ["site.rule.auth_basic", "site.rule.auth_basic_user_file"] "use a [[site.rule]] with `auth_basic` and `auth_basic_user_file`";
        "forward_auth" => ["site.rule.auth_request"] "use a [[site.rule]] with `auth_request`";
        "request_body" => ["site.max_body_size"] "use `max_body_size` in [[site]]";
        "on_demand_tls" => ["acme.ask"] "use `ask` in [acme]";
        "acme_ca" => ["acme.authorities"] "use `authorities` in [acme]";
        "auto_https" => ["site.https_redirect", "listen"] "append `tls` to an address in `listen`; `https_redirect` in [[site]] redirects clients to HTTPS";
        "bind" => ["listen"] "use `listen`";
        "hide" => ["site.deny"] "use `deny` in [[site]]";
    }
    "php-fpm" {
        "pm.max_children" => ["pool.*.max_children"] "use `max_children` in [pool.NAME]";
        "pm.start_servers" => ["pool.*.min_spare_servers"] "remove it, because Howdah starts one process for each core";
        "pm.min_spare_servers" | "pm.max_spare_servers" => ["pool.*.min_spare_servers", "pool.*.max_spare_servers"] "use `min_spare_servers` and `max_spare_servers` in [pool.NAME]";
        "pm.process_idle_timeout" => ["pool.*.process_idle_timeout"] "use `process_idle_timeout` in [pool.NAME]";
        "pm.max_requests" => ["pool.*.max_requests"] "use `max_requests` in [pool.NAME]";
        "pm.status_path" | "pm.status_listen" => ["status.path", "status.listen"] "use `path` or `listen` in [status]";
        "ping.path" | "ping.response" => ["status.listen"] "use `listen` in [status], which serves `/livez` and `/readyz`";
        "slowlog" => ["pool.*.request_slowlog_timeout"] "slow requests are in the error log; `request_slowlog_timeout` in [pool.NAME] sets the time after which a request is slow";
        "request_slowlog_trace_depth" => ["pool.*.request_slowlog_timeout"] "remove it: Howdah always logs the whole stack";
        "access.log" => ["log.access"] "use `access` in [log]";
        "access.format" => ["log.access_format"] "choose one of the formats of `access_format` in [log]";
        "listen.owner" | "listen.group" | "listen.mode" => ["listen"] "append `owner=USER`, `group=GROUP` or `mode=0660` to the unix socket in `listen`";
        "listen.backlog" => ["pool.*.queue_size"] "use `queue_size` in [pool.NAME]";
        "listen.allowed_clients" => ["site.rule.from"] "use a [[site.rule]] with `deny` and `from`";
        "security.limit_extensions" => ["site.php_extensions"] "use `php_extensions` in [[site]]";
        "catch_workers_output" | "decorate_workers_output" | "daemonize" | "emergency_restart_threshold" | "emergency_restart_interval" | "process_control_timeout"
            => [] "remove it, because Howdah always does this, or does not need it";
        "chroot" | "chdir" => ["pool.*.user"] "Howdah does not change the root directory; to separate sites, give each pool its own `user`";
        "rlimit_files" | "rlimit_core" => [] "set limits in the service's unit: `LimitNOFILE=`, `LimitCORE=`";
    }
    "php-fpm and Apache" {
        "php_flag" | "php_admin_flag" => ["site.php_value", "site.php_admin_value", "pool.*.php_value"] PHP_SETTING;
    }
    "nginx and PHP" {
        "error_log" => ["log.error"] "use `error` in [log], which gets the messages of PHP as well";
    }
    "php.ini" {
        "upload_max_filesize" | "post_max_size" => ["site.php_value", "pool.*.php_value", "site.max_body_size"]
            "write `php_value = { upload_max_filesize = \"64M\", post_max_size = \"64M\" }` in [[site]]; `max_body_size` of the site is 1G";
        "memory_limit" | "max_execution_time" | "max_input_time" | "max_input_vars" | "max_file_uploads" | "file_uploads"
            | "display_errors" | "display_startup_errors" | "error_reporting" | "log_errors" | "html_errors" | "open_basedir"
            | "allow_url_fopen" | "allow_url_include" | "short_open_tag" | "default_charset" | "output_buffering"
            | "auto_prepend_file" | "auto_append_file" | "include_path" | "realpath_cache_size" | "realpath_cache_ttl"
            | "sendmail_path" | "variables_order" | "default_socket_timeout" | "upload_tmp_dir" | "sys_temp_dir"
            => ["site.php_value", "site.php_admin_value", "pool.*.php_value"] PHP_SETTING;
        "expose_php" | "disable_functions" | "disable_classes" | "extension" | "zend_extension" | "extension_dir"
            => ["pool.*.php_value"] "PHP reads it only at its start: write it in [pool.NAME.php_value]";
    }
}

/// The prefixes of the settings of PHP's extensions, without the dot.
const PHP_EXTENSIONS: &[&str] = &[
    "apc",
    "assert",
    "bcmath",
    "curl",
    "date",
    "exif",
    "gd",
    "iconv",
    "imagick",
    "intl",
    "ldap",
    "mail",
    "mbstring",
    "memcached",
    "mysqli",
    "mysqlnd",
    "newrelic",
    "opcache",
    "openssl",
    "pcre",
    "pdo_mysql",
    "pgsql",
    "phar",
    "redis",
    "session",
    "soap",
    "sqlite3",
    "tidy",
    "user_ini",
    "xdebug",
    "zend",
    "zlib",
];

/// A setting of a PHP extension, by its beginning.
const PHP_EXTENSION: ForeignWord = ForeignWord {
    words: &[],
    program: "php.ini",
    options: PHP_OPTIONS,
    advice: PHP_SETTING,
};

/// Returns the words that contain this text, each with its entry.
pub fn containing(text: &str) -> Vec<(&'static str, &'static ForeignWord)> {
    let text = text.to_ascii_lowercase();
    let all = FOREIGN_WORDS
        .iter()
        .flat_map(|foreign| foreign.words.iter().map(move |word| (*word, foreign)));
    all.filter(|(word, _)| word.to_ascii_lowercase().contains(&text))
        .collect()
}

/// Finds a word. Letters may be of either case, as in Apache's files.
pub fn find(word: &str) -> Option<&'static ForeignWord> {
    let exact = FOREIGN_WORDS.iter().find(|foreign| {
        foreign
            .words
            .iter()
            .any(|own| own.eq_ignore_ascii_case(word))
    });
    let extension = || {
        let (extension, _) = word.split_once('.').unwrap_or((word, ""));
        PHP_EXTENSIONS
            .contains(&extension)
            .then_some(&PHP_EXTENSION)
    };
    exact.or_else(extension)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OPTIONS;

    #[test]
    fn foreign_word_leads_to_options_that_exist_and_is_not_one_itself() {
        let mut words = Vec::new();
        for foreign in FOREIGN_WORDS {
            for option in foreign.options {
                let found = OPTIONS.iter().find(|spec| spec.full_name() == *option);
                assert!(found.is_some(), "{:?}: there is no {option}", foreign.words);
            }
            for word in foreign.words {
                let own = OPTIONS.iter().find(|spec| spec.key == *word);
                assert!(own.is_none(), "{word} is a key of ours");
                words.push(word.to_lowercase());
            }
        }
        let count = words.len();
        words.sort();
        words.dedup();
        assert_eq!(words.len(), count, "a word is in the table twice");
        assert!(count >= 80, "{count}");
    }

    #[test]
    fn foreign_word_is_found_in_any_case_and_by_an_extension() {
        assert_eq!(find("documentroot").unwrap().options, ["site.root"]);
        assert_eq!(find("session.gc_maxlifetime").unwrap().program, "php.ini");
        assert_eq!(find("lisen"), None);
        assert_eq!(find("example.org"), None);
    }
}
