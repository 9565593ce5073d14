//! The directives of nginx that have no meaning in Howdah, and why.

use crate::directive::Directive;
use crate::reasons::{
    COMPRESSION, FILES, LOGGING, PROTOCOL, REDIRECTS, SESSIONS, STAPLING, TLS, TUNING, VERSION,
};

const SCRIPTS_REASON: &str = "Howdah finds the script and its PATH_INFO by itself";
const MODULES_REASON: &str =
    "Howdah loads no modules; the lines that use a module are listed separately";
const RESOLVER_REASON: &str = "Howdah resolves names with the system's resolver";
const WEBSOCKET_REASON: &str = "proxy rules pass WebSocket through by themselves";

/// Each reason with its directives.
pub(crate) const IRRELEVANT_DIRECTIVES: &[(&str, &[&str])] = &[
    (
        TUNING,
        &[
            "accept_mutex",
            "accept_mutex_delay",
            "aio",
            "aio_write",
            "client_body_buffer_size",
            "client_body_in_file_only",
            "client_body_in_single_buffer",
            "client_body_temp_path",
            "client_header_buffer_size",
            "connection_pool_size",
            "daemon",
            "directio",
            "directio_alignment",
            "events",
            "fastcgi_buffer_size",
            "fastcgi_buffering",
            "fastcgi_buffers",
            "fastcgi_busy_buffers_size",
            "fastcgi_connect_timeout",
            "fastcgi_keep_conn",
            "fastcgi_limit_rate",
            "fastcgi_max_temp_file_size",
            "fastcgi_request_buffering",
            "fastcgi_send_lowat",
            "fastcgi_send_timeout",
            "fastcgi_socket_keepalive",
            "fastcgi_temp_file_write_size",
            "fastcgi_temp_path",
            "keepalive_disable",
            "keepalive",
            "lingering_close",
            "lingering_time",
            "lingering_timeout",
            "lock_file",
            "map_hash_bucket_size",
            "map_hash_max_size",
            "master_process",
            "multi_accept",
            "open_file_cache",
            "open_file_cache_errors",
            "open_file_cache_min_uses",
            "open_file_cache_valid",
            "output_buffers",
            "pcre_jit",
            "postpone_output",
            "proxy_buffering",
            "proxy_request_buffering",
            "proxy_buffers",
            "proxy_buffer_size",
            "proxy_busy_buffers_size",
            "proxy_http_version",
            "proxy_connect_timeout",
            "proxy_send_timeout",
            "proxy_max_temp_file_size",
            "proxy_temp_file_write_size",
            "proxy_socket_keepalive",
            "proxy_next_upstream",
            "proxy_headers_hash_bucket_size",
            "proxy_headers_hash_max_size",
            "proxy_temp_path",
            "read_ahead",
            "request_pool_size",
            "reset_timedout_connection",
            "scgi_temp_path",
            "send_lowat",
            "sendfile",
            "sendfile_max_chunk",
            "server_names_hash_bucket_size",
            "server_names_hash_max_size",
            "subrequest_output_buffer_size",
            "tcp_nodelay",
            "tcp_nopush",
            "thread_pool",
            "timer_resolution",
            "types_hash_bucket_size",
            "types_hash_max_size",
            "use",
            "uwsgi_temp_path",
            "variables_hash_bucket_size",
            "variables_hash_max_size",
            "worker_aio_requests",
            "worker_connections",
            "worker_cpu_affinity",
            "worker_priority",
            "worker_processes",
            "worker_rlimit_core",
            "worker_rlimit_nofile",
            "worker_shutdown_timeout",
            "working_directory",
            "debug_points",
            "max_ranges",
        ],
    ),
    (
        COMPRESSION,
        &[
            "brotli",
            "brotli_buffers",
            "brotli_comp_level",
            "brotli_min_length",
            "brotli_static",
            "brotli_window",
            "gunzip",
            "gunzip_buffers",
            "gzip_buffers",
            "gzip_comp_level",
            "gzip_disable",
            "gzip_http_version",
            "gzip_min_length",
            "gzip_proxied",
            "gzip_static",
            "gzip_vary",
            "zstd",
            "zstd_comp_level",
            "zstd_min_length",
            "zstd_static",
        ],
    ),
    (
        TLS,
        &[
            "ssl_buffer_size",
            "ssl_ciphers",
            "ssl_conf_command",
            "ssl_dhparam",
            "ssl_early_data",
            "ssl_ecdh_curve",
            "ssl_prefer_server_ciphers",
            "ssl_protocols",
            "ssl_reject_handshake",
            "ssl_verify_depth",
        ],
    ),
    (
        SESSIONS,
        &[
            "ssl_session_cache",
            "ssl_session_tickets",
            "ssl_session_timeout",
        ],
    ),
    (
        PROTOCOL,
        &[
            "http2",
            "http2_body_preread_size",
            "http2_chunk_size",
            "http2_idle_timeout",
            "http2_max_concurrent_pushes",
            "http2_max_concurrent_streams",
            "http2_max_field_size",
            "http2_max_header_size",
            "http2_max_requests",
            "http2_push",
            "http2_push_preload",
            "http2_recv_buffer_size",
            "http2_recv_timeout",
            "http3",
            "http3_hq",
            "http3_max_concurrent_streams",
            "http3_stream_buffer_size",
            "quic_active_connection_id_limit",
            "quic_bpf",
            "quic_gso",
            "quic_host_key",
            "quic_retry",
        ],
    ),
    (
        LOGGING,
        &[
            "log_not_found",
            "log_subrequest",
            "open_log_file_cache",
            "rewrite_log",
            "uninitialized_variable_warn",
        ],
    ),
    (
        REDIRECTS,
        &[
            "absolute_redirect",
            "port_in_redirect",
            "server_name_in_redirect",
        ],
    ),
    (VERSION, &["server_tokens"]),
    (
        STAPLING,
        &[
            "ssl_ocsp",
            "ssl_ocsp_cache",
            "ssl_ocsp_responder",
            "ssl_stapling",
            "ssl_stapling_file",
            "ssl_stapling_responder",
            "ssl_stapling_verify",
            "ssl_trusted_certificate",
        ],
    ),
    (
        SCRIPTS_REASON,
        &["fastcgi_index", "fastcgi_split_path_info"],
    ),
    (MODULES_REASON, &["load_module"]),
    (RESOLVER_REASON, &["resolver", "resolver_timeout"]),
    (
        FILES,
        &[
            "chunked_transfer_encoding",
            "etag",
            "if_modified_since",
            "msie_padding",
            "msie_refresh",
            "override_charset",
        ],
    ),
];

/// Returns why a directive has no meaning in Howdah, or `None` if it may have one.
pub fn irrelevant_reason(directive: &Directive) -> Option<&'static str> {
    // `set $path_info $fastcgi_path_info` saves a value that `try_files` resets.
    if directive.name == "set" && directive.arg(1) == "$fastcgi_path_info" {
        return Some(SCRIPTS_REASON);
    }
    // `map $http_upgrade $connection_upgrade` is used for WebSocket.
    if directive.name == "map" && directive.arg(0) == "$http_upgrade" {
        return Some(WEBSOCKET_REASON);
    }
    let name = directive.name.as_str();
    let found = IRRELEVANT_DIRECTIVES
        .iter()
        .find(|(_, names)| names.contains(&name));
    found.map(|(why, _)| *why)
}

/// Returns what is needed in place of a known directive that is not carried over, and whether the directive denied or
/// limited access.
pub fn missing_remark(name: &str) -> Option<(&'static str, bool)> {
    let need = match name {
        "autoindex" | "autoindex_exact_size" | "autoindex_format" | "autoindex_localtime" => {
            "Howdah does not list directories: use a script that lists them, or an index file"
        }
        "sub_filter" | "sub_filter_once" | "sub_filter_types" | "ssi" | "xslt_stylesheet"
        | "addition_types" | "add_before_body" | "add_after_body" | "image_filter" => {
            "Howdah does not change response bodies: change them in the application"
        }
        "map" | "geo" | "split_clients" | "geoip_country" | "geoip2" => {
            "you cannot define variables for rules; write a rule for each case, or let PHP decide"
        }
        "fastcgi_cache"
        | "fastcgi_cache_path"
        | "fastcgi_cache_key"
        | "fastcgi_cache_valid"
        | "fastcgi_cache_bypass"
        | "fastcgi_no_cache"
        | "fastcgi_cache_use_stale"
        | "fastcgi_cache_lock"
        | "fastcgi_cache_min_uses"
        | "fastcgi_cache_methods"
        | "fastcgi_cache_background_update"
        | "fastcgi_cache_purge"
        | "fastcgi_cache_revalidate" => {
            "the page cache knows the application and needs none of these settings: try cache = \"dry-run\" in [[site]] first, and then set cache = \"on\" (docs/cache.md)"
        }
        "limit_req" | "limit_req_zone" | "limit_conn" | "limit_conn_zone" => {
            return Some((
                "no server that is carried over uses this limit, or Howdah's rules have no equivalent of it",
                true,
            ));
        }
        "limit_req_status" | "limit_conn_status" => "a request beyond a limit gets 429",
        "limit_req_log_level"
        | "limit_conn_log_level"
        | "limit_req_dry_run"
        | "limit_conn_dry_run" => "once a minute, the log names a client that exceeds a limit",
        "limit_rate" | "limit_rate_after" => "Howdah sends as fast as the client reads",
        "allow" | "deny" | "satisfy" => {
            return Some((
                "write rules that limit access by address; until then, access to this part of the site is denied",
                true,
            ));
        }
        "disable_symlinks" => {
            return Some(("a site has only one value of `symlinks`", true));
        }
        "auth_basic" | "auth_basic_user_file" | "auth_jwt" => {
            return Some((
                "set up authentication; until then, access to this part of the site is denied",
                true,
            ));
        }
        "fastcgi_hide_header" | "fastcgi_pass_header" | "fastcgi_ignore_headers" => {
            "to remove a header, use `set_header` in a rule with an empty value"
        }
        "default_type" => "use `types` in the site, by extension, or a rule with `type`",
        "error_log" => "all sites share one error log, whose lines name the site",
        "auth_request" | "auth_request_set" => {
            return Some(("use `auth_request` in a rule (docs/access.md)", true));
        }
        "valid_referers"
        | "secure_link"
        | "secure_link_md5"
        | "secure_link_secret"
        | "modsecurity"
        | "modsecurity_rules_file"
        | "limit_except" => {
            return Some(("the application has to check this", true));
        }
        "ssl_client_certificate" | "ssl_verify_client" | "ssl_crl" => {
            return Some((
                "`client_ca` and `verify_client` in [tls] apply to all sites; lists of revoked certificates are not read",
                true,
            ));
        }
        "stub_status" => "use `path` and `allow` in [status], whose page shows more",
        "stream" | "mail" => "Howdah serves only HTTP",
        "if" => "Howdah's rules have no equivalent of this condition",
        "upstream" => "no fastcgi_pass or proxy_pass that was carried over names this upstream",
        "env" => "use [pool.NAME.env], or clear_env = false, for PHP's processes",
        "dav_methods" | "create_full_put_path" | "dav_access" | "dav_ext_methods" => {
            "Howdah does not write files: an application has to do this"
        }
        "mp4" | "flv" | "slice" => {
            "Howdah can send byte ranges of every file, and has no equivalent of this directive"
        }
        "proxy_hide_header"
        | "proxy_redirect"
        | "proxy_cookie_path"
        | "proxy_cookie_domain"
        | "proxy_cookie_flags" => {
            "Howdah passes on the responses of other servers unchanged, except for the headers that set_header changes"
        }
        _ if name.starts_with("proxy_cache") => {
            "Howdah does not store the responses of other servers"
        }
        _ if name.starts_with("proxy_ssl") => {
            "Howdah verifies a server's certificate against the certificate authorities of the system or, with https+insecure://, not at all (docs/proxy.md)"
        }
        _ if name.starts_with("proxy_") => {
            "Howdah's proxy rules have no equivalent of this directive (docs/proxy.md)"
        }
        _ if name.starts_with("uwsgi_")
            || name.starts_with("scgi_")
            || name.starts_with("grpc_") =>
        {
            "Howdah speaks FastCGI to backends"
        }
        _ if name.starts_with("more_") => "use `set_header` in a rule instead",
        _ if name.starts_with("pagespeed")
            || name.contains("_by_lua")
            || name.starts_with("js_") =>
        {
            "Howdah does not run such code: move it into the application"
        }
        _ => return None,
    };
    Some((need, false))
}
