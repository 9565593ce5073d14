//! The variables that a script finds in `$_SERVER`, as tables of requests and variables.

use std::collections::BTreeMap;

use super::*;
use crate::testing::request;
use howdah_site::client_address::TrustedProxies;

const NAMES: ScriptNames<'static> = ScriptNames {
    request_uri: None,
    script_filename: b"/srv/app/index.php",
    script_name: b"/index.php",
    path_info: b"",
    path_translated: None,
    document_root: b"/srv/app",
    query: None,
    redirect_url: None,
    granted: &[],
    apache: None,
    included_by: None,
};

fn server(
    request: &RequestHead,
    names: &ScriptNames<'_>,
    proxies: &TrustedProxies,
    body: BodyLength,
) -> BTreeMap<String, String> {
    let peer = Some("192.0.2.7:51000".parse().unwrap());
    let local = Some("192.0.2.1:8080".parse().unwrap());
    let client = proxies.client(peer, None, request);
    let site = SiteVariables::default();
    let frame = build(Vec::new(), request, &client, local, names, &site, body).unwrap();
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    let count = frame.variables().count();
    let map: BTreeMap<_, _> = frame.variables().map(|(n, v)| (text(n), text(v))).collect();
    assert_eq!(map.len(), count, "a variable is set twice");
    map
}

#[track_caller]
fn check(map: &BTreeMap<String, String>, expected: &[(&str, &str)], absent: &[&str]) {
    for (name, value) in expected {
        assert_eq!(map.get(*name).map(String::as_str), Some(*value), "{name}");
    }
    for name in absent {
        assert_eq!(map.get(*name), None, "{name}");
    }
}

#[test]
fn frame_of_a_plain_get_has_exactly_these_variables() {
    let r = request(
        "GET",
        "/index.php?a=b%20c",
        &[("Host", "example.org:8080"), ("User-Agent", "x")],
    );
    let map = server(&r, &NAMES, &TrustedProxies::default(), BodyLength::None);
    let got: Vec<_> = map.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(
        got,
        [
            ("DOCUMENT_ROOT", "/srv/app"),
            ("DOCUMENT_URI", "/index.php"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("HTTP_HOST", "example.org:8080"),
            ("HTTP_USER_AGENT", "x"),
            ("PHP_SELF", "/index.php"),
            ("QUERY_STRING", "a=b%20c"),
            ("REDIRECT_STATUS", "200"),
            ("REMOTE_ADDR", "192.0.2.7"),
            ("REMOTE_PORT", "51000"),
            ("REQUEST_METHOD", "GET"),
            ("REQUEST_SCHEME", "http"),
            ("REQUEST_URI", "/index.php?a=b%20c"),
            ("SCRIPT_FILENAME", "/srv/app/index.php"),
            ("SCRIPT_NAME", "/index.php"),
            ("SERVER_ADDR", "192.0.2.1"),
            ("SERVER_NAME", "example.org"),
            ("SERVER_PORT", "8080"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_SOFTWARE", SOFTWARE),
        ]
    );
}

#[test]
fn path_info_and_rewrite_variables_match_apache() {
    let r = request("GET", "/index.php/a%2Fb?x", &[("Host", "h")]);
    let names = ScriptNames {
        request_uri: None,
        path_info: b"/a/b",
        path_translated: Some(b"/srv/app/a/b"),
        query: Some(b"p=1&x"),
        redirect_url: Some(b"/old"),
        ..NAMES
    };
    let map = server(&r, &names, &TrustedProxies::default(), BodyLength::None);
    check(
        &map,
        &[
            ("PATH_INFO", "/a/b"),
            ("PATH_TRANSLATED", "/srv/app/a/b"),
            ("PHP_SELF", "/index.php/a/b"),
            ("DOCUMENT_URI", "/index.php/a/b"),
            ("REQUEST_URI", "/index.php/a%2Fb?x"),
            ("QUERY_STRING", "p=1&x"),
            ("REDIRECT_URL", "/old"),
        ],
        &[],
    );
}

#[test]
fn headers_are_folded_joined_and_dropped_by_rule() {
    let r = request(
        "POST",
        "/",
        &[
            ("Host", "h"),
            ("content-TYPE", "application/json"),
            ("Content-Length", "4"),
            ("Cookie", "a=1"),
            ("Accept", "text/html"),
            ("X-Odd", "1"),
            ("cookie", "b=2"),
            ("ACCEPT", "*/*"),
            ("x-odd", "2"),
            ("Authorization", "Bearer t"),
            ("Proxy", "http://evil"),
            ("X_Forwarded_For", "6.6.6.6"),
            ("X.Forwarded.For", "6.6.6.6"),
            ("Content_Length", "9"),
            ("Transfer-Encoding", "chunked"),
            ("X-Empty", ""),
        ],
    );
    let map = server(&r, &NAMES, &TrustedProxies::default(), BodyLength::Known(4));
    check(
        &map,
        &[
            ("CONTENT_TYPE", "application/json"),
            ("CONTENT_LENGTH", "4"),
            ("HTTP_COOKIE", "a=1; b=2"),
            ("HTTP_ACCEPT", "text/html, */*"),
            ("HTTP_X_ODD", "1, 2"),
            ("HTTP_AUTHORIZATION", "Bearer t"),
            ("HTTP_X_EMPTY", ""),
        ],
        &[
            "HTTP_PROXY",
            "HTTP_X_FORWARDED_FOR",
            "HTTP_CONTENT_TYPE",
            "HTTP_CONTENT_LENGTH",
            "HTTP_TRANSFER_ENCODING",
            "REMOTE_USER",
            "PATH_INFO",
            "HTTPS",
        ],
    );
}

#[test]
fn content_length_is_absent_if_unknown_and_zero_if_empty() {
    let r = request(
        "POST",
        "/",
        &[("Host", "h"), ("Content-Type", "text/plain")],
    );
    let proxies = TrustedProxies::default();
    check(
        &server(&r, &NAMES, &proxies, BodyLength::Unknown),
        &[("CONTENT_TYPE", "text/plain")],
        &["CONTENT_LENGTH"],
    );
    check(
        &server(&r, &NAMES, &proxies, BodyLength::None),
        &[("CONTENT_TYPE", "text/plain")],
        &["CONTENT_LENGTH"],
    );
    check(
        &server(&r, &NAMES, &proxies, BodyLength::Known(0)),
        &[("CONTENT_LENGTH", "0")],
        &[],
    );
}

#[test]
fn trusted_proxy_yields_the_clients_variables() {
    let proxies = TrustedProxies {
        networks: vec!["192.0.2.0/24".parse().unwrap()],
        host: true,
        ..TrustedProxies::default()
    };
    let fields = [
        ("Host", "backend:8080"),
        ("X-Forwarded-For", "198.51.100.9"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "www.example.org"),
    ];
    let r = request("GET", "/", &fields);
    check(
        &server(&r, &NAMES, &proxies, BodyLength::None),
        &[
            ("REMOTE_ADDR", "198.51.100.9"),
            ("HTTPS", "on"),
            ("REQUEST_SCHEME", "https"),
            ("SERVER_NAME", "www.example.org"),
            ("SERVER_PORT", "443"),
            ("HTTP_HOST", "www.example.org"),
            ("HTTP_X_FORWARDED_FOR", "198.51.100.9"),
        ],
        &["REMOTE_PORT"],
    );
    // The port is that of the host, as the proxy forwards it.
    let named = [
        ("Host", "backend:8080"),
        ("X-Forwarded-Host", "www.example.org:444"),
        ("X-Forwarded-Port", "555"),
    ];
    let named = request("GET", "/", &named);
    check(
        &server(&named, &NAMES, &proxies, BodyLength::None),
        &[("SERVER_PORT", "444"), ("HTTP_HOST", "www.example.org:444")],
        &[],
    );
    // From any other client they are plain headers.
    check(
        &server(&r, &NAMES, &TrustedProxies::default(), BodyLength::None),
        &[
            ("REMOTE_ADDR", "192.0.2.7"),
            ("SERVER_NAME", "backend"),
            ("SERVER_PORT", "8080"),
            ("HTTP_HOST", "backend:8080"),
            ("HTTP_X_FORWARDED_PROTO", "https"),
        ],
        &["HTTPS"],
    );
}

#[test]
fn http_host_comes_from_the_absolute_form() {
    let r = request(
        "GET",
        "http://real.example/a?b",
        &[("Host", "other.example")],
    );
    check(
        &server(&r, &NAMES, &TrustedProxies::default(), BodyLength::None),
        &[
            ("HTTP_HOST", "real.example"),
            ("SERVER_NAME", "real.example"),
            ("REQUEST_URI", "http://real.example/a?b"),
            ("QUERY_STRING", "b"),
        ],
        &[],
    );
}

#[test]
fn site_settings_are_in_the_frame() {
    let r = request("GET", "/", &[("Host", "h")]);
    let client = TrustedProxies::default().client(None, None, &r);
    let site = SiteVariables {
        number: 4,
        hosts: vec![HostPattern::parse("example.org").unwrap()],
        settings: vec![
            (IniKind::Value, b"memory_limit".to_vec(), b"64M".to_vec()),
            (IniKind::Environment, b"APP_ENV".to_vec(), b"prod".to_vec()),
        ],
        effects: true,
        esi: false,
        vary_mobile: false,
    };
    let frame = build(
        Vec::new(),
        &r,
        &client,
        None,
        &NAMES,
        &site,
        BodyLength::None,
    )
    .unwrap();
    let settings: Vec<_> = frame.settings().collect();
    assert_eq!(
        settings,
        [
            (IniKind::Value as u32, &b"memory_limit"[..], &b"64M"[..]),
            (IniKind::Environment as u32, b"APP_ENV", b"prod"),
        ]
    );
    assert_eq!(frame.variable("REMOTE_ADDR"), Some(&b"unix:"[..]));
    assert_eq!(frame.variable("SERVER_PORT"), Some(&b"80"[..]));
}

#[test]
fn known_header_variable_is_found_in_any_case() {
    for var in Var::ALL {
        let Some(header) = var.name().strip_prefix("HTTP_") else {
            continue;
        };
        let header = header.replace('_', "-");
        assert_eq!(
            known_header_variable(header.as_bytes()),
            Some(*var),
            "{header}"
        );
        assert_eq!(
            known_header_variable(header.to_lowercase().as_bytes()),
            Some(*var),
            "{header}"
        );
    }
    assert_eq!(known_header_variable(b"hos_"), None);
    assert_eq!(known_header_variable(b"x-wp_nonce"), None);
    assert_eq!(known_header_variable(b""), None);
}

#[test]
fn frame_too_large_is_an_error() {
    let long = "x".repeat(howdah_proto::request::MAX_FRAME_BYTES);
    let r = request("GET", "/", &[("Host", "h"), ("X-Long", &long)]);
    let client = TrustedProxies::default().client(None, None, &r);
    let site = SiteVariables::default();
    let built = build(
        Vec::new(),
        &r,
        &client,
        None,
        &NAMES,
        &site,
        BodyLength::None,
    );
    assert_eq!(built, Err(RequestFrameError::TooLarge));
}

#[test]
fn address_text_matches_the_standard_library() {
    let mut text = AddressText { bytes: [0; 48] };
    for address in [
        "0.0.0.0",
        "127.0.0.1",
        "255.255.255.255",
        "::1",
        "2001:db8::ff00:42:8329",
    ] {
        assert_eq!(text.of(address.parse().unwrap()), address.as_bytes());
    }
}

#[test]
fn litespeed_cache_headers_of_clients_are_dropped() {
    let fields = [
        ("Host", "h"),
        ("X-LSCACHE", "on"),
        ("x-lscache-vary-value", "admin"),
        ("X-LITEMAGE", "1"),
        ("X-LSCACHE-X", "other"),
    ];
    let r = request("GET", "/", &fields);
    check(
        &server(&r, &NAMES, &TrustedProxies::default(), BodyLength::None),
        &[("HTTP_X_LSCACHE_X", "other")],
        &[
            "HTTP_X_LSCACHE",
            "HTTP_X_LSCACHE_VARY_VALUE",
            "HTTP_X_LITEMAGE",
        ],
    );
}

#[test]
fn server_name_is_one_of_the_sites_names() {
    let hosts = |names: &[&str]| -> Vec<HostPattern> {
        let parse = |name: &&str| HostPattern::parse(name).unwrap();
        names.iter().map(parse).collect()
    };
    for (names, asked, expected) in [
        (
            &["a.example", "b.example"][..],
            "b.example",
            Some("b.example"),
        ),
        (&["a.example"], "A.Example.", Some("A.Example.")),
        (&["a.example"], "evil.example", Some("a.example")),
        (&["a.example"], "", Some("a.example")),
        (&["*.example", "a.test"], "x.y.example", Some("x.y.example")),
        (&["*.example", "a.test"], ".example", Some("a.test")),
        (&["*.example"], "evil.test", None),
        (&[], "any.test", None),
    ] {
        let hosts = hosts(names);
        let found = site_name_for(&hosts, asked.as_bytes());
        assert_eq!(found, expected.map(str::as_bytes), "{names:?} {asked}");
    }
}

#[test]
fn granted_variable_overrides_the_sites_environment() {
    let r = request("GET", "/", &[("Host", "h")]);
    let client = TrustedProxies::default().client(None, None, &r);
    let environment = |name: &str| {
        let value = b"of the site".to_vec();
        (IniKind::Environment, name.as_bytes().to_vec(), value)
    };
    let site = SiteVariables {
        settings: vec![environment("TENANT"), environment("STAGE")],
        ..SiteVariables::default()
    };
    let granted = [
        (b"REMOTE_USER".to_vec(), b"ann".to_vec()),
        (b"TENANT".to_vec(), b"t1".to_vec()),
    ];
    let names = ScriptNames {
        request_uri: None,
        granted: &granted,
        ..NAMES
    };
    let frame = build(
        Vec::new(),
        &r,
        &client,
        None,
        &names,
        &site,
        BodyLength::None,
    )
    .unwrap();
    assert_eq!(frame.variable("REMOTE_USER"), Some(&b"ann"[..]));
    assert_eq!(frame.variable("TENANT"), Some(&b"t1"[..]));
    let environment: Vec<_> = frame.settings().map(|(_, name, _)| name.to_vec()).collect();
    assert_eq!(environment, [b"STAGE"]);
}

#[test]
fn site_with_esi_announces_it_in_place_of_the_client() {
    let fields = [
        ("Host", "h"),
        ("Surrogate-Capability", "evil=\"ESI/1.0\""),
        ("surrogate-capability", "worse=\"ESI/1.0\""),
        ("Accept-Encoding", "gzip"),
        ("X-A", "1"),
    ];
    let r = request("GET", "/", &fields);
    let client = TrustedProxies::default().client(None, None, &r);
    let variables = |esi: bool| {
        let site = SiteVariables {
            esi,
            ..SiteVariables::default()
        };
        let none = BodyLength::None;
        let frame = build(Vec::new(), &r, &client, None, &NAMES, &site, none).unwrap();
        let value = |name: &str| frame.variable(name).map(<[u8]>::to_vec);
        let count = frame
            .variables()
            .filter(|(name, _)| *name == b"HTTP_SURROGATE_CAPABILITY")
            .count();
        assert_eq!((count, value("HTTP_X_A")), (1, Some(b"1".to_vec())));
        (
            value("HTTP_SURROGATE_CAPABILITY"),
            value("HTTP_ACCEPT_ENCODING"),
        )
    };
    assert_eq!(
        variables(true),
        (Some(b"howdah=\"ESI/1.0\"".to_vec()), None)
    );
    let (capability, coding) = variables(false);
    assert_eq!(coding, Some(b"gzip".to_vec()));
    assert_eq!(
        capability,
        Some(b"evil=\"ESI/1.0\", worse=\"ESI/1.0\"".to_vec())
    );
}
