//! The oracle's probes over HTTPS: over TLS, with HTTP/1.1, HTTP/2 and HTTP/3, PHP's responses are the same as over
//! plain HTTP/1.1.

use std::collections::BTreeMap;

use howdah_tests::oracle::{Probe, ProbedServer, ResponseProperties, compare};
use howdah_tests::pki::Pki;
use howdah_tests::rig::{Howdah, Server, Site};
use howdah_tests::scratch::{Scratch, copy_tree, repository};
use howdah_tests::tls_tunnel::{TlsTunnel, client_config};

use crate::oracle_requests;

/// The protocol over which the probes are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeProtocol {
    Plain,
    Http1,
    Http2,
    Http3,
}

/// Probes that HTTP/2 and HTTP/3 cannot express.
const HTTP1_ONLY_PROBES: [&str; 2] = [
    "server.absolute-form",
    // The URL has an unencoded `<` and `"`, which the library of the client rejects (docs/differences.md).
    "get.unencoded",
];

/// Facts that TLS adds, that depend on timing, or that only HTTP/1.1 has.
const OWN_PROPERTIES: [&str; 8] = [
    "header.alt-svc",
    "header.vary",
    "interim.100",
    "keeps_alive",
    "server.HTTPS",
    "server.SSL_CIPHER",
    "server.SSL_PROTOCOL",
    "server.SSL_TLS_SNI",
];

fn testimony(
    scratch: &Scratch,
    probes: &[Probe],
    over: ProbeProtocol,
) -> BTreeMap<String, ResponseProperties> {
    let mut site = Site::new(scratch.join("site"))
        .children(1)
        .environment("PROBE_SETTING", "from the site");
    let directory = scratch.path().display();
    site.howdah_config = Some(format!(
        "[[site]]\nroot = \"{}\"\n[[site.certificate]]\nfile = \"{directory}/site.pem\"\nkey = \"{directory}/site.key\"\n",
        site.root.display()
    ));
    let listen = ["--listen", "127.0.0.1:0 tls http3"];
    site.howdah_arguments.extend(listen.map(str::to_owned));
    let server = Howdah::start(&site);
    let authority = scratch.join("ca.pem");
    let root = site.root.display().to_string();
    let address = server.tls_address();
    let tunnel = |protocol| {
        TlsTunnel::start(client_config(&authority, protocol), address).expect("a free port")
    };
    let (http1, http2) = (tunnel(b"http/1.1"), tunnel(b"h2"));
    let mut witness = match over {
        ProbeProtocol::Plain => ProbedServer::new(server.address(), &root),
        ProbeProtocol::Http1 => ProbedServer::new(http1.address(), &root).of_port(address.port()),
        ProbeProtocol::Http2 => ProbedServer::new(http2.address(), &root)
            .of_port(address.port())
            .over_http2(),
        ProbeProtocol::Http3 => ProbedServer::new(address, &root).over_http3(&authority),
    };
    let ask = |probe: &Probe| (probe.name.clone(), witness.ask(probe));
    let mut answers: BTreeMap<_, _> = probes.iter().map(ask).collect();
    let told = |name: &str| answers["server.plain"].get(name).map(String::as_str);
    let expected = match over {
        ProbeProtocol::Plain => [None, None, Some("\"HTTP/1.1\"")],
        ProbeProtocol::Http1 => [Some("\"on\""), Some("\"TLSv1.3\""), Some("\"HTTP/1.1\"")],
        ProbeProtocol::Http2 => [Some("\"on\""), Some("\"TLSv1.3\""), Some("\"HTTP/2.0\"")],
        ProbeProtocol::Http3 => [Some("\"on\""), Some("\"TLSv1.3\""), Some("\"HTTP/3.0\"")],
    };
    let names = [
        "server.HTTPS",
        "server.SSL_PROTOCOL",
        "server.SERVER_PROTOCOL",
    ];
    assert_eq!(names.map(told), expected, "{over:?}");
    for facts in answers.values_mut() {
        facts.retain(|name, _| !OWN_PROPERTIES.contains(&name.as_str()));
        // HTTP/2 and HTTP/3 have no reason phrases.
        if let Some(status) = facts.get_mut("status") {
            status.truncate(3);
        }
        for fact in facts.values_mut() {
            *fact = fact
                .replace("HTTP/2.0", "HTTP/1.1")
                .replace("HTTP/3.0", "HTTP/1.1")
                .replace("\"https\"", "\"http\"")
                .replace("https://probe.example", "http://probe.example");
        }
    }
    answers
}

// The test of the same probes over HTTP/2 without TLS runs every day (`http2.rs`).
#[ignore = "nightly"]
#[test]
fn php_answers_over_https_what_it_answers_without() {
    let scratch = Scratch::new("oracle-tls");
    copy_tree(&repository().join("tests/probes"), &scratch.join("site"));
    let pki = Pki::new(scratch.path());
    pki.sign("site", &["127.0.0.1"]);
    let probes = oracle_requests::all();
    let plain = testimony(&scratch, &probes, ProbeProtocol::Plain);
    let mut different = Vec::new();
    for over in [
        ProbeProtocol::Http1,
        ProbeProtocol::Http2,
        ProbeProtocol::Http3,
    ] {
        let tls = testimony(&scratch, &probes, over);
        let sayable = |probe: &&Probe| {
            over == ProbeProtocol::Http1 || !HTTP1_ONLY_PROBES.contains(&probe.name.as_str())
        };
        for probe in probes.iter().filter(sayable) {
            for found in compare(&probe.name, &tls[&probe.name], &plain[&probe.name]) {
                different.push(format!("{over:?} {found:?}"));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
