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
                  If you know ab: its options have the same meaning here. Keep-alive and HTTP/1.1 are the default, \
                  only good responses count as requests per second, and a varying length is not a failure \
                  (docs/bench.md).\n\n\
                  Exit codes: 0 if the run was measured, 1 if it failed or did not meet --slo, 2 for a mistake on \
                  the command line, 6 if the server cannot be reached, 130 after an interruption (the results so \
                  far are printed)"
)]
pub struct BenchArguments {
    /// Report on saved runs instead of measuring
    #[command(subcommand)]
    pub command: Option<BenchCommand>,

    /// URL to request, such as http://host:port/path, https://host/path or http://unix:/run/app.sock:/path
    #[arg(required = true, value_name = "URL")]
    pub url: Option<String>,

    /// Number of requests after which the run ends
    #[arg(short = 'n', value_name = "REQUESTS", help_heading = "Load")]
    pub requests: Option<u64>,
    /// Number of clients that send requests at the same time, to find the server's highest throughput (closed loop)
    /// [default: 1]
    #[arg(short = 'c', value_name = "CLIENTS", help_heading = "Load")]
    pub concurrency: Option<u32>,
    /// How long to measure, such as 30 or 30s [default: 10s if -n is not given]
    #[arg(short = 't', long = "time", value_name = "TIME", help_heading = "Load")]
    pub time: Option<String>,
    /// Requests per second, sent at scheduled times even if the server is slow, to measure the latency at that rate
    /// (open loop)
    #[arg(
        long,
        value_name = "RATE",
        help_heading = "Load",
        conflicts_with = "concurrency"
    )]
    pub rate: Option<f64>,
    /// With --rate: send requests at equal intervals, as wrk2 does [default: at random intervals, as visitors do]
    #[arg(long, help_heading = "Load")]
    pub constant: bool,
    /// Replay an access log (combined, common, or Howdah's formats; also .gz): its GET and HEAD requests,
    /// at the times of the log (open loop)
    #[arg(long, value_name = "FILE", help_heading = "Load",
        conflicts_with_all = ["concurrency", "rate", "warmup", "think", "urls", "post", "put", "method", "head", "vs", "sweep", "find_max"])]
    pub log: Option<PathBuf>,
    /// With --log: replay the log this many times as fast, from 1 to 10 [default: 1]
    #[arg(long, value_name = "FACTOR", help_heading = "Load", requires = "log")]
    pub speed: Option<String>,
    /// With --rate or --log: maximum number of connections [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub connections: Option<u32>,
    /// Send requests for this time before measuring, so that the server is warm
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    pub warmup: Option<String>,
    /// Pause of each client between two requests, to simulate visitors: fixed (2s) or random (1s-5s)
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    pub think: Option<String>,
    /// Number of threads of the load tester; increase it if the report says that the load tester was the bottleneck
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub threads: usize,
    /// Seed of all random choices; to vary a repeated run, give another number
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,

    /// Header to send, as `Name: value`; may be repeated
    #[arg(short = 'H', value_name = "FIELD", help_heading = "Request")]
    pub header: Vec<String>,
    /// Cookie to send, as `name=value`, for pages behind a login; may be repeated
    #[arg(short = 'C', value_name = "COOKIE", help_heading = "Request")]
    pub cookie: Vec<String>,
    /// Send back the cookies that the server sets, so that each client is a visitor with a session
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
    /// Method to use instead of GET
    #[arg(short = 'm', value_name = "METHOD", help_heading = "Request", conflicts_with_all = ["post", "put", "head"])]
    pub method: Option<String>,
    /// Send HEAD requests instead of GET
    #[arg(short = 'i', help_heading = "Request", conflicts_with_all = ["post", "put"])]
    pub head: bool,
    /// File with more URLs of the same server, one per line; all URLs are requested in turn
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub urls: Option<PathBuf>,

    /// Keep connections open (this is the default; accepted for compatibility with ab)
    #[arg(short = 'k', help_heading = "Connection")]
    pub keepalive: bool,
    /// Open a new connection for each request, as ab does without -k
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
    /// With --http2 or --http3: number of concurrent requests per connection
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
    /// Count socket errors and continue (this is the default; accepted for compatibility with ab)
    #[arg(short = 'r', help_heading = "Connection")]
    pub go_on: bool,
    /// Stop at the first socket error, as ab does without -r
    #[arg(long, help_heading = "Connection", conflicts_with = "go_on")]
    pub stop_on_error: bool,
    /// Keep trying to connect while the backlog of a unix socket is full, as TCP does, to compare unix sockets with TCP
    #[arg(long, help_heading = "Connection")]
    pub wait_backlog: bool,
    /// Do not verify the server's certificate, for test servers
    #[arg(long, help_heading = "Connection")]
    pub insecure: bool,
    /// PEM file with certificate authorities to trust in addition to the system's
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    pub ca: Option<PathBuf>,
    /// Server name to use for TLS instead of the URL's host
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    pub server_name: Option<String>,
    /// Send no server name in TLS (SNI)
    #[arg(short = 'I', help_heading = "Connection")]
    pub no_sni: bool,
    /// Version of TLS: TLS1.2, TLS1.3 or ALL
    #[arg(short = 'f', value_name = "PROTOCOL", help_heading = "Connection")]
    pub tls_protocol: Option<String>,
    /// Cipher suites to offer, by OpenSSL's names, separated by colons
    #[arg(short = 'Z', value_name = "CIPHERS", help_heading = "Connection")]
    pub ciphers: Option<String>,
    /// PEM file with a client certificate and its private key, if the server requires a certificate
    #[arg(short = 'E', value_name = "FILE", help_heading = "Connection")]
    pub client_certificate: Option<PathBuf>,
    /// Local address to connect from; useful if the ports of another address are exhausted
    #[arg(short = 'B', value_name = "ADDRESS", help_heading = "Connection")]
    pub bind: Option<std::net::IpAddr>,
    /// Size of each socket's send and receive buffers in bytes [default: chosen by the system, and growing as needed]
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

    /// Statuses of good responses, such as 200, 2xx or 200,304 [default: 2xx]
    #[arg(long, value_name = "STATUS", help_heading = "What is a good response")]
    pub expect_status: Option<String>,
    /// Text that the body must contain, so that error pages do not count; may be repeated
    #[arg(long, value_name = "TEXT", help_heading = "What is a good response")]
    pub expect_body: Vec<String>,
    /// Text that the body must not contain; may be repeated
    #[arg(long, value_name = "TEXT", help_heading = "What is a good response")]
    pub expect_not: Vec<String>,
    /// Regular expression that the body must match; may be repeated
    #[arg(long, value_name = "REGEX", help_heading = "What is a good response")]
    pub expect_match: Vec<String>,
    /// JSON pointer (RFC 6901) to a value that the body must contain, and optionally the value itself, such as
    /// /user/id=7; may be repeated
    #[arg(
        long,
        value_name = "POINTER[=VALUE]",
        help_heading = "What is a good response"
    )]
    pub expect_json: Vec<String>,
    /// Print "Variable" as the document length if it varies, as ab does (a varying length is never a failure)
    #[arg(short = 'l', help_heading = "What is a good response")]
    pub variable_length: bool,
    /// Objective for scripts and CI, such as p99<100ms,errors<0.1%; the exit code is 1 if the run does not meet the
    /// objective
    #[arg(
        long,
        value_name = "OBJECTIVE",
        help_heading = "What is a good response"
    )]
    pub slo: Option<String>,

    /// Compare with the server at this URL: measure the servers in turn, and print a verdict; may be repeated
    #[arg(long, value_name = "URL", help_heading = "More than one run")]
    pub vs: Vec<String>,
    /// With --vs: number of pairs of measurements; smaller differences need more pairs
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        help_heading = "More than one run"
    )]
    pub pairs: u32,
    /// With --vs: servers count as equal if they differ by less than this
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "3%",
        help_heading = "More than one run"
    )]
    pub margin: String,
    /// With --vs: do not measure the first server twice; the noise of the measurements then remains unknown
    #[arg(long, help_heading = "More than one run")]
    pub no_control: bool,
    /// Measure with several numbers of clients, such as 10,30,50 or 1..512 (doubling), to see where throughput
    /// saturates
    #[arg(long, value_name = "LEVELS", help_heading = "More than one run", conflicts_with_all = ["vs", "concurrency", "rate"])]
    pub sweep: Option<String>,
    /// With --sweep: how often to measure with each number of clients
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        help_heading = "More than one run"
    )]
    pub repeat: u32,
    /// Find the highest rate that meets --slo, for capacity planning
    #[arg(long, help_heading = "More than one run", requires = "slo", conflicts_with_all = ["vs", "sweep", "rate", "requests"])]
    pub find_max: bool,

    /// Process ID of a server on this machine, to sample the server's CPU time and memory
    #[arg(long, value_name = "PID", help_heading = "Watching")]
    pub server_pid: Option<u32>,
    /// URL of Howdah's status page, or path of its control socket, to sample Howdah's queue and processes
    #[arg(long, value_name = "WHERE", help_heading = "Watching")]
    pub status: Option<String>,
    /// Always measure the highest rate that the load tester can reach [default: only if the load tester was busy]
    #[arg(long, help_heading = "Watching")]
    pub ceiling: bool,
    /// Do not measure the highest rate that the load tester can reach
    #[arg(long, help_heading = "Watching", conflicts_with = "ceiling")]
    pub no_ceiling: bool,

    /// Do not print the progress
    #[arg(short = 'q', help_heading = "Output")]
    pub quiet: bool,
    /// Print to standard error: level 2 prints a line per second, level 3 adds the status of each response, level 4 adds
    /// the headers of requests and responses
    #[arg(short = 'v', value_name = "LEVEL", help_heading = "Output")]
    pub verbosity: Option<u8>,
    /// Do not print the table of percentiles
    #[arg(short = 'd', help_heading = "Output")]
    pub no_percentiles: bool,
    /// Do not print medians and standard deviations
    #[arg(short = 'S', help_heading = "Output")]
    pub no_deviations: bool,
    /// Write a line for each good response, for gnuplot (uses 32 bytes of memory per request)
    #[arg(short = 'g', value_name = "FILE", help_heading = "Output")]
    pub gnuplot: Option<PathBuf>,
    /// Write the latency at each whole percentile as CSV, in milliseconds
    #[arg(short = 'e', value_name = "FILE", help_heading = "Output")]
    pub percentile_csv: Option<PathBuf>,
    /// Write everything as JSON (docs/bench-json.md); `-` writes it to standard output instead of the text report
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write an HTML page with plots
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
    /// Report on a run that was saved with --json, or compare several saved runs
    #[command(after_help = "Example:\n  howdah bench report before.json after.json")]
    Report(SavedRuns),
}

/// `howdah bench report`
#[derive(Args, Clone, Debug)]
pub struct SavedRuns {
    /// Files that --json wrote; if you give several, the others are compared with the first
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write an HTML page with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Runs count as equal if they differ by less than this
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
                "ab's options -w, -x, -y and -z, which write an HTML table, are not supported; use --html FILE, \
                 which writes a page with plots"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}
