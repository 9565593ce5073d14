//! The command line of the benchmark.

use super::SCENARIOS;

const HELP: &str = "\
serving_benchmark [SCENARIO]... [--rounds N] [--seconds N] [--children N]

  hello       hello.php, 100 keep-alive connections
  hello-one   hello.php, one connection (latency of a lone request)
  beside-slow hello.php, 16 connections, with two 200 ms requests always in progress
  static      a file of 24 bytes, 100 connections (nginx, Howdah)
  swoole      a script for Swoole's HTTP server, 100 connections (beside nginx's file of 24 bytes)
  worker      hello from a worker against nginx' static file, 100 connections
  wordpress   WordPress' home page, 10 connections, on a private MariaDB
  fastcgi     Howdah (mode fastcgi) and nginx before one and the same php-fpm: hello.php at 100
              connections, WordPress at 10, and 500 on 4 children with a backlog of 16
  pool        Howdah (mode pool) and Apache with mod_fcgid, php-cgi programs of their own:
              hello.php at 10 and 100 connections
  sweep       the same page, 10 to 500 connections: does the rate hold?
  flat        the same page at 50 and at 500 connections by turns: is the rate the same?
  cache       hits of the page cache, 24 bytes, 100 connections: nginx' fastcgi_cache, Varnish
  cache-wordpress  the same for WordPress' home page
  cache-miss  what the cache costs WordPress' pages that do not come from it
  cost        system calls (strace) and context switches per hello request
  opcache     CPU per request of hello.php and WordPress by opcache's settings, and in mode cgi
  memory      resident memory: a PHP child, 10 000 idle connections

Without a scenario: all. Build the release binaries first (`make build`).
";

/// The scenarios that are not a row of [`SCENARIOS`].
const OTHERS: &[&str] = &[
    "swoole",
    "worker",
    "wordpress",
    "fastcgi",
    "pool",
    "sweep",
    "flat",
    "cache",
    "cache-wordpress",
    "cache-miss",
    "cost",
    "opcache",
    "memory",
];

/// What was asked for.
pub struct Options {
    scenarios: Vec<String>,
    /// Rounds of every scenario.
    pub rounds: usize,
    /// Length of one run.
    pub seconds: u32,
    /// PHP processes of Howdah and php-fpm.
    pub children: usize,
}

impl Options {
    /// Reads the command line; leaves with a message when it is wrong.
    pub fn read() -> Options {
        let mut options = Options {
            scenarios: Vec::new(),
            rounds: 5,
            seconds: 4,
            children: 8,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || {
                words
                    .next()
                    .and_then(|n| n.parse().ok())
                    .unwrap_or_else(|| {
                        eprintln!("serving_benchmark: {word} wants a number");
                        std::process::exit(2)
                    })
            };
            match word.as_str() {
                "--rounds" => options.rounds = number(),
                "--seconds" => options.seconds = u32::try_from(number()).unwrap_or(u32::MAX),
                "--children" => options.children = number(),
                "--help" | "-h" => {
                    print!("{HELP}");
                    std::process::exit(0)
                }
                name if OTHERS.contains(&name) || SCENARIOS.iter().any(|s| s.name == name) => {
                    options.scenarios.push(word);
                }
                other => {
                    eprintln!("serving_benchmark: no scenario or option {other:?}\n\n{HELP}");
                    std::process::exit(2)
                }
            }
        }
        options
    }

    /// Whether a scenario is to be run.
    pub fn wants(&self, name: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|s| s == name)
    }
}
