//! An Apache server behind nginx, as panels for web hosting set it up: nginx sends static files, and passes all other
//! requests to Apache over TLS, without verifying its certificate.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use howdah_takeover::plan::Severity;
use howdah_test_support::process::run_to_exit;
use howdah_test_support::scratch::run;

use crate::machine::{Machine, found, free_address, is_root, site};

/// Writes a certificate that no authority has signed. Returns the paths of the certificate and its key.
pub fn certificate(machine: &Machine) -> [String; 2] {
    let paths = ["cert.pem", "key.pem"].map(|name| machine.path(name));
    run(Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "90"])
        .args(["-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args([
            "-subj",
            "/CN=a.test",
            "-addext",
            "subjectAltName=DNS:a.test",
        ])
        .args(["-out", &paths[0], "-keyout", &paths[1]]));
    paths
}

/// Requests a path without TLS. Returns the response.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

/// Returns the old servers to their work when the test ends, however it ends.
struct RollbackAtEnd<'m>(&'m Machine);

impl RollbackAtEnd<'_> {
    fn run(&self, words: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_howdah-takeover"));
        command.args(words).arg("--dir").arg(self.0.takeover());
        let (code, stdout, stderr) = run_to_exit(&mut command);
        (code, stdout + &stderr)
    }
}

impl Drop for RollbackAtEnd<'_> {
    fn drop(&mut self) {
        self.run(&["rollback"]);
    }
}

#[test]
fn sites_with_apache_behind_nginx_are_planned_tried_switched_and_returned() {
    if !is_root() {
        eprintln!("skipped: a switch needs root's rights");
        return;
    }
    let mut machine = Machine::new("plan-apache-behind");
    for (name, text) in [
        (
            "index.html",
            "<link rel=\"stylesheet\" href=\"/style.css\">front page",
        ),
        ("style.css", "body { color: red }"),
        ("about", "about us"),
        ("secret.inc", "secret"),
        (
            ".htaccess",
            "<Files \"*.inc\">\nRequire all denied\n</Files>\n",
        ),
    ] {
        machine.scratch.write(format!("site/{name}"), text);
    }
    let [cert, key] = certificate(&machine);
    let (plain, secure, behind) = (free_address(), free_address(), free_address());
    let root = machine.path("site");
    let apache = machine.apache(
        "apache",
        behind,
        &format!(
            "LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so\n<VirtualHost *>\nServerName a.test\nDocumentRoot {root}\n\
             <Directory />\nAllowOverride None\n</Directory>\nSSLEngine on\nSSLCertificateFile {cert}\nSSLCertificateKeyFile {key}\nDirectoryIndex index.html\n\
             <Directory {root}>\nAllowOverride All\n</Directory>\n</VirtualHost>\n"
        ),
    );
    let proxy = format!("proxy_pass https://{behind}; proxy_set_header Host $http_host;");
    let nginx = machine.nginx(
        "nginx",
        plain,
        &format!(
            "include /etc/nginx/mime.types;\n\
             server {{ listen {plain}; listen {secure} ssl; server_name a.test; ssl_certificate {cert}; ssl_certificate_key {key};\n\
             ssl_protocols TLSv1.2 TLSv1.3;\n\
             location / {{ {proxy}\nlocation ~* \\.(css|js)$ {{ root {root}; try_files $uri @behind; expires max; }} }}\n\
             location @behind {{ {proxy} }}\n}}\n"
        ),
    );
    let plan = machine.plan(&[nginx, apache]);
    found(&plan, "BackendStays", &behind.to_string());
    let blocks = plan
        .findings
        .iter()
        .find(|found| found.severity == Severity::Blocks);
    assert_eq!(blocks, None);
    assert_eq!(site(&plan, "a.test").root, machine.scratch.join("site"));

    let takeover = RollbackAtEnd(&machine);
    let (code, text) = takeover.run(&["try"]);
    assert!(code == 0 && text.contains("1 equal, 0 differ"), "{text}");
    let (code, text) = takeover.run(&["switch", "--watch", "1s"]);
    assert_eq!(code, 0, "{text}");
    for (path, status, body) in [
        ("/", 200, "front page"),
        ("/style.css", 200, "color: red"),
        ("/about", 200, "about us"),
        ("/secret.inc", 403, "Forbidden"),
    ] {
        let response = get(plain, path);
        let is_expected = response.starts_with(&format!("HTTP/1.1 {status} "))
            && response.contains("Server: Howdah")
            && response.contains(body);
        assert!(is_expected, "{path}: {response}");
    }
    let (code, text) = takeover.run(&["rollback"]);
    assert_eq!(code, 0, "{text}");
    assert!(get(plain, "/about").contains("Server: nginx"));
}
