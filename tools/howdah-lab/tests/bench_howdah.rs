//! `howdah bench` against Howdah itself, over each version of HTTP.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use howdah_test_support::process::{Process, wait_until};
use howdah_test_support::scratch::{Scratch, howdah_program, repository};
use serde_json::Value;

/// The longest wait for the server.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Howdah with a directory of files, over HTTP and HTTPS with HTTP/3.
struct HowdahServer {
    process: Process,
    scratch: Scratch,
}

impl HowdahServer {
    fn start(access_format: &str) -> HowdahServer {
        let scratch = Scratch::new("bench");
        let certificates = repository().join("tools/howdah-bench/tests/tls");
        for name in ["localhost.pem", "localhost.key"] {
            let bytes = std::fs::read(certificates.join(name)).unwrap();
            let file = scratch.write(name, bytes);
            std::fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
        }
        scratch.write("site/a.html", "<h1>A page</h1>\n");
        let config = "listen = [\"127.0.0.1:0\", \"127.0.0.1:0 tls http3\"]\n\
                      control = \"control.sock\"\n\
                      [log]\naccess = \"access.log\"\naccess_format = \"FORMAT\"\n\
                      [[site]]\nroot = \"site\"\n\
                      [[site.certificate]]\nfile = \"localhost.pem\"\nkey = \"localhost.key\"\n";
        let config = config.replace("FORMAT", access_format);
        let config = scratch.write("howdah.toml", config);
        let mut command = Command::new(howdah_program());
        command.arg("serve").arg("--config").arg(config);
        let process = Process::start("howdah", &mut command);
        HowdahServer { process, scratch }
    }

    /// Returns the URL that the server printed for this scheme, with a page.
    fn url(&self, scheme: &str) -> String {
        let url = self.process.wait_for_line("its address", MAX_WAIT, |line| {
            let (_, url) = line.split_once("listening on ")?;
            url.starts_with(&format!("{scheme}://"))
                .then(|| url.replace("127.0.0.1", "localhost"))
        });
        format!("{url}/a.html")
    }

    /// Measures a hundred requests with these options, and returns the report as JSON.
    fn bench(&self, scheme: &str, options: &[&str]) -> Value {
        let json = self.scratch.join("run.json");
        let authority = repository().join("tools/howdah-bench/tests/tls/ca.pem");
        let mut command = Command::new(env!("CARGO_BIN_EXE_howdah-bench"));
        command.args([
            "bench",
            "-q",
            "-n",
            "100",
            "-c",
            "4",
            "--no-ceiling",
            "--json",
        ]);
        command.arg(&json);
        if scheme == "https" {
            command.arg("--ca").arg(authority);
        }
        let output = command.args(options).arg(self.url(scheme)).output();
        let output = output.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options:?}: {error}");
        serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
    }
}

#[test]
fn howdah_is_measured_over_each_version_of_http() {
    let server = HowdahServer::start("combined");
    for (scheme, options, protocol) in [
        ("http", &[][..], "HTTP/1.1"),
        ("https", &[], "HTTP/1.1"),
        ("https", &["--http2", "--streams", "2"], "HTTP/2"),
        ("https", &["--http3", "--streams", "2"], "HTTP/3"),
        ("https", &["--http3", "-i"], "HTTP/3"),
    ] {
        let run = server.bench(scheme, options);
        assert_eq!(run["connections"]["protocol"], protocol);
        assert_eq!(run["outcomes"]["Good"]["count"], 100, "{protocol}: {run}");
        let length = if options.contains(&"-i") { 0 } else { 1600 };
        assert_eq!(run["bytes"]["bodies"], length, "{protocol}");
        assert_eq!(run["document"]["server"], "Howdah");
    }
}

/// Every format of Howdah's access log can be replayed, over every version of HTTP.
#[test]
fn access_logs_of_howdah_are_replayed() {
    for (format, scheme, option) in [
        ("common", "http", None),
        ("combined", "https", None),
        ("extended", "https", Some("--http2")),
        ("json", "https", Some("--http3")),
    ] {
        let server = HowdahServer::start(format);
        server.bench("https", &[]);
        let missing = server.url("http").replace("/a.html", "/missing.html");
        let mut client = Command::new(env!("CARGO_BIN_EXE_howdah-bench"));
        client.args([
            "bench",
            "-q",
            "-n",
            "20",
            "-i",
            "--expect-status",
            "404",
            &missing,
        ]);
        assert!(client.output().unwrap().status.success());
        let log = server.scratch.join("access.log");
        // Lines are written within a second.
        wait_until("the log", MAX_WAIT, || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.lines().count() >= 120)
        });
        let copy = server.scratch.join("copy.log");
        std::fs::copy(&log, &copy).unwrap();
        std::fs::remove_file(server.scratch.path().join("site/a.html")).unwrap();
        server
            .scratch
            .write("site/missing.html", "no longer missing\n");
        let json = server.scratch.join("replay.json");
        let url = server.url(scheme).replace("a.html", "");
        let mut command = Command::new(env!("CARGO_BIN_EXE_howdah-bench"));
        command.args(["bench", "-q", "--insecure", "--speed", "10x", "--log"]);
        command
            .arg(&copy)
            .arg("--json")
            .arg(&json)
            .args(option)
            .arg(url);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        // Not one response is as in the log, so none is good.
        assert_eq!(output.status.code(), Some(1), "{format}: {error}");
        let run: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        let replay = &run["replay"];
        let changed = serde_json::json!({"200 > 404": 100, "404 > 200": 20});
        assert_eq!(replay["changed"], changed, "{format}: {replay}");
        assert_eq!(replay["log"]["released"], 120);
        assert_eq!(replay["log"]["whole_seconds"], format != "json");
        assert_eq!(replay["statuses"]["404"]["count"], 100);
    }
}
