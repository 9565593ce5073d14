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

/// An option.
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
#[cfg(test)]
pub const SECTION_DESCRIPTIONS: &[(&str, &str)] = &[
    ("", "Before the first `[section]`."),
    ("log", "Where messages and accesses are written."),
    (
        "traces",
        "Distributed traces: `traceparent` (W3C) is taken and passed on, and spans are sent to a collector ([traces.md](traces.md)). Off without `endpoint`.",
    ),
    (
        "fleet",
        "One page cache on several servers ([fleet.md](fleet.md)). Off without `valkey`.",
    ),
    (
        "limits",
        "What clients may send and make the server keep. Beyond a limit they get the named refusal.",
    ),
    ("timeouts", "How long each step may take."),
    (
        "compression",
        "zstd, brotli and gzip for text, as it is sent.",
    ),
    ("cache", "The page cache of all sites that set `cache`."),
    ("tls", "HTTPS of all listeners with `tls`."),
    (
        "acme",
        "Certificates that are ordered and renewed by themselves: for the `hosts` of sites without a certificate file, where a listener has `tls`. Names that are not public (`localhost`, `*.test`, `*.internal`, addresses) get one of a local authority.",
    ),
    (
        "trusted_proxies",
        "Proxies that are believed about the client's address. None by default: `X-Forwarded-*` and `Forwarded` are then ordinary headers.",
    ),
    (
        "status",
        "Status, metrics and probes over HTTP. `howdah status` works without them.",
    ),
    (
        "pool.*",
        "A pool of PHP processes: one user, one php.ini, one opcache. Without any there is one, `www`.",
    ),
    (
        "site",
        "What is served for which host. Without any, the directory on the command line is recognised and served; `--config` without a site or a directory is a mistake.",
    ),
    (
        "site.certificate",
        "A certificate for HTTPS: which one a client gets is decided by the name it asks for.",
    ),
    (
        "site.rule",
        "Rules in order. At most one of `path`, `prefix`, `glob`, `regex` says for which URL paths (none: all); one action, or several of header fields and files, says what happens.",
    ),
    (
        "site.rule.not",
        "What a rule is not for: a table or several.",
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
            "Addresses to listen on: `HOST:PORT`, `:PORT`, `[::]:PORT` or `unix:PATH`. `tls` may follow (HTTPS, with the sites' certificates; HTTP/2 included), `http3` after it (experimental: HTTP/3 on the same port of UDP), `h2c` (HTTP/2 without TLS as well, behind a load balancer) and `proxy_protocol` (a PROXY header, believed from trusted_proxies only); after a unix socket also `owner=USER`, `group=GROUP`, `mode=0660`.",
            "Every server that other machines reach sets it.";
        "include": OptionKind::Texts, "",
            "Files that are part of this one, as the shell names them: `[\"conf.d/*.toml\", \"sites.d/*.toml\"]`. Their sites are added, in the order of the files' names; a key that two files set is a mistake. Relative paths in them count from this file's directory, too.",
            "For a file per site.";
        "threads": OptionKind::IntegerOrAuto(1, 128), "auto",
            "Threads that serve HTTP; `auto`: one per core. A change needs a restart.",
            "For machines whose cores are meant for something else.";
        "user": OptionKind::Text, "",
            "`USER` or `USER:GROUP` to serve HTTP as, when started as root; pools too, unless they set their own. A change needs a restart.",
            "Needed when root starts the server.";
        "pid": OptionKind::Path, "", "File for the master's process id.", "For service managers other than systemd.";
        "control": OptionKind::Path, "",
            "Control socket of `howdah status`, `reload` and `stop`. By default one per port in `/run/howdah` (root), `$XDG_RUNTIME_DIR/howdah` or `/tmp/howdah-UID`.",
            "For several servers with the same port, as in containers that share a directory.";
        "php": OptionKind::Text, "",
            "A series of PHP (`8.4`: the program `howdah-php8.4`), or the path of a `howdah-php`. By default `$HOWDAH_PHP`, else `howdah-php`; both are looked for beside `howdah`, in `../libexec` and `../lib/howdah`.",
            "For several versions of PHP on one machine.";
        "mode": OptionKind::Word(&MODES), "embed",
            "How pools run PHP unless they say so themselves.",
            "See modes.md.";
    }
    "log" ANY {
        "error": OptionKind::PathOr(&["stderr", "syslog", "journald"]), "stderr",
            "Error log, PHP's messages included. `syslog` and `journald` as for `access`.",
            "For servers without a service manager that keeps stderr.";
        "level": OptionKind::Word(&["error", "warning", "notice", "info", "debug"]), "notice",
            "Lowest level that is written.", "`info` and `debug` help to find a fault.";
        "access": OptionKind::PathOr(&["off", "stdout", "stderr", "syslog", "journald"]), "off",
            "Access log: one line per request, written within a second. Words may follow `syslog`: `syslog:server=unix:/dev/log,facility=daemon,tag=howdah` (the defaults) or `server=HOST:514`; after `journald:` the path of the journal's socket.", "For statistics and audits.";
        "access_format": OptionKind::Word(&["common", "combined", "extended", "json"]), "combined",
            "`extended` adds host, request time, queue time, child, error name and request number to `combined`.",
            "For whoever's log analyser expects another format.";
    }
    "traces" ANY {
        "endpoint": OptionKind::Text, "",
            "URL of a collector that takes OTLP over HTTP (protobuf), such as `http://127.0.0.1:4318`; `/v1/traces` is appended.",
            "For traces; Jaeger, Tempo and the OpenTelemetry Collector listen there.";
        "sample": OptionKind::Text, "100%",
            "Share of the requests without a caller's trace that are recorded, such as `1%`. A caller's decision is followed.",
            "For busy servers.";
        "service": OptionKind::Text, "howdah", "Name by which a collector finds the traces (`service.name`).",
            "For several servers with one collector.";
        "headers": OptionKind::Pairs, "", "`[traces.headers]`: header fields of each message.",
            "For collectors that want credentials.";
    }
    "fleet" ANY {
        "valkey": OptionKind::Text, "",
            "URL of Valkey: `redis://user:password@host:6379/0`, `rediss://` with TLS, `redis+sentinel://user:password@host:26379,host:26379/PRIMARY`, `redis+cluster://user:password@host:6379,host:6379`.",
            "For sites on several servers.";
        "name": OptionKind::Text, "howdah", "The fleet's name.",
            "For fleets that share Valkey.";
        "member": OptionKind::Text, "", "This server's name; by default the machine's.",
            "For servers that share a machine.";
        "lease": OptionKind::Time(SECOND, 60 * SECOND), "3s",
            "How long stored pages are served without Valkey, and a write waits at most.",
            "For a slow network to Valkey.";
        "replicas": OptionKind::Integer(0, 100), "0",
            "How many replicas Valkey has: all have to know of a lease.",
            "Needed where one may take over.";
        "release": OptionKind::Text, "", "Which code the sites run. Members of one release share renders.",
            "For one render of a page instead of one on each member.";
        "key_file": OptionKind::Path, "", "File with the secret that signs shared pages: `openssl rand -hex 32`.",
            "Needed with `release`.";
        "forget_after": OptionKind::TimeOrOff(SECOND, 30 * DAY), "off",
            "After how long the others forget a silent member, which answers what writes 503 then ([fleet.md](fleet.md#a-member-that-is-gone-for-good)). At least two leases.",
            "For servers that nobody replaces by hand.";
    }
    "limits" ANY {
        "header": OptionKind::Size(K, M), "32K" => server!(http.max_header_bytes),
            "Longest request head; beyond: 431 `HeaderTooLarge`. The request line may take a quarter of it (414 `UriTooLong`).",
            "For single sign-on with long URLs or cookies.";
        "connections": OptionKind::IntegerOrAuto(1, 1_000_000), "auto" => server!(http.max_connections),
            "Most connections at once. `auto`: three quarters of the limit of open files, which is raised as far as allowed, and at most one per 32 KiB of `memory`.",
            "For machines shared with other services.";
        "keepalive_requests": OptionKind::Integer(0, 1 << 40), "10000" => server!(http.keepalive_requests),
            "Requests on one connection before it is closed; 0: no limit.",
            "For load balancers that spread requests by reconnecting.";
        "min_rate": OptionKind::Integer(0, 1 << 30), "240" => server!(http.min_rate),
            "Least bytes a second of a request body (408 `BodyTooSlow`) and of a client that reads its answer (the connection is closed, `ClientTooSlow`), over each ten seconds of waiting. 0: none.",
            "For clients on links slower than any modem.";
        "response_spill": OptionKind::Size(0, T), "1G" => server!(buffers.response_spill),
            "Largest file in which the output for a slow client waits, after 256 KiB in memory. Beyond it the script waits for its client, which must then take 256 KiB a second (`ClientTooSlow`).",
            "For scripts that send more, as backups.";
        "spill_total": OptionKind::SizeOrAuto(0, 1024 * T), "auto" => server!(spill_total),
            "Most bytes of all files of waiting bodies and output. Above half of it, slow clients must move 16 KiB a second (408 `BodyTooSlow`, `ClientTooSlow`); when it is used up, such bodies are refused, 503 `SpillFull`. `auto`: half of what is free at the start.",
            "For a disk shared with a database.";
        "memory": OptionKind::SizeOrAuto(16 * M, T), "auto" => server!(memory),
            "Most memory of the front, beside `cache.memory` and PHP. Above half of it, bodies and answers of slow clients go to files; when it is used up, clients that hold much and take nothing are cut off (`ClientTooSlow`), and new requests refused: 503 `MemoryLimit`. `auto`: a quarter of the machine or container, at least 64 MiB; of a limited address space at most half.",
            "For containers that leave PHP more or less.";
        "spill_directory": OptionKind::Path, "/var/tmp" => server!(buffers.directory),
            "Where files of waiting bodies and output are; they have no names.",
            "For a read-only root file system, or a faster disk.";
    }
    "timeouts" ANY {
        "header": OptionKind::Time(100, 600 * SECOND), "10s" => server!(http.header_timeout),
            "Time for a complete request head, from its first byte; then 408 `HeaderTimeout`.",
            "For satellite links; longer invites slowloris.";
        "body": OptionKind::Time(100, 3600 * SECOND), "30s" => server!(http.body_timeout),
            "Time between two pieces of a request body; then 408 `BodyTimeout`.",
            "For clients that pause while they upload.";
        "keepalive": OptionKind::Time(0, 3600 * SECOND), "75s" => server!(http.keepalive_timeout),
            "Time that a connection may be idle between requests.",
            "Must exceed that of a load balancer in front (usually 60 s).";
        "send": OptionKind::Time(100, 3600 * SECOND), "60s" => server!(http.send_timeout),
            "Time for which a client may take nothing; then its connection is closed.",
            "For clients that pause while they read.";
        "stop": OptionKind::Time(0, DAY), "10s" => server!(timeouts.stop),
            "Time for running requests after SIGTERM or SIGINT.",
            "Keep it below the time after which the container or service manager kills.";
        "drain": OptionKind::Time(0, DAY), "60s" => server!(timeouts.drain),
            "The same after SIGQUIT, `howdah stop`, a reload or a crash of the front.",
            "For sites with long requests.";
        "start": OptionKind::Time(SECOND, 3600 * SECOND), "60s" => server!(timeouts.start),
            "Time for PHP to start, preloading included.", "For large preloads and slow disks.";
        "hang": OptionKind::Time(SECOND, DAY), "30s" => server!(timeouts.hang),
            "Time for which a thread of the front may be blocked; then the front is restarted: `FrontHung`. Waiting for a disk does not count. A zygote or spawner must answer within a third of it, or 10 s if that is more: `ZygoteStuck`, `SpawnerStuck`.",
            "Raise it on an overloaded machine, or to attach a debugger.";
    }
    "compression" ANY {
        "codings": OptionKind::Texts, "zstd, br, gzip",
            "Codings offered, best first; `off`: none.",
            "For a proxy in front that compresses, or pages with secrets (security.md).";
        "types": OptionKind::Texts, "", "Media types compressed beside the usual text types.",
            "For applications with types of their own.";
    }
    "cache" ANY {
        "memory": OptionKind::Size(M, T), "128M", "Memory for cached pages of all sites. The longest page may take 8 MiB, or a sixteenth if that is more; at most half.",
            "For more than some ten thousand pages.";
        "path": OptionKind::Path, "",
            "Directory for cached pages that do not fit into memory; they survive a restart. It must be this server's alone, private to its user, and outside every root.",
            "For large sites, and those that must be warm after a restart.";
        "disk_size": OptionKind::Size(M, 1024 * T), "1G", "Disk space below `path`.", "For more than some hundred thousand pages.";
    }
    "tls" ANY {
        "client_ca": OptionKind::Path, "",
            "Certificates (PEM) of those who sign clients' certificates. Clients are asked for one, and PHP gets `SSL_CLIENT_VERIFY`, `SSL_CLIENT_S_DN` and their kin, as under Apache. Lists of revoked ones are not read.",
            "For machines and people who log in by certificate.";
        "verify_client": OptionKind::Word(&["on", "optional"]), "on",
            "`on`: who has no certificate is refused in the handshake. `optional`: PHP decides.",
            "`optional` is for sites of which a part is open.";
        "ticket_keys": OptionKind::Path, "",
            "File of keys for session tickets, 48 random bytes each; the first encrypts. Without it Howdah makes them and changes them every six hours.",
            "For several hosts behind one address.";
    }
    "acme" ANY {
        "email": OptionKind::Text, "", "Address for an authority's messages about the account.", "For warnings when renewal fails.";
        "authorities": OptionKind::Texts, "letsencrypt",
            "Tried in order: `letsencrypt`, `letsencrypt-staging`, `zerossl`, or the URL of another's directory.",
            "For a second authority when the first is down, for trials, and for an authority of one's own (`SSL_CERT_FILE` names its root).";
        "eab": OptionKind::Pairs, "",
            "`[acme.eab]`: account keys of authorities that want one (external account binding): `zerossl = \"KEY_ID:HMAC_KEY\"`; another is named by its host.",
            "Needed for zerossl.";
        "ask": OptionKind::Text, "",
            "URL that is asked about other names that clients want, `?domain=NAME` added: with a status from 200 to 299 one is ordered. Until it is there, clients are refused. At most ten new names a minute.",
            "For platforms whose customers bring their own domains.";
        "dns_hook": OptionKind::Path, "",
            "Program that proves control by DNS (DNS-01): `PROGRAM present|cleanup _acme-challenge.NAME. VALUE`, as lego's `exec`. It ends when all name servers have the record.",
            "Needed for wildcards, and for servers that the Internet does not reach.";
        "path": OptionKind::Path, "",
            "Directory of keys, certificates and accounts, which several hosts may share. By default `/var/lib/howdah` (root), else `~/.local/state/howdah`. Orders are made as its owner.",
            "For hosts behind one load balancer.";
    }
    "trusted_proxies" ANY {
        "networks": OptionKind::Texts, "",
            "Addresses and networks of the proxies, such as `10.0.0.0/8`; `unix`: whoever connects to a unix socket.",
            "Needed behind every proxy.";
        "header": OptionKind::Word(&["x-forwarded", "forwarded"]), "x-forwarded",
            "Which headers they write: `X-Forwarded-For` and its kin, or `Forwarded` (RFC 7239). Only one kind is read, since a proxy passes on the other as the client sent it.",
            "For proxies that follow the RFC.";
        "host": OptionKind::OnOff, "off",
            "Take the host from `X-Forwarded-Host` or `host=`.",
            "For proxies that rewrite `Host`; the others pass on what a client sent.";
    }
    "status" ANY {
        "listen": OptionKind::Text, "",
            "Address of a listener for monitoring alone, as in `listen` without `tls`, such as `127.0.0.1:9180`: `/livez`, `/readyz`, `/status`, `/metrics` (monitoring.md). Another address than this machine's needs `allow`; probes are answered to everybody.",
            "For containers, Prometheus and load balancers.";
        "path": OptionKind::Text, "",
            "URL path of the status page on the sites' listeners, such as `/howdah-status`; none by default.",
            "For monitoring through the sites' ports; the page shows what visitors do.";
        "allow": OptionKind::Texts, "127.0.0.1, ::1",
            "Addresses and networks that may see status and metrics. A request through a proxy counts as local only if `[trusted_proxies]` names the proxy; name a local one that adds no header.",
            "For monitoring from another machine.";
    }
    "pool.*" ANY {
        "mode": OptionKind::Word(&MODES), "",
            "How this pool runs scripts, in place of the `mode` at the top.",
            "For pools of several modes.";
        "queue_size": OptionKind::Integer(0, 65535), "1024" => pool!(Embed.queue_size, FastCgi.queue_size, Pool.client.queue_size, Cgi.queue_size),
            "Most requests that wait for a process; clients take turns. Beyond it, the newest request of the client that has most is refused: 503 `QueueFull`.",
            "For sites that would rather refuse early.";
        "queue_timeout": OptionKind::Time(10, 3600 * SECOND), "30s"
            => pool!(Embed.queue_timeout, FastCgi.queue_timeout, Pool.client.queue_timeout, Cgi.queue_timeout),
            "Longest wait for a process; then 503 `QueueTimeout`.",
            "For clients that give up sooner or later.";
        "request_terminate_timeout": OptionKind::TimeOrOff(100, DAY), "300s"
            => pool!(Embed.request_terminate_timeout, FastCgi.request_terminate_timeout, Pool.client.request_terminate_timeout, Cgi.request_terminate_timeout),
            "Longest time a script may run, sleep included; then its process is killed: 504 `TerminateTimeout`.",
            "For long reports and imports.";
    }
    "pool.*" STARTED {
        "max_children": OptionKind::IntegerOrAuto(1, 1000), "auto",
            "Most PHP processes. `auto` follows from cores and memory (mode `worker`: two per core).",
            "For applications that wait much, or need much memory.";
        "user": OptionKind::Text, "",
            "`USER` or `USER:GROUP` that PHP runs as, when root starts the server; by default the server's.",
            "For sites that must not read each other's files.";
        "php_ini": OptionKind::Path, "", "php.ini in place of the one PHP would find.", "For pools with different settings.";
        "php_value": OptionKind::Pairs, "" => pool!(Embed.defines, Pool.ini.defines, Cgi.ini.defines),
            "`[pool.NAME.php_value]`: PHP settings from its start (`-d`), such as `opcache.memory_consumption`, `extension`; `opcache.validate_timestamps = 0` where deployments end with `howdah reload`, `opcache.revalidate_freq = 0` for development.",
            "For all that php.ini should not say for every pool.";
        "env": OptionKind::Pairs, ""
            => pool!(Embed.environment, Pool.identity.environment, Cgi.identity.environment),
            "`[pool.NAME.env]`: environment of the processes.", "For applications configured by it.";
        "clear_env": OptionKind::OnOff, "on"
            => pool!(Embed.clear_env, Pool.identity.clear_env, Cgi.identity.clear_env),
            "Pass PHP only `env`, `--env`, PATH, PHPRC and PHP_INI_SCAN_DIR. `off`: the server's whole environment.",
            "`off` is for containers, whose environment is the configuration.";
    }
    "pool.*" LASTING {
        "pm": OptionKind::Word(&["static", "dynamic", "ondemand"]), "dynamic",
            "php-fpm's: always max_children processes, as many as keep the spares idle, or started with the requests. `static` in mode `worker` and with `--children N`.",
            "`ondemand` is for many idle sites, `static` for even load.";
        "min_spare_servers": OptionKind::IntegerOrAuto(0, 1000), "auto",
            "`dynamic`: a process is started when fewer are idle; `auto`: half the cores.", "For bursts.";
        "max_spare_servers": OptionKind::IntegerOrAuto(1, 1000), "auto",
            "`dynamic`: a process is stopped when more are idle; `auto`: twice the cores.", "For bursts.";
        "process_idle_timeout": OptionKind::Time(SECOND, DAY), "10s"
            => pool!(Embed.process_idle_timeout, Pool.process_idle_timeout),
            "An idle process beyond the spares is stopped after this time.", "For memory that is needed elsewhere sooner.";
        "max_requests": OptionKind::Integer(0, 1 << 40), "0" => pool!(Embed.max_requests, Pool.max_requests),
            "Requests after which a process is replaced (`worker`: up to a tenth, `pool`: a fifth fewer); 0: never.",
            "For code that leaks anything but memory.";
        "max_memory": OptionKind::SizeOrOff(16 * M, T), "512M" => pool!(Embed.max_memory, Pool.max_memory),
            "Resident memory above which a process is replaced between requests.",
            "For applications that need more than four times PHP's memory_limit.";
    }
    "pool.*" OURS {
        "php": OptionKind::Text, "",
            "As `php` of the server, for this pool.", "For sites that need different versions of PHP.";
        "shared_cache": OptionKind::SizeOrOff(M, T), "off" => pool!(Embed.shared_cache),
            "Memory for values that PHP keeps from one request to the next: [shared cache](shared-cache.md).",
            "`64M` for the object cache of WordPress.";
        "watch": OptionKind::Texts, "",
            "Patterns of files (`src/**/*.php`; in mode `worker` relative to the script): when one changes, processes are replaced one after the other. At most 8192 directories (`WatchIncomplete`).",
            "For development, and deployments that do not end with `howdah reload`.";
        "request_slowlog_timeout": OptionKind::TimeOrOff(100, DAY), "10s" => pool!(Embed.request_slowlog_timeout),
            "A request that runs longer has its PHP stack logged (`SlowRequest`).", "For scripts that are meant to run long.";
        "request_terminate_timeout_track_finished": OptionKind::OnOff, "off" => pool!(Embed.track_finished),
            "`request_terminate_timeout` also ends what a script does after its response: after `fastcgi_finish_request()`, and in shutdown functions.",
            "For applications whose background work may hang.";
    }
    "pool.*" WORKER {
        "worker": OptionKind::Path, "",
            "Script that each process boots once; it takes all requests of the pool by `frankenphp_handle_request()`.",
            "Needed in mode `worker`.";
    }
    "pool.*" PROGRAMS {
        "command": OptionKind::Texts, "php-cgi",
            "Program that runs PHP scripts, and its arguments. In mode `pool` any that speaks FastCGI on standard input.",
            "For another PHP, another language, or a wrapper.";
    }
    "pool.*" POOL {
        "processes": OptionKind::Word(&["auto", "shared", "independent"]), "auto",
            "`shared`: one program forks max_children children with one opcache (php-cgi, for which `auto` chooses it). `independent`: max_children programs, each replaced and killed alone.",
            "For php-cgi processes that must not share.";
    }
    "pool.*" FASTCGI {
        "fastcgi": OptionKind::Texts, "",
            "Backends: `unix:PATH`, `HOST:PORT`, a range such as `127.0.0.1:9000-9007`; `weight=N` may follow. The least busy one gets a request.",
            "Needed in mode `fastcgi`.";
        "script_root": OptionKind::Pairs, "" => pool!(FastCgi.script_root),
            "`[pool.NAME.script_root]`: directories here and their names where scripts run: `\"/srv/site\" = \"/var/www/html\"`.",
            "For php-fpm in another container or a chroot.";
    }
    "pool.*" BACKENDS {
        "max_connections": OptionKind::IntegerOrAuto(1, 4096), "auto" => pool!(FastCgi.max_connections, Pool.client.max_connections),
            "Connections per backend: php-fpm's `pm.max_children`, which it does not report. `auto`: what the backend reports (php-cgi does), else found by trial. `--children N` overrides it.",
            "Set it before php-fpm; keep_connections needs it.";
        "keep_connections": OptionKind::OnOff, "on" => pool!(FastCgi.keep_connections, Pool.client.keep_connections),
            "Reuse connections for one second, where the number of processes is known: each holds one. A connection that has carried a request body is never reused.",
            "`off` is for scripts that work on after `fastcgi_finish_request()`.";
        "read_timeout": OptionKind::TimeOrOff(10, DAY), "off" => pool!(FastCgi.read_timeout, Pool.client.read_timeout),
            "Longest silence of a backend; then 504 `BackendTimeout`.", "For backends that hang without ending.";
    }
    "site" ANY {
        "name": OptionKind::Text, "", "Name in logs and status; by default its first host.", "For sites without hosts.";
        "hosts": OptionKind::Texts, "", "`example.org`, `*.example.org`, an address. The first `[[site]]` of the file answers for all other hosts.",
            "Needed for more than one site.";
        "listen": OptionKind::Texts, "",
            "Addresses, as in the top-level `listen`, at which alone this site answers. Of the sites that answer at an address, the first of the file has all hosts that no other has. By default a site answers at all addresses of the top-level `listen`. `--listen` replaces the addresses of the server, not those of a site.",
            "For an administration on a port of its own, or for two sites with one name.";
        "root": OptionKind::Path, "", "The directory that is served; by default the command line's.", "Every site of a file sets it.";
        "recognise": OptionKind::OnOff, "",
            "`on`: begin with what `howdah serve DIR` would choose for the application in the root; this site's own lines go first. Without the line, only what the application closes is closed. `off`: neither.",
            "For sites that want few lines.";
        "pool": OptionKind::Text, "", "Pool that runs its scripts; by default the only one, or `www`.", "For files with several pools.";
        // A directory with both index.php and index.html is an application with a placeholder beside it.
        "index": OptionKind::Texts, "index.php, index.html, index.htm",
            "Names tried in a directory, in order.", "For other names.";
        "try_files": OptionKind::Texts, "$uri, $uri/",
            "What is looked for: `$uri`, `$uri/`, a path made of them, or `=STATUS`; then front_controller, then 404.",
            "For pages stored as files, and single-page applications.";
        "front_controller": OptionKind::Text, "",
            "URL path of the script that gets everything that is no file, such as `/index.php`.",
            "For nearly every framework.";
        "php_extensions": OptionKind::Texts, ".php", "Endings of PHP scripts.", "For `.phtml` and the like.";
        "htaccess": OptionKind::Word(&["on", "deny", "off"]), "deny",
            "`on`: `.htaccess` files decide, as under Apache (docs/htaccess.md). `deny`: what they refuse is refused, passwords included; nothing else of them is applied. `off`: they are ignored.",
            "`on` takes an Apache site over; `off` is for roots known to have none.";
        "symlinks": OptionKind::Word(&["follow", "owner", "beneath"]), "follow",
            "Where links below the root may lead: anywhere; to files of the link's owner; below the root.",
            "For roots that others write into. Links in `root` itself are looked at once a second.";
        "deny": OptionKind::Texts, "", "Globs of URL paths that are refused, files and scripts alike.", "For what must not be seen.";
        "expose": OptionKind::Texts, "",
            "Globs of URL paths that are sent although such names never are (dotfiles, backups, sources).", "For `.well-known` files and downloads of sources.";
        "sendfile": OptionKind::Pairs, "",
            "`[site.sendfile]`: `\"/protected/\" = \"/srv/files\"`: scripts may have files of this directory sent, by `X-Accel-Redirect: /protected/…` or `X-Sendfile: /srv/files/…`.",
            "For downloads that PHP only permits.";
        // Apache's LimitRequestBody since 2.4.53. PHP's own post_max_size (8 MB) is the limit that administrators
        // intend to set; nginx' limit of 1 MB in front of it is a well-known trap.
        "max_body_size": OptionKind::SizeOrOff(1, 1 << 50), "1G",
            "Longest request body; beyond: 413. post_max_size bounds only what PHP parses.", "For larger uploads, or to refuse sooner.";
        "request_buffering": OptionKind::Word(&["on", "off", "auto"]), "on",
            "`on`: a script starts when the body is complete. `off`: at once, and a slow client holds a process. `auto`: at once for forms with PHP's upload progress field, in a quarter of the processes.",
            "For scripts that read uploads as they come.";
        "types": OptionKind::Pairs, "", "`[site.types]`: media types by extension.", "For extensions that are not known.";
        "env": OptionKind::Pairs, "", "`[site.env]`: variables in `$_SERVER` and getenv().", "For sites that share a pool.";
        "php_value": OptionKind::Pairs, "", "`[site.php_value]`: PHP settings that scripts may change.", "For sites that share a pool.";
        "php_admin_value": OptionKind::Pairs, "", "`[site.php_admin_value]`: those that they cannot change.", "For code you do not trust.";
        "error_pages": OptionKind::Pairs, "",
            "`[site.error_pages]`: files below the root by status, such as `404 = \"404.html\"`.", "For pages of one's own in place of Howdah's.";
        "cache": OptionKind::Word(&["off", "on", "rfc", "dry-run"]), "off",
            "`on`: render pages for anonymous readers once, and serve them to all. `rfc`: an HTTP cache (RFC 9111) of what the application allows. `dry-run`: as `on`, but serve nothing from it and count what would have been right or wrong.",
            "For sites whose pages are read more often than written. See cache.md.";
        "cache_preset": OptionKind::Text, "auto",
            "What is known of the application: `wordpress`, `mediawiki`, `drupal`, `joomla`, `phpbb`, `magento`, `laravel`, `symfony`, `dokuwiki`, `php`. `auto`: what is found in the root, else below it.",
            "For applications that are not recognised.";
        "cache_ttl": OptionKind::Time(SECOND, 365 * DAY), "120s" => cache!(rules.ttl),
            "How long a page without a lifetime of its own is kept; with one, at most 24 hours.", "For pages that change rarely, or by nobody's request.";
        "cache_grace": OptionKind::Time(0, DAY), "10s" => cache!(rules.grace),
            "How long after that it is served while a new one is rendered.", "For slow pages.";
        "cache_stale_if_error": OptionKind::Time(0, 30 * DAY), "1h" => cache!(rules.stale_if_error),
            "How long after that it is served when PHP fails.", "For more or less time to repair.";
        "cache_ignore_cookies": OptionKind::Texts, "" => cache!(rules.ignore_cookies),
            "Cookies that change no page (`*` at the end: all that begin so). Any other unknown one bypasses the cache (`UnknownCookie`).",
            "For consent banners and the like.";
        "cache_ignore_query": OptionKind::Texts, "" => cache!(rules.ignore_query),
            "Query parameters that change no page; rendered pages do not see them.", "For campaigns with parameters of their own.";
        "cache_never": OptionKind::Texts, "", "Beginnings of decoded URL paths that are never cached.", "For accounts and carts.";
        "cache_ignore_writes": OptionKind::Texts, "" => cache!(ignore_writes),
            "Tables whose writes change no page (`*` at either end), and functions of PostgreSQL, as `name()`.", "For counters and sessions that no preset knows.";
        "cache_flush_on_write": OptionKind::OnOff, "on" => cache!(flush_on_write),
            "Whether a request that may have written expires all pages of the site; `off`: its own URL only.",
            "`off` is for applications that purge exactly.";
        "cache_shadow": OptionKind::Integer(0, 1 << 30), "0" => cache!(shadow),
            "Re-render every Nth hit and compare (`ShadowDiffers`); 0: never.",
            "For proof in production; 1000 adds hardly any load.";
        "cache_purge_from": OptionKind::Texts, "",
            "Who may purge over HTTP (`PURGE /path`, …): addresses, networks, `unix`.", "For applications that purge by requests.";
        "cache_purge_token": OptionKind::Text, "",
            "Secret of 16 characters or more that allows it too, in `X-Purge-Token` or `Authorization: Bearer`.", "For purges from changing addresses.";
        "cache_purge_path": OptionKind::Text, "",
            "Path such as `/purge/`, below which a GET purges what follows.", "For nginx-helper.";
        "cache_keep_tags": OptionKind::OnOff, "off" => cache!(rules.keep_tags),
            "Pass `Surrogate-Key`, `Cache-Tag` and their kin on to clients.", "For a CDN in front that purges by tags.";
        "certificate": OptionKind::Sections, "", "`[[site.certificate]]`, below.", "For HTTPS.";
        "https_redirect": OptionKind::OnOff, "off", "Redirect requests without TLS to `https://`.", "For nearly every site with HTTPS.";
        "hsts": OptionKind::Text, "",
            "Value of `Strict-Transport-Security` in answers by HTTPS, such as `max-age=31536000`.",
            "For sites that will never again be without HTTPS: browsers remember it.";
        "rule": OptionKind::Sections, "", "`[[site.rule]]`, below.", "For everything by path.";
    }
    "site.certificate" ANY {
        "file": OptionKind::Path, "",
            "The certificate and those above it, PEM (`fullchain.pem`). Read as root, and again when it changes.",
            "Every site with HTTPS. Several, as for RSA and ECDSA, are chosen from by what the client takes.";
        "key": OptionKind::Path, "",
            "Its private key, PEM. Users other than its owner and group must not be able to read it.",
            "Belongs to `file`, and may be in it.";
    }
    "site.rule" ANY {
        "path": OptionKind::Text, "", "Matches exactly this path.", "For single pages.";
        "prefix": OptionKind::Text, "", "Matches this path and everything below it; `$1` is what follows.", "For directories.";
        "glob": OptionKind::Text, "", "`*` within a name, `**` across directories; without a leading slash at any depth.", "For file name endings.";
        "regex": OptionKind::Text, "", "A regular expression; `$1` or `${name}` are its groups. It may look around, as in PCRE, within a limit of steps (`RuleUndecided`).", "For what the others cannot say.";
        "methods": OptionKind::Texts, "", "Only for these methods.", "For read-only areas.";
        "query": OptionKind::Pairs, "",
            "Only if these parameters are so: `{ author = \"~ ^[0-9]+$\" }`. A value is a text with `*` for any text, `~ EXPRESSION` (`~*`: in any case), or empty: missing. Compared decoded; several must all hold.",
            "For what hides behind one path. See access.md.";
        "cookie": OptionKind::Pairs, "", "Only if these cookies are so.", "For trials.";
        "header": OptionKind::Pairs, "", "Only if these header fields are so.", "For crawlers and clients of an API.";
        "env": OptionKind::Pairs, "",
            "Only if these variables are so: `HTTPS`, `SERVER_PROTOCOL`, `SSL_*` of the client's certificate, `[site.env]`, the server's environment.",
            "For one file on several machines.";
        "from": OptionKind::Texts, "",
            "Only if the client's address is in one of these networks, or its socket a `unix` one. Who the client is behind proxies, `[trusted_proxies]` says.",
            "For offices and bad neighbours.";
        "from_file": OptionKind::Path, "",
            "Or in a network of this file: one a line, `#` begins a comment. Read again within a second when it changes.",
            "For lists that programs write.";
        "not": OptionKind::Sections, "",
            "Not if all of this holds: `not = { from = \"10.0.0.0/8\" }`. Several tables: not if one of them holds. What may stand there: `[[site.rule.not]]`, below.",
            "For exceptions.";
        "if_missing": OptionKind::OnOff, "off", "Only if the path names no file, script or, where `try_files` has `$uri/`, directory with an index.", "For several front controllers.";
        "redirect": OptionKind::Text, "", "Sends the client to this path or URL.", "For moved pages.";
        "status": OptionKind::Integer(300, 399), "302", "The redirect's: 301, 302, 303, 307 or 308.", "Browsers keep a 301 for ever.";
        "rewrite": OptionKind::Text, "", "Continues with this path; the query is kept.", "For scripts that expect other paths.";
        "deny": OptionKind::Integer(400, 499), "", "Refuses: 403, 404 or 410.", "For closed areas.";
        "cgi": OptionKind::Text, "",
            "What the path names is executed as a program by this pool of mode `cgi`, and never sent as a file.", "For `/cgi-bin/`.";
        "proxy": OptionKind::Texts, "",
            "Another server answers: `http://127.0.0.1:3000`, `https://HOST`, `h2c://HOST:PORT` or `unix:/path`, with WebSocket. Several: the least busy one; `weight=N` may follow.",
            "For the Node, Go or Reverb part of a site. See proxy.md.";
        "proxy_timeout": OptionKind::Time(10, DAY), "60s", "Longest silence of such a server; then 504 `BackendTimeout`.", "For slow servers.";
        "proxy_health": OptionKind::Text, "",
            "Path such as `/up`: asked for every five seconds; a server that does not answer it with 2xx or 3xx gets no requests.", "For several servers.";
        "authorizer": OptionKind::Text, "",
            "Pool (`fastcgi` or `pool`) whose FastCGI authorizer is asked first: 200 allows, and its `Variable-NAME` fields become variables; anything else is the answer. Asked for every path that leads there; nothing there comes from the cache.",
            "For one login before several applications.";
        "authorizer_script": OptionKind::Path, "", "Its script, if it is PHP.", "For authorizers written in PHP.";
        "auth_request": OptionKind::Text, "",
            "URL of a server (written as for `proxy`, with a path) that is asked first, by a GET with the client's fields and `X-Forwarded-Method`, `-Uri` and `-Host`: 2xx allows; any other answer is the client's. Nothing there comes from the cache.",
            "For single sign-on: Authelia, oauth2-proxy, authentik. See access.md.";
        "auth_request_set": OptionKind::Pairs, "",
            "Variables for PHP from fields of that answer: `{ REMOTE_USER = \"Remote-User\" }`.", "For applications that take the user from the server.";
        "auth_basic": OptionKind::Text, "",
            "Asks for user and password (Basic authentication); the text is the realm, which browsers show. PHP gets `REMOTE_USER`; nothing there comes from the cache.",
            "For closed areas without a login of their own, such as staging. See access.md.";
        "auth_basic_user_file": OptionKind::Path, "",
            "Users and passwords as `htpasswd` writes them (bcrypt, apr1, SHA-1, crypt). Read again when it changes, never sent.",
            "Belongs to `auth_basic`.";
        "auth_basic_group_file": OptionKind::Path, "", "Groups: lines of `group: user user`.", "For `auth_basic_require`.";
        "auth_basic_require": OptionKind::Texts, "", "Who is admitted: `user NAME`, `group NAME`. By default all users.", "For files that several areas share.";
        "limit": OptionKind::Word(&["login"]), "",
            "`login`: limits requests that log in to known applications (`wp-login.php`, `xmlrpc.php`, `/login` …), in place of paths, methods and parameters; without `rate`, `10/m` with a burst of 20.",
            "For sites with passwords that can be guessed. See limits.md.";
        "rate": OptionKind::Text, "",
            "Requests that one client may send: `10/s`, `30/m`, `100/h`; beyond it 429 `ClientLimited`.",
            "For log-in pages, searches and APIs. See limits.md.";
        "burst": OptionKind::Integer(0, 1_000_000), "",
            "How many may come at once beyond one, as nginx' `burst` with `nodelay`. By default the rate's number less one.", "For pages of many parts.";
        "connections": OptionKind::Integer(1, 1_000_000), "",
            "Requests of one client that may be in progress at once, as nginx' `limit_conn`; beyond it 429 `ClientLimited`.",
            "For downloads and streams.";
        "processes": OptionKind::Integer(1, 100_000), "",
            "PHP processes that one client may have at once. Further requests of it wait.",
            "For slow pages that crawlers find. See limits.md.";
        "limit_by": OptionKind::Text, "address",
            "What counts as one client: `address`, `network /24 /56` (bits of IPv4 and IPv6), `header NAME`, `cookie NAME`, or `all` together.",
            "For APIs with keys, and crawlers with many addresses.";
        "return": OptionKind::Integer(200, 599), "", "Answers with this status and `body`.", "For health checks and `robots.txt`.";
        "body": OptionKind::Text, "", "The body of `return`.", "For texts with `return`.";
        "pool": OptionKind::Text, "", "Pool that runs a script here; the last such rule counts.", "For workers on a part of a site.";
        "set_header": OptionKind::Pairs, "", "Headers to replace in every response: `{ X-Frame-Options = \"DENY\" }`; an empty value removes. Error pages get them, too, except those that say how long a page may be kept and what is in it (`Cache-Control`, `Expires`, `ETag`, `Last-Modified`, `Content-Type`, `Content-Disposition`).", "For security headers.";
        "add_header": OptionKind::Pairs, "", "Headers to add, likewise.", "For fields that may repeat, such as `Link`.";
        "cache_control": OptionKind::Text, "", "`Cache-Control` of files; the first such rule counts. Scripts set their own.", "For assets with versions in their names.";
        "type": OptionKind::Text, "", "`Content-Type` of files, or of `body` (default `text/plain; charset=utf-8`).", "For files without an extension.";
    }
    "site.rule.not" ANY {
        "path": OptionKind::Text, "", "As in a rule.", "For exceptions.";
        "prefix": OptionKind::Text, "", "As in a rule.", "For exceptions.";
        "glob": OptionKind::Text, "", "As in a rule.", "For exceptions.";
        "regex": OptionKind::Text, "", "As in a rule.", "For exceptions.";
        "methods": OptionKind::Texts, "", "As in a rule.", "For exceptions.";
        "query": OptionKind::Pairs, "", "As in a rule.", "For exceptions.";
        "cookie": OptionKind::Pairs, "", "As in a rule.", "For exceptions.";
        "header": OptionKind::Pairs, "", "As in a rule.", "For exceptions.";
        "env": OptionKind::Pairs, "", "As in a rule.", "For exceptions.";
        "from": OptionKind::Texts, "", "As in a rule.", "For exceptions.";
        "from_file": OptionKind::Path, "", "As in a rule.", "For exceptions.";
    }
    "job" ANY {
        "name": OptionKind::Text, "", "In log, status and metrics.", "Needed without `preset`.";
        "command": OptionKind::Texts, "",
            "Program (a path, or in PATH) and arguments. `php` is Howdah's own, with the options of `howdah php`.",
            "Needed without `preset`.";
        "preset": OptionKind::Word(&PRESET_NAMES), "",
            "Runs `wp-cron.php` or `artisan schedule:run` of a site every minute.",
            "For WordPress and Laravel.";
        "directory": OptionKind::Path, ".", "Where it runs.", "For relative names.";
        "schedule": OptionKind::Text, "",
            "Minute, hour, day of month, month, day of week (before them perhaps a second), or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. Without it the job always runs.",
            "In place of cron.";
        "time_zone": OptionKind::Text, "", "The schedule's, such as `Europe/Berlin`; by default the machine's.", "For machines on UTC.";
        "jitter": OptionKind::Time(0, DAY), "0s", "A scheduled run starts up to so much later.", "For many servers.";
        "members": OptionKind::Word(&["one", "each"]), "one", "Which members of a [fleet](jobs.md#in-a-fleet) a scheduled run is for.",
            "`each` is for work on the machine itself.";
        "processes": OptionKind::Integer(1, 1000), "1", "Processes at once, without `schedule`.", "For busy queues.";
        "user": OptionKind::Text, "", "User of its processes; by default the server's.", "For other owners.";
        "env": OptionKind::Pairs, "", "`[job.env]`: its environment.", "For applications configured by it.";
        "clear_env": OptionKind::OnOff, "on", "Nothing of the server's environment.", "`off` is for containers.";
        "max_memory": OptionKind::SizeOrOff(16 * M, T), "off", "Resident memory of a process, above which it is asked to end: `JobTooLarge`.", "For leaks.";
        "timeout": OptionKind::TimeOrOff(100, 365 * DAY), "off", "Time after which a process is asked to end: `JobTimeout`.", "For runs that may hang.";
        "stop_timeout": OptionKind::Time(0, DAY), "60s",
            "Time for the job in hand after SIGTERM; then the process is killed: `JobKilled`. When the server stops, `timeouts.stop` or `drain` if that is less.",
            "For long jobs.";
    }
}

/// Options that older files may contain: section, key, and what to do instead.
const REMOVED_OPTIONS: &[(&str, &str, &str)] = &[
    (
        "",
        "group",
        "write it behind the user: `user = \"www-data:www-data\"`",
    ),
    ("log", "access_delay", "lines are written within a second"),
    ("limits", "request_line", "it is a quarter of `header`"),
    ("limits", "headers", "it is 100"),
    (
        "limits",
        "body_rate",
        "`min_rate` is for bodies and answers",
    ),
    (
        "limits",
        "send_rate",
        "`min_rate` is for bodies and answers",
    ),
    ("limits", "discarded_body", "it is 256 KiB"),
    (
        "limits",
        "body_memory",
        "it is 64 KiB; longer bodies wait in `spill_directory`",
    ),
    (
        "limits",
        "response_memory",
        "it is 256 KiB; the rest waits in `spill_directory`",
    ),
    ("timeouts", "lingering", "it is 30 s"),
    (
        "timeouts",
        "fork",
        "it is a third of `hang`, or 10 s if that is more",
    ),
    ("compression", "enable", "use `codings = \"off\"`"),
    (
        "compression",
        "min_size",
        "it is 860 bytes: below, the answer is one packet either way",
    ),
    (
        "compression",
        "gzip_level",
        "it is 5: higher levels gain little",
    ),
    (
        "compression",
        "brotli_level",
        "it is 4: the fastest level that beats gzip's highest",
    ),
    (
        "compression",
        "zstd_level",
        "it is 3, the library's own default",
    ),
    (
        "trusted_proxies",
        "unix",
        "use the word `unix` in `networks`",
    ),
    (
        "trusted_proxies",
        "port",
        "the port is that of the host, or the scheme's; the proxy names it in `Host` or `X-Forwarded-Host`",
    ),
    (
        "pool.*",
        "group",
        "write it behind the user: `user = \"www-data:www-data\"`",
    ),
    (
        "pool.*",
        "start_servers",
        "as many start as there are cores, within the spares",
    ),
    (
        "pool.*",
        "opcache",
        "use `php_value = { \"opcache.enable\" = 0 }`",
    ),
    (
        "pool.*",
        "profile",
        "use php_value: `\"opcache.validate_timestamps\" = 0` in place of `production`, `\"opcache.revalidate_freq\" = 0` in place of `development`",
    ),
    (
        "pool.*",
        "process_lifetime",
        "use `max_requests` or `max_memory`",
    ),
    (
        "pool.*",
        "ports",
        "programs get unix sockets that nobody else can reach",
    ),
    (
        "pool.*",
        "keep_timeout",
        "an idle connection is kept for one second",
    ),
    ("pool.*", "send_timeout", "it is 60 s"),
    (
        "pool.*",
        "connect_timeout",
        "it is 5 s; then another backend is tried",
    ),
    (
        "pool.*",
        "restart_time",
        "requests wait 10 s for backends that are away",
    ),
    (
        "pool.*",
        "request_body_directory",
        "bodies are sent over the connection",
    ),
    (
        "site",
        "cache_tables",
        "every write makes all pages old; name tables whose writes change no page in `cache_ignore_writes`",
    ),
    (
        "site",
        "default",
        "the first [[site]] of the file answers for all other hosts; move this one to the top",
    ),
    (
        "site",
        "front_controller_path_info",
        "use a rule: `[[site.rule]]` with `prefix = \"/\"`, `if_missing = true`, `rewrite = \"/index.php/$1\"`",
    ),
    (
        "site",
        "root_resolution",
        "links in `root` are looked at once a second; name the release itself to choose the moment",
    ),
    (
        "site",
        "precompressed",
        "files such as `x.css.gz` are sent if they are not older than `x.css`; delete those that should not be",
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
        "no page is kept longer than 24 hours",
    ),
    (
        "site",
        "cache_max_object",
        "it is 8 MiB, or a sixteenth of `[cache] memory` if that is more",
    ),
    (
        "site",
        "cache_litespeed",
        "`X-LiteSpeed-*` is always understood where the cache is on",
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
