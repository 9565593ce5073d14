//! `https://`: a server receives requests only if its certificate is valid for its name. With `https+insecure://`, it may
//! have any certificate, but has to speak TLS.

use howdah_tests::fixture::Fixture;
use howdah_tests::http::Connection;
use howdah_tests::pki::Pki;

use super::{App, ask};

#[test]
fn server_over_tls_gets_requests_if_its_certificate_is_valid() {
    let builder = Fixture::named("proxy-tls");
    let sign = |directory: &str| {
        let directory = builder.scratch().writable_dir(directory);
        Pki::new(&directory).sign("app", &["localhost"]);
        let at = directory.display();
        format!("{at}/app.pem {at}/app.key")
    };
    let app = App::start(&builder, "app", "0", &sign("ours"));
    let stranger = App::start(&builder, "stranger", "0", &sign("theirs"));
    let plain = App::start(&builder, "plain", "0", "");
    let rule = |prefix: &str, server: String| {
        format!("[[site.rule]]\nprefix = \"/{prefix}\"\nproxy = \"https://{server}\"\n")
    };
    let any = |prefix: &str, server: String| {
        format!("[[site.rule]]\nprefix = \"/{prefix}\"\nproxy = \"https+insecure://{server}\"\n")
    };
    let rules = [
        any("any", format!("127.0.0.1:{}", stranger.at)),
        any("any-plain", format!("127.0.0.1:{}", plain.at)),
        rule("good", format!("localhost:{}", app.at)),
        rule("name", format!("127.0.0.1:{}", app.at)),
        rule("named", format!("127.0.0.1:{} name=localhost", app.at)),
        rule("stranger", format!("localhost:{}", stranger.at)),
        rule("plain", format!("localhost:{}", plain.at)),
    ];
    let fixture = builder
        .site(&rules.concat())
        .through(&["env", "SSL_CERT_FILE=SCRATCH/ours/ca.pem"])
        .start();
    let at = fixture.address();
    for _ in 0..3 {
        let answer = ask(at, "POST /good/x?y HTTP/1.1\r\nContent-Length: 5", "hello");
        assert_eq!(answer.header("X-Of-Node"), Some("app"), "{}", answer.text());
        let said = answer.json();
        assert_eq!(
            (&said["url"], &said["body"]),
            (&"/good/x?y".into(), &"hello".into())
        );
        assert_eq!(said["headers"]["host"], "example.org");
    }
    let mut socket = Connection::open(at).expect("a connection");
    socket
        .send("GET /good/ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        .expect("the request is sent");
    assert_eq!(socket.read_head().expect("a head").status, 101);
    for (prefix, node) in [("any", "stranger"), ("named", "app")] {
        let answer = ask(at, &format!("GET /{prefix}/x HTTP/1.1"), "");
        assert_eq!(answer.header("X-Of-Node"), Some(node), "{}", answer.text());
    }
    for prefix in ["name", "stranger", "plain", "any-plain"] {
        let answer = ask(at, &format!("GET /{prefix}/x HTTP/1.1"), "");
        let refused = (answer.status(), answer.header("Howdah-Error"));
        assert_eq!(refused, (503, Some("BackendDown")), "{prefix}");
    }
    fixture.wait_for_log(&["BackendDown", "https://127.0.0.1:", "certificate"]);
    fixture.wait_for_log(&["BackendDown", &stranger.at, "invalid peer certificate"]);
    fixture.wait_for_log(&["BackendDown", &plain.at]);
}
