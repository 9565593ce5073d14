/* The constants that scripts use: SWOOLE_*, and those of Swoole\Constant, by which settings and events may be written.
 * A name here does not mean that the setting is supported, which set() decides. */
#include "swoole/internal.h"

#include <ctype.h>

/* Options of Swoole 5.1 that belong to no server, or to kinds of servers that are not supported. */
static const char *const other_options[] = {
	"aio_core_worker_num", "aio_max_idle_time", "aio_max_wait_time", "aio_worker_num", "bind_address", "bind_port",
	"body_decompression", "c_stack_size", "charset", "compatibility_mode", "connect_timeout", "database",
	"deadlock_check_depth", "deadlock_check_disable_trace", "deadlock_check_limit", "defer", "dns_cache_capacity",
	"dns_cache_expire", "dns_cache_refresh_time", "dns_lookup_random", "dns_server", "enable_deadlock_check",
	"enable_message_bus", "enable_signalfd", "exit_condition", "fetch_mode", "host", "http2_enable_push",
	"http2_header_table_size", "http2_init_window_size", "http2_max_concurrent_streams", "http2_max_frame_size",
	"http2_max_header_list_size", "http_client_driver", "http_proxy_host", "http_proxy_password", "http_proxy_port",
	"http_proxy_user", "http_proxy_username", "keep_alive", "lowercase_header", "max_package_size", "max_retries",
	"max_thread_num", "min_thread_num", "name_resolver", "open_fastcgi_protocol", "open_ssl",
	"open_websocket_close_frame", "open_websocket_ping_frame", "open_websocket_pong_frame", "package_body_offset",
	"package_body_start", "package_eof", "package_length_func", "package_length_offset", "package_length_type",
	"password", "port", "read_timeout", "reconnect", "serialize", "socket_connect_timeout", "socket_dns_timeout",
	"socket_dontwait", "socket_read_timeout", "socket_recv_timeout", "socket_send_timeout", "socket_timeout",
	"socket_write_timeout", "socks5_host", "socks5_password", "socks5_port", "socks5_username", "ssl",
	"ssl_allow_self_signed", "ssl_cafile", "ssl_capath", "ssl_ciphers", "ssl_client_cert_file", "ssl_compress",
	"ssl_dhparam", "ssl_disable_compression", "ssl_ecdh_curve", "ssl_grease", "ssl_host_name", "ssl_passphrase",
	"ssl_prefer_server_ciphers", "ssl_protocols", "ssl_sni_certs", "ssl_verify_depth", "ssl_verify_peer",
	"stack_size", "stats_timer_interval", "strict_type", "thread_num", "timeout", "use_async_resolver", "wait_signal",
	"websocket_mask", "websocket_subprotocol", "write_func", "write_timeout",
};

/* Events of Swoole 5.1 that this server does not have. */
static const char *const other_events[] = {
	"receive", "packet", "bufferFull", "bufferEmpty", "pipeMessage", "handshake", "beforeHandshakeResponse",
	"open", "message", "disconnect", "error",
};

/* Declares "workerStart" as WORKER_START and "worker_num" as WORKER_NUM. */
static void declare(zend_class_entry *ce, const char *prefix, const char *value)
{
	char name[96];
	size_t len = strlen(prefix);
	memcpy(name, prefix, len);
	for (const char *at = value; *at && len < sizeof(name) - 2; at++) {
		if (isupper((unsigned char)*at)) {
			name[len++] = '_';
		}
		name[len++] = (char)toupper((unsigned char)*at);
	}
	zend_declare_class_constant_string(ce, name, len, value);
}

static void register_names(void)
{
	zend_class_entry *ce = howdah_swoole_class("Swoole\\Constant", NULL, NULL, NULL);
	const char *name;
	for (size_t i = 0; (name = howdah_swoole_setting_name(i)); i++) {
		declare(ce, "OPTION_", name);
	}
	for (size_t i = 0; i < sizeof(other_options) / sizeof(*other_options); i++) {
		declare(ce, "OPTION_", other_options[i]);
	}
	for (size_t i = 0; (name = howdah_swoole_event_name(i)); i++) {
		declare(ce, "EVENT_", name);
	}
	for (size_t i = 0; i < sizeof(other_events) / sizeof(*other_events); i++) {
		declare(ce, "EVENT_", other_events[i]);
	}
}

void howdah_swoole_register_constants(int module_number)
{
	static const struct {
		const char *name;
		zend_long value;
	} constants[] = {
		{"VERSION_ID", HOWDAH_SWOOLE_VERSION_ID},
		{"MAJOR_VERSION", 5},
		{"MINOR_VERSION", 1},
		{"RELEASE_VERSION", 0},
		{"BASE", 1},
		{"PROCESS", 2},
		{"THREAD", 3},
		{"SOCK_TCP", 1},
		{"SOCK_UDP", 2},
		{"SOCK_TCP6", 3},
		{"SOCK_UDP6", 4},
		{"SOCK_UNIX_STREAM", 5},
		{"SOCK_UNIX_DGRAM", 6},
		{"TCP", 1},
		{"TCP6", 3},
		{"UNIX_STREAM", 5},
		{"SSL", 512},
		{"LOG_DEBUG", 0},
		{"LOG_TRACE", 1},
		{"LOG_INFO", 2},
		{"LOG_NOTICE", 3},
		{"LOG_WARNING", 4},
		{"LOG_ERROR", 5},
		{"LOG_NONE", 6},
		{"DISPATCH_ROUND", 1},
		{"DISPATCH_FDMOD", 2},
		{"DISPATCH_IDLE_WORKER", 3},
		{"DISPATCH_IPMOD", 4},
		{"DISPATCH_UIDMOD", 5},
		{"DISPATCH_USERFUNC", 6},
		{"DISPATCH_STREAM", 7},
		{"DISPATCH_CO_CONN_LB", 8},
		{"DISPATCH_CO_REQ_LB", 9},
		{"DISPATCH_CONCURRENT_LB", 10},
		{"HOOK_ALL", 2147481599},
	};
	static const char *const prefixes[] = {"SWOOLE_", "OPENSWOOLE_"};
	char name[64];
	for (size_t p = 0; p < 2; p++) {
		for (size_t i = 0; i < sizeof(constants) / sizeof(*constants); i++) {
			int len = snprintf(name, sizeof(name), "%s%s", prefixes[p], constants[i].name);
			zend_register_long_constant(name, (size_t)len, constants[i].value, CONST_PERSISTENT | CONST_CS, module_number);
		}
		int len = snprintf(name, sizeof(name), "%sHAVE_COMPRESSION", prefixes[p]);
		zend_register_bool_constant(name, (size_t)len, true, CONST_PERSISTENT | CONST_CS, module_number);
		len = snprintf(name, sizeof(name), "%sHAVE_ZLIB", prefixes[p]);
		zend_register_bool_constant(name, (size_t)len, true, CONST_PERSISTENT | CONST_CS, module_number);
		len = snprintf(name, sizeof(name), "%sVERSION", prefixes[p]);
		zend_register_string_constant(name, (size_t)len, HOWDAH_SWOOLE_VERSION, CONST_PERSISTENT | CONST_CS, module_number);
	}
	register_names();
}
