//! The command line of `howdah bench`. Ab's letters mean what they mean in ab; those that make no sense
//! here are known and refused with a reason ([`refused`]). Says what was typed; whether it makes sense
//! is [`super::planning`]'s.

use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand};

use crate::error::BenchError;

/// Measure a web server, and say what the figures are worth.
#[derive(Args, Clone, Debug, Default)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "From ab: the same letters. Keep-alive and HTTP/1.1 are the default, requests per second are good \
                  answers only, and a length that varies is no failure (docs/bench.md).\n\n\
                  Exit codes: 0 measured, 1 failed or --slo broken, 2 command line, 6 no server to talk to, \
                  130 interrupted (what had been measured is printed)"
)]
pub struct Bench {
    /// Report on saved runs in place of measuring
    #[command(subcommand)]
    pub command: Option<BenchCommand>,

    /// What to request: http://host:port/path, https://…, http://unix:/run/app.sock:/path
    #[arg(required = true, value_name = "URL")]
    pub url: Option<String>,

    /// Requests to send
    #[arg(short = 'n', value_name = "REQUESTS", help_heading = "Load")]
    pub requests: Option<u64>,
    /// Clients at a time (closed loop)
    #[arg(short = 'c', value_name = "CLIENTS", help_heading = "Load")]
    pub concurrency: Option<u32>,
    /// Seconds to measure [default: 10 without -n]
    #[arg(short = 't', long = "time", value_name = "TIME", help_heading = "Load")]
    pub time: Option<String>,
    /// Requests per second, whatever the answers do (open loop): 500
    #[arg(
        long,
        value_name = "RATE",
        help_heading = "Load",
        conflicts_with = "concurrency"
    )]
    pub rate: Option<f64>,
    /// With --rate: equal distances in place of random ones (Poisson)
    #[arg(long, help_heading = "Load")]
    pub constant: bool,
    /// With --rate: connections at most [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub connections: Option<u32>,
    /// Measure nothing for so long at first
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    pub warmup: Option<String>,
    /// A client's pause between two requests: 2s, or 1s-5s at random
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    pub think: Option<String>,
    /// Threads of the load tester
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub threads: usize,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,

    /// Header field `Name: value`; replaces ours of that name; may be repeated
    #[arg(short = 'H', value_name = "FIELD", help_heading = "Request")]
    pub header: Vec<String>,
    /// Cookie `name=value`; may be repeated
    #[arg(short = 'C', value_name = "COOKIE", help_heading = "Request")]
    pub cookie: Vec<String>,
    /// Keep the cookies the server sets, per client: each is a visitor of its own
    #[arg(long, help_heading = "Request")]
    pub cookies: bool,
    /// User and password for basic authentication: user:password
    #[arg(short = 'A', value_name = "USER:PASSWORD", help_heading = "Request")]
    pub auth: Option<String>,
    /// POST the content of this file
    #[arg(
        short = 'p',
        value_name = "FILE",
        help_heading = "Request",
        conflicts_with = "put"
    )]
    pub post: Option<PathBuf>,
    /// PUT the content of this file
    #[arg(short = 'u', value_name = "FILE", help_heading = "Request")]
    pub put: Option<PathBuf>,
    /// Content-Type of the body [default: text/plain]
    #[arg(short = 'T', value_name = "TYPE", help_heading = "Request")]
    pub content_type: Option<String>,
    /// Method
    #[arg(short = 'm', value_name = "METHOD", help_heading = "Request", conflicts_with_all = ["post", "put", "head"])]
    pub method: Option<String>,
    /// HEAD in place of GET
    #[arg(short = 'i', help_heading = "Request", conflicts_with_all = ["post", "put"])]
    pub head: bool,
    /// More URLs of the same server, one a line, requested in turn
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub urls: Option<PathBuf>,

    /// Keep connections: the default here
    #[arg(short = 'k', help_heading = "Connection")]
    pub keepalive: bool,
    /// A connection for every request: ab's default
    #[arg(long, help_heading = "Connection", conflicts_with = "keepalive")]
    pub no_keepalive: bool,
    /// HTTP/1.0, as ab speaks it
    #[arg(long = "http1.0", help_heading = "Connection")]
    pub http10: bool,
    /// HTTP/2
    #[arg(long, help_heading = "Connection", conflicts_with = "http10")]
    pub http2: bool,
    /// With --http2: requests at once on a connection
    #[arg(
        long,
        value_name = "N",
        help_heading = "Connection",
        requires = "http2"
    )]
    pub streams: Option<u32>,
    /// Give up on an answer after [default: 30s]
    #[arg(
        short = 's',
        long = "timeout",
        value_name = "TIME",
        help_heading = "Connection"
    )]
    pub timeout: Option<String>,
    /// Count socket errors and go on: the default here
    #[arg(short = 'r', help_heading = "Connection")]
    pub go_on: bool,
    /// End at the first socket error, as ab does without -r
    #[arg(long, help_heading = "Connection", conflicts_with = "go_on")]
    pub stop_on_error: bool,
    /// Try again when a unix socket's backlog is full, as TCP does, in place of counting an error
    #[arg(long, help_heading = "Connection")]
    pub wait_backlog: bool,
    /// Do not verify the server's certificate: as ab
    #[arg(long, help_heading = "Connection")]
    pub insecure: bool,
    /// PEM file of authorities to trust besides the system's
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    pub ca: Option<PathBuf>,
    /// Server name to ask for in TLS
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    pub server_name: Option<String>,
    /// Ask for no server name in TLS (SNI)
    #[arg(short = 'I', help_heading = "Connection")]
    pub no_sni: bool,
    /// Version of TLS: TLS1.2, TLS1.3 or ALL
    #[arg(short = 'f', value_name = "PROTOCOL", help_heading = "Connection")]
    pub tls_protocol: Option<String>,
    /// Cipher suites of TLS, by OpenSSL's names, separated by colons
    #[arg(short = 'Z', value_name = "CIPHERS", help_heading = "Connection")]
    pub ciphers: Option<String>,
    /// PEM file with the client's certificate and its private key
    #[arg(short = 'E', value_name = "FILE", help_heading = "Connection")]
    pub client_certificate: Option<PathBuf>,
    /// Local address to connect from
    #[arg(short = 'B', value_name = "ADDRESS", help_heading = "Connection")]
    pub bind: Option<std::net::IpAddr>,
    /// Size of the socket's buffers, bytes [default: the system's, which grow by need]
    #[arg(short = 'b', value_name = "BYTES", help_heading = "Connection", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX / 2)))]
    pub buffers: Option<u32>,
    /// Proxy to ask, for http:// URLs
    #[arg(short = 'X', value_name = "HOST:PORT", help_heading = "Connection")]
    pub proxy: Option<String>,
    /// User and password for the proxy: user:password
    #[arg(
        short = 'P',
        value_name = "USER:PASSWORD",
        help_heading = "Connection",
        requires = "proxy"
    )]
    pub proxy_auth: Option<String>,

    /// Good statuses: 200, 2xx, 200,304 [default: 2xx]
    #[arg(long, value_name = "STATUS", help_heading = "What is a good answer")]
    pub expect_status: Option<String>,
    /// The body has to contain this; may be repeated
    #[arg(long, value_name = "TEXT", help_heading = "What is a good answer")]
    pub expect_body: Vec<String>,
    /// The body must not contain this; may be repeated
    #[arg(long, value_name = "TEXT", help_heading = "What is a good answer")]
    pub expect_not: Vec<String>,
    /// The body has to match this regular expression; may be repeated
    #[arg(long, value_name = "REGEX", help_heading = "What is a good answer")]
    pub expect_match: Vec<String>,
    /// The body is JSON and has a value there (RFC 6901), or this value: /user/id=7
    #[arg(
        long,
        value_name = "POINTER[=VALUE]",
        help_heading = "What is a good answer"
    )]
    pub expect_json: Vec<String>,
    /// Document length varies: never a failure here, said as "Variable"
    #[arg(short = 'l', help_heading = "What is a good answer")]
    pub variable_length: bool,
    /// What the run has to hold, else exit code 1: p99<100ms,errors<0.1%
    #[arg(long, value_name = "OBJECTIVE", help_heading = "What is a good answer")]
    pub slo: Option<String>,

    /// Compare with another server: measured in turns, with a verdict; may be repeated
    #[arg(long, value_name = "URL", help_heading = "More than one run")]
    pub vs: Vec<String>,
    /// With --vs: pairs of windows
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        help_heading = "More than one run"
    )]
    pub pairs: u32,
    /// With --vs: differences below this are "the same"
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "3%",
        help_heading = "More than one run"
    )]
    pub margin: String,
    /// With --vs: do not measure the first server twice for the noise floor
    #[arg(long, help_heading = "More than one run")]
    pub no_control: bool,
    /// Several numbers of clients in random order: 10,30,50 or 1..512
    #[arg(long, value_name = "LEVELS", help_heading = "More than one run", conflicts_with_all = ["vs", "concurrency", "rate"])]
    pub sweep: Option<String>,
    /// With --sweep: measure each level so often
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        help_heading = "More than one run"
    )]
    pub repeat: u32,
    /// Search for the highest rate that holds --slo
    #[arg(long, help_heading = "More than one run", requires = "slo", conflicts_with_all = ["vs", "sweep", "rate", "requests"])]
    pub find_max: bool,

    /// Process of the server, to watch its CPU and memory
    #[arg(long, value_name = "PID", help_heading = "Watching")]
    pub server_pid: Option<u32>,
    /// Howdah's status to watch: the URL of its status page or its control socket
    #[arg(long, value_name = "WHERE", help_heading = "Watching")]
    pub status: Option<String>,
    /// Always measure what the load tester itself can reach [default: when it was busy]
    #[arg(long, help_heading = "Watching")]
    pub ceiling: bool,
    /// Do not measure the load tester's own maximum
    #[arg(long, help_heading = "Watching", conflicts_with = "ceiling")]
    pub no_ceiling: bool,

    /// No progress
    #[arg(short = 'q', help_heading = "Output")]
    pub quiet: bool,
    /// On standard error: 2 every second, 3 the status of every answer, 4 the heads of all requests and
    /// answers, too
    #[arg(short = 'v', value_name = "LEVEL", help_heading = "Output")]
    pub verbosity: Option<u8>,
    /// No table of percentiles
    #[arg(short = 'd', help_heading = "Output")]
    pub no_percentiles: bool,
    /// No medians and deviations
    #[arg(short = 'S', help_heading = "Output")]
    pub no_deviations: bool,
    /// Every good answer, for gnuplot (keeps 32 bytes a request in memory)
    #[arg(short = 'g', value_name = "FILE", help_heading = "Output")]
    pub gnuplot: Option<PathBuf>,
    /// Milliseconds for every per cent of the answers, as CSV
    #[arg(short = 'e', value_name = "FILE", help_heading = "Output")]
    pub percentile_csv: Option<PathBuf>,
    /// Everything, as JSON (docs/bench-json.md); `-` for standard output, in place of the text
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Second by second, as CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,
    /// Page with plots, complete in itself
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// HdrHistogram interval log
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub hdr_log: Option<PathBuf>,
    /// Write this load as a k6 script and a TestRun for k6-operator into a directory; measures nothing
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub export_k6: Option<PathBuf>,

    /// Print the version
    #[arg(short = 'V', action = ArgAction::Version)]
    pub version: Option<bool>,

    /// Letters of ab's that are refused.
    #[command(flatten)]
    #[allow(missing_docs)]
    pub refused: Refused,
}

/// `howdah bench …`
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Report on a saved run, or compare several (--json)
    Report(SavedRuns),
}

/// `howdah bench report`
#[derive(Args, Clone, Debug)]
pub struct SavedRuns {
    /// Files written by --json; with several, the first is the base of the comparison
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Page with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Second by second, as CSV (of a single run)
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// HdrHistogram interval log (of a single run)
    #[arg(long, value_name = "FILE")]
    pub hdr_log: Option<PathBuf>,
    /// Differences below this are "the same"
    #[arg(long, value_name = "PERCENT", default_value = "3%")]
    pub margin: String,
}

/// Letters of ab's for its HTML table. Known, so that the refusal can say what there is instead.
#[derive(Args, Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Refused {
    #[arg(short = 'w', hide = true, action = ArgAction::SetTrue)]
    pub html_table: bool,
    #[arg(short = 'x', hide = true, value_name = "ATTRIBUTES")]
    pub table: Option<String>,
    #[arg(short = 'y', hide = true, value_name = "ATTRIBUTES")]
    pub row: Option<String>,
    #[arg(short = 'z', hide = true, value_name = "ATTRIBUTES")]
    pub cell: Option<String>,
}

impl Refused {
    /// Says why, and what to do instead.
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
