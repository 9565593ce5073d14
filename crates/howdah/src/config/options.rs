//! The one table of options: name, type, range, default and the reason for it. The reader takes
//! types and defaults from here, so does `howdah check --explain`, so does `docs/configuration.md`,
//! so do the suggestions for unknown keys.

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true`, `false`, `"on"`, `"off"`
    OnOff,
    /// A number in this range.
    Integer(u64, u64),
    /// A number in this range, or `"auto"`.
    IntegerOrAuto(u64, u64),
    /// A time with unit, in this range of milliseconds.
    Time(u64, u64),
    /// The same, or `"off"`.
    TimeOrOff(u64, u64),
    /// Bytes with unit, in this range.
    Size(u64, u64),
    /// The same, or `"auto"`.
    SizeOrAuto(u64, u64),
    /// The same, or `"off"`.
    SizeOrOff(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// Text.
    Text,
    /// A path; a relative one counts from the configuration file's directory.
    Path,
    /// A path, or one of these words.
    PathOr(&'static [&'static str]),
    /// A text, or a list of texts.
    Texts,
    /// `name = value` pairs.
    Pairs,
    /// Any number of tables, `[[…]]`, see that section.
    Sections,
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The table it stands in: empty for the top, `pool.*` for any pool.
    pub section: &'static str,
    /// Its key.
    pub key: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// As it would be written; empty: none. A list's entries are separated by commas.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Why the default is what it is.
    pub reason: &'static str,
}

/// Sections: name as in the file, what it is about.
#[cfg(test)]
pub const SECTIONS: &[(&str, &str)] = &[
    ("", "At the top of the file, before the first `[section]`."),
    ("log", "Where messages and accesses are written."),
    (
        "limits",
        "What a client may send. Beyond a limit it gets the named refusal.",
    ),
    ("timeouts", "How long each step may take."),
    (
        "compression",
        "gzip, brotli and zstd for text, as it is sent.",
    ),
    (
        "cache",
        "The page cache of all sites. A site uses it only if it sets `cache`.",
    ),
    (
        "trusted_proxies",
        "Proxies that are trusted to report the client's address. None by default: `X-Forwarded-*` and `Forwarded` are then ordinary headers.",
    ),
    (
        "status",
        "The status page over HTTP. `howdah status` works without it.",
    ),
    (
        "pool.*",
        "A pool of PHP processes: one user, one php.ini, one opcache. Without any `[pool.NAME]` there is one, `www`.",
    ),
    (
        "site",
        "`[[site]]`: what is served for which host. Without any, the directory on the command line is recognised and served.",
    ),
    (
        "site.rule",
        "`[[site.rule]]`: rules in order. Exactly one of `path`, `prefix`, `glob`, `regex` says for which URL paths (none: all), one of the actions what happens.",
    ),
    (
        "site.static",
        "`[[site.static]]`: how files are sent; the first that matches counts.",
    ),
    (
        "site.internal",
        "`[[site.internal]]`: files that only a script can have sent, by `X-Accel-Redirect`.",
    ),
];

const SECOND: u64 = 1000;
const DAY: u64 = 24 * 3600 * SECOND;
const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
const T: u64 = 1 << 40;

macro_rules! options {
    ($($section:literal { $($key:literal: $kind:expr, $default:literal, $doc:literal, $reason:literal;)* })*) => {
        /// All options, in the order of the reference.
        pub const OPTIONS: &[Spec] = &[$($(Spec {
            section: $section,
            key: $key,
            kind: $kind,
            default: $default,
            doc: $doc,
            reason: $reason,
        },)*)*];
    };
}

options! {
    "" {
        "listen": Kind::Texts, "127.0.0.1:8080",
            "Addresses to listen on: `HOST:PORT`, `:PORT` (all IPv4 addresses), `[::]:PORT`, `unix:PATH`. Words may follow: `proxy_protocol` (connections begin with a PROXY header; taken from trusted_proxies only), and for the file of a unix socket `owner=USER`, `group=GROUP` (by default who the server runs as) and `mode=0660`.",
            "not reachable from other machines unless configured";
        "threads": Kind::IntegerOrAuto(1, 128), "auto",
            "Number of threads that serve HTTP; `auto` is the number of cores. A change needs a restart of the server.",
            "each thread has its own event loop and serves its own connections";
        "user": Kind::Text, "",
            "User that serves HTTP when the server is started as root. Pools run as the same user unless they set their own `user`. A change needs a restart of the server.",
            "only root can change to another user";
        "group": Kind::Text, "", "Group to use in place of the user's primary group. A change needs a restart of the server.", "";
        "pid": Kind::Path, "", "File to write the process id of the master to.", "service managers do not need it";
        "control": Kind::Path, "",
            "Control socket of `howdah status`, `reload` and `stop`. By default one per server, named after its port, in `/run/howdah` (root), `$XDG_RUNTIME_DIR/howdah` or `/tmp/howdah-UID`.",
            "several servers on one machine do not collide";
        "php": Kind::Path, "",
            "The `howdah-php` program. By default `$HOWDAH_PHP`, else the one beside `howdah`, in `../libexec` or in `../lib/howdah`.", "";
        "mode": Kind::Word(&["embed", "worker", "fastcgi", "pool", "cgi"]), "embed",
            "How PHP is run, in every pool that does not say so itself. `embed`: in forked processes of our own. `worker`: the same, but each boots one script for many requests (see `worker`). `fastcgi`: by php-fpm, php-cgi or another FastCGI responder that is started separately (see `fastcgi`). `pool`: by FastCGI programs such as php-cgi, which Howdah starts and supervises. `cgi`: by a new process for each request.",
            "the fastest mode, with isolated processes";
    }
    "log" {
        "error": Kind::PathOr(&["stderr"]), "stderr",
            "The error log: one line for each problem, including PHP's messages.",
            "a terminal and a service manager both show it";
        "level": Kind::Word(&["error", "warning", "notice", "info", "debug"]), "notice",
            "The lowest level of messages that are written.",
            "one line for each problem, nothing otherwise";
        "access": Kind::PathOr(&["off", "stdout", "stderr"]), "off",
            "The access log: one line for each request.",
            "keeps a terminal quiet; set a file to get a log";
        "access_format": Kind::Word(&["common", "combined", "extended", "json"]), "combined",
            "`extended` adds host, request time, queue time, child, error name and request number to `combined`.",
            "log analysers understand it";
        "access_delay": Kind::Time(0, 60 * SECOND), "1s",
            "Longest time that lines of the access log are held back before they are written; `0s`: each is written at once.",
            "one write for many lines";
    }
    "limits" {
        "request_line": Kind::Size(256, 64 * K), "8K",
            "Longest request line; beyond: 414 `UriTooLong`.",
            "nginx' and Apache's value; RFC 9112 §3 asks for 8000";
        "header": Kind::Size(K, M), "32K",
            "Longest request head; beyond: 431 `HeaderTooLarge`.", "nginx' 4 x 8 KiB";
        "headers": Kind::Integer(8, 1000), "100",
            "Most header fields; beyond: 431 `TooManyHeaders`.", "Apache's; browsers send about 20";
        "connections": Kind::IntegerOrAuto(1, 1_000_000), "auto",
            "Most connections at once; `auto` is three quarters of the limit of open files, which is raised as far as allowed, and at most one for each 32 KiB of `memory`.",
            "leaves the rest for files and for connections to PHP";
        "keepalive_requests": Kind::Integer(0, 1 << 40), "10000",
            "Requests on one connection before it is closed; 0: no limit.",
            "frees the memory of long-lived connections from time to time; with nginx' 1000 busy clients reconnect too often";
        "body_rate": Kind::Integer(0, 1 << 30), "240",
            "Least speed of a request body in bytes a second, measured over each ten seconds in which the server waits for it; slower: 408 `BodyTooSlow`. 0: no minimum.",
            "Kestrel's; no real link is slower";
        "send_rate": Kind::Integer(0, 1 << 30), "240",
            "Least speed in bytes a second at which a client takes its answer, measured while the server waits for it; slower: the connection is closed, `ClientTooSlow`. 0: no minimum.",
            "IIS' and Kestrel's; no real link is slower";
        "discarded_body": Kind::Size(0, G), "256K",
            "Most bytes of an unread request body that are read and discarded so that the connection can be kept open.",
            "reading this much is cheaper than a new connection";
        "body_memory": Kind::Size(0, 16 * M), "64K",
            "Request bodies up to this size wait in memory, longer ones in a file.", "forms fit, uploads do not";
        "response_memory": Kind::Size(16 * K, 64 * M), "256K",
            "Output that a slow client has not received yet is kept in memory up to this size, then in a file.",
            "almost every page fits";
        "response_spill": Kind::Size(0, T), "1G",
            "Largest size of the file in which output waits for a slow client. Beyond it the script waits for its client, which must receive 256 KiB a second: a slower client is disconnected, `ClientTooSlow`.",
            "nginx' fastcgi_max_temp_file_size; a script that waits holds a process";
        "spill_total": Kind::SizeOrAuto(0, 1024 * T), "auto",
            "Most bytes of all files of request bodies and of waiting output together. While more than half of it is used, a client with such a file must send, or take, 16 KiB a second: otherwise 408 `BodyTooSlow`, or `ClientTooSlow`. When all of it is used, a body that needs a file is refused, 503 `SpillFull`, and a script waits for its slow client. `auto` is half of what is free in `spill_directory` at the start.",
            "logs, sessions and the database are often on the same disk";
        "memory": Kind::SizeOrAuto(16 * M, T), "auto",
            "Most memory of the front, beside `cache.memory`; PHP's processes do not count. While more than half of it is used, bodies and answers of slow clients go to files at once, and request heads beyond 4 KiB that do not come in one piece are refused; when all of it is used, new requests are refused: 503 `MemoryLimit`. `auto` is a quarter of the machine's or the container's memory, at least 64 MiB, and of a limited address space (`ulimit -v`) at most half.",
            "many times what a busy site needs; the rest is for PHP";
        "spill_directory": Kind::Path, "/var/tmp",
            "Directory for stored request bodies and waiting output. The files have no names in it.", "on a disk; /tmp is memory on many machines";
    }
    "timeouts" {
        "header": Kind::Time(100, 600 * SECOND), "10s",
            "Longest time for a complete request head, counted from its first byte; later: 408 `HeaderTimeout`.",
            "a slow phone needs 2 s; nginx' 60 s serves slowloris";
        "body": Kind::Time(100, 3600 * SECOND), "30s",
            "Longest pause between two pieces of a request body; later: 408 `BodyTimeout`.",
            "nginx has 60 s, Apache 20 s";
        "keepalive": Kind::Time(0, 3600 * SECOND), "75s",
            "How long a connection may be idle between requests.",
            "nginx'; above the 60 s of load balancers, so that they close first";
        "send": Kind::Time(100, 3600 * SECOND), "60s",
            "A connection is closed when nothing could be sent to its client for this time.", "nginx' send_timeout";
        "lingering": Kind::Time(0, 600 * SECOND), "30s",
            "How long the rest of a request is still read after an early answer, so that the client receives the answer.",
            "nginx' lingering_time";
        "stop": Kind::Time(0, DAY), "10s",
            "How long running requests may still take after SIGTERM or SIGINT.",
            "containers are killed after 10 s, services after 90";
        "drain": Kind::Time(0, DAY), "60s",
            "How long running requests may still take after SIGQUIT or `howdah stop`, in the old processes after `howdah reload`, and after a crash of the front.",
            "longer than any page should take";
        "start": Kind::Time(SECOND, 3600 * SECOND), "60s",
            "How long PHP may take to start, preloading included.", "a large preload takes seconds";
        "fork": Kind::Time(SECOND, 3600 * SECOND), "10s",
            "How long a zygote may take to fork a child or to report a child's end; then it counts as stuck and is replaced: `ZygoteStuck`. The same for a spawner (modes `pool` and `cgi`) that does not answer: `SpawnerStuck`.",
            "a fork takes a millisecond";
        "hang": Kind::Time(SECOND, DAY), "30s",
            "How long a thread of the front may be blocked before the front is killed and restarted: `FrontHung`. Time in which it waits for a disk, or in which the whole machine is suspended, does not count. Raise it to look at the front with a debugger.",
            "a turn takes a millisecond; a restart costs all connections";
    }
    "compression" {
        "enable": Kind::OnOff, "on",
            "Whether text is compressed for clients that accept it.", "a quarter of the bytes for little time";
        "codings": Kind::Texts, "zstd, br, gzip",
            "Codings offered, the best first: `zstd`, `br`, `gzip`.",
            "at its level zstd is about as small as brotli for a quarter of the time";
        "min_size": Kind::Size(0, G), "860",
            "Shorter bodies are sent as they are.", "below that the answer fits one packet either way";
        "types": Kind::Texts, "", "Media types beside the usual text types.", "";
        "gzip_level": Kind::Integer(1, 9), "5", "gzip's level.", "higher levels take much more time for little gain";
        "brotli_level": Kind::Integer(0, 11), "4", "brotli's level.", "the fastest that beats gzip 9";
        "zstd_level": Kind::Integer(1, 19), "3", "zstd's level.", "the library's own default";
    }
    "cache" {
        "memory": Kind::Size(M, T), "128M", "Memory for cached pages, shared by all sites.", "ten thousand pages";
        "path": Kind::Path, "",
            "Directory for cached pages that do not fit into memory; they survive a restart. It must belong to this server alone, be private to its user (it is created with mode 0700), and lie outside of every site's root. Without it, pages are cached in memory only.",
            "a cache in memory needs no maintenance";
        "disk_size": Kind::Size(M, 1024 * T), "1G", "Disk space for cached pages below `path`, shared by all sites.", "a hundred thousand pages";
    }
    "trusted_proxies" {
        "networks": Kind::Texts, "",
            "Addresses and networks of the trusted proxies, for example `10.0.0.0/8`.",
            "a trusted proxy can claim any client address";
        "unix": Kind::OnOff, "off",
            "Whether every connection to a unix socket comes from a trusted proxy.", "the socket's mode decides who can connect";
        "header": Kind::Word(&["x-forwarded", "forwarded"]), "x-forwarded",
            "Which headers the proxies write: `X-Forwarded-For` and its relatives, or `Forwarded` (RFC 7239).",
            "nearly all proxies write it; only one kind is read, because a proxy passes on the other kind as the client sent it";
        "host": Kind::OnOff, "off",
            "Take the host from the proxy's `X-Forwarded-Host` or `host=`.",
            "most proxies keep `Host` and pass on an `X-Forwarded-Host` that a client sent";
        "port": Kind::OnOff, "off", "Take the port from `X-Forwarded-Port`.", "as for `host`";
    }
    "status" {
        "path": Kind::Text, "",
            "URL path of the status page, for example `/howdah-status`; by default there is no page.", "it shows what visitors do";
        "allow": Kind::Texts, "127.0.0.1, ::1",
            "Who may see it: addresses and networks. Nobody who comes through a proxy that `[trusted_proxies]` does not name, as far as it adds `X-Forwarded-For`, `Forwarded`, `Via`, `X-Real-IP` or the like; a proxy on this machine that adds none of them (nginx, unless told to) looks like this machine: name it there and let it add one.",
            "it shows what visitors do";
    }
    "pool.*" {
        "mode": Kind::Word(&["embed", "worker", "fastcgi", "pool", "cgi"]), "",
            "How this pool runs scripts; by default, the `mode` at the top of the file. `--mode` on the command line overrides both.", "";
        "command": Kind::Texts, "php-cgi",
            "`pool`, `cgi`: the program that runs PHP scripts, and its arguments: a path, or a name looked for in PATH. In `pool` any program that speaks FastCGI on its standard input; also a wrapper that executes one.",
            "PHP comes with it (Debian: package php-cgi)";
        "processes": Kind::Word(&["auto", "shared", "independent"]), "auto",
            "`pool`: one program that forks max_children children, which share an opcache (`shared`: php-cgi with PHP_FCGI_CHILDREN), or up to max_children programs, each with an opcache of its own (`independent`). `auto` is `shared` for php-cgi.",
            "one opcache is warm once and takes its memory once; independent programs are replaced, counted and killed one by one";
        "process_lifetime": Kind::TimeOrOff(SECOND, 365 * DAY), "off",
            "`pool`: a program is replaced when it has run for this long; the replacement is started first.",
            "max_requests and max_memory already replace leaking processes";
        "ports": Kind::Text, "",
            "`pool`: consecutive TCP ports of the programs, as `127.0.0.1:9000-9007`, in place of unix sockets. For `independent` processes: one a port, so max_children is at most their number.",
            "unix sockets are faster, and nobody else can connect to these";
        "worker": Kind::Path, "",
            "Mode `worker`: the script that each process boots once; it then asks for requests by `frankenphp_handle_request()`. All requests of the pool go to it. `--worker SCRIPT` on the command line says the same.", "";
        "watch": Kind::Texts, "",
            "Modes `embed` and `worker`: patterns of files (`src/**/*.php`; relative to this file's directory, in mode `worker` to the worker script's); when one changes, or a link on the way to them, all processes are replaced, one after the other, by new ones with a fresh opcache. With `profile = \"production\"` a deployment takes effect by itself. At most 8192 directories (`WatchIncomplete`).",
            "a deployment that ends with `howdah reload` needs no watching";
        "pm": Kind::Word(&["static", "dynamic", "ondemand"]), "dynamic",
            "How the number of processes is chosen, as in php-fpm. `static`: always max_children processes. `dynamic`: as many as keep between min_spare_servers and max_spare_servers idle. `ondemand`: processes are started when requests come, and PHP itself with the first. The default is `static` in mode `worker` and with `--children N` on the command line.",
            "the number of processes, and so the memory, follows the load";
        "max_children": Kind::IntegerOrAuto(1, 1000), "auto",
            "Largest number of PHP processes; `auto` is computed from the cores and memory of the machine, or of the container if there is one. In mode `worker` it is two for each core.",
            "no number fits every machine";
        "start_servers": Kind::IntegerOrAuto(0, 1000), "auto", "`dynamic`: number of processes at the start.", "as many as cores";
        "min_spare_servers": Kind::IntegerOrAuto(0, 1000), "auto",
            "`dynamic`: a process is started when fewer than this are idle.", "half the cores, at least one";
        "max_spare_servers": Kind::IntegerOrAuto(1, 1000), "auto",
            "`dynamic`: a process is stopped when more than this are idle.", "twice the cores, at least four";
        "process_idle_timeout": Kind::Time(SECOND, DAY), "10s",
            "A process beyond the spare ones is stopped after it has been idle for this time.", "php-fpm's";
        "max_requests": Kind::Integer(0, 1 << 40), "0",
            "A process serves exactly this many requests and is replaced (mode `worker`: up to a tenth fewer, when its successor has booted; mode `pool`: up to a fifth fewer); 0: never.",
            "php-fpm's; max_memory catches leaks";
        "max_memory": Kind::SizeOrOff(16 * M, T), "512M",
            "A process with more resident memory is replaced between two requests.",
            "four times PHP's usual memory_limit: such a process leaks";
        "queue_size": Kind::Integer(0, 65535), "1024",
            "Most requests that wait for a process; beyond: 503 `QueueFull` with Retry-After.",
            "a thousand waiting requests can be visitors, more are an attack";
        "queue_timeout": Kind::Time(10, 3600 * SECOND), "30s",
            "Longest time a request waits for a process; then 503 `QueueTimeout` with Retry-After.", "visitors do not wait longer for a page";
        "request_terminate_timeout": Kind::TimeOrOff(100, DAY), "300s",
            "Longest time a script may run, including the time it sleeps and waits; then its process is killed: 504 `TerminateTimeout`.",
            "PHP's max_execution_time counts CPU time only; a script that hangs must not hold its process for ever";
        "request_slowlog_timeout": Kind::TimeOrOff(100, DAY), "10s",
            "A request that runs longer has its PHP stack written to the error log (`SlowRequest`).",
            "the stack shows where it hangs";
        "php_ini": Kind::Path, "", "php.ini in place of the one PHP would find.", "";
        "php_value": Kind::Pairs, "",
            "`[pool.NAME.php_value]`: settings for the whole pool, as on PHP's command line (`-d`); also those that count only at start (`opcache.memory_consumption`, `extension`).", "";
        "profile": Kind::Word(&["php", "development", "production"]), "php",
            "When a changed file takes effect. `php`: as php.ini says (two seconds later, unless it says otherwise). `development`: at once; opcache looks at each file for each request (opcache.revalidate_freq = 0). `production`: with `howdah reload` only, and no file is looked at (opcache.validate_timestamps = 0). The pool's php_value overrides it.",
            "behaves as PHP users expect";
        "opcache": Kind::OnOff, "on", "`off` switches opcache off. With `on` php.ini, `php_value` and `-d` decide (`opcache.enable`), whose default is on.", "PHP is several times faster with it";
        "user": Kind::Text, "",
            "User that the PHP processes run as; the server must be started as root. By default, the server's `user`.", "";
        "group": Kind::Text, "", "Group in place of the user's own.", "";
        "env": Kind::Pairs, "", "`[pool.NAME.env]`: environment of the processes.", "";
        "clear_env": Kind::OnOff, "on",
            "PHP gets none of the server's environment but PATH, PHPRC and PHP_INI_SCAN_DIR; `env` here and `--env NAME` on the command line name the rest. `off` passes all of it on: for a container, whose environment is the application's configuration.",
            "php-fpm's: what a shell, a service manager or a build left in the environment is in `$_SERVER` and phpinfo() of every script";
        "fastcgi": Kind::Texts, "",
            "Mode `fastcgi`: where the backends listen: `unix:PATH`, `HOST:PORT`, a range as `127.0.0.1:9000-9007`; `weight=N` may follow. Each request goes to the least busy one.", "";
        "max_connections": Kind::IntegerOrAuto(1, 4096), "auto",
            "Mode `fastcgi`: most connections to each backend: php-fpm's `pm.max_children`. Further requests wait in Howdah's queue, not in the backend's backlog. `auto`: the number the backend reports (php-cgi does); otherwise it is found out by trying: it grows with each answer and shrinks when the backlog is full. `--children N` on the command line overrides it.",
            "php-fpm does not report its number; setting it is better, and keep_connections needs it";
        "keep_connections": Kind::OnOff, "on",
            "Mode `fastcgi`: keep connections open and reuse them. Only where the number of processes is known: each kept connection holds one. Turn it off for scripts that work on after `fastcgi_finish_request()`: php-fpm then takes the next request and lets it wait.",
            "saves a connection for each request: without it there are half as many small answers a second";
        "keep_timeout": Kind::Time(1, 3600 * SECOND), "1s",
            "Mode `fastcgi`: a connection that is kept without a request is closed after this time.",
            "php-fpm counts its process as active meanwhile";
        "connect_timeout": Kind::Time(10, 600 * SECOND), "5s",
            "Mode `fastcgi`: longest attempt to connect; then another backend is tried.",
            "the second repetition of a lost TCP packet comes after 3 s";
        "send_timeout": Kind::Time(10, 3600 * SECOND), "60s",
            "Mode `fastcgi`: longest time without progress in sending a request; then 504 `BackendTimeout`.", "nginx' fastcgi_send_timeout";
        "read_timeout": Kind::TimeOrOff(10, DAY), "off",
            "Mode `fastcgi`: longest time without a byte from the backend; then 504 `BackendTimeout`.",
            "request_terminate_timeout limits the whole; a report that is computed for two minutes is no failure";
        "restart_time": Kind::Time(0, 3600 * SECOND), "10s",
            "Mode `fastcgi`: when all backends have been away for longer, requests are refused at once (`BackendDown`); until then they wait.",
            "php-fpm restarts within a second or two";
        "script_root": Kind::Pairs, "",
            "Mode `fastcgi`: `[pool.NAME.script_root]`: directories here and what they are called where the scripts run (another container, a chroot), as `\"/srv/site\" = \"/var/www/html\"`.", "";
        "request_body_directory": Kind::Path, "",
            "Mode `fastcgi`, for php-fpm alone: a body that was stored in a file (`limits.body_memory`) gets a name in this directory while its request lasts, and PHP reads it there (`REQUEST_BODY_FILE`) in place of the connection. On the file system of `limits.spill_directory`; php-fpm's group must be able to enter it, nobody else should.", "";
    }
    "site" {
        "name": Kind::Text, "", "Name of the site in logs and status; by default its first host.", "";
        "hosts": Kind::Texts, "", "Hosts it answers for: `example.org`, `*.example.org`, an address. `SERVER_NAME` is the one asked for, or the first.", "";
        "default": Kind::OnOff, "off",
            "Answers for hosts that no site names. Without such a site it is the first.", "";
        "root": Kind::Path, "", "The directory that is served; by default the one on the command line.", "";
        "recognise": Kind::OnOff, "",
            "`true`: begin with what would be chosen for the directory without a configuration (WordPress, MediaWiki, …); what this site says itself goes before it, its rules before the chosen ones. Without the line, what a known application in the root closes is closed (the start says so), and `howdah check` advises on what else it needs. `false`: neither.",
            "a file should say what happens, but nobody notices that a log or a draft is open";
        "pool": Kind::Text, "", "The pool that runs its scripts; by default the only one, or `www`.", "";
        "index": Kind::Texts, "index.php, index.html, index.htm",
            "Names tried in a directory, in order.",
            "a directory with both is an application with a placeholder beside it";
        "try_files": Kind::Texts, "$uri, $uri/",
            "What is looked for, in order; then front_controller, then 404. `$uri`, `$uri/`, a path made of both, or `=STATUS`.", "";
        "front_controller": Kind::Text, "",
            "URL path of the script that gets everything that is no file, as `/index.php`.", "";
        "front_controller_path_info": Kind::OnOff, "off",
            "Give it the request's path as PATH_INFO.",
            "most applications go by REQUEST_URI, and Apache's usual rewrite sets none";
        "php_extensions": Kind::Texts, ".php", "File name endings of PHP scripts.", "";
        "htaccess": Kind::Word(&["deny", "off"]), "deny",
            "How Apache's `.htaccess` files in the root and below it are treated. `deny`: access that they deny is denied, and changes take effect with the next request; their other directives are not applied. `off`: they are ignored.",
            "many applications and plugins protect uploads, logs and sessions only by these files";
        "symlinks": Kind::Word(&["follow", "owner", "beneath"]), "follow",
            "What symbolic links below the root may point to: anything; what their owner owns; what lies below the root.",
            "nginx' and Apache's default, and what Debian's applications need";
        "root_resolution": Kind::Word(&["reload", "second", "request"]), "second",
            "When links in `root` itself are looked at again.",
            "a deployment that moves a link takes effect, at no measurable cost";
        "deny": Kind::Texts, "", "Globs of URL paths that are always refused, files and scripts alike.", "";
        "expose": Kind::Texts, "",
            "Globs of URL paths that are served although files of such names are otherwise never sent (dotfiles, backups, sources).", "";
        "precompressed": Kind::OnOff, "on",
            "Send `x.css.br`, `.zst` or `.gz` in place of `x.css` to clients that accept it.", "";
        "sendfile_roots": Kind::Texts, "", "Directories whose files a script may name by `X-Sendfile`.", "";
        "max_body_size": Kind::SizeOrOff(1, 1 << 50), "1G",
            "Longest request body; beyond: 413 before PHP sees anything.",
            "Apache's; post_max_size bounds only what PHP parses into $_POST and $_FILES, a script reads beyond it from php://input";
        "request_buffering": Kind::Word(&["on", "off", "auto"]), "on",
            "`on`: a script starts when the body is complete. `off`: as it arrives; a slow client then holds a process for as long as it sends. `auto`: `on`, but as it arrives when a form begins with the field of PHP's upload progress, for at most a quarter of the pool's processes at once; further ones are received first.",
            "a slow client never holds a process; a script that shows upload progress needs `auto`";
        "types": Kind::Pairs, "", "`[site.types]`: media types by extension, before the built-in ones.", "";
        "env": Kind::Pairs, "", "`[site.env]`: environment of its scripts, in getenv() and `$_SERVER`.", "";
        "php_value": Kind::Pairs, "", "`[site.php_value]`: PHP settings for its requests; scripts may change them.", "";
        "php_admin_value": Kind::Pairs, "", "`[site.php_admin_value]`: PHP settings that scripts cannot change.", "";
        "error_pages": Kind::Pairs, "",
            "`[site.error_pages]`: a file below the root for a status, as `404 = \"404.html\"`. It is sent as it is: a script, or a file that `deny` closes, is a mistake.", "";
        "cache": Kind::Word(&["off", "on", "rfc", "dry-run"]), "off",
            "The page cache. `dry-run`: as `on`, but nothing is served from it; `howdah status` shows what would have been a hit, and what would have been wrong. `on`: pages are rendered for an anonymous request the server makes itself, and served to anonymous readers. `rfc`: an HTTP cache (RFC 9111) that stores what the application explicitly allows, for applications that declare `Vary` truly.",
            "whether pages can be cached depends on the application";
        "cache_preset": Kind::Text, "auto",
            "What is known of the application: `wordpress`, `mediawiki`, `drupal`, `joomla`, `phpbb`, `magento`, `laravel`, `symfony`, `dokuwiki`, `php`. `auto`: as the root is recognised, else the first of its subfolders that is. One for the whole site: another application in a subfolder is reported at the start.", "";
        "cache_ttl": Kind::Time(SECOND, 365 * DAY), "120s",
            "How long a page is kept whose headers name no lifetime (`cache = on`).", "Varnish's; writes over HTTP end it sooner";
        "cache_max_ttl": Kind::Time(SECOND, 365 * DAY), "24h",
            "Longest time any page is kept, whatever its headers say.", "a mistake in a header ends within a day";
        "cache_grace": Kind::Time(0, DAY), "10s",
            "How long beyond its lifetime a stale page is served while a new one is rendered (`cache = on`).", "Varnish's";
        "cache_stale_if_error": Kind::Time(0, 30 * DAY), "1h",
            "How long beyond its lifetime a page is served when PHP fails (`cache = on`).", "gives you an hour to repair the application";
        "cache_max_object": Kind::Size(K, G), "8M", "Largest body that is cached; at most half of `memory` in `[cache]`.", "pages are smaller; downloads should not be cached";
        "cache_ignore_cookies": Kind::Texts, "",
            "Cookies that change no page, beside those of analytics; `*` at the end for all that begin so. Any other unknown cookie passes the cache by (`UnknownCookie`).",
            "only you know what your cookies do";
        "cache_ignore_query": Kind::Texts, "",
            "Query parameters that change no page, beside those of tracking; PHP does not see them when a page is rendered for the cache.", "";
        "cache_never": Kind::Texts, "", "Beginnings of URL paths that are never cached, compared with the path as it is routed: `/account` means `/acc%6Funt`, too.", "";
        "cache_ignore_writes": Kind::Texts, "",
            "Tables whose writes make no page old, beside those the preset knows (counters, sessions, queues); `*` at either end stands for anything. `name()`: a function of PostgreSQL that a `SELECT` calls and that changes no page.", "";
        "cache_flush_on_write": Kind::OnOff, "on",
            "Every request that may have written (POST, PUT, DELETE …, and what the preset knows) makes all pages of the site old. `off`: only its own URL (RFC 9111 §4.4).",
            "a cache that sees only HTTP cannot know which pages show what was written";
        "cache_shadow": Kind::Integer(0, 1 << 30), "0",
            "Re-render every Nth cache hit in the background and compare it with the stored page; a difference is logged as the warning `ShadowDiffers`. 0: never.",
            "each comparison runs PHP once; 1000 adds hardly any load";
        "cache_purge_from": Kind::Texts, "",
            "Who may purge pages by HTTP requests (`PURGE /path`, …): addresses, networks, `unix` (who connects to a unix socket). The machine's own PHP comes from one of its addresses.",
            "`howdah cache purge` works without it, and behind a proxy all clients have the proxy's address";
        "cache_purge_token": Kind::Text, "",
            "A secret of 16 characters or more: whoever sends it in `X-Purge-Token` or `Authorization: Bearer` may purge, too.", "";
        "cache_purge_path": Kind::Text, "",
            "A path, as `/purge/`, below which a GET is a purge of what follows: nginx-helper's way. The same clients may.",
            "an application may have such a path of its own";
        "cache_litespeed": Kind::OnOff, "on",
            "Tell scripts that there is a cache that understands `X-LiteSpeed-*` (`X-LSCACHE`, `LSWS_EDITION` in `$_SERVER`), so that plugins for LiteSpeed's cache tag and purge pages here.",
            "an installed plugin should work; without one nothing uses it";
        "cache_keep_tags": Kind::OnOff, "off",
            "Let `Surrogate-Key`, `Cache-Tag`, `X-Magento-Tags`, `X-Drupal-Cache-Tags` and their kin go on to clients, for a cache in front of this server that purges by them.",
            "they show clients how the site is built";
        "rule": Kind::Sections, "", "`[[site.rule]]`", "";
        "static": Kind::Sections, "", "`[[site.static]]`", "";
        "internal": Kind::Sections, "", "`[[site.internal]]`", "";
    }
    "site.rule" {
        "path": Kind::Text, "", "Matches exactly this path.", "";
        "prefix": Kind::Text, "", "Matches this path and everything below it; `$1` is what follows the prefix.", "";
        "glob": Kind::Text, "", "A glob: `*` within a name, `**` across directories; without a leading slash below any directory.", "";
        "regex": Kind::Text, "", "A regular expression; `$1` or `${name}` are its groups.", "";
        "methods": Kind::Texts, "", "Only for these methods.", "";
        "if_missing": Kind::OnOff, "off", "Only if the path names no file, script or directory with an index.", "";
        "redirect": Kind::Text, "", "Sends the client to this path or URL.", "";
        "status": Kind::Integer(300, 399), "302",
            "The redirect's status: 301, 302, 303, 307 or 308.", "browsers cache a 301 permanently";
        "rewrite": Kind::Text, "", "Continues with this path in place of the request's; the query is kept.", "";
        "deny": Kind::Integer(400, 499), "", "Refuses: 403, 404 or 410.", "";
        "cgi": Kind::Text, "",
            "What the path names is a program, executed as it is by the pool of this name, of mode `cgi`: `prefix = \"/cgi-bin/\", cgi = \"programs\"`. It has to be an executable file; nothing there is sent as a file.", "";
        "authorizer": Kind::Text, "",
            "A FastCGI application, run by the pool of this name (mode `fastcgi` or `pool`), says first whether the request may be answered: 200 allows it, and its fields `Variable-NAME` become variables of whoever answers; any other answer is the client's. For the path a client names, what rules make of it and the file or script it leads to, wherever the rule stands; several are asked in order. Nothing there comes from the page cache.", "";
        "authorizer_script": Kind::Path, "",
            "The script of an authorizer that is PHP.", "";
        "return": Kind::Integer(200, 599), "", "Answers with this status and `body`.", "";
        "body": Kind::Text, "", "The body of `return`.", "";
        "pool": Kind::Text, "",
            "The pool that runs the script, if one is to be run; the last rule of this kind that matches counts. So one site has workers for most and ordinary processes for some.", "";
        "type": Kind::Text, "text/plain; charset=utf-8", "Its media type.", "";
        "set_header": Kind::Pairs, "", "A header field to replace, as `{ X-Frame-Options = \"DENY\" }`.", "";
        "add_header": Kind::Pairs, "", "A header field to add.", "";
        "unset_header": Kind::Texts, "", "Header fields to remove.", "";
    }
    "site.static" {
        "path": Kind::Text, "", "As in a rule.", "";
        "prefix": Kind::Text, "", "As in a rule.", "";
        "glob": Kind::Text, "", "As in a rule.", "";
        "regex": Kind::Text, "", "As in a rule.", "";
        "cache_control": Kind::Text, "", "`Cache-Control` of the answer.", "";
        "type": Kind::Text, "", "`Content-Type` in place of the table's.", "";
    }
    "site.internal" {
        "prefix": Kind::Text, "", "Beginning of the paths that scripts may name, with slashes at both ends.", "";
        "root": Kind::Path, "", "The directory that replaces the prefix.", "";
    }
}

/// Options that older files may have: section, key, and what to do instead.
const REMOVED: &[(&str, &str, &str)] = &[(
    "site",
    "cache_tables",
    "every write makes all pages old; name tables whose writes change no page in `cache_ignore_writes`",
)];

/// What to do instead, if there was an option of that section and key once.
pub fn removed(section: &str, key: &str) -> Option<&'static str> {
    let entry = REMOVED.iter().find(|(s, k, _)| (*s, *k) == (section, key));
    entry.map(|(_, _, instead)| *instead)
}

/// The option of that section and key.
pub fn find(section: &str, key: &str) -> Option<&'static Spec> {
    OPTIONS
        .iter()
        .find(|spec| spec.section == section && spec.key == key)
}

impl Spec {
    /// `pool.*.queue_size`
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
    use super::super::value::{Scalar, parse};
    use super::*;

    #[test]
    fn every_option_is_named_once_and_lies_in_a_section_that_is_described() {
        for (at, spec) in OPTIONS.iter().enumerate() {
            let name = spec.full_name();
            assert!(SECTIONS.iter().any(|(s, _)| *s == spec.section), "{name}");
            assert_eq!(removed(spec.section, spec.key), None, "{name}");
            let twice = |other: &Spec| (other.section, other.key) == (spec.section, spec.key);
            assert!(!OPTIONS[..at].iter().any(twice), "{name} twice");
            assert!(!spec.doc.is_empty(), "{name}");
        }
    }

    #[test]
    fn every_default_is_a_value_the_reader_would_take() {
        for spec in OPTIONS.iter().filter(|spec| !spec.default.is_empty()) {
            if let Err(why) = parse(spec.kind, &Scalar::written(spec.default)) {
                panic!("{} = {}: {why}", spec.full_name(), spec.default);
            }
        }
    }
}
