//! Which proxies are trusted, as a table: peer, headers, and the resulting address.

use super::*;
use crate::testing::request;

fn proxies() -> TrustedProxies {
    TrustedProxies {
        networks: vec![
            "10.0.0.0/8".parse().unwrap(),
            "2001:db8::/32".parse().unwrap(),
        ],
        ..TrustedProxies::default()
    }
}

fn check(
    proxies: &TrustedProxies,
    peer: &str,
    headers: &[(&str, &str)],
    address: &str,
    https: bool,
) {
    let request = request("GET", "/", headers);
    let client = proxies.client(Some(peer.parse().unwrap()), None, &request);
    let got = client.address.map(|a| a.to_string()).unwrap_or_default();
    assert_eq!(
        (got.as_str(), client.https),
        (address, https),
        "{peer} {headers:?}"
    );
}

#[test]
fn client_is_the_rightmost_untrusted_address() {
    let p = proxies();
    let xff = "X-Forwarded-For";
    check(
        &p,
        "192.0.2.9:1",
        &[(xff, "1.2.3.4"), ("X-Forwarded-Proto", "https")],
        "192.0.2.9",
        false,
    );
    check(&p, "10.0.0.1:1", &[(xff, "1.2.3.4")], "1.2.3.4", false);
    check(
        &p,
        "10.0.0.1:1",
        &[(xff, "6.6.6.6, 1.2.3.4, 10.2.2.2")],
        "1.2.3.4",
        false,
    );
    check(
        &p,
        "10.0.0.1:1",
        &[(xff, "6.6.6.6"), (xff, "1.2.3.4")],
        "1.2.3.4",
        false,
    );
    check(
        &p,
        "10.0.0.1:1",
        &[(xff, "10.3.3.3, 10.2.2.2")],
        "10.3.3.3",
        false,
    );
    check(
        &p,
        "10.0.0.1:1",
        &[(xff, "1.2.3.4, nonsense, 10.2.2.2")],
        "10.2.2.2",
        false,
    );
    check(&p, "10.0.0.1:1", &[(xff, "nonsense")], "10.0.0.1", false);
    check(
        &p,
        "[::ffff:10.0.0.1]:1",
        &[(xff, "[2001:db8:1::1]:8, [2620::5]:77")],
        "2620::5",
        false,
    );
    check(
        &p,
        "10.0.0.1:1",
        &[("X-Forwarded-Proto", "https")],
        "10.0.0.1",
        true,
    );
    check(
        &p,
        "10.0.0.1:1",
        &[("X-Forwarded-Proto", "gopher")],
        "10.0.0.1",
        false,
    );
    check(
        &TrustedProxies::default(),
        "10.0.0.1:1",
        &[(xff, "1.2.3.4")],
        "10.0.0.1",
        false,
    );
}

#[test]
fn proxies_of_a_file_are_trusted_beside_the_networks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("networks");
    std::fs::write(&path, "198.51.100.0/24 # the CDN\n").unwrap();
    let file = Arc::new(NetworkFile::new(&path));
    file.read().unwrap();
    let mut p = proxies();
    p.file = Some(file);
    let header = [("X-Forwarded-For", "1.2.3.4, 198.51.100.7")];
    check(&p, "10.0.0.1:1", &header, "1.2.3.4", false);
    check(&p, "198.51.100.7:1", &header, "1.2.3.4", false);
    check(&p, "192.0.2.1:1", &header, "192.0.2.1", false);
    p.networks.clear();
    assert!(!p.are_none() && !p.trusts(None));
    check(&p, "198.51.100.7:1", &header, "1.2.3.4", false);
}

#[test]
fn forwarded_headers_of_the_configured_family_only_are_read() {
    let mut p = proxies();
    let both = [
        ("X-Forwarded-For", "1.2.3.4"),
        ("Forwarded", "for=6.6.6.6;proto=https"),
    ];
    check(&p, "10.0.0.1:1", &both, "1.2.3.4", false);
    p.style = ForwardedStyle::Forwarded;
    check(&p, "10.0.0.1:1", &both, "6.6.6.6", true);
    let f = "Forwarded";
    check(
        &p,
        "10.0.0.1:1",
        &[(
            f,
            "for=1.1.1.1, for=\"[2620::5]:4711\";proto=https;by=10.0.0.9",
        )],
        "2620::5",
        true,
    );
    check(
        &p,
        "10.0.0.1:1",
        &[(f, "for=1.1.1.1;proto=https, for=unknown")],
        "10.0.0.1",
        false,
    );
    check(
        &p,
        "10.0.0.1:1",
        &[(f, "for=1.1.1.1, for=_hidden, for=10.4.4.4")],
        "10.4.4.4",
        false,
    );
    check(&p, "10.0.0.1:1", &[(f, "for=\"1.1.1.1")], "10.0.0.1", false);
    check(
        &p,
        "10.0.0.1:1",
        &[(f, "For=1.1.1.1 ; Proto=HTTPS")],
        "1.1.1.1",
        true,
    );
}

#[test]
fn forwarded_host_needs_a_switch_of_its_own() {
    let mut p = proxies();
    let r = request("GET", "/", &[("X-Forwarded-Host", "evil.example:444")]);
    let peer = Some("10.0.0.1:1".parse().unwrap());
    let client = p.client(peer, None, &r);
    assert_eq!(client.host, None);
    p.host = true;
    let client = p.client(peer, None, &r);
    assert_eq!(client.host.as_deref(), Some(&b"evil.example:444"[..]));
    let r = request("GET", "/", &[("X-Forwarded-Host", "a/b")]);
    assert_eq!(p.client(peer, None, &r).host, None);
}

#[test]
fn host_splits_into_name_and_port() {
    for (host, name, port) in [
        ("a.example", "a.example", None),
        ("a.example:81", "a.example", Some(81)),
        ("[::1]", "[::1]", None),
        ("[::1]:81", "[::1]", Some(81)),
        ("a:", "a", None),
        ("", "", None),
    ] {
        assert_eq!(
            split_host(host.as_bytes()),
            (name.as_bytes(), port),
            "{host}"
        );
    }
}

#[test]
fn host_of_a_web_page_is_not_this_machine() {
    for host in [
        "127.0.0.1:9180",
        "[::1]:9180",
        "[::1]",
        "localhost",
        "LocalHost:1",
        "",
    ] {
        assert!(is_loopback_or_literal_host(host.as_bytes()), "{host}");
    }
    for host in [
        "evil.example:9180",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "\u{e9}:1",
    ] {
        assert!(!is_loopback_or_literal_host(host.as_bytes()), "{host}");
    }
}
