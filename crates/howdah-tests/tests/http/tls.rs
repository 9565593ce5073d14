//! HTTPS with certificates in files: which certificate a client receives, what PHP learns about the connection, what
//! happens when files change or cannot be used, and what survives a reload or the death of the front.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use howdah_tests::fixture::{Builder, Fixture, HELLO, signal};
use howdah_tests::http;
use howdah_tests::load::{Load, LoadEnd};
use howdah_tests::pki::Pki;
use howdah_tests::rig::howdah_check;
use rustix::process::Signal;

const SERVER: &str = "<?php header('Content-Type: application/json'); echo json_encode($_SERVER);";

/// Builds a site `example.org` with a certificate, and the certificate's authority.
fn site(name: &str) -> (Builder, Pki) {
    let builder = Fixture::named(name).script("server.php", SERVER).tls();
    let pki = Pki::new(builder.scratch().path());
    pki.sign("site", &["example.org", "www.example.org"]);
    let lines = "hosts = [\"example.org\", \"www.example.org\"]";
    (builder.site(lines), pki)
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn php_and_logs_learn_what_the_handshake_agreed_on() {
    let (builder, pki) = site("tls-php");
    let fixture = builder
        .site(&Pki::site("site"))
        .config("[log]\naccess_format = \"json\"\n[status]\npath = \"/status\"")
        .start();
    let address = fixture.tls_address();
    // Each thread writes its own log lines, so the test waits for one line before the next request.
    let logged = |count| {
        fixture.wait("the access log to contain the request", |f| {
            f.access_log().len() == count
        })
    };
    for (at, (more, protocol, cipher)) in [
        (&["--tlsv1.3"][..], "TLSv1.3", "TLS_AES_128_GCM_SHA256"),
        (
            &["--tls-max", "1.2"],
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let server = json(&pki.get(address, "example.org", "/server.php", more));
        assert_eq!(server["HTTPS"], "on");
        assert_eq!(server["REQUEST_SCHEME"], "https");
        assert_eq!(server["SERVER_NAME"], "example.org");
        assert_eq!(server["SERVER_PORT"], address.port().to_string());
        assert_eq!(server["SSL_PROTOCOL"], protocol);
        assert_eq!(server["SSL_CIPHER"], cipher);
        assert_eq!(server["SSL_CLIENT_VERIFY"], serde_json::Value::Null);
        logged(at + 1);
    }
    let plain = json(&fixture.get("/server.php").text());
    assert_eq!(
        (&plain["HTTPS"], &plain["SSL_PROTOCOL"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    logged(3);
    let lines: Vec<_> = fixture.access_log().iter().map(|line| json(line)).collect();
    assert_eq!(lines[0]["tls_protocol"], "TLSv1.3");
    assert_eq!(lines[0]["tls_resumed"], false);
    assert_eq!(lines[1]["tls_protocol"], "TLSv1.2");
    assert_eq!(lines[2]["tls_protocol"], serde_json::Value::Null);
    let status = fixture.status();
    assert_eq!(
        status["handshakes"],
        serde_json::json!([["TLSv1.2", false, 1], ["TLSv1.3", false, 1]])
    );
    assert_eq!(
        status["certificates"][0]["names"],
        serde_json::json!(["example.org", "www.example.org"])
    );
    assert!(status["certificates"][0]["seconds_left"].as_i64().unwrap() > 0);
    let metrics = fixture.get("/status?openmetrics").text();
    for line in [
        "howdah_tls_handshakes_total{protocol=\"TLSv1.3\",resumed=\"no\"} 1",
        "howdah_tls_certificate_remaining_seconds{name=\"example.org\",certificate=\"0\"} ",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[test]
fn client_gets_the_certificate_of_the_name_it_asks_for() {
    let (builder, pki) = site("tls-names");
    pki.sign("wildcard", &["*.other.example"]);
    pki.sign_with("rsa", &["example.org"], &rcgen::PKCS_RSA_SHA256, |_| {});
    let other = "[[site]]\nname = \"other\"\nroot = \"ROOT\"\nhosts = [\"*.other.example\"]\n";
    let sites = [
        &Pki::site("rsa"),
        "\n",
        &Pki::site("site"),
        "\n",
        other,
        &Pki::site("wildcard"),
    ];
    let fixture = builder.site(&sites.concat()).start();
    let address = fixture.tls_address();
    for (host, more, subject) in [
        ("example.org", &[][..], "site"),
        ("www.example.org", &[], "site"),
        ("example.org", &["-sigalgs", "RSA-PSS+SHA256"], "rsa"),
        (
            "example.org",
            &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"],
            "rsa",
        ),
        ("a.other.example", &[], "wildcard"),
        // No certificate matches this name, so the first one is used, as under nginx and Apache.
        ("unknown.example", &[], "site"),
    ] {
        let said = pki.s_client(address, host, more);
        assert!(
            said.contains(&format!("subject=CN={subject}\n")),
            "{host}: {said}"
        );
    }
    let asked = pki.get(address, "a.other.example", "/hello.php", &[]);
    assert_eq!(asked, HELLO);
    // curl trusts none of the certificates for this name.
    assert!(
        !pki.curl(address, "unknown.example", "/", &[])
            .status
            .success()
    );
}

#[test]
fn host_that_the_certificate_is_not_for_is_misdirected() {
    let (builder, pki) = site("tls-421");
    let fixture = builder.site(&Pki::site("site")).start();
    let address = fixture.tls_address();
    let ask = |host: &str| {
        let field = format!("Host: {host}");
        pki.get(address, "example.org", "/hello.php", &["-i", "-H", &field])
    };
    assert!(ask("www.example.org:444").starts_with("HTTP/2 200"));
    assert!(ask("EXAMPLE.ORG.").starts_with("HTTP/2 200"));
    let refused = ask("other.example");
    assert!(refused.starts_with("HTTP/2 421"), "{refused}");
    assert!(
        refused.contains("howdah-error: MisdirectedRequest"),
        "{refused}"
    );
    // A client that connects to an address sends no server name, so there is nothing to compare the host with.
    let port = address.port();
    let by_address = Command::new("curl")
        .args([
            "-sSk",
            "-H",
            "Host: example.org",
            &format!("https://127.0.0.1:{port}/hello.php"),
        ])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&by_address.stdout), HELLO);
}

#[test]
fn plain_http_is_redirected_and_https_remembered_where_the_site_says_so() {
    let (builder, pki) = site("tls-redirect");
    let lines = "https_redirect = true\nhsts = \"max-age=300; includeSubDomains\"";
    let fixture = builder
        .script(
            "own.php",
            "<?php header('Strict-Transport-Security: max-age=0');",
        )
        .file("a.txt", "text")
        .site(lines)
        .site(&Pki::site("site"))
        .start();
    let address = fixture.tls_address();
    let port = address.port();
    let plain = |request: &str| http::exchange(fixture.address(), request.as_bytes()).unwrap();
    let answer =
        plain("GET /a%20b/?x=1&y HTTP/1.1\r\nHost: example.org:80\r\nConnection: close\r\n\r\n");
    assert_eq!(answer.status(), 301);
    let to = format!("https://example.org:{port}/a%20b/?x=1&y");
    assert_eq!(answer.header("Location"), Some(&*to));
    assert_eq!(answer.header("Strict-Transport-Security"), None);
    let posted = plain(
        "POST / HTTP/1.1\r\nHost: www.example.org\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
    );
    assert_eq!(posted.status(), 308);
    let without_host = plain("GET /a HTTP/1.0\r\n\r\n");
    let to = without_host.header("Location").unwrap_or_default();
    let host = to
        .strip_prefix("https://")
        .and_then(|to| to.strip_suffix(&format!(":{port}/a")));
    assert!(host.is_some_and(|host| !host.is_empty()), "{to}");
    let about_the_server =
        plain("OPTIONS * HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n");
    assert_eq!(about_the_server.status(), 204);
    const FIELD: &str = "strict-transport-security: max-age=300; includesubdomains\r\n";
    for (path, expected) in [
        ("/hello.php", true),
        ("/a.txt", true),
        ("/nothing", true),
        ("/own.php", false),
    ] {
        let answer = pki
            .get(address, "example.org", path, &["-i"])
            .to_lowercase();
        assert_eq!(answer.contains(FIELD), expected, "{path}: {answer}");
    }
}

#[test]
fn clients_with_certificates_are_known_to_php() {
    let (builder, pki) = site("tls-clients");
    pki.sign_with("jo", &[], &rcgen::PKCS_ECDSA_P256_SHA256, |params| {
        params
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, "Riders");
    });
    let stranger = Pki::new(&builder.scratch().writable_dir("stranger"));
    stranger.sign("evil", &[]);
    let fixture = builder
        .site(&Pki::site("site"))
        .config("[tls]\nclient_ca = \"SCRATCH/ca.pem\"\nverify_client = \"optional\"")
        .start();
    let address = fixture.tls_address();
    let path = |name: &str| fixture.path(name).display().to_string();
    let (certificate, key) = (path("jo.pem"), path("jo.key"));
    let jo: &[&str] = &["--cert", &certificate, "--key", &key];
    let server = json(&pki.get(address, "example.org", "/server.php", jo));
    assert_eq!(server["SSL_CLIENT_VERIFY"], "SUCCESS");
    assert_eq!(server["SSL_CLIENT_S_DN"], "O=Riders,CN=jo");
    assert_eq!(server["SSL_CLIENT_S_DN_CN"], "jo");
    assert_eq!(server["SSL_CLIENT_I_DN"], "CN=Authority of a test");
    let nobody = json(&pki.get(
        address,
        "example.org",
        "/server.php",
        &["-H", "SSL-CLIENT-VERIFY: SUCCESS"],
    ));
    assert_eq!(nobody["SSL_CLIENT_VERIFY"], "NONE");
    let (evil, its_key) = (path("stranger/evil.pem"), path("stranger/evil.key"));
    let refused = pki.curl(
        address,
        "example.org",
        "/server.php",
        &["--cert", &evil, "--key", &its_key],
    );
    assert!(!refused.status.success(), "{refused:?}");
    fixture.wait("the failure to be counted", |f| {
        f.status()["failures"]
            .to_string()
            .contains("HandshakeFailed")
    });
    // A resumed session keeps the certificate of its client. After a change of the authorities for client certificates,
    // no earlier session can be resumed.
    let said = pki.s_client(
        address,
        "example.org",
        &["-cert", &certificate, "-key", &key, "-sess_out", "session"],
    );
    assert!(said.contains("200 OK"), "{said}");
    let resumed = pki.s_client(address, "example.org", &["-sess_in", "session"]);
    assert!(resumed.contains("Reused, TLSv1.3"), "{resumed}");
    std::fs::copy(
        fixture.path("stranger/ca.pem"),
        fixture.path("ca-of-others.pem"),
    )
    .unwrap();
    let config = fixture.howdah.directory().join("howdah.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace(
        "/ca.pem\"\nverify_client = \"optional\"",
        "/ca-of-others.pem\"",
    );
    std::fs::write(&config, text).unwrap();
    fixture.reload();
    let again = pki.s_client(address, "example.org", &["-sess_in", "session"]);
    assert!(
        !again.contains("Reused") && !again.contains("200 OK"),
        "{again}"
    );
    assert!(
        !pki.curl(address, "example.org", "/hello.php", &[])
            .status
            .success()
    );
    assert!(
        !pki.curl(address, "example.org", "/hello.php", jo)
            .status
            .success()
    );
    let others: &[&str] = &["--cert", &evil, "--key", &its_key];
    assert_eq!(pki.get(address, "example.org", "/hello.php", others), HELLO);
}

#[test]
fn sessions_are_resumed_after_a_reload_and_after_the_fronts_death() {
    let (builder, pki) = site("tls-tickets");
    let fixture = builder.site(&Pki::site("site")).start();
    let address = fixture.tls_address();
    for (version, name) in [("-tls1_3", "TLSv1.3"), ("-tls1_2", "TLSv1.2")] {
        let first = pki.s_client(address, "example.org", &[version, "-sess_out", "session"]);
        assert!(first.contains(&format!("New, {name}")), "{first}");
        let reused = |when: &str| {
            let said = pki.s_client(address, "example.org", &[version, "-sess_in", "session"]);
            assert!(
                said.contains(&format!("Reused, {name}")) && said.contains("200 OK"),
                "{when}: {said}"
            );
        };
        reused("at once");
        fixture.reload();
        reused("after a reload");
        let front = fixture.front();
        signal(front, Signal::KILL);
        fixture.wait("another front to serve", |f| {
            f.try_front().is_some_and(|new| new != front) && f.control(&["status"]).status.success()
        });
        reused("after the front's death");
    }
}

#[test]
fn file_that_is_renewed_is_used_and_one_that_is_broken_is_not() {
    let (builder, pki) = site("tls-renewed");
    let fixture = builder.site(&Pki::site("site")).start();
    let address = fixture.tls_address();
    let serves = |subject: &str| {
        let said = pki.s_client(address, "example.org", &[]);
        said.contains(&format!("subject=CN={subject}\n")) && said.contains(HELLO.trim())
    };
    assert!(serves("site"));
    let replace = |certificate: &str, key: &str| {
        std::fs::copy(fixture.path(key), fixture.path("site.key")).unwrap();
        std::fs::copy(fixture.path(certificate), fixture.path("site.pem")).unwrap();
    };
    // The server notices the change by itself within ten seconds.
    pki.sign("renewed", &["example.org"]);
    replace("renewed.pem", "renewed.key");
    fixture.wait("the new certificate to be used", |_| serves("renewed"));
    // The key belongs to another certificate. The error is logged by name, and nothing changes, not even for a new
    // front.
    pki.sign("mismatched", &["example.org"]);
    replace("mismatched.pem", "renewed.key");
    fixture.wait_for_log(&[
        "CertificateKeyMismatch",
        "site.key",
        "the previous certificate remains in use",
    ]);
    assert!(serves("renewed"));
    let front = fixture.front();
    signal(front, Signal::KILL);
    fixture.wait("another front to serve", |f| {
        f.try_front().is_some_and(|new| new != front) && f.control(&["status"]).status.success()
    });
    assert!(serves("renewed"));
    let refused = fixture.control(&["reload"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("CertificateKeyMismatch"),
        "{said}"
    );
    assert!(serves("renewed"));
    replace("mismatched.pem", "mismatched.key");
    fixture.reload();
    assert!(serves("mismatched"));
}

#[test]
fn reloads_under_https_load_drop_no_request() {
    let (builder, pki) = site("tls-reloads");
    let fixture = builder.site(&Pki::site("site")).start();
    let address = fixture.tls_address();
    let plain = Load::new(fixture.address(), "/hello.php", HELLO)
        .clients(2)
        .start(LoadEnd::OnFinish);
    for round in 0..5 {
        let name = format!("round{round}");
        pki.sign(&name, &["example.org"]);
        for end in ["key", "pem"] {
            std::fs::copy(
                fixture.path(&format!("{name}.{end}")),
                fixture.path(&format!("site.{end}")),
            )
            .unwrap();
        }
        let asking: Vec<_> = (0..4)
            .map(|_| {
                let urls =
                    (0..20).map(|_| format!("https://example.org:{}/hello.php", address.port()));
                Command::new("curl")
                    .args(["-sS", "--max-time", "60", "--cacert"])
                    .arg(fixture.path("ca.pem"))
                    .args([
                        "--resolve",
                        &format!("example.org:{}:127.0.0.1", address.port()),
                    ])
                    .args(urls)
                    .stdout(std::process::Stdio::piped())
                    .stderr(std::process::Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        fixture.reload();
        for client in asking {
            let output = client.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), HELLO.repeat(20));
        }
    }
    plain.finish().only(&["200"]);
}

#[test]
fn silent_and_garbled_handshakes_end_and_cost_the_others_nothing() {
    let (builder, pki) = site("tls-silent");
    let fixture = builder
        .site(&Pki::site("site"))
        .config("[timeouts]\nheader = \"1s\"")
        .start();
    let address = fixture.tls_address();
    let half_open: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for stream in half_open.iter().take(100) {
        // This is the beginning of a record that is never completed.
        (&*stream).write_all(&[22, 3, 1, 2, 0, 1, 0]).unwrap();
    }
    for stream in half_open.iter().skip(100).take(50) {
        (&*stream).write_all(&[b'\xff'; 64]).unwrap();
    }
    assert_eq!(pki.get(address, "example.org", "/hello.php", &[]), HELLO);
    // The response to a request without TLS says what is wrong.
    let mut plain = TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut plain, b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n").unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("Howdah-Error: PlainHttp"),
        "{answer}"
    );
    for mut stream in half_open {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut rest = Vec::new();
        // The connection is closed or reset: the server does not stay silent.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 100, "{rest:?}");
    }
    let failures = fixture.status()["failures"].to_string();
    for name in ["HandshakeTimeout", "HandshakeFailed", "PlainHttp"] {
        assert!(failures.contains(name), "{failures}");
    }
    fixture.wait("all connections to be closed", |f| {
        f.status()["connections"]["open"] == 0
    });
}

#[test]
fn front_may_be_killed_in_the_middle_of_handshakes() {
    let (builder, pki) = site("tls-killed");
    let fixture = builder.site(&Pki::site("site")).start();
    let address = fixture.tls_address();
    let begun: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&[22, 3, 1, 2, 0, 1, 0]).unwrap();
            stream
        })
        .collect();
    fixture.wait("all connections to be open", |f| {
        f.status()["connections"]["open"].as_u64() >= Some(20)
    });
    let front = fixture.front();
    signal(front, Signal::KILL);
    for mut stream in begun {
        // The connection is closed or reset immediately, by the kernel.
        assert!(!matches!(stream.read(&mut [0; 1]), Ok(1..)));
    }
    // No connection is refused: a client that connects before the next front has started waits for it.
    assert_eq!(pki.get(address, "example.org", "/hello.php", &[]), HELLO);
    fixture.wait_for_log(&["FrontDied"]);
    assert_ne!(fixture.front(), front);
}

#[test]
fn certificates_that_cannot_be_used_are_named_before_anything_is_served() {
    let builder = Fixture::named("tls-mistakes");
    let scratch = builder.scratch();
    let pki = Pki::new(scratch.path());
    pki.sign("good", &["example.org"]);
    pki.sign("other", &["other.example"]);
    pki.sign_with(
        "ended",
        &["example.org"],
        &rcgen::PKCS_ECDSA_P256_SHA256,
        |params| {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        },
    );
    scratch.write("empty.pem", "");
    scratch.write(
        "broken.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    std::fs::copy(scratch.join("good.key"), scratch.join("open.key")).unwrap();
    for (name, mode) in [("open.key", 0o644), ("empty.pem", 0o600)] {
        let mode = Permissions::from_mode(mode);
        std::fs::set_permissions(scratch.join(name), mode).unwrap();
    }
    let check = |file: &str, key: &str, more: &str| {
        let directory = scratch.path().display();
        let text = format!(
            "listen = \"127.0.0.1:0 tls\"\nuser = \"www-data\"\n{more}[[site]]\nroot = \"{directory}/site\"\nhosts = [\"example.org\"]\n\
             [[site.certificate]]\nfile = \"{directory}/{file}\"\nkey = \"{directory}/{key}\"\n"
        );
        let (code, said) = howdah_check(&scratch.write("howdah.toml", text));
        (code == Some(0), said)
    };
    for (file, key, name, line) in [
        ("missing.pem", "good.key", "CertificateUnreadable", 7),
        ("empty.pem", "good.key", "CertificateMissing", 7),
        ("broken.pem", "good.key", "CertificateUnreadable", 7),
        ("good.pem", "empty.pem", "CertificateKeyMissing", 8),
        ("good.pem", "other.key", "CertificateKeyMismatch", 8),
        ("good.pem", "open.key", "CertificateKeyOpenToAll", 8),
    ] {
        let (fine, said) = check(file, key, "");
        assert!(!fine && said.contains(name), "{file} {key}: {said}");
        assert!(
            said.contains(&format!("howdah.toml:{line}")),
            "{file} {key}: {said}"
        );
    }
    for (file, key, words) in [
        ("ended.pem", "ended.key", "CertificateExpired"),
        (
            "other.pem",
            "other.key",
            "does not cover any of the site's `hosts`",
        ),
    ] {
        let (_, said) = check(file, key, "");
        assert!(said.contains(words), "{file}: {said}");
    }
    for (more, words) in [
        ("[tls]\nclient_ca = \"/nowhere\"\n", "client_ca"),
        ("[tls]\nticket_keys = \"/etc/hostname\"\n", "ticket_keys"),
        ("[tls]\nverify_client = \"on\"\n", "without `client_ca`"),
    ] {
        let (fine, said) = check("good.pem", "good.key", more);
        assert!(!fine && said.contains(words), "{more}: {said}");
    }
}
