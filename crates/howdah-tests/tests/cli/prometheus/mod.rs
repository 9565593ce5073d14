//! A real Prometheus scrapes a loaded server. promtool, the alert rules and the Grafana dashboard agree with the
//! metrics that exist.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use howdah_tests::fixture::{Fixture, HELLO};
use howdah_tests::http::get;
use howdah_tests::load::{Load, LoadEnd};
use howdah_tests::process::{Process, wait_until};
use howdah_tests::rig::free_address;
use howdah_tests::scratch::{Scratch, repository};
use serde_json::Value;

/// Runs promtool on this input and returns its output.
#[track_caller]
fn promtool(directory: &Scratch, words: &[&str], input: &str) -> String {
    let mut child = Command::new("promtool")
        .args(words)
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool (Debian package prometheus) can be started");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = child.wait_with_output().expect("promtool exits");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "promtool {words:?}: {said}");
    said
}

fn copied(scratch: &Scratch) {
    for file in [
        "packaging/prometheus/howdah.rules.yml",
        "crates/howdah-tests/tests/cli/prometheus/rules.test.yml",
    ] {
        let from = repository().join(file);
        let text = std::fs::read_to_string(&from).expect("a file of the repository");
        scratch.write(from.file_name().expect("a name"), text);
    }
}

#[test]
fn alerts_fire_when_they_should_and_not_before() {
    let scratch = Scratch::new("rules");
    copied(&scratch);
    promtool(&scratch, &["check", "rules", "howdah.rules.yml"], "");
    promtool(&scratch, &["test", "rules", "rules.test.yml"], "");
}

/// A running Prometheus.
struct Prometheus {
    address: SocketAddr,
    _process: Process,
}

impl Prometheus {
    fn start(scratch: &Scratch, target: SocketAddr) -> Prometheus {
        let address = free_address();
        let config = scratch.write(
            "prometheus.yml",
            format!(
                "global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\n\
                 rule_files: [howdah.rules.yml]\n\
                 scrape_configs:\n\
                 - job_name: howdah\n  \
                   static_configs: [{{targets: ['{target}']}}]\n"
            ),
        );
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                scratch.join("tsdb").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn");
        Prometheus {
            address,
            _process: Process::start("prometheus", &mut command),
        }
    }

    fn api(&self, path: &str) -> Option<Value> {
        std::net::TcpStream::connect(self.address).ok()?;
        let answer = get(self.address, path);
        (answer.status() != 503).then(|| answer.json())
    }

    /// Returns the result of a query: the labels and the value of each sample.
    #[track_caller]
    fn query(&self, expression: &str) -> Vec<Value> {
        let encoded: String = expression.bytes().map(|b| format!("%{b:02X}")).collect();
        let answer = self.api(&format!("/api/v1/query?query={encoded}"));
        let answer = answer.unwrap_or_default();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }
}

/// Returns the metric families that docs/metrics.md lists.
fn documented() -> BTreeSet<String> {
    let page = std::fs::read_to_string(repository().join("docs/metrics.md")).expect("the page");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

/// Returns the metrics that an expression names.
fn metrics_in(expression: &str) -> Vec<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("howdah_"));
    names
        .map(|name| {
            let mut ends = ["_bucket", "_sum", "_count"].into_iter();
            let family = ends.find_map(|end| name.strip_suffix(end));
            family.unwrap_or(name).to_owned()
        })
        .collect()
}

/// Returns each expression of the Grafana dashboard, with its variables filled in.
fn dashboard() -> Vec<String> {
    let file = repository().join("packaging/grafana/howdah.json");
    let text = std::fs::read_to_string(file).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let notes = dashboard["annotations"]["list"]
        .as_array()
        .expect("annotations");
    targets
        .chain(notes)
        .map(|target| {
            let text = target["expr"].as_str().expect("an expression");
            text.replace("$__rate_interval", "10s")
                .replace("$instance", ".*")
                .replace("$pool", ".*")
        })
        .collect()
}

#[test]
fn prometheus_scrapes_a_loaded_server_and_the_dashboard_shows_it() {
    let status = free_address();
    let fixture = Fixture::named("scraped")
        .config(&format!("[status]\nlisten = \"{status}\"\n"))
        .site("cache = \"on\"\n[[site.rule]]\npath = \"/limited\"\nrate = \"100/s\"")
        .start();
    let scratch = Scratch::new("prometheus");
    copied(&scratch);
    let prometheus = Prometheus::start(&scratch, status);
    let load = Load::new(fixture.address(), "/hello.php", HELLO)
        .clients(4)
        .start(LoadEnd::OnFinish);
    assert_eq!(fixture.get("/missing").status(), 404);
    let scraped = |what: &str, expression: &str| {
        wait_until(what, Duration::from_secs(60), || {
            prometheus.api("/api/v1/targets").is_some()
        });
        wait_until(what, Duration::from_secs(60), || {
            let values = prometheus.query(expression);
            values.iter().any(|sample| sample["value"][1] != "0")
        });
    };
    scraped("a scrape", "up{job=\"howdah\"}");
    scraped(
        "requests",
        "rate(howdah_responses_total{status=\"200\"}[10s])",
    );
    let version = prometheus.query("howdah_build_info");
    assert_eq!(version[0]["metric"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        prometheus.query("howdah_pool_up{pool=\"www\"}")[0]["value"][1],
        "1"
    );
    assert_eq!(
        prometheus.query("howdah_pool_max_children")[0]["value"][1],
        "2"
    );

    // Some metrics have no samples on this server, so not every expression has a value.
    let known = documented();
    let mut shown = 0;
    for expression in dashboard() {
        for metric in metrics_in(&expression) {
            assert!(known.contains(&metric), "{metric} in {expression}");
        }
        shown += usize::from(!prometheus.query(&expression).is_empty());
    }
    assert!(shown >= 20, "only {shown} expressions have a value");
    let rules = prometheus.api("/api/v1/rules").expect("a response");
    let rules = rules["data"]["groups"][0]["rules"]
        .as_array()
        .expect("rules");
    assert!(rules.len() >= 10);
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        assert_eq!(rule["state"], "inactive", "{rule}");
        let expression = rule["query"].as_str().expect("an expression");
        for metric in metrics_in(expression) {
            assert!(known.contains(&metric), "{metric} in {expression}");
        }
    }
    load.finish().only(&["200"]);

    // Prometheus receives OpenMetrics; every other client receives the Prometheus text format, which promtool checks.
    let text = get(status, "/metrics").text();
    assert_eq!(promtool(&scratch, &["check", "metrics"], &text), "");
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    for (name, _) in names {
        assert!(known.contains(name), "{name} is not in docs/metrics.md");
    }
}
