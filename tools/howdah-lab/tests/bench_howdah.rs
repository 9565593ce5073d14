//! `howdah bench` against Howdah itself, over each version of HTTP.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use howdah_test_support::process::Process;
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
    fn start() -> HowdahServer {
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
                      [[site]]\nroot = \"site\"\n\
                      [[site.certificate]]\nfile = \"localhost.pem\"\nkey = \"localhost.key\"\n";
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
    let server = HowdahServer::start();
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
