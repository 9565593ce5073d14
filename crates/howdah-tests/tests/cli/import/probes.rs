//! The requests of a case, and the parts of the responses that must be the same: status, `Location`, media type,
//! selected headers, and the body unless it is an error.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use howdah_tests::http::exchange;
use howdah_tests::oracle::ResponseProperties;
use howdah_tests::tls_tunnel::{TlsTunnel, client_config};

/// Headers that must be the same.
const FIELDS: &[&str] = &[
    "access-control-allow-origin",
    "cache-control",
    "content-encoding",
    "content-security-policy",
    "permissions-policy",
    "referrer-policy",
    "strict-transport-security",
    "www-authenticate",
    "x-content-type-options",
    "x-frame-options",
    "x-robots-tag",
    "x-script",
    "x-served-by",
];

/// A line of `requests`: `NAME METHOD PORT HOST TARGET`, and headers after `|`.
pub struct ImportProbe {
    pub name: String,
    method: String,
    pub port: u16,
    host: String,
    target: String,
    fields: Vec<String>,
}

impl ImportProbe {
    pub fn read(line: &str) -> ImportProbe {
        let mut parts = line.split(" | ");
        let words: Vec<&str> = parts.next().unwrap().split_whitespace().collect();
        let [name, method, port, host, target] = words[..] else {
            panic!("NAME METHOD PORT HOST TARGET is expected, not {line}");
        };
        ImportProbe {
            name: name.to_owned(),
            method: method.to_owned(),
            port: port.parse().unwrap(),
            host: host.to_owned(),
            target: target.to_owned(),
            fields: parts.map(str::to_owned).collect(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut text = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
            self.method, self.target, self.host
        );
        for field in &self.fields {
            text += &format!("{field}\r\n");
        }
        if self.method == "POST" {
            text +=
                "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n\r\na=b";
        } else {
            text += "\r\n";
        }
        text.into_bytes()
    }
}

/// Sends requests, with TLS at one port.
pub struct ProbeClient {
    tunnel: TlsTunnel,
    https: u16,
    ports: [u16; 3],
}

impl ProbeClient {
    pub fn new(authority: &Path, ports: [u16; 3]) -> ProbeClient {
        let https = ports[1];
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, https));
        let config = client_config(authority, b"http/1.1");
        ProbeClient {
            tunnel: TlsTunnel::start(config, address).unwrap(),
            https,
            ports,
        }
    }

    /// Returns a `Location` with scheme and host, and without the test's ports. Howdah's own redirects name no host,
    /// but nginx's do; browsers resolve both alike (RFC 9110 §10.2.2).
    fn absolute(&self, location: &str, scheme: &str, host: &str) -> String {
        let location = match location.strip_prefix("//") {
            Some(rest) => format!("{scheme}://{rest}"),
            None if location.starts_with('/') => format!("{scheme}://{host}{location}"),
            None => location.to_owned(),
        };
        let without = |text: String, port: &u16| text.replace(&format!(":{port}"), "");
        self.ports.iter().fold(location, without)
    }

    pub fn ask(&self, probe: &ImportProbe) -> ResponseProperties {
        let tls = probe.port == self.https;
        let address = match tls {
            true => self.tunnel.address(),
            false => SocketAddr::from((Ipv4Addr::LOCALHOST, probe.port)),
        };
        let mut facts = ResponseProperties::new();
        let response = match exchange(address, &probe.bytes()) {
            Ok(response) => response,
            Err(_) => {
                facts.insert("status".into(), "closed".into());
                return facts;
            }
        };
        facts.insert("status".into(), response.status().to_string());
        if let Some(location) = response.header("Location") {
            let scheme = if tls { "https" } else { "http" };
            facts.insert(
                "location".into(),
                self.absolute(location, scheme, &probe.host),
            );
        }
        let is_error = response.status() >= 300;
        // Of a server's own error responses, only the parts on which a client acts are compared; a script's responses
        // are compared in full.
        let by_script = response.header("X-Script").is_some();
        if let (false, Some(kind)) = (is_error, response.header("Content-Type")) {
            facts.insert("type".into(), essence(kind));
        }
        for name in FIELDS {
            let acted_on = *name == "www-authenticate";
            if response.status() >= 400 && !by_script && !acted_on {
                continue;
            }
            let values: Vec<&str> = response.head.headers.all(name).collect();
            if !values.is_empty() {
                facts.insert(format!("field.{name}"), values.join(", "));
            }
        }
        if !is_error && response.header("Content-Encoding").is_none() {
            facts.insert("body".into(), response.text());
        }
        facts
    }
}

/// Returns a media type without its charset; JavaScript and XML have two names each, of which the same one is returned.
fn essence(kind: &str) -> String {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind {
        "application/javascript" => "text/javascript".to_owned(),
        "application/xml" => "text/xml".to_owned(),
        kind => kind.to_ascii_lowercase(),
    }
}
