//! The one table of options: what a configuration file may contain, with type, range, default, modes, and who needs it.
//! The reader takes types, defaults and destinations from here. `howdah check --explain`, `docs/configuration.md` and
//! the suggestions for unknown keys are generated from it.
//!
//! A new option needs a row here, a field of the struct that uses it (the row names the field), and code that uses the
//! field.

use howdah_executor::PoolMode;
use howdah_server::cache::CacheConfig;

use super::ServerOptions;
use super::job::PRESET_NAMES;
use super::kind::OptionKind;
use super::value::OptionValue;

/// A row of the table: an option with its kind, default, destination and documentation.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// The table that contains the option: empty for the top level, `pool.*` for any pool.
    pub section: &'static str,
    /// The modes of a pool that have the option; empty for all modes.
    pub modes: &'static [&'static str],
    /// The key of the option.
    pub key: &'static str,
    /// The type of the value.
    pub kind: OptionKind,
    /// The default as it would be written; empty if there is none. The entries of a list are separated by commas.
    pub default: &'static str,
    /// The destination of the value.
    pub target: Destination,
    /// What the option does.
    pub doc: &'static str,
    /// When the option is needed.
    pub who: &'static str,
}

/// The destination of an option's value.
#[derive(Clone, Copy, Debug)]
pub enum Destination {
    /// The section's reader requests the value by its key, and checks or converts it.
    Reader,
    /// This field of the server's options.
    Server(fn(&mut ServerOptions, OptionValue)),
    /// This field of a pool's configuration, in each mode that has the option.
    Pool(fn(&mut PoolMode, OptionValue)),
    /// This field of a site's cache.
    Cache(fn(&mut CacheConfig, OptionValue)),
}

impl Destination {
    /// Returns the setter of the server's options, if that is the destination.
    pub fn server(self) -> Option<fn(&mut ServerOptions, OptionValue)> {
        match self {
            Destination::Server(put) => Some(put),
            _ => None,
        }
    }

    /// Returns the setter of a pool's configuration, if that is the destination.
    pub fn pool(self) -> Option<fn(&mut PoolMode, OptionValue)> {
        match self {
            Destination::Pool(put) => Some(put),
            _ => None,
        }
    }

    /// Returns the setter of a site's cache, if that is the destination.
    pub fn cache(self) -> Option<fn(&mut CacheConfig, OptionValue)> {
        match self {
            Destination::Cache(put) => Some(put),
            _ => None,
        }
    }
}

/// The sections: the name as in the file, and a description.
pub const SECTION_DESCRIPTIONS: &[(&str, &str)] = &[
    ("", "These keys must come before the first `[section]`."),
    ("log", "Where Howdah logs its messages and the requests."),
    (
        "traces",
        "Distributed tracing: Howdah accepts the header `traceparent` (W3C Trace Context), passes it on, and sends spans to a collector ([traces.md](traces.md)). Without `endpoint`, tracing is off.",
    ),
    (
        "fleet",
        "Keeps the page caches of several servers consistent ([fleet.md](fleet.md)). Without `valkey`, this server is not in a fleet.",
    ),
    (
        "limits",
        "Limits on what clients may send and on what the server stores for them. Each option names the failure that a client gets when it exceeds the limit.",
    ),
    ("timeouts", "How long each step may take."),
    (
        "compression",
        "Howdah compresses text responses with zstd, brotli or gzip while it sends them.",
    ),
    (
        "cache",
        "The page cache, which all sites that set `cache` share.",
    ),
    ("tls", "The HTTPS settings of all listeners with `tls`."),
    (
        "acme",
        "If a listener has `tls`, Howdah orders and renews certificates for the `hosts` of all sites that have no certificate file. Names that are not public (`localhost`, `*.test`, `*.internal`, IP addresses) get a certificate from a local authority.",
    ),
    (
        "trusted_proxies",
        "Proxies that are trusted to report the client's address. By default, no proxy is trusted, and Howdah treats `X-Forwarded-*` and `Forwarded` like any other header.",
    ),
    (
        "status",
        "Status, metrics and probes over HTTP. `howdah status` works without this table.",
    ),
    (
        "pool.*",
        "A pool of PHP processes, with one user, one php.ini and one opcache. If the file has no pool, there is one called `www`.",
    ),
    (
        "site",
        "A site: a directory that is served for some hosts. If the file has no site, Howdah serves the directory that you name on the command line, with the settings for the application that it finds there. If you name no directory either, Howdah does not start (`NoSite`).",
    ),
    (
        "site.certificate",
        "A certificate for HTTPS. Howdah chooses the certificate by the server name that the client requests (SNI).",
    ),
    (
        "site.esi",
        "Edge side includes (ESI): Howdah replaces the ESI tags of a page with fragments while it sends the page ([esi.md](esi.md)). Without this table, no tags are processed. The site needs `cache`.",
    ),
    (
        "site.private",
        "Private pages: responses that the application marks with `X-LiteSpeed-Cache-Control: private,max-age=N` are stored for their visitor alone ([cache.md](cache.md#private-pages)). Without this table, no such response is stored. The site needs `cache`. A server in a fleet cannot use this table.",
    ),
    (
        "site.rule",
        "Rules are applied in order. A rule selects URL paths with at most one of `path`, `prefix`, `glob` and `regex`; without any of them, it applies to all paths. A rule has one action, such as `redirect`, `deny` or `proxy`. All limits of a rule (`limit`, `rate`, `connections`, `processes`) together count as one action. A rule without such an action may combine `set_header`, `add_header`, `cache_control` and `type`.",
    ),
    (
        "site.rule.not",
        "Exceptions to a rule, in one or more tables.",
    ),
    ("job", "A [background job](jobs.md)."),
];

const SECOND: u64 = 1000;
const DAY: u64 = 24 * 3600 * SECOND;
const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const T: u64 = 1 << 40;

/// The modes in which a pool can run PHP.
const MODES: [&str; 5] = ["embed", "worker", "fastcgi", "pool", "cgi"];
/// Options for all modes, and of sections other than pools.
const ANY: &[&str] = &[];
/// Modes in which Howdah starts PHP.
const STARTED: &[&str] = &["embed", "worker", "pool", "cgi"];
/// Those modes in which the processes outlive a request.
const LASTING: &[&str] = &["embed", "worker", "pool"];
/// Those modes in which the processes are howdah-php.
const OURS: &[&str] = &["embed", "worker"];
const WORKER: &[&str] = &["worker"];
/// Modes in which Howdah starts programs that the configuration names.
const PROGRAMS: &[&str] = &["pool", "cgi"];
const POOL: &[&str] = &["pool"];
const FASTCGI: &[&str] = &["fastcgi"];
/// Modes in which Howdah is a FastCGI client.
const BACKENDS: &[&str] = &["fastcgi", "pool"];

macro_rules! server {
    ($($field:ident).+) => { Destination::Server(|to, value| value.store_in(&mut to.$($field).+)) };
}
macro_rules! pool {
    ($($mode:ident.$($field:ident).+),+) => {
        Destination::Pool(|to, value| match to {
            $(PoolMode::$mode(config) => value.store_in(&mut config.$($field).+),)+
            #[allow(unreachable_patterns, reason = "some options have a field in every mode")]
            other => unreachable!("the table of options has no field of mode `{}`", other.word()),
        })
    };
}
macro_rules! cache {
    ($($field:ident).+) => { Destination::Cache(|to, value| value.store_in(&mut to.$($field).+)) };
}
macro_rules! target {
    () => {
        Destination::Reader
    };
    ($target:expr) => {
        $target
    };
}

/// Expands rows by section and modes: key, kind, default, optionally the field to store the value in, what the option
/// does, and when it is needed.
macro_rules! options {
    ($($section:literal $modes:ident {
        $($key:literal: $kind:expr, $default:literal $(=> $target:expr)?, $doc:literal, $who:literal;)*
    })*) => {
        /// All options, in the order of the reference.
        pub const OPTIONS: &[OptionSpec] = &[$($(OptionSpec {
            section: $section,
            modes: $modes,
            key: $key,
            kind: $kind,
            default: $default,
            target: target!($($target)?),
            doc: $doc,
            who: $who,
        },)*)*];
    };
}

options! {
    "" ANY {
        "listen": OptionKind::Texts, "127.0.0.1:8080",
            "The addresses to listen on: `HOST:PORT`, `:PORT`, `[::]:PORT` or `unix:PATH`. These parameters may follow an address: `tls` (HTTPS with the sites' certificates, including HTTP/2), `tls http3` (experimental: also HTTP/3, on the UDP port with the same number), `h2c` (also HTTP/2 without TLS, for a load balancer) and `proxy_protocol` (each connection from `[trusted_proxies]` begins with a PROXY header). For a unix socket, `owner=USER`, `group=GROUP` and `mode=0660` are also possible.",
            "Needed if other machines should reach the server.";
        "include": OptionKind::Texts, "",
            "Shell patterns that name more configuration files: `[\"conf.d/*.toml\", \"sites.d/*.toml\"]`. Their sites are added in the order of the file names. The same key must not be set in two files. Relative paths in an included file start from the directory of the main file.",
            "Useful for one file per site.";
        "threads": OptionKind::IntegerOrAuto(1, 128), "auto",
            "The number of threads that serve HTTP; `auto` means one per core. A change needs a restart.",
            "Useful on machines that also need their cores for other programs.";
        "user": OptionKind::Text, "",
            "The account, as `USER` or `USER:GROUP`, under which the HTTP server runs when root has started it. Pools run as the same user unless they set their own `user`. A change needs a restart.",
            "Needed if root starts the server.";
        "pid": OptionKind::Path, "", "The file to which the master process writes its process id.", "Useful for service managers other than systemd.";
        "control": OptionKind::Path, "",
            "The control socket, through which `howdah status`, `reload` and `stop` reach the server. By default, its name is the server's first port (such as `8080.sock`), and its directory is `/run/howdah` (for root), `$XDG_RUNTIME_DIR/howdah` or `/tmp/howdah-UID`.",
            "Useful for several servers with the same port, such as containers that share a directory.";
        "php": OptionKind::Text, "",
            "The PHP to use: a series such as `8.4`, or the path of a php-fpm, php-cgi or php program. The default is the environment variable `$HOWDAH_PHP`, which accepts the same values. Without this variable, Howdah uses the php-fpm of the machine, otherwise its php-cgi, and otherwise its php: see [which PHP](pools.md#which-php).",
            "Useful for several versions of PHP on one machine.";
        "mode": OptionKind::Word(&MODES), "embed",
            "How pools run PHP, unless they set their own `mode`.",
            "See modes.md.";
    }
    "log" ANY {
        "error": OptionKind::PathOr(&["stderr", "syslog", "journald"]), "stderr",
            "The error log, which includes PHP's messages. `syslog` and `journald` take the same settings as in `access`.",
            "Useful for servers whose service manager does not store stderr.";
        "level": OptionKind::Word(&["error", "warning", "notice", "info", "debug"]), "notice",
            "The least severe level that is logged. Messages of all more severe levels are logged, too.", "Use `info` or `debug` to find a fault.";
        "access": OptionKind::PathOr(&["off", "stdout", "stderr", "syslog", "journald"]), "off",
            "The access log. Howdah writes one line per request, within a second. `syslog` may have settings, as in `syslog:server=HOST:514`; the defaults are `syslog:server=unix:/dev/log,facility=daemon,tag=howdah`. `journald:PATH` uses another socket of the journal.", "Useful for statistics and audits.";
        "access_format": OptionKind::Word(&["common", "combined", "extended", "json"]), "combined",
            "The format of the access log. `extended` is `combined` with more fields: the host, the request time, the queue time, the number of the PHP process, the name of the failure and the number of the request.",
            "Set it if your log analyser expects another format.";
    }
    "traces" ANY {
        "endpoint": OptionKind::Text, "",
            "The URL of a collector that accepts OTLP over HTTP (protobuf), such as `http://127.0.0.1:4318`; `/v1/traces` is appended.",
            "Needed for traces. Jaeger, Tempo and the OpenTelemetry Collector accept them.";
        "sample": OptionKind::Text, "100%",
            "The share of requests that are recorded, such as `1%`. If a request has the header `traceparent`, its sender has already decided whether it is recorded, and this option does not apply.",
            "Useful for busy servers.";
        "service": OptionKind::Text, "howdah", "The name under which the collector shows the traces (`service.name`).",
            "Useful if several servers share a collector.";
        "headers": OptionKind::Pairs, "", "`[traces.headers]`: headers that Howdah sends with each message to the collector.",
            "Useful for collectors that need credentials.";
    }
    "fleet" ANY {
        "valkey": OptionKind::Text, "",
            "The URL of Valkey: `redis://user:password@host:6379/0`, `rediss://` with TLS, `redis+sentinel://user:password@host:26379,host:26379/PRIMARY` or `redis+cluster://user:password@host:6379,host:6379`.",
            "Needed for sites on several servers.";
        "name": OptionKind::Text, "howdah", "The name of the fleet.",
            "Needed if several fleets share a Valkey.";
        "member": OptionKind::Text, "", "The name of this server; the default is the name of the machine.",
            "Needed for several servers on one machine.";
        "lease": OptionKind::Time(SECOND, 60 * SECOND), "3s",
            "How long this server continues to serve stored pages while it cannot reach Valkey. A write waits at most this long for the other members.",
            "Raise it if the network to Valkey is slow.";
        "replicas": OptionKind::Integer(0, 100), "0",
            "The number of replicas that Valkey's primary has. All of them must confirm a lease.",
            "Needed if a replica may take over from the primary.";
        "release": OptionKind::Text, "", "The version of the code that the sites run. Members with the same release share rendered pages.",
            "Useful to render a page once for all members instead of once on each member.";
        "key_file": OptionKind::Path, "", "A file with the secret that signs shared pages, created with `openssl rand -hex 32`.",
            "Needed with `release`.";
        "forget_after": OptionKind::TimeOrOff(SECOND, 30 * DAY), "off",
            "If a member has been silent for this time, the other members forget it. The silent member then responds with 503 to requests that write ([fleet.md](fleet.md#a-member-that-is-gone-for-good)). The minimum is twice the `lease`.",
            "Useful if no administrator removes failed servers by hand.";
    }
    "limits" ANY {
        "header": OptionKind::Size(K, M), "32K" => server!(http.max_header_bytes),
            "The maximum size of a request header; a request with a longer header gets 431 `HeaderTooLarge`. The request line may use up to a quarter of this size; a request with a longer line gets 414 `UriTooLong`.",
            "Useful for single sign-on with long URLs or cookies.";
        "connections": OptionKind::IntegerOrAuto(1, 1_000_000), "auto" => server!(http.max_connections),
            "The maximum number of open connections. `auto` is three quarters of the limit on open files, but at most one connection for each 32 KiB of `memory`. Howdah first raises the limit on open files as far as the system allows.",
            "Useful on machines that also run other services.";
        "keepalive_requests": OptionKind::Integer(0, 1 << 40), "10000" => server!(http.keepalive_requests),
            "The number of requests after which a connection is closed; 0 means no limit.",
            "Lower it if a load balancer spreads requests only when connections are reopened.";
        "min_rate": OptionKind::Integer(0, 1 << 30), "240" => server!(http.min_rate),
            "The minimum speed of a client, in bytes per second. If the client sends a request body more slowly, it gets 408 `BodyTooSlow`; if it reads a response more slowly, the response is cut off (`ClientTooSlow`). Howdah measures the average speed over ten seconds, counting only time in which it waits for the client. 0 means no minimum.",
            "Lower it if clients use very slow links.";
        "response_spill": OptionKind::Size(0, T), "1G" => server!(buffers.response_spill),
            "The maximum size of the file in which Howdah stores a response for a slow client; the first 256 KiB of the response stay in memory. When the file is full, the script has to wait for its client, which must then read at least 256 KiB per second. Otherwise, Howdah disconnects the client (`ClientTooSlow`).",
            "Useful for scripts that send large responses, such as backups.";
        "spill_total": OptionKind::SizeOrAuto(0, 1024 * T), "auto" => server!(spill_total),
            "The maximum total size of the temporary files for request bodies and responses. When more than half of this size is used, clients must transfer at least 16 KiB per second (408 `BodyTooSlow`, `ClientTooSlow`). When all of it is used, a request whose body needs a file gets 503 `SpillFull`. `auto` is half of the disk space that is free when the server starts.",
            "Useful on a disk that a database also uses.";
        "memory": OptionKind::SizeOrAuto(16 * M, T), "auto" => server!(memory),
            "The maximum memory of the HTTP server (the front), not counting `cache.memory` and the memory of PHP. When more than half of it is used, the request bodies and responses of slow clients are moved to files. When all of it is used, Howdah disconnects clients that occupy much memory without reading their responses (`ClientTooSlow`), and new requests get 503 `MemoryLimit`. `auto` is a quarter of the memory of the machine or container, but at least 64 MiB. If `ulimit -v` limits the address space of the process, `auto` is at most half of that limit.",
            "Useful in containers, to leave more or less memory for PHP.";
        "spill_directory": OptionKind::Path, "/var/tmp" => server!(buffers.directory),
            "The directory for the temporary files of request bodies and responses. The files have no names, so you do not see them in the directory.",
            "Useful with a read-only root file system, or for a faster disk.";
    }
    "timeouts" ANY {
        "header": OptionKind::Time(100, 600 * SECOND), "10s" => server!(http.header_timeout),
            "How long a client may take to send a request header, from the first byte to the last. A slower client gets 408 `HeaderTimeout`.",
            "Raise it for satellite links. A longer time makes slowloris attacks easier.";
        "body": OptionKind::Time(100, 3600 * SECOND), "30s" => server!(http.body_timeout),
            "How long a client may pause between two parts of a request body. If the pause is longer, the client gets 408 `BodyTimeout`.",
            "Useful for clients that pause while they upload.";
        "keepalive": OptionKind::Time(0, 3600 * SECOND), "75s" => server!(http.keepalive_timeout),
            "How long a connection may be idle between requests.",
            "If a load balancer is in front of Howdah, make this time longer than the idle timeout of the load balancer (usually 60 s).";
        "send": OptionKind::Time(100, 3600 * SECOND), "60s" => server!(http.send_timeout),
            "If a client reads nothing of its response for this time, its connection is closed.",
            "Useful for clients that pause while they read.";
        "stop": OptionKind::Time(0, DAY), "10s" => server!(timeouts.stop),
            "How long running requests may continue after SIGTERM or SIGINT.",
            "Make it shorter than the time after which your container or service manager kills the server.";
        "drain": OptionKind::Time(0, DAY), "60s" => server!(timeouts.drain),
            "How long running requests may continue after SIGQUIT, `howdah stop`, a reload or a crash of the HTTP server (the front).",
            "Useful for sites with long requests.";
        "start": OptionKind::Time(SECOND, 3600 * SECOND), "60s" => server!(timeouts.start),
            "How long PHP may take to start, including preloading.", "Useful for large preloads and slow disks.";
        "hang": OptionKind::Time(SECOND, DAY), "30s" => server!(timeouts.hang),
            "If a thread of the HTTP server (the front) is blocked for this time, the front is restarted (`FrontHung`). Time spent waiting for a disk does not count. The processes that start PHP must respond within 10 s, or within a third of this time if a third is more than 10 s (`ZygoteStuck`, `SpawnerStuck`).",
            "Raise it on an overloaded machine, or to attach a debugger.";
    }
    "compression" ANY {
        "codings": OptionKind::Texts, "zstd, br, gzip",
            "The codings that Howdah may use, in order of preference; `off` disables compression.",
            "Change it if a proxy in front of Howdah compresses responses, or if pages contain secrets (security.md).";
        "types": OptionKind::Texts, "", "Media types that are compressed in addition to the usual text types.",
            "Useful for applications with their own media types.";
    }
    "cache" ANY {
        "memory": OptionKind::Size(M, T), "128M", "The memory for the cached pages of all sites. The maximum size of a single page is a sixteenth of this memory, or 8 MiB if that is more. However, no page may use more than half of this memory.",
            "Raise it if your sites have more than about ten thousand pages.";
        "path": OptionKind::Path, "",
            "A directory for cached pages that do not fit into memory; they survive a restart. The directory must belong to this server alone, be private to its user, and lie outside the root of every site.",
            "Useful for large sites, and for sites that must have a warm cache after a restart.";
        "disk_size": OptionKind::Size(M, 1024 * T), "1G", "The maximum disk space for the pages below `path`.", "Raise it if your sites have more than about a hundred thousand pages.";
    }
    "tls" ANY {
        "client_ca": OptionKind::Path, "",
            "A PEM file with the certificates of the authorities that sign client certificates. Howdah asks each client for a certificate, and PHP gets `SSL_CLIENT_VERIFY`, `SSL_CLIENT_S_DN` and the related variables, as with Apache. Revocation lists are not read.",
            "Useful for machines and people that log in with a certificate.";
        "verify_client": OptionKind::Word(&["on", "optional"]), "on",
            "`on`: Howdah refuses a client without a certificate during the handshake. `optional`: Howdah accepts such a client, and PHP decides what it may do.",
            "Use `optional` if a part of the site is public.";
        "ticket_keys": OptionKind::Path, "",
            "A file with the keys for session tickets. Each key is 48 random bytes. The first key encrypts new tickets. Without the file, Howdah creates keys and changes them every six hours.",
            "Useful for several hosts behind one address.";
    }
    "acme" ANY {
        "email": OptionKind::Text, "", "The address to which an authority sends messages about the account.", "Set it to receive warnings from the authority.";
        "authorities": OptionKind::Texts, "letsencrypt",
            "The authorities, which are tried in order: `letsencrypt`, `letsencrypt-staging`, `zerossl`, or the URL of another authority's directory.",
            "Useful for a second authority in case the first one is down, for tests, and for an authority of your own (`SSL_CERT_FILE` names its root certificate).";
        "eab": OptionKind::Pairs, "",
            "`[acme.eab]`: the account keys that some authorities require (external account binding), with one line for each authority: `zerossl = \"KEY_ID:HMAC_KEY\"`. For an authority whose URL is in `authorities`, write the host of that URL in quotes: `\"acme.example.org\" = \"KEY_ID:HMAC_KEY\"`.",
            "Needed for `zerossl`.";
        "ask": OptionKind::Text, "",
            "The URL of your own service that decides for which other names Howdah may order certificates. When a client connects with a name that is not in the configuration, Howdah requests this URL with `?domain=NAME` added. A status from 200 to 299 allows the order; with any other status, the client is refused. At most ten new names are ordered per minute.",
            "Useful for platforms whose customers bring their own domains ([certificates.md](certificates.md#names-of-customers)).";
        "dns_hook": OptionKind::Path, "",
            "A program that proves control over a name with DNS (DNS-01). Howdah runs `PROGRAM present|cleanup _acme-challenge.NAME. VALUE`, as lego does for its provider `exec`. The program must not exit until all name servers have the record.",
            "Needed for wildcards, and for servers that cannot be reached from the Internet.";
        "path": OptionKind::Path, "",
            "The directory for keys, certificates and accounts, which several hosts may share. The default is `/var/lib/howdah` (root) or `~/.local/state/howdah`. The process that orders certificates runs as the owner of the directory.",
            "If several machines behind one load balancer serve the same names, use a directory that they share.";
    }
    "trusted_proxies" ANY {
        "networks": OptionKind::Texts, "",
            "The addresses and networks of the proxies, such as `10.0.0.0/8`; `unix` means every client that connects to a unix socket.",
            "Needed behind every proxy.";
        "networks_file": OptionKind::Path, "",
            "A file with more networks of proxies, one in each line; `#` begins a comment. The file is read again within a second when it changes.",
            "Useful for lists that change, such as those of Cloudflare and other CDNs.";
        "header": OptionKind::Word(&["x-forwarded", "forwarded"]), "x-forwarded",
            "The kind of headers that the proxies write: `X-Forwarded-For` and the related headers, or `Forwarded` (RFC 7239). Howdah does not read the other kind, because a proxy passes it on as the client sent it.",
            "Useful for proxies that follow the RFC.";
        "host": OptionKind::OnOff, "off",
            "Whether Howdah uses the host that the proxies write into `X-Forwarded-Host`, or into `host=` of `Forwarded`.",
            "Useful for proxies that rewrite `Host`. Keep it off if one of your proxies does not set these values itself, because such a proxy passes on whatever the client sent.";
    }
    "status" ANY {
        "listen": OptionKind::Text, "",
            "The address of a listener for monitoring only, such as `127.0.0.1:9180`. It is written like an address of the top-level `listen`, but cannot have `tls`. It serves `/livez`, `/readyz`, `/status` and `/metrics` (monitoring.md). If other machines can reach the address, you must set `allow`. Every client may use the probes (`/livez`, `/readyz`).",
            "Useful for containers, Prometheus and load balancers.";
        "path": OptionKind::Text, "",
            "The URL path of the status page on the sites' listeners, such as `/howdah-status`. By default, there is no such page.",
            "Useful for monitoring through the sites' ports. Be careful: the page shows what visitors do.";
        "allow": OptionKind::Texts, "127.0.0.1, ::1",
            "The addresses and networks of clients that may see the status and the metrics. If these clients reach the server through a proxy, list the proxy in `[trusted_proxies]`, because Howdah shows neither page to a request that comes through any other proxy. Howdah recognises such a request by the headers that proxies add. If a proxy on this machine adds no such headers, list it, too: otherwise its requests look like requests from this machine.",
            "Useful for monitoring from another machine.";
    }
    "pool.*" ANY {
        "mode": OptionKind::Word(&MODES), "",
            "How this pool runs scripts, instead of the `mode` at the top level.",
            "Useful for pools with different modes.";
        "queue_size": OptionKind::Integer(0, 65535), "1024" => pool!(Embed.queue_size, FastCgi.queue_size, Pool.client.queue_size, Cgi.queue_size),
            "The maximum number of requests that wait for a process. Clients are served in turn. If the queue is full, the client with the most waiting requests loses its newest one, which gets 503 `QueueFull`.",
            "Lower it if requests should fail early rather than wait.";
        "queue_timeout": OptionKind::Time(10, 3600 * SECOND), "30s"
            => pool!(Embed.queue_timeout, FastCgi.queue_timeout, Pool.client.queue_timeout, Cgi.queue_timeout),
            "How long a request may wait for a process before it gets 503 `QueueTimeout`.",
            "Set it to the time for which your clients wait, such as the timeout of a load balancer in front of Howdah.";
        "request_terminate_timeout": OptionKind::TimeOrOff(100, DAY), "300s"
            => pool!(Embed.request_terminate_timeout, FastCgi.request_terminate_timeout, Pool.client.request_terminate_timeout, Cgi.request_terminate_timeout),
            "How long a script may run, including the time in which it sleeps. After that, Howdah kills its process, and the client gets 504 `TerminateTimeout`.",
            "Raise it for long reports and imports.";
    }
    "pool.*" STARTED {
        "max_children": OptionKind::IntegerOrAuto(1, 1000), "auto",
            "The maximum number of PHP processes. `auto` depends on the number of cores and on the memory. In mode `worker`, it is two per core.",
            "Raise it for applications that often wait, for example for a database, and lower it for applications that need much memory.";
        "user": OptionKind::Text, "",
            "The account, as `USER` or `USER:GROUP`, under which PHP runs when root has started the server. The default is the server's user.",
            "Needed if sites must not read each other's files.";
        "php_ini": OptionKind::Path, "", "The php.ini to use instead of the one that PHP would find.", "Useful for pools with different settings.";
        "php_value": OptionKind::Pairs, "" => pool!(Embed.defines, Pool.ini.defines, Cgi.ini.defines),
            "`[pool.NAME.php_value]`: PHP settings, such as `opcache.memory_consumption` or `extension`. They apply from the start of PHP, like settings with `-d`. Use `opcache.validate_timestamps = 0` if deployments end with `howdah reload`, and `opcache.revalidate_freq = 0` for development.",
            "Useful for settings that only this pool should have.";
        "env": OptionKind::Pairs, ""
            => pool!(Embed.environment, Pool.identity.environment, Cgi.identity.environment),
            "`[pool.NAME.env]`: environment variables of the processes.", "Useful for applications that are configured with variables.";
        "clear_env": OptionKind::OnOff, "on"
            => pool!(Embed.clear_env, Pool.identity.clear_env, Cgi.identity.clear_env),
            "`on`: PHP inherits only PATH, PHPRC and PHP_INI_SCAN_DIR from the server's environment. `off`: PHP inherits the whole environment of the server. In both cases, PHP also gets the variables of `env` and `--env`.",
            "Use `off` in containers whose environment is the configuration.";
    }
    "pool.*" LASTING {
        "pm": OptionKind::Word(&["static", "dynamic", "ondemand"]), "dynamic",
            "How the number of processes is chosen, as in php-fpm. `static` always runs max_children processes. `dynamic` starts and stops processes so that a few are always idle. `ondemand` starts processes when requests arrive. Mode `worker` and `--children N` use `static`.",
            "Use `ondemand` for many idle sites, and `static` for a steady load.";
        "min_spare_servers": OptionKind::IntegerOrAuto(0, 1000), "auto",
            "The minimum number of idle processes with `dynamic`. If fewer are idle, Howdah starts another one. `auto` is half the number of cores.", "Useful for bursts of requests.";
        "max_spare_servers": OptionKind::IntegerOrAuto(1, 1000), "auto",
            "The maximum number of idle processes with `dynamic`. If more are idle, Howdah stops one. `auto` is twice the number of cores.", "Useful for bursts of requests.";
        "process_idle_timeout": OptionKind::Time(SECOND, DAY), "10s"
            => pool!(Embed.process_idle_timeout, Pool.process_idle_timeout),
            "How long a process may be idle before it is stopped, unless `min_spare_servers` still needs it.", "Useful if other programs need the memory sooner.";
        "max_requests": OptionKind::Integer(0, 1 << 40), "0" => pool!(Embed.max_requests, Pool.max_requests),
            "The number of requests after which a process is replaced; 0 means never. So that not all processes are replaced at the same time, some are replaced up to a tenth earlier in mode `worker`, and up to a fifth earlier in mode `pool`.",
            "Useful for code that leaks something other than memory.";
        "max_memory": OptionKind::SizeOrOff(16 * M, T), "512M" => pool!(Embed.max_memory, Pool.max_memory),
            "The maximum resident memory of a process. A process that exceeds it is replaced after its current request.",
            "Raise it for applications that need more than four times PHP's memory_limit.";
    }
    "pool.*" OURS {
        "php": OptionKind::Text, "",
            "The PHP of this pool, written like the top-level `php`.", "Useful for sites that need different versions of PHP.";
        "shared_cache": OptionKind::SizeOrOff(M, T), "off" => pool!(Embed.shared_cache),
            "The memory for values that PHP scripts store for later requests ([shared cache](shared-cache.md)).",
            "Use `64M` for the object cache of WordPress.";
        "watch": OptionKind::Texts, "",
            "Patterns of files, such as `src/**/*.php`. In mode `worker`, they are relative to the directory of the script. When one of the files changes, Howdah replaces the processes. The patterns may match at most 8192 directories (`WatchIncomplete`).",
            "Useful for development, and for deployments that do not end with `howdah reload`.";
        "request_slowlog_timeout": OptionKind::TimeOrOff(100, DAY), "10s" => pool!(Embed.request_slowlog_timeout),
            "If a request runs longer than this, Howdah logs its PHP stack (`SlowRequest`).", "Raise it for scripts that are meant to run for a long time.";
        "request_terminate_timeout_track_finished": OptionKind::OnOff, "off" => pool!(Embed.track_finished),
            "Whether `request_terminate_timeout` also limits the work that a script does after its response, for example after `fastcgi_finish_request()` or in shutdown functions.",
            "Useful for applications whose background work may hang.";
    }
    "pool.*" WORKER {
        "worker": OptionKind::Path, "",
            "The script that each process runs once, at its start. It then receives the requests of the pool with `frankenphp_handle_request()`.",
            "Needed in mode `worker`.";
    }
    "pool.*" PROGRAMS {
        "command": OptionKind::Texts, "php-cgi",
            "The program that runs PHP scripts, and its arguments. In mode `pool`, this can be any program that speaks FastCGI on its standard input.",
            "Useful for another PHP, another language, or a wrapper.";
    }
    "pool.*" POOL {
        "processes": OptionKind::Word(&["auto", "shared", "independent"]), "auto",
            "`shared`: Howdah starts one program, which forks max_children children with a common opcache. `auto` means `shared` for php-cgi. `independent`: Howdah starts up to max_children programs, and replaces or kills each of them without affecting the others.",
            "Use `independent` for php-cgi processes that must not share an opcache.";
    }
    "pool.*" FASTCGI {
        "fastcgi": OptionKind::Texts, "",
            "Backends: `unix:PATH`, `HOST:PORT`, or a range such as `127.0.0.1:9000-9007`, optionally followed by `weight=N`. A request goes to the least busy backend.",
            "Needed in mode `fastcgi`.";
        "script_root": OptionKind::Pairs, "" => pool!(FastCgi.script_root),
            "`[pool.NAME.script_root]`: for each directory on this machine, its path on the machine or in the container where the scripts run, such as `\"/srv/site\" = \"/var/www/html\"`.",
            "Useful for php-fpm in another container or a chroot.";
    }
    "pool.*" BACKENDS {
        "max_connections": OptionKind::IntegerOrAuto(1, 4096), "auto" => pool!(FastCgi.max_connections, Pool.client.max_connections),
            "The maximum number of connections to each backend. For php-fpm, set it to `pm.max_children`. `auto` uses the number that the backend reports, as php-cgi does. If the backend reports none, as with php-fpm, Howdah finds the number by trial. `--children N` overrides this option.",
            "Set it for php-fpm, because `keep_connections` works only with a known number.";
        "keep_connections": OptionKind::OnOff, "on" => pool!(FastCgi.keep_connections, Pool.client.keep_connections),
            "Whether Howdah keeps idle connections open for one second to reuse them. Each idle connection occupies a process, so Howdah does this only if it knows the number of processes. A connection that has carried a request body is never reused.",
            "Use `off` for scripts that continue to work after `fastcgi_finish_request()`.";
        "read_timeout": OptionKind::TimeOrOff(10, DAY), "off" => pool!(FastCgi.read_timeout, Pool.client.read_timeout),
            "How long a backend may stay silent while Howdah waits for its response. After that, the client gets 504 `BackendTimeout`.", "Useful for backends that hang without exiting.";
    }
    "site" ANY {
        "name": OptionKind::Text, "", "The name in logs and in the status. The default is the site's first host.", "Useful for sites without hosts.";
        "hosts": OptionKind::Texts, "", "The hosts for which the site handles requests: `example.org`, `*.example.org` or an address. The first `[[site]]` in the file also handles the requests for all hosts that no site lists.",
            "Needed for more than one site.";
        "listen": OptionKind::Texts, "",
            "The only addresses at which this site responds, written as in the top-level `listen`. If several sites use an address, the first of them in the file also handles the requests at this address for hosts that no site lists. By default, a site uses all addresses of the top-level `listen`. The option `--listen` replaces the top-level addresses, but not those of a site.",
            "Useful for an administration interface on its own port, or for two sites with the same host.";
        "root": OptionKind::Path, "", "The directory that is served. The default is the directory on the command line.", "Needed for every site in a file.";
        "recognise": OptionKind::OnOff, "",
            "`on`: add the settings and rules that `howdah serve DIR` would choose for the application in the root; the site's own rules are applied first. `off`: add nothing. If you do not set this option, Howdah only refuses the files that the application must not expose (docs/guides/files-and-routes.md).",
            "Useful for short configurations.";
        "pool": OptionKind::Text, "", "The pool that runs the site's scripts. The default is the pool of the file if it has only one, and otherwise `www`.", "Useful for files with several pools.";
        // A directory with both index.php and index.html is an application with a placeholder beside it.
        "index": OptionKind::Texts, "index.php, index.html, index.htm",
            "The file names that are tried in a directory, in order.", "Useful for applications whose index files have other names.";
        "try_files": OptionKind::Texts, "$uri, $uri/",
            "What Howdah tries for a path, in order: `$uri`, `$uri/`, a path that contains one of them, or `=STATUS`. If nothing matches, the `front_controller` handles the request. Without a front controller, the response is 404.",
            "Useful for pages stored as files, and single-page applications.";
        "front_controller": OptionKind::Text, "",
            "The URL path of the script that handles all requests for missing files, such as `/index.php`.",
            "Nearly every framework needs it.";
        "php_extensions": OptionKind::Texts, ".php", "The file name extensions of PHP scripts.", "Useful for `.phtml` and similar extensions.";
        "htaccess": OptionKind::Word(&["on", "deny", "off"]), "deny",
            "`on`: Howdah applies `.htaccess` files as Apache does (docs/htaccess.md). `deny`: Howdah refuses the requests that the files deny, including requests without a password that the files demand, and ignores everything else in the files. `off`: Howdah ignores the files.",
            "Use `on` for a site that was written for Apache, and `off` only if you are certain that the root has no such files.";
        "symlinks": OptionKind::Word(&["follow", "owner", "beneath"]), "follow",
            "Where symbolic links below the root may lead. `follow`: anywhere. `owner`: only to files of the link's owner. `beneath`: only below the root.",
            "Useful if other users can write to the root. If the path of `root` itself contains links, Howdah follows changes of them within a second.";
        "deny": OptionKind::Texts, "", "Patterns (globs) of URL paths. Howdah refuses requests for them, whether they name files or scripts.", "Useful for files that no client may see.";
        "expose": OptionKind::Texts, "",
            "Patterns (globs) of URL paths. Howdah sends the files at these paths even if it would otherwise refuse them as dotfiles, backups or source code.", "Useful for downloads of source code. You do not need it for `/.well-known/`.";
        "sendfile": OptionKind::Pairs, "",
            "`[site.sendfile]`: directories with files that Howdah sends when a script asks for them. With `\"/protected/\" = \"/srv/files\"`, a script that sets one of these headers makes Howdah send a file of `/srv/files`: `X-Accel-Redirect: /protected/…` or `X-Sendfile: /srv/files/…`.",
            "Useful for downloads where PHP only checks whether the visitor may have the file.";
        // Apache's LimitRequestBody since 2.4.53. PHP's own post_max_size (8 MB) is the limit that administrators
        // intend to set; nginx's limit of 1 MB in front of it is a well-known trap.
        "max_body_size": OptionKind::SizeOrOff(1, 1 << 50), "1G",
            "The maximum size of a request body. A request with a larger body gets 413 `BodyTooLarge`. PHP's own limit, `post_max_size`, applies only to bodies that PHP parses.", "Raise it for larger uploads, or lower it to refuse uploads earlier.";
        "request_buffering": OptionKind::Word(&["on", "off", "auto"]), "on",
            "`on`: a script starts when the body is complete. `off`: a script starts immediately, so a slow client occupies a process. `auto`: like `on`, but the script of a form with PHP's upload progress field starts immediately. At most a quarter of the processes run such scripts at the same time.",
            "Use `off` for scripts that process an upload while it arrives.";
        "types": OptionKind::Pairs, "", "`[site.types]`: media types by file name extension.", "Useful for extensions that Howdah does not know.";
        "env": OptionKind::Pairs, "", "`[site.env]`: variables that scripts find in `$_SERVER` and with getenv().", "Useful for sites that share a pool.";
        "php_value": OptionKind::Pairs, "", "`[site.php_value]`: PHP settings that scripts may change.", "Useful for sites that share a pool.";
        "php_admin_value": OptionKind::Pairs, "", "`[site.php_admin_value]`: PHP settings that scripts cannot change.", "Useful for code that you do not trust.";
        "error_pages": OptionKind::Pairs, "",
            "`[site.error_pages]`: the error page for each status, as the path of a file below the root, such as `404 = \"404.html\"`.", "Useful to replace Howdah's own error pages.";
        "cache": OptionKind::Word(&["off", "on", "rfc", "dry-run"]), "off",
            "`on`: render pages for anonymous visitors once, and serve them to all. `rfc`: store the responses whose headers allow it, as any HTTP cache does (RFC 9111). `dry-run`: like `on`, but serve nothing from the cache, and only count how often a cached page would have been right or wrong.",
            "Useful for sites whose pages are read more often than written. See cache.md.";
        "cache_preset": OptionKind::Text, "auto",
            "The application whose rules the cache uses: `wordpress`, `mediawiki`, `drupal`, `joomla`, `phpbb`, `magento`, `laravel`, `symfony`, `dokuwiki` or `php`. `auto` looks for an application in the root, and then below it.",
            "Useful for applications that are not recognised.";
        "cache_ttl": OptionKind::Time(SECOND, 365 * DAY), "120s" => cache!(rules.ttl),
            "The lifetime of a stored page if its headers set none. If its headers set a lifetime, the page is stored for that time, but at most for 24 hours.", "Raise it for pages that change rarely, and lower it for pages that change without a request to the site.";
        "cache_grace": OptionKind::Time(0, DAY), "10s" => cache!(rules.grace),
            "How long Howdah still serves a stored page after its lifetime has ended, while it renders a new one. The page's own `Cache-Control` can set another time, or forbid it; with `cache = \"rfc\"`, only `Cache-Control` counts.", "Useful for slow pages.";
        "cache_stale_if_error": OptionKind::Time(0, 30 * DAY), "1h" => cache!(rules.stale_if_error),
            "How long Howdah still serves a stored page after its lifetime has ended, if PHP fails to render a new one. The page's own `Cache-Control` can set another time, or forbid it; with `cache = \"rfc\"`, only `Cache-Control` counts.", "Raise it if you may need more time than this to repair a broken site.";
        "cache_ignore_cookies": OptionKind::Texts, "" => cache!(rules.ignore_cookies),
            "Cookies that do not change any page. A `*` at the end of a name stands for any ending. Any other unknown cookie bypasses the cache (`UnknownCookie`).",
            "Useful for consent banners and similar scripts.";
        "cache_vary_cookies": OptionKind::Texts, "" => cache!(rules.vary.cookies),
            "Cookies whose values appear in pages, such as a currency or a language. The cache stores a separate page for each value. When a script renders such a page for the cache, it sees these cookies and no others. You can name at most four cookies.",
            "Useful for shops with several currencies. Never name a cookie that identifies a visitor.";
        "cache_vary_mobile": OptionKind::OnOff, "off" => cache!(rules.vary.mobile),
            "Store separate pages for mobile browsers. Howdah recognises these browsers in the same way as WordPress' `wp_is_mobile()`. For them, it sets `LSCACHE_VARY_VALUE` in `$_SERVER` to `ismobile`.",
            "Useful for sites that send different pages to mobile browsers, and for \"Cache Mobile\" of the LiteSpeed Cache plugin.";
        "cache_ignore_query": OptionKind::Texts, "" => cache!(rules.ignore_query),
            "Query parameters that do not change any page. When Howdah renders a page for the cache, the script does not see them.", "Useful for advertising campaigns with their own parameters.";
        "cache_never": OptionKind::Texts, "", "Beginnings of URL paths, in decoded form. A page whose path begins with one of them is never cached.", "Useful for pages of accounts and carts.";
        "cache_ignore_writes": OptionKind::Texts, "" => cache!(ignore_writes),
            "Database tables that no page shows, so writes to them do not invalidate any page. A name may begin or end with `*`. You can also list PostgreSQL functions that do not write, in the form `name()`.", "Useful for counters and sessions that no preset knows.";
        "cache_flush_on_write": OptionKind::OnOff, "on" => cache!(flush_on_write),
            "Whether a request that may have written to the database invalidates all pages of the site. With `off`, the request invalidates only its own URL.",
            "Use `off` for applications that purge exactly the pages that have changed.";
        "cache_shadow": OptionKind::Integer(0, 1 << 30), "0" => cache!(shadow),
            "Render every Nth hit again and compare the result (`ShadowDiffers`); 0 means never.",
            "Useful to verify the cache in production; 1000 adds hardly any load.";
        "cache_purge_from": OptionKind::Texts, "",
            "The clients that may purge over HTTP, such as with `PURGE /path`: addresses, networks or `unix`.", "Useful for applications that purge with requests.";
        "cache_purge_token": OptionKind::Text, "",
            "A secret of at least 16 characters. Any client that sends it in `X-Purge-Token` or `Authorization: Bearer` may purge.", "Useful if the addresses of these clients change.";
        "cache_purge_path": OptionKind::Text, "",
            "A path for purges with GET. With `/purge/`, a GET request for `/purge/PATH` purges `/PATH`.", "Useful for the WordPress plugin nginx-helper.";
        "cache_keep_tags": OptionKind::OnOff, "off" => cache!(rules.keep_tags),
            "Send `Surrogate-Key`, `Cache-Tag` and the related headers to clients.", "Useful if a CDN in front of Howdah purges by tags.";
        "esi": OptionKind::Table, "", "The table `[site.esi]`, described below.", "Useful for pages of which only a few parts differ between visitors.";
        "private": OptionKind::Table, "", "The table `[site.private]`, described below.", "Useful for applications that send `X-LiteSpeed-Cache-Control: private`.";
        "certificate": OptionKind::Sections, "", "The certificates of the site, as tables `[[site.certificate]]`.", "Useful for HTTPS.";
        "https_redirect": OptionKind::OnOff, "off", "Redirect requests without TLS to `https://`.", "Nearly every site with HTTPS needs it.";
        "hsts": OptionKind::Text, "",
            "The value of `Strict-Transport-Security` in responses over HTTPS, such as `max-age=31536000`.",
            "Set it only for sites that will always have HTTPS, because browsers remember it.";
        "rule": OptionKind::Sections, "", "The rules of the site, as tables `[[site.rule]]`.", "Useful for everything that depends on the path.";
    }
    "site.certificate" ANY {
        "file": OptionKind::Path, "",
            "The certificate and its intermediate certificates, in PEM format (`fullchain.pem`). If root starts the server, Howdah reads the file as root. It reads the file again when it changes.",
            "Needed for HTTPS with your own certificate. If a name has several certificates, such as one for RSA and one for ECDSA, each client gets one that it supports.";
        "key": OptionKind::Path, "",
            "The private key, in PEM format. Users other than its owner and group must not be able to read it.",
            "Needed with `file`; it may be in the same file.";
    }
    "site.esi" ANY {
        "paths": OptionKind::Texts, "",
            "The URLs that pages may include: a path with everything below it (`/_fragment`), a path with a query parameter (`/?lsesi=`), `symfony` (`/_fragment`) or `litespeed` (`/?lsesi=`). An `<esi:include>` with any other URL inserts nothing (`EsiNotAllowed`), because a visitor may have written it, for example in a comment.",
            "Needed with this table.";
        "cookies": OptionKind::Texts, "",
            "Cookies that only fragments read. A `*` at the end of a name stands for any ending. Visitors with such cookies still get the page itself from the cache, but PHP renders the fragments for them.",
            "Needed for fragments that depend on a session: name the cookie of the session.";
    }
    "site.private" ANY {
        "cookies": OptionKind::Texts, "",
            "The cookies that identify a visitor. A `*` at the end of a name stands for any ending. By default, these are the cookies that the preset knows, such as `wordpress_logged_in*` for WordPress and `PHPSESSID` for an unknown application. A value with fewer than 16 bytes does not identify a visitor.",
            "Needed if the preset does not know the cookie of your sessions.";
    }
    "site.rule" ANY {
        "path": OptionKind::Text, "", "Matches exactly this path.", "Useful for single pages.";
        "prefix": OptionKind::Text, "", "Matches this path and everything below it; `$1` is the part that follows.", "Useful for directories.";
        "glob": OptionKind::Text, "", "A pattern in which `*` matches any text within a name, and `**` matches any text across directories. A pattern that does not begin with a slash matches at any depth.", "Useful for file name extensions.";
        "regex": OptionKind::Text, "", "A regular expression, which may use look-around as in PCRE. The targets of `redirect` and `rewrite` may contain its groups, as `$1` or `${name}`. If matching a path takes too many steps, the request is refused (`RuleUndecided`).", "Useful for paths that the other patterns cannot describe.";
        "methods": OptionKind::Texts, "", "The rule applies only to these methods.", "Useful for read-only areas.";
        "query": OptionKind::Pairs, "",
            "The rule applies only if all these query parameters match: `{ author = \"~ ^[0-9]+$\" }`. A value is a string in which `*` stands for any characters, or a regular expression after `~` (or after `~*`, which ignores case). An empty value matches if the parameter is missing or empty. Howdah decodes the parameters before it compares them.",
            "Useful if one path has several meanings. See access.md.";
        "cookie": OptionKind::Pairs, "", "The rule applies only if all these cookies match.", "Useful to try a change with some visitors.";
        "header": OptionKind::Pairs, "", "The rule applies only if all these headers match.", "Useful for crawlers and clients of an API.";
        "env": OptionKind::Pairs, "",
            "The rule applies only if all these variables match. The names can be `HTTPS`, `SERVER_PROTOCOL`, the `SSL_*` variables of a client certificate, the variables of `[site.env]`, and those of the server's environment.",
            "Useful if several machines share one configuration file.";
        "from": OptionKind::Texts, "",
            "The rule applies only if the client's address is in one of these networks. `unix` means clients that connect to a unix socket. Behind proxies, the client's address is the one that the proxies of `[trusted_proxies]` report.",
            "Useful for offices and abusive networks.";
        "from_file": OptionKind::Path, "",
            "A file with more networks for `from`, one per line; `#` begins a comment. The file is read again within a second when it changes.",
            "Useful for lists that a program writes.";
        "not": OptionKind::Sections, "",
            "The rule does not apply if all conditions of this table match: `not = { from = \"10.0.0.0/8\" }`. If there are several tables, one match is enough to exempt a request. The section `[[site.rule.not]]` lists the possible keys.",
            "Useful for exceptions.";
        "if_missing": OptionKind::OnOff, "off", "The rule applies only if the path names neither a file nor a script. If `try_files` contains `$uri/`, the path must not name a directory with an index either.", "Useful for several front controllers.";
        "redirect": OptionKind::Text, "", "Redirects the client to this path or URL.", "Useful for pages that have moved.";
        "status": OptionKind::Integer(300, 399), "302", "The status of the redirect: 301, 302, 303, 307 or 308.", "Use 301 only for permanent redirects, because browsers remember it for ever.";
        "rewrite": OptionKind::Text, "", "Handles the request as if it were for this path, with the same query.", "Useful for scripts that expect other paths.";
        "deny": OptionKind::Integer(400, 499), "", "Refuses the request with 403, 404 or 410.", "Useful for paths that no client may request.";
        "cgi": OptionKind::Text, "",
            "The name of a pool of mode `cgi`. Howdah executes the file at the path as a CGI program in this pool, and never sends the file itself to a client.", "Useful for `/cgi-bin/`.";
        "proxy": OptionKind::Texts, "",
            "Passes the request to another server: `http://127.0.0.1:3000`, `https://HOST`, `https+insecure://HOST` (with any certificate), `h2c://HOST:PORT` or `unix:/path`. WebSocket connections are passed on, too. If you name several servers, each request goes to the least busy one. `weight=N` may follow an address, and so may `name=HOST`, the name for TLS if it differs from the address.",
            "Useful if a part of the site is a Node, Go or Reverb application. See proxy.md.";
        "proxy_timeout": OptionKind::Time(10, DAY), "60s", "How long the server in `proxy` may stay silent. After that, the client gets 504 `BackendTimeout`, or the response is cut off if it has already begun. Time in which Howdah waits for a slow client does not count.", "Raise it for servers that take long to respond.";
        "proxy_health": OptionKind::Text, "",
            "A path such as `/up`, which Howdah requests from each server every five seconds. A server that does not respond with 2xx or 3xx gets no other requests.", "Useful with several servers.";
        "authorizer": OptionKind::Text, "",
            "The pool whose FastCGI authorizer decides whether a request is allowed; its mode is `fastcgi` or `pool`. If the authorizer responds with 200, the request is allowed, and the authorizer's `Variable-NAME` headers become variables for PHP. Any other response is sent to the client. The rule also applies to every path to which the request is rewritten. Responses to these requests never come from the cache.",
            "Useful if several applications share one login.";
        "authorizer_script": OptionKind::Path, "", "The path of the authorizer's script, if the authorizer is written in PHP.", "Needed for authorizers in PHP.";
        "auth_request": OptionKind::Text, "",
            "The URL of a server that decides whether a request is allowed, such as `http://127.0.0.1:9091/verify`. Howdah sends this server a GET request with the client's headers and with `X-Forwarded-Method`, `-Uri` and `-Host`. If the server responds with 2xx, the request is allowed. Any other response is sent to the client. Responses to these requests never come from the cache.",
            "Useful for single sign-on: Authelia, oauth2-proxy, authentik. See access.md.";
        "auth_request_set": OptionKind::Pairs, "",
            "Variables for PHP that contain headers from the response of the `auth_request` server: `{ REMOTE_USER = \"Remote-User\" }`.", "Useful for applications that get the name of the user from the web server.";
        "auth_basic": OptionKind::Text, "",
            "Asks for a user name and a password (Basic authentication). The value is the realm, which some browsers show. PHP gets `REMOTE_USER`, and responses to these requests never come from the cache.",
            "Useful for protected areas without their own login, such as a staging site. See access.md.";
        "auth_basic_user_file": OptionKind::Path, "",
            "The file of users and passwords, in the format of `htpasswd` (bcrypt, apr1, SHA-1, crypt). Howdah reads it again when it changes, and never sends it to a client.",
            "Needed with `auth_basic`.";
        "auth_basic_group_file": OptionKind::Path, "", "The file of groups, with lines such as `group: user user`.", "Useful for `auth_basic_require`.";
        "auth_basic_require": OptionKind::Texts, "", "The users that are admitted, as `user NAME` or `group NAME`. By default, every user in the file is admitted.", "Useful if several areas share one file of users.";
        "limit": OptionKind::Word(&["login"]), "",
            "`login` limits the requests with which visitors log in to known applications (`wp-login.php`, `xmlrpc.php`, `/login` …). You need not name their paths, methods or parameters. Without `rate`, the limit is `10/m` with a burst of 20.",
            "Useful for sites with passwords that can be guessed. See limits.md.";
        "rate": OptionKind::Text, "",
            "How many requests one client may send, such as `10/s`, `30/m` or `100/h`. Further requests get 429 `ClientLimited`.",
            "Useful for log-in pages, searches and APIs. See limits.md.";
        "burst": OptionKind::Integer(0, 1_000_000), "",
            "How many requests a client may send at once in addition to the first one, like nginx's `burst` with `nodelay`. The default is one less than the number in `rate`.", "Useful for pages with many parts.";
        "connections": OptionKind::Integer(1, 1_000_000), "",
            "The number of requests of one client that may be in progress at the same time, like nginx's `limit_conn`; further requests get 429 `ClientLimited`.",
            "Useful for downloads and streams.";
        "processes": OptionKind::Integer(1, 100_000), "",
            "The number of PHP processes that one client may use at the same time. Further requests of the client wait.",
            "Useful if crawlers request slow pages. See limits.md.";
        "limit_by": OptionKind::Text, "address",
            "What counts as one client: `address`, `network /24 /56` (prefix lengths of IPv4 and IPv6), `header NAME`, `cookie NAME`, or `all` clients together.",
            "Useful for APIs with keys, and crawlers with many addresses.";
        "return": OptionKind::Integer(200, 599), "", "Responds with this status and `body`.", "Useful for health checks and `robots.txt`.";
        "body": OptionKind::Text, "", "The body of the response of `return`.", "Useful for short responses, such as `robots.txt`.";
        "pool": OptionKind::Text, "", "The pool that runs scripts at these paths. If several such rules match, the last one applies.", "Useful to run a part of a site in mode `worker`.";
        "set_header": OptionKind::Pairs, "", "Headers that Howdah sets in every response, such as `{ X-Frame-Options = \"DENY\" }`. They replace headers of the same name, and an empty value removes the header. Error pages get these headers, too, except for those about the lifetime and the content of a page (`Cache-Control`, `Expires`, `ETag`, `Last-Modified`, `Content-Type`, `Content-Disposition`).", "Useful for security headers.";
        "add_header": OptionKind::Pairs, "", "Headers that Howdah adds to every response, even if the response already has one of the same name. Error pages get them under the same conditions as with `set_header`.", "Useful for headers that may repeat, such as `Link`.";
        "cache_control": OptionKind::Text, "", "The `Cache-Control` header of static files. If several such rules match, the first one applies. The rule does not change responses of scripts, which set this header themselves.", "Useful for assets that have versions in their names.";
        "type": OptionKind::Text, "", "The `Content-Type` of files, or of `body` (for `body`, the default is `text/plain; charset=utf-8`).", "Useful for files without an extension.";
    }
    "site.rule.not" ANY {
        "path": OptionKind::Text, "", "The same as in a rule.", "Useful for exceptions.";
        "prefix": OptionKind::Text, "", "The same as in a rule.", "Useful for exceptions.";
        "glob": OptionKind::Text, "", "The same as in a rule.", "Useful for exceptions.";
        "regex": OptionKind::Text, "", "The same as in a rule.", "Useful for exceptions.";
        "methods": OptionKind::Texts, "", "The same as in a rule.", "Useful for exceptions.";
        "query": OptionKind::Pairs, "", "The same as in a rule.", "Useful for exceptions.";
        "cookie": OptionKind::Pairs, "", "The same as in a rule.", "Useful for exceptions.";
        "header": OptionKind::Pairs, "", "The same as in a rule.", "Useful for exceptions.";
        "env": OptionKind::Pairs, "", "The same as in a rule.", "Useful for exceptions.";
        "from": OptionKind::Texts, "", "The same as in a rule.", "Useful for exceptions.";
        "from_file": OptionKind::Path, "", "The same as in a rule.", "Useful for exceptions.";
    }
    "job" ANY {
        "name": OptionKind::Text, "", "The name in the log, the status and the metrics.", "Needed without `preset`.";
        "command": OptionKind::Texts, "",
            "The program (a path, or a name in PATH) and its arguments. `php` stands for `howdah php`, with all options of that command.",
            "Needed without `preset`.";
        "preset": OptionKind::Word(&PRESET_NAMES), "",
            "Runs `wp-cron.php` or `artisan schedule:run` of a site every minute.",
            "Useful for WordPress and Laravel.";
        "directory": OptionKind::Path, ".", "The directory in which the job runs.", "Needed for relative file names.";
        "schedule": OptionKind::Text, "",
            "The minute, hour, day of month, month and day of week, as in a crontab. You can put a sixth field, the second, in front of them. You can also write `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`. Without a schedule, the job runs all the time: when it exits, Howdah starts it again.",
            "Use it instead of cron.";
        "time_zone": OptionKind::Text, "", "The time zone of the schedule, such as `Europe/Berlin`. The default is the zone of the machine.", "Useful if the clock of the machine is set to UTC.";
        "jitter": OptionKind::Time(0, DAY), "0s", "The maximum random delay of each scheduled run.", "Useful if many servers run the same job at the same time.";
        "members": OptionKind::Word(&["one", "each"]), "one", "Which members of a [fleet](jobs.md#in-a-fleet) perform a scheduled run: only one of them, or each.",
            "Use `each` for work on the machine itself.";
        "processes": OptionKind::Integer(1, 1000), "1", "For a job without `schedule`, the number of processes that run at the same time.", "Useful for busy queues.";
        "user": OptionKind::Text, "", "The user of the job's processes. The default is the server's user.", "Useful if the files of the job belong to another user.";
        "env": OptionKind::Pairs, "", "`[job.env]`: environment variables of the job.", "Useful for applications that are configured with variables.";
        "clear_env": OptionKind::OnOff, "on", "`on`: the job inherits only PATH, PHPRC and PHP_INI_SCAN_DIR from the server's environment. `off`: the job inherits the whole environment of the server.", "Use `off` in containers.";
        "max_memory": OptionKind::SizeOrOff(16 * M, T), "off", "Howdah sends SIGTERM to a process whose resident memory exceeds this size (`JobTooLarge`).", "Useful for code that leaks memory.";
        "timeout": OptionKind::TimeOrOff(100, 365 * DAY), "off", "Howdah sends SIGTERM to a process that runs longer than this time (`JobTimeout`).", "Useful for runs that may hang.";
        "stop_timeout": OptionKind::Time(0, DAY), "60s",
            "How long a process may continue after SIGTERM before Howdah kills it (`JobKilled`). When the server stops, the process has no more time than `timeouts.stop` or `timeouts.drain` allows.",
            "Raise it for jobs that need longer to finish their current work.";
    }
}

/// Options that older files may contain: section, key, and what to do instead.
const REMOVED_OPTIONS: &[(&str, &str, &str)] = &[
    (
        "",
        "group",
        "write it after the user: `user = \"www-data:www-data\"`",
    ),
    ("log", "access_delay", "lines are written within a second"),
    (
        "limits",
        "request_line",
        "the limit is a quarter of `header`",
    ),
    ("limits", "headers", "the limit is 100"),
    (
        "limits",
        "body_rate",
        "use `min_rate`, which applies to request bodies and responses",
    ),
    (
        "limits",
        "send_rate",
        "use `min_rate`, which applies to request bodies and responses",
    ),
    ("limits", "discarded_body", "the limit is 256 KiB"),
    (
        "limits",
        "body_memory",
        "the limit is 64 KiB; larger bodies are stored in `spill_directory`",
    ),
    (
        "limits",
        "response_memory",
        "the limit is 256 KiB; the rest is stored in `spill_directory`",
    ),
    ("timeouts", "lingering", "the time is 30 s"),
    (
        "timeouts",
        "fork",
        "the time is a third of `hang`, but at least 10 s",
    ),
    ("compression", "enable", "use `codings = \"off\"`"),
    (
        "compression",
        "min_size",
        "the minimum is 860 bytes; a smaller response fits into one packet anyway",
    ),
    (
        "compression",
        "gzip_level",
        "the level is 5; higher levels gain little",
    ),
    (
        "compression",
        "brotli_level",
        "the level is 4, the fastest level that compresses better than gzip's highest",
    ),
    (
        "compression",
        "zstd_level",
        "the level is 3, the library's default",
    ),
    (
        "trusted_proxies",
        "unix",
        "use the word `unix` in `networks`",
    ),
    (
        "trusted_proxies",
        "port",
        "the port is taken from the host, and is otherwise the default port of the scheme; let the proxy send the port in `Host` or `X-Forwarded-Host`",
    ),
    (
        "pool.*",
        "group",
        "write it after the user: `user = \"www-data:www-data\"`",
    ),
    (
        "pool.*",
        "start_servers",
        "Howdah starts one process for each core, within the limits of `min_spare_servers` and `max_spare_servers`",
    ),
    (
        "pool.*",
        "opcache",
        "use `php_value = { \"opcache.enable\" = 0 }`",
    ),
    (
        "pool.*",
        "profile",
        "use php_value: `\"opcache.validate_timestamps\" = 0` instead of `production`, and `\"opcache.revalidate_freq\" = 0` instead of `development`",
    ),
    (
        "pool.*",
        "process_lifetime",
        "use `max_requests` or `max_memory`",
    ),
    (
        "pool.*",
        "ports",
        "programs get unix sockets that no other program can reach",
    ),
    (
        "pool.*",
        "keep_timeout",
        "an idle connection stays open for one second",
    ),
    ("pool.*", "send_timeout", "the time is always 60 s"),
    (
        "pool.*",
        "connect_timeout",
        "the time is always 5 s; after that, Howdah tries another backend",
    ),
    (
        "pool.*",
        "restart_time",
        "requests wait 10 s for backends that are down",
    ),
    (
        "pool.*",
        "request_body_directory",
        "request bodies are always sent over the connection",
    ),
    (
        "site",
        "cache_tables",
        "every write invalidates all pages; in `cache_ignore_writes`, list the tables that no page shows",
    ),
    (
        "site",
        "default",
        "the first [[site]] of the file handles all other hosts; move this one to the top",
    ),
    (
        "site",
        "front_controller_path_info",
        "use a rule: `[[site.rule]]` with `prefix = \"/\"`, `if_missing = true`, `rewrite = \"/index.php/$1\"`",
    ),
    (
        "site",
        "root_resolution",
        "Howdah checks the links in the path of `root` once per second; to decide yourself when a new release is served, set `root` to the directory of the release and reload",
    ),
    (
        "site",
        "precompressed",
        "files such as `x.css.gz` are sent if they are not older than `x.css`; delete files that should not be sent",
    ),
    (
        "site",
        "sendfile_roots",
        "use `[site.sendfile]`: `\"/prefix/\" = \"/directory\"`",
    ),
    (
        "site",
        "internal",
        "use `[site.sendfile]`: `\"/prefix/\" = \"/directory\"`",
    ),
    (
        "site",
        "static",
        "use a [[site.rule]] with the same `cache_control` and `type`",
    ),
    (
        "site",
        "cache_max_ttl",
        "no page is stored longer than 24 hours",
    ),
    (
        "site",
        "cache_max_object",
        "the limit is 8 MiB, or a sixteenth of `[cache] memory` if that is more",
    ),
    (
        "site",
        "cache_litespeed",
        "if the cache is on, Howdah always obeys `X-LiteSpeed-*` headers",
    ),
    (
        "site.rule",
        "unset_header",
        "use `set_header` with an empty value",
    ),
];

/// Returns what to do instead of the option of this section and key, if there was one in the past.
pub fn replacement_of_removed(section: &str, key: &str) -> Option<&'static str> {
    let entry = REMOVED_OPTIONS
        .iter()
        .find(|(s, k, _)| (*s, *k) == (section, key));
    entry.map(|(_, _, instead)| *instead)
}

/// Returns the option of this section and key.
pub fn find(section: &str, key: &str) -> Option<&'static OptionSpec> {
    OPTIONS
        .iter()
        .find(|spec| spec.section == section && spec.key == key)
}

impl OptionSpec {
    /// Returns whether a pool of this mode has the option.
    pub fn is_for_mode(&self, mode: &str) -> bool {
        self.modes.is_empty() || self.modes.contains(&mode)
    }

    /// Returns the full name, such as `pool.*.queue_size`.
    pub fn full_name(&self) -> String {
        if self.section.is_empty() {
            self.key.to_owned()
        } else {
            format!("{}.{}", self.section, self.key)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::{WrittenValue, parse};
    use super::*;

    #[test]
    fn options_are_unique_and_in_described_sections() {
        for (at, spec) in OPTIONS.iter().enumerate() {
            let name = spec.full_name();
            assert!(
                SECTION_DESCRIPTIONS.iter().any(|(s, _)| *s == spec.section),
                "{name}"
            );
            assert_eq!(
                replacement_of_removed(spec.section, spec.key),
                None,
                "{name}"
            );
            let twice = |other: &OptionSpec| (other.section, other.key) == (spec.section, spec.key);
            assert!(!OPTIONS[..at].iter().any(twice), "{name} twice");
            assert!(!spec.doc.is_empty() && !spec.who.is_empty(), "{name}");
        }
    }

    #[test]
    fn options_have_defaults_that_the_reader_accepts() {
        for spec in OPTIONS.iter().filter(|spec| !spec.default.is_empty()) {
            if let Err(why) = parse(spec.kind, &WrittenValue::written(spec.default)) {
                panic!("{} = {}: {why}", spec.full_name(), spec.default);
            }
        }
    }
}
