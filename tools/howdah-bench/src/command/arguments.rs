//! The command line of `howdah bench`. Options of ab have the same meaning here; those without a
//! counterpart are refused with a reason ([`RefusedOptions`]). [`super::planning`] turns the arguments
//! into a plan.

use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand};

use crate::error::BenchError;

/// Measure a web server, and report how reliable the figures are.
#[derive(Args, Clone, Debug, Default)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
                  howdah bench -n 3000 -c 10 http://127.0.0.1:8080/\n  \
                  howdah bench --rate 200 -t 60 http://127.0.0.1:8080/\n\n\
                  From ab: options mean the same. Keep-alive and HTTP/1.1 are the default, only good answers count as \
                  requests per second, and a varying length is no failure (docs/bench.md).\n\n\
                  Exit codes: 0 measured, 1 failed or --slo broken, 2 command line, 6 no server to talk to, \
                  130 interrupted (prints what was measured)"
)]
pub struct BenchArguments {
    /// Report on saved runs instead of measuring
    #[command(subcommand)]
    pub command: Option<BenchCommand>,

    /// What to request: http://host:port/path, https://…, http://unix:/run/app.sock:/path
    #[arg(required = true, value_name = "URL")]
    pub url: Option<String>,

    /// Number of requests, for a run of fixed work
    #[arg(short = 'n', value_name = "REQUESTS", help_heading = "Load")]
    pub requests: Option<u64>,
    /// Number of clients, to find the most that the server can do (closed loop) [default: 1]
    #[arg(short = 'c', value_name = "CLIENTS", help_heading = "Load")]
    pub concurrency: Option<u32>,
    /// How long to measure, as 30 or 30s [default: 10 s without -n]
    #[arg(short = 't', long = "time", value_name = "TIME", help_heading = "Load")]
    pub time: Option<String>,
    /// Requests per second, sent on schedule whatever the server does, to measure latency at that
    /// rate (open loop)
    #[arg(
        long,
        value_name = "RATE",
        help_heading = "Load",
        conflicts_with = "concurrency"
    )]
    pub rate: Option<f64>,
    /// With --rate: send at equal intervals, as wrk2 does [default: at random intervals, as
    /// visitors do]
    #[arg(long, help_heading = "Load")]
    pub constant: bool,
    /// Replay an access log (combined, common, or Howdah's formats; also .gz): its GET and HEAD requests,
    /// at the times of the log (open loop)
    #[arg(long, value_name = "FILE", help_heading = "Load",
        conflicts_with_all = ["concurrency", "rate", "warmup", "think", "urls", "post", "put", "method", "head", "vs", "sweep", "find_max"])]
    pub log: Option<PathBuf>,
    /// With --log: how many times faster than in the log, 1 to 10 [default: 1]
    #[arg(long, value_name = "FACTOR", help_heading = "Load", requires = "log")]
    pub speed: Option<String>,
    /// With --rate or --log: most connections [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub connections: Option<u32>,
    /// Run this long before measuring, for servers that warm up
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    pub warmup: Option<String>,
    /// Pause of a client between two requests, to simulate visitors: 2s, or 1s-5s at random
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    pub think: Option<String>,
    /// Threads of the load tester, if the report says that it was the bottleneck
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub threads: usize,
    /// Seed of all random choices, to vary a repeated run
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,

    /// Header `Name: value`; may be repeated
    #[arg(short = 'H', value_name = "FIELD", help_heading = "Request")]
    pub header: Vec<String>,
    /// Cookie `name=value`, for pages behind a login; may be repeated
    #[arg(short = 'C', value_name = "COOKIE", help_heading = "Request")]
    pub cookie: Vec<String>,
    /// Keep cookies that the server sets, so that each client is a visitor with a session
    #[arg(long, help_heading = "Request")]
    pub cookies: bool,
    /// User and password for basic authentication
    #[arg(short = 'A', value_name = "USER:PASSWORD", help_heading = "Request")]
    pub auth: Option<String>,
    /// POST the content of a file, to measure a form or an API
    #[arg(
        short = 'p',
        value_name = "FILE",
        help_heading = "Request",
        conflicts_with = "put"
    )]
    pub post: Option<PathBuf>,
    /// PUT the content of a file
    #[arg(short = 'u', value_name = "FILE", help_heading = "Request")]
    pub put: Option<PathBuf>,
    /// Content-Type of the body [default: text/plain]
    #[arg(short = 'T', value_name = "TYPE", help_heading = "Request")]
    pub content_type: Option<String>,
    /// Method in place of GET
    #[arg(short = 'm', value_name = "METHOD", help_heading = "Request", conflicts_with_all = ["post", "put", "head"])]
    pub method: Option<String>,
    /// HEAD in place of GET
    #[arg(short = 'i', help_heading = "Request", conflicts_with_all = ["post", "put"])]
    pub head: bool,
    /// File with more URLs of the server, one per line, requested in turn: a mix of pages
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub urls: Option<PathBuf>,

    /// Keep connections (the default; for ab's command lines)
    #[arg(short = 'k', help_heading = "Connection")]
    pub keepalive: bool,
    /// Open a connection for each request, as ab does without -k
    #[arg(long, help_heading = "Connection", conflicts_with = "keepalive")]
    pub no_keepalive: bool,
    /// Use HTTP/1.0, as ab does
    #[arg(long = "http1.0", help_heading = "Connection")]
    pub http10: bool,
    /// Use HTTP/2
    #[arg(long, help_heading = "Connection", conflicts_with = "http10")]
    pub http2: bool,
    /// Use HTTP/3, for https:// URLs
    #[arg(long, help_heading = "Connection", conflicts_with_all = ["http10", "http2", "proxy"])]
    pub http3: bool,
    /// With --http2 or --http3: concurrent requests per connection
    #[arg(long, value_name = "N", help_heading = "Connection")]
    pub streams: Option<u32>,
    /// Give up on a response after this time [default: 30s]
    #[arg(
        short = 's',
        long = "timeout",
        value_name = "TIME",
        help_heading = "Connection"
    )]
    pub timeout: Option<String>,
    /// Count socket errors and continue (the default; for ab's command lines)
    #[arg(short = 'r', help_heading = "Connection")]
    pub go_on: bool,
    /// Stop at the first socket error, as ab does without -r
    #[arg(long, help_heading = "Connection", conflicts_with = "go_on")]
    pub stop_on_error: bool,
    /// Retry while a unix socket's backlog is full, as TCP does, to compare it with TCP
    #[arg(long, help_heading = "Connection")]
    pub wait_backlog: bool,
    /// Do not verify the server's certificate, for test servers
    #[arg(long, help_heading = "Connection")]
    pub insecure: bool,
    /// PEM file of certificate authorities to trust, for a private one
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    pub ca: Option<PathBuf>,
    /// Server name for TLS, if the URL has another host
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    pub server_name: Option<String>,
    /// Send no server name in TLS (SNI)
    #[arg(short = 'I', help_heading = "Connection")]
    pub no_sni: bool,
    /// Version of TLS: TLS1.2, TLS1.3 or ALL
    #[arg(short = 'f', value_name = "PROTOCOL", help_heading = "Connection")]
    pub tls_protocol: Option<String>,
    /// Cipher suites by OpenSSL's names, separated by colons
    #[arg(short = 'Z', value_name = "CIPHERS", help_heading = "Connection")]
    pub ciphers: Option<String>,
    /// PEM file with a client certificate and its private key, if the server wants one
    #[arg(short = 'E', value_name = "FILE", help_heading = "Connection")]
    pub client_certificate: Option<PathBuf>,
    /// Local address to connect from, for more ports than one address has
    #[arg(short = 'B', value_name = "ADDRESS", help_heading = "Connection")]
    pub bind: Option<std::net::IpAddr>,
    /// Size of the socket buffers in bytes [default: the system's, which grow]
    #[arg(short = 'b', value_name = "BYTES", help_heading = "Connection", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX / 2)))]
    pub buffers: Option<u32>,
    /// HTTP proxy, for http:// URLs
    #[arg(short = 'X', value_name = "HOST:PORT", help_heading = "Connection")]
    pub proxy: Option<String>,
    /// User and password for the proxy
    #[arg(
        short = 'P',
        value_name = "USER:PASSWORD",
        help_heading = "Connection",
        requires = "proxy"
    )]
    pub proxy_auth: Option<String>,

    /// Statuses of good responses: 200, 2xx, 200,304 [default: 2xx]
    #[arg(long, value_name = "STATUS", help_heading = "What is a good answer")]
    pub expect_status: Option<String>,
    /// Text that the body must contain, so that error pages do not count; may be repeated
    #[arg(long, value_name = "TEXT", help_heading = "What is a good answer")]
    pub expect_body: Vec<String>,
    /// Text that the body must not contain; may be repeated
    #[arg(long, value_name = "TEXT", help_heading = "What is a good answer")]
    pub expect_not: Vec<String>,
    /// Regular expression that the body must match; may be repeated
    #[arg(long, value_name = "REGEX", help_heading = "What is a good answer")]
    pub expect_match: Vec<String>,
    /// JSON pointer (RFC 6901) that the body must have, or have with a value: /user/id=7
    #[arg(
        long,
        value_name = "POINTER[=VALUE]",
        help_heading = "What is a good answer"
    )]
    pub expect_json: Vec<String>,
    /// Report a varying document length as "Variable" (never a failure; for ab's command lines)
    #[arg(short = 'l', help_heading = "What is a good answer")]
    pub variable_length: bool,
    /// Objective for scripts and CI; exit code 1 if the run breaks it: p99<100ms,errors<0.1%
    #[arg(long, value_name = "OBJECTIVE", help_heading = "What is a good answer")]
    pub slo: Option<String>,

    /// Compare with another server in turns, and give a verdict; may be repeated
    #[arg(long, value_name = "URL", help_heading = "More than one run")]
    pub vs: Vec<String>,
    /// With --vs: pairs of windows; more for smaller differences
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        help_heading = "More than one run"
    )]
    pub pairs: u32,
    /// With --vs: differences below this count as the same
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "3%",
        help_heading = "More than one run"
    )]
    pub margin: String,
    /// With --vs: do not measure the first server twice; the noise stays unknown
    #[arg(long, help_heading = "More than one run")]
    pub no_control: bool,
    /// Measure several numbers of clients, to see where throughput saturates: 10,30,50 or 1..512
    #[arg(long, value_name = "LEVELS", help_heading = "More than one run", conflicts_with_all = ["vs", "concurrency", "rate"])]
    pub sweep: Option<String>,
    /// With --sweep: how often to measure each level
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        help_heading = "More than one run"
    )]
    pub repeat: u32,
    /// Find the highest rate that holds --slo, for capacity planning
    #[arg(long, help_heading = "More than one run", requires = "slo", conflicts_with_all = ["vs", "sweep", "rate", "requests"])]
    pub find_max: bool,

    /// Process of a server on this machine, to sample its CPU time and memory
    #[arg(long, value_name = "PID", help_heading = "Watching")]
    pub server_pid: Option<u32>,
    /// Howdah's status page or control socket, to sample its queue and processes
    #[arg(long, value_name = "WHERE", help_heading = "Watching")]
    pub status: Option<String>,
    /// Always measure the load tester's own maximum [default: if it was busy]
    #[arg(long, help_heading = "Watching")]
    pub ceiling: bool,
    /// Do not measure the load tester's own maximum
    #[arg(long, help_heading = "Watching", conflicts_with = "ceiling")]
    pub no_ceiling: bool,

    /// Print no progress
    #[arg(short = 'q', help_heading = "Output")]
    pub quiet: bool,
    /// Print to standard error: 2 a line per second, 3 also each status, 4 also the headers of requests and responses
    #[arg(short = 'v', value_name = "LEVEL", help_heading = "Output")]
    pub verbosity: Option<u8>,
    /// Print no table of percentiles
    #[arg(short = 'd', help_heading = "Output")]
    pub no_percentiles: bool,
    /// Print no medians and deviations
    #[arg(short = 'S', help_heading = "Output")]
    pub no_deviations: bool,
    /// Write every good response, for gnuplot (keeps 32 bytes per request in memory)
    #[arg(short = 'g', value_name = "FILE", help_heading = "Output")]
    pub gnuplot: Option<PathBuf>,
    /// Write milliseconds for each per cent of the responses, as CSV
    #[arg(short = 'e', value_name = "FILE", help_heading = "Output")]
    pub percentile_csv: Option<PathBuf>,
    /// Write everything as JSON (docs/bench-json.md); `-` for standard output, in place of the text
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write a page with plots
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,

    /// Print the version
    #[arg(short = 'V', action = ArgAction::Version)]
    pub version: Option<bool>,

    /// Options of ab that are refused.
    #[command(flatten)]
    #[allow(missing_docs)]
    pub refused: RefusedOptions,
}

/// `howdah bench …`
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Report on a saved run, or compare several (--json)
    #[command(after_help = "Example:\n  howdah bench report before.json after.json")]
    Report(SavedRuns),
}

/// `howdah bench report`
#[derive(Args, Clone, Debug)]
pub struct SavedRuns {
    /// Files written by --json; with several, the first is the base of the comparison
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Differences below this count as the same
    #[arg(long, value_name = "PERCENT", default_value = "3%")]
    pub margin: String,
}

/// The options for ab's HTML table. They are parsed only to name the alternative in the refusal.
#[derive(Args, Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct RefusedOptions {
    #[arg(short = 'w', hide = true, action = ArgAction::SetTrue)]
    pub html_table: bool,
    #[arg(short = 'x', hide = true, value_name = "ATTRIBUTES")]
    pub table: Option<String>,
    #[arg(short = 'y', hide = true, value_name = "ATTRIBUTES")]
    pub row: Option<String>,
    #[arg(short = 'z', hide = true, value_name = "ATTRIBUTES")]
    pub cell: Option<String>,
}

impl RefusedOptions {
    /// Returns an error with the reason and the alternative if one of these options was given.
    pub fn check(&self) -> Result<(), BenchError> {
        let table =
            self.html_table || self.table.is_some() || self.row.is_some() || self.cell.is_some();
        if table {
            return Err(BenchError::Impossible(
                "-w, -x, -y and -z write an HTML table; --html FILE writes a page with plots"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}
