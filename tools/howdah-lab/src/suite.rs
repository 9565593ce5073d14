//! A benchmark as data: pages, stacks, load, and the figures of the post. The five are part of the program; a user's
//! own file has the same format. Every mistake in a file is reported with its line.

mod check;

use std::path::Path;

use howdah_bench::replay::line::{self, LoggedRequest};
use serde::{Deserialize, Serialize};

use crate::LabError;

/// The benchmarks that are part of the program, by name. The five of published posts come first; they are measured if
/// none is named.
pub const BUILT_IN: [(&str, &str); 10] = [
    ("b1", include_str!("../../../benchmarks/b1.toml")),
    ("b2", include_str!("../../../benchmarks/b2.toml")),
    ("b3", include_str!("../../../benchmarks/b3.toml")),
    ("b4", include_str!("../../../benchmarks/b4.toml")),
    ("b5", include_str!("../../../benchmarks/b5.toml")),
    ("hello", include_str!("../../../benchmarks/hello.toml")),
    ("cache", include_str!("../../../benchmarks/cache.toml")),
    (
        "cache-miss",
        include_str!("../../../benchmarks/cache-miss.toml"),
    ),
    ("web", include_str!("../../../benchmarks/web.toml")),
    ("visit", include_str!("../../../benchmarks/visit.toml")),
];

/// The access logs of the benchmarks that are part of the program, by the name in their files.
const BUILT_IN_LOGS: [(&str, &str); 1] = [("web.log", include_str!("../../../benchmarks/web.log"))];

/// The maximum number of requests that are taken from an access log.
const MAX_MIX: usize = 10_000;

/// The five benchmarks of published posts, by name.
pub const FIVE: [&str; 5] = ["b1", "b2", "b3", "b4", "b5"];

/// A benchmark: its pages, its stacks and its load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// The benchmark's name on the command line and in file names.
    pub name: String,
    /// The benchmark's title in reports.
    pub title: String,
    /// The question of the benchmark.
    pub question: String,
    /// Where and how the post measured; `None` if the benchmark repeats no post.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<String>,
    /// Problems that the post's figures hid, a sentence each.
    #[serde(default)]
    pub hid: Vec<String>,
    /// The number of PHP processes of every stack.
    pub children: u32,
    /// The number of clients and requests of the post.
    pub load: PostLoad,
    /// The pages that are requested.
    #[serde(rename = "page")]
    pub pages: Vec<SuitePage>,
    /// The stacks that are measured.
    #[serde(rename = "row")]
    pub rows: Vec<SuiteRow>,
    /// Pairs of stacks to compare, declared before they are measured.
    #[serde(rename = "asked", default)]
    pub asked: Vec<StackQuestion>,
    /// The figures of the post.
    #[serde(rename = "reported", default)]
    pub reported: Vec<ReportedFigure>,
    /// Number and length of the windows in the quick form, where they differ from
    /// [`crate::budget::RunBudget::quick`].
    #[serde(default)]
    pub quick: BudgetChanges,
    /// Number and length of the windows in the full form, where they differ.
    #[serde(default)]
    pub full: BudgetChanges,
}

/// Changes of a suite to the budget of `--quick` or `--full` ([`crate::budget::RunBudget`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetChanges {
    /// The number of windows for each figure.
    #[serde(default)]
    pub blocks: Option<u32>,
    /// The length of a window, in seconds.
    #[serde(default)]
    pub window: Option<f64>,
    /// The length of the warm-up before a window, in seconds.
    #[serde(default)]
    pub warmup: Option<f64>,
    /// The maximum number of concurrency levels.
    #[serde(default)]
    pub levels: Option<usize>,
    /// The only pages to measure; `None` for all.
    #[serde(default)]
    pub pages: Option<Vec<String>>,
    /// The time after which the measuring ends, in minutes, with fewer windows than planned.
    #[serde(default)]
    pub minutes: Option<f64>,
    /// Whether windows end after the post's number of requests: with a hundred slow requests in progress, the clock
    /// would cut off too many of them.
    #[serde(default)]
    pub posted: bool,
}

/// Two stacks whose difference answers the benchmark's question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackQuestion {
    /// What the first stack has and the second lacks: `an opcode cache`, `a unix socket instead of TCP`.
    pub what: String,
    /// The stack that has it.
    pub stack: String,
    /// The stack that lacks it.
    pub against: String,
}

/// The post's load. Windows are timed ([`crate::budget::RunBudget`]), so a fast stack is measured for as long as a slow
/// one; the post's number of requests ends a window only with `--as-posted`. The report says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostLoad {
    /// The number of requests of the post's run: ab's `-n`.
    pub requests: u64,
    /// The numbers of clients, one level after the other: ab's `-c`.
    pub concurrency: Vec<u32>,
    /// Whether connections are kept open: ab's `-k`.
    pub keepalive: bool,
}

/// A site that stacks serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SuiteSite {
    /// The small pages ([`crate::fixture::pages`]).
    Pages,
    /// The small pages, and the database that one of them uses.
    Database,
    /// WordPress with its database.
    Wordpress,
}

/// A page that is requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuitePage {
    /// The page's name in tables.
    pub name: String,
    /// The site that has the page.
    pub site: SuiteSite,
    /// The page's path in the URL.
    pub path: String,
    /// A text that every correct response contains, and no error page.
    pub contains: String,
    /// The minimum length of a window in seconds for each client: if a page takes long, each of 500 clients must get a
    /// response, or only the fast ones are counted.
    #[serde(default)]
    pub seconds_per_client: f64,
    /// Headers to send, `NAME: VALUE` each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Whether the requests carry the cookie of a visitor who has logged in; only WordPress has such visitors.
    #[serde(default, skip_serializing_if = "is_false")]
    pub logged_in: bool,
    /// The path of another page that two more clients request continuously while this one is measured; their requests
    /// are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// The coding that the client accepts and the response must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coding: Option<PageCoding>,
    /// Whether the client already has the page: it sends the validators of a response, and expects a 304.
    #[serde(default, skip_serializing_if = "is_false")]
    pub revalidate: bool,
    /// An access log, relative to the suite's file: its GET requests with status 200 are the mix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The paths that are requested in turn instead of `path`. The page at `path` is still checked first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<String>,
    /// The paths that the page uses: visitors load the page and then these, on one connection with HTTP/2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assets: Vec<String>,
    /// The `Priority` headers of the page and of each asset (RFC 9218); the last one is also for the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub priorities: Vec<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A coding of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum PageCoding {
    /// gzip (RFC 1952).
    Gzip,
    /// Brotli (RFC 7932).
    Br,
}

/// A stack that the benchmark measures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteRow {
    /// The stack's name ([`crate::stack::Stack::name`]).
    pub stack: String,
    /// The row of the post's table that it represents.
    #[serde(default)]
    pub stands_for: Option<String>,
    /// The path to request from it, if it differs from the page's.
    #[serde(default)]
    pub path: Option<String>,
    /// The trap that the stack demonstrates, as a sentence; a trap is not ranked. `None` for other rows.
    #[serde(default)]
    pub trap: Option<String>,
}

/// A figure that the post reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedFigure {
    /// The page's name.
    pub page: String,
    /// The set-up, in the post's words.
    pub what: String,
    /// The number of clients, if the post used several.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// Requests per second, as the post reported them.
    pub rate: f64,
    /// Good requests per second, where the post's figures show them.
    #[serde(default)]
    pub good: Option<f64>,
    /// The number of responses that were errors.
    #[serde(default)]
    pub errors: Option<u64>,
    /// The 99th percentile, in milliseconds.
    #[serde(default)]
    pub p99_ms: Option<f64>,
}

impl Suite {
    /// Returns the built-in benchmark of this name.
    pub fn built_in(name: &str) -> Result<Suite, LabError> {
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((name, text)) => Suite::parse(&format!("benchmarks/{name}.toml"), text),
            None => Err(LabError::Suite {
                file: name.to_owned(),
                mistakes: vec![format!(
                    "there is no such benchmark; the benchmarks are {}",
                    built_in_names()
                )],
            }),
        }
    }

    /// Parses a file's text; `file` is its name for messages.
    pub fn parse(file: &str, text: &str) -> Result<Suite, LabError> {
        let wrong = |mistakes| LabError::Suite {
            file: file.to_owned(),
            mistakes,
        };
        let mut suite: Suite =
            toml::from_str(text).map_err(|error| wrong(vec![error.to_string()]))?;
        let mut mistakes = suite.mistakes();
        mistakes.extend(suite.read_logs(file));
        if mistakes.is_empty() {
            Ok(suite)
        } else {
            Err(wrong(mistakes))
        }
    }

    /// Takes the mixes from the access logs that the pages name. Returns the mistakes, a sentence each.
    fn read_logs(&mut self, file: &str) -> Vec<String> {
        let mut mistakes = Vec::new();
        for page in &mut self.pages {
            let Some(name) = &page.log else { continue };
            let own = BUILT_IN_LOGS.iter().find(|(known, _)| known == name);
            let is_built_in = BUILT_IN
                .iter()
                .any(|(known, _)| format!("benchmarks/{known}.toml") == file);
            let text = match own {
                Some((_, text)) if is_built_in => Ok(text.as_bytes().to_vec()),
                _ => {
                    let directory = Path::new(file).parent().unwrap_or(Path::new(""));
                    std::fs::read(directory.join(name))
                }
            };
            match text {
                Ok(text) => page.mix = paths_of(&text),
                Err(error) => {
                    mistakes.push(format!("page {}: log {name}: {error}", page.name));
                    continue;
                }
            }
            if page.mix.is_empty() {
                mistakes.push(format!(
                    "page {}: log {name} has no GET request with status 200",
                    page.name
                ));
            }
        }
        mistakes
    }

    /// Removes all other pages, and the post's figures about them.
    pub fn keep_pages(&mut self, names: &[String]) {
        self.pages.retain(|page| names.contains(&page.name));
        self.reported.retain(|figure| names.contains(&figure.page));
    }

    /// Returns the post's figure for a row, a page and a number of clients.
    pub fn reported_for(
        &self,
        row: &SuiteRow,
        page: &SuitePage,
        concurrency: u32,
    ) -> Option<&ReportedFigure> {
        let what = row.stands_for.as_ref()?;
        self.reported.iter().find(|figure| {
            figure.what == *what
                && figure.page == page.name
                && figure.concurrency.is_none_or(|c| c == concurrency)
        })
    }
}

/// Returns the paths of a log's GET requests with status 200, in their order.
fn paths_of(log: &[u8]) -> Vec<String> {
    let lines = log.split(|byte| *byte == b'\n');
    let paths = lines.filter_map(|bytes| match line::parse(bytes) {
        Ok(line) if line.status == 200 => match line.request {
            LoggedRequest::Page {
                head: false,
                target,
            } => Some(target),
            _ => None,
        },
        _ => None,
    });
    paths.take(MAX_MIX).collect()
}

/// Returns the names of the built-in benchmarks, for messages.
pub fn built_in_names() -> String {
    let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_suites_are_valid_and_find_their_reported_figures() {
        for (name, _) in BUILT_IN {
            let suite = Suite::built_in(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(suite.name, name);
            assert_eq!(suite.post.is_some(), FIVE.contains(&name));
            assert_eq!(suite.post.is_some(), !suite.hid.is_empty());
            for row in suite.rows.iter().filter(|row| row.stands_for.is_some()) {
                let found = suite.pages.iter().any(|page| {
                    let levels = &suite.load.concurrency;
                    levels
                        .iter()
                        .any(|c| suite.reported_for(row, page, *c).is_some())
                });
                assert!(found, "{name}: {}", row.stack);
            }
        }
    }

    #[test]
    fn mix_is_taken_from_a_log() {
        let web = Suite::built_in("web").unwrap();
        let page = web.pages.iter().find(|page| page.log.is_some()).unwrap();
        assert!(page.mix.len() > 50, "{}", page.mix.len());
        assert!(page.mix.iter().all(|path| path.starts_with('/')));

        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mine.toml");
        let text = BUILT_IN[8].1.replace("web.log", "mine.log");
        let parsed = || Suite::parse(file.to_str().unwrap(), &text);
        assert!(parsed().unwrap_err().to_string().contains("mine.log"));
        let line = |request: &str, status: u16| {
            format!("::1 - - [29/Nov/2026:09:03:32 +0000] \"{request}\" {status} 1\n")
        };
        let mut log = line("GET /a HTTP/1.1", 404) + &line("POST /b HTTP/1.1", 200);
        std::fs::write(directory.path().join("mine.log"), &log).unwrap();
        assert!(parsed().unwrap_err().to_string().contains("no GET request"));
        log += &(line("GET /c?d HTTP/1.1", 200) + &line("GET /e HTTP/1.1", 200));
        std::fs::write(directory.path().join("mine.log"), &log).unwrap();
        let pages = parsed().unwrap().pages;
        let mix = &pages.iter().find(|page| page.log.is_some()).unwrap().mix;
        assert_eq!(*mix, ["/c?d", "/e"]);
    }

    #[test]
    fn suite_parse_reports_all_mistakes_at_once() {
        let text = BUILT_IN[0]
            .1
            .replace("nginx-fpm-unix\"", "nginx-fmp\"")
            .replace("path = \"/phpinfo.php\"", "path = \"phpinfo.php\"")
            .replace("children = 4", "children = 0");
        let error = Suite::parse("mine.toml", &text).unwrap_err().to_string();
        for part in [
            "mine.toml",
            "row nginx-fmp: there is no stack of that name",
            "page phpinfo: path `phpinfo.php` does not begin with `/`",
            "children: 0: expected 1 to 1000",
        ] {
            assert!(error.contains(part), "{error}");
        }
        let unknown = BUILT_IN[0].1.replace("question =", "qestion =");
        let error = Suite::parse("mine.toml", &unknown).unwrap_err().to_string();
        assert!(
            error.contains("line 4") && error.contains("qestion"),
            "{error}"
        );
    }
}
