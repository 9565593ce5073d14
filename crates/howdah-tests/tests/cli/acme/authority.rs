//! A certificate authority of the test's own: pebble, which is set to reject nonces and to respond slowly, and a DNS
//! server that resolves every name to 127.0.0.1.

use std::process::Command;
use std::time::Duration;

use howdah_tests::process::{Process, wait_until};
use howdah_tests::rig::{free_address, wait_for_listener};
use howdah_tests::scratch::{Scratch, run};
use howdah_tests::tools::tool;

/// The longest time that any step of an order may take.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

pub struct Authority {
    pub scratch: Scratch,
    pebble: Option<Process>,
    _dns: Process,
    api: u16,
    management: u16,
    dns: u16,
    pub dns_management: u16,
    /// The port to which the authority sends its HTTP challenges.
    pub http: u16,
    pub tls: u16,
    log: String,
}

impl Authority {
    /// Starts an authority whose certificates are valid for `seconds`.
    pub fn start(seconds: u64) -> Authority {
        let mut authority = Authority::down(seconds);
        authority.come_up();
        authority
    }

    /// Prepares an authority that does not respond yet.
    pub fn down(seconds: u64) -> Authority {
        let scratch = Scratch::new("acme");
        let port = || free_address().port();
        let (api, management, dns, dns_management) = (port(), port(), port(), port());
        let (http, tls) = (port(), port());
        run(Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
            ])
            .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
            .args(["-addext", "subjectAltName=DNS:localhost"])
            // Without this, the certificate would be that of an authority, which a server must not use.
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(scratch.join("api.key"))
            .arg("-out")
            .arg(scratch.join("api.pem")));
        // Until the authority's own root is known, this copy gives curl a file that it can read.
        std::fs::copy(scratch.join("api.pem"), scratch.join("root.pem")).unwrap();
        let pebble = serde_json::json!({
            "listenAddress": format!("127.0.0.1:{api}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": scratch.join("api.pem"),
            "privateKey": scratch.join("api.key"),
            "httpPort": http,
            "tlsPort": tls,
            "ocspResponderURL": "",
            "certificateValidityPeriod": seconds,
            // pebble reads the same setting from here since version 2.7.
            "profiles": { "default": { "description": "", "validityPeriod": seconds } },
        });
        let config = serde_json::json!({ "pebble": pebble }).to_string();
        scratch.write("pebble.json", config);
        let mut command = Command::new("pebble-challtestsrv");
        command
            .args([
                "-http01",
                "",
                "-https01",
                "",
                "-tlsalpn01",
                "",
                "-defaultIPv6",
                "",
            ])
            .args(["-dns01", &format!("127.0.0.1:{dns}")])
            .args(["-management", &format!("127.0.0.1:{dns_management}")]);
        let dns_server = Process::start("pebble-challtestsrv", &mut command);
        let address = ([127, 0, 0, 1], dns_management).into();
        wait_for_listener("pebble-challtestsrv", address);
        Authority {
            scratch,
            pebble: None,
            _dns: dns_server,
            api,
            management,
            dns,
            dns_management,
            http,
            tls,
            log: String::new(),
        }
    }

    /// Starts the authority with an empty memory.
    pub fn come_up(&mut self) {
        let mut command = tool("bin/pebble");
        command
            .arg("-config")
            .arg(self.scratch.join("pebble.json"))
            .args(["-dnsserver", &format!("127.0.0.1:{}", self.dns)])
            .env("PEBBLE_VA_SLEEPTIME", "1")
            .env("PEBBLE_AUTHZREUSE", "0")
            .env("PEBBLE_WFE_NONCEREJECT", "30");
        let pebble = Process::start("pebble", &mut command);
        wait_for_listener("pebble", ([127, 0, 0, 1], self.api).into());
        wait_for_listener("pebble", ([127, 0, 0, 1], self.management).into());
        self.pebble = Some(pebble);
        let root = self.manage("roots/0");
        self.scratch.write("root.pem", root);
    }

    pub fn go_down(&mut self) {
        if let Some(mut pebble) = self.pebble.take() {
            pebble.signal(rustix::process::Signal::KILL);
            pebble.stop();
            self.log += &pebble.log();
        }
    }

    fn log(&self) -> String {
        let now = self.pebble.as_ref().map(Process::log).unwrap_or_default();
        format!("{}{now}", self.log)
    }

    /// Returns the number of certificates that the authority has issued.
    pub fn issued(&self) -> usize {
        self.log().matches("Issued certificate serial").count()
    }

    /// Returns the number of accounts that have been registered.
    pub fn accounts(&self) -> usize {
        self.log().matches("accounts in memory").count()
    }

    /// Waits until the authority has received an order.
    pub fn wait_for_an_order(&self) {
        wait_until("an order", MAX_WAIT, || self.log().contains("Added order"));
    }

    fn manage(&self, path: &str) -> String {
        let url = format!("https://localhost:{}/{path}", self.management);
        run(Command::new("curl").args(["-sSk", &url]))
    }

    /// Returns `Valid` or `Revoked` for the serial number of a certificate in hex.
    pub fn status_of(&self, serial: &str) -> String {
        let text = self.manage(&format!("cert-status-by-serial/{}", serial.to_lowercase()));
        let status: serde_json::Value = serde_json::from_str(&text).unwrap();
        status["Status"].as_str().unwrap().to_owned()
    }

    /// Returns the `[acme]` section of a server that uses this authority.
    pub fn configuration(&self) -> String {
        format!(
            "[acme]\nauthorities = [\"https://localhost:{}/dir\"]\npath = {:?}\n",
            self.api,
            self.scratch.join("state")
        )
    }
}
