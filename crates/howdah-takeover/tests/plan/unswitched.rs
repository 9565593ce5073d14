//! Addresses of an old server that the switch does not take over.

use std::fs;
use std::net::UdpSocket;

use howdah_takeover::plan::Severity;

use crate::behind::certificate;
use crate::machine::{Machine, found, free_address, has, site};

#[test]
fn http3_and_unix_sockets_stay_with_the_old_server() {
    let mut machine = Machine::new("plan-unswitched");
    machine.scratch.write("root/index.html", "x");
    let [cert, key] = certificate(&machine);
    let (address, secure) = (free_address(), free_address());
    let [both, only] = ["both.sock", "only.sock"].map(|name| machine.path(name));
    let root = machine.path("root");
    let http = format!(
        "server {{ listen {address}; listen {secure} ssl; listen unix:{both}; server_name a.test; root {root};\n\
         ssl_certificate {cert}; ssl_certificate_key {key}; }}\n"
    );
    let pid = machine.nginx("nginx", address, &http);
    // A version of nginx with HTTP/3 has this socket.
    let _quic = UdpSocket::bind(secure).unwrap();
    let file = machine.scratch.join("nginx/nginx.conf");
    let text = fs::read_to_string(&file).unwrap();
    let with_quic = text.replace("listen unix", &format!("listen {secure} quic; listen unix"));
    fs::write(&file, with_quic).unwrap();
    let plan = machine.plan(&[pid]);
    let http3 = found(&plan, "Http3NotSwitched", &secure.to_string());
    assert_eq!(http3.severity, Severity::Risk);
    let socket = found(&plan, "UnixSocketNotSwitched", &both);
    assert_eq!(
        (socket.severity, socket.site.as_deref()),
        (Severity::Risk, Some("a.test"))
    );
    let configuration = fs::read_to_string(machine.takeover().join("howdah.toml")).unwrap();
    let configuration = configuration + &machine.site_file(site(&plan, "a.test"));
    assert!(
        !configuration.contains("http3") && !configuration.contains("unix:"),
        "{configuration}"
    );
    assert!(
        configuration.contains(&format!("{secure} tls")),
        "{configuration}"
    );

    // A site that has only a Unix socket would not be served after the switch.
    let mut machine = Machine::new("plan-unix-only");
    machine.scratch.write("root/index.html", "x");
    let address = free_address();
    let http = format!(
        "server {{ listen {address}; server_name b.test; root {root}; }}\n\
         server {{ listen unix:{only}; server_name c.test; root {root}; }}\n"
    );
    let pid = machine.nginx("nginx", address, &http);
    let plan = machine.plan(&[pid]);
    let blocks = found(&plan, "UnixSocketNotSwitched", "c.test");
    assert_eq!(blocks.severity, Severity::Blocks);
    assert!(!has(&plan, "Http3NotSwitched"));
}
