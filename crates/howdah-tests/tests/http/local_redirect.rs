//! A program's `Location: /path` without a status (RFC 3875 §6.2.2): the client receives the response for that path,
//! however the program was started, and no program can redirect a request forever.

use howdah_tests::executable::make_executable;
use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{self, Response};

/// Redirects to its query, with a status if the query begins with `!`.
const REDIRECT_PROGRAM: &str = r#"#!/usr/bin/perl
my ($status, $to) = $ENV{QUERY_STRING} =~ /^(!?)(.*)/;
print "Status: 302 Found\n" if $status;
print "X-Ignored: yes\nLocation: $to\n\nignored, too\n";
"#;

fn site(name: &str) -> Builder {
    Fixture::named(name)
        .script(
            "seen.php",
            "<?php foreach (['REQUEST_METHOD', 'REQUEST_URI', 'QUERY_STRING', 'CONTENT_LENGTH', 'CONTENT_TYPE', 'HTTP_X_OWN'] as $n) echo $_SERVER[$n] ?? '-', ' '; echo strlen(file_get_contents('php://input'));",
        )
        .file("note.txt", "a file")
}

fn post(fixture: &Fixture, target: &str) -> Response {
    let request = format!(
        "POST {target} HTTP/1.1\r\nHost: {}\r\nX-Own: kept\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        fixture.address()
    );
    http::exchange(fixture.address(), request.as_bytes()).unwrap()
}

#[test]
fn cgi_program_hands_its_client_to_another_path_and_not_in_circles() {
    let fixture = site("local-redirect")
        .file("cgi-bin/go.pl", REDIRECT_PROGRAM)
        .pool("[pool.programs]\nmode = \"cgi\"\nmax_children = 2")
        .site("[[site.rule]]\nprefix = \"/cgi-bin/\"\ncgi = \"programs\"")
        .start();
    let program = fixture.path("site/cgi-bin/go.pl");
    make_executable(&program);
    // A redirect to a script, from any method: the second request is a GET without a body.
    let answer = post(&fixture, "/cgi-bin/go.pl?/seen.php?a=b");
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(answer.text(), "GET /seen.php?a=b a=b - - kept 0");
    assert_eq!(answer.header("X-Ignored"), None);
    // Redirects to a file, to a missing file, and to another program.
    assert_eq!(fixture.get("/cgi-bin/go.pl?/note.txt").text(), "a file");
    let none = fixture.get("/cgi-bin/go.pl?/none");
    assert_eq!(none.header("Howdah-Error"), Some("NotFound"));
    let twice = fixture.get("/cgi-bin/go.pl?/cgi-bin/go.pl?/note.txt");
    assert_eq!(twice.text(), "a file");
    // A location that comes with a status, or that is on another server, is sent to the client.
    for to in ["!/note.txt", "//other.example/", "https://other.example/"] {
        let answer = fixture.get(&format!("/cgi-bin/go.pl?{to}"));
        assert_eq!(answer.status(), 302, "{to}");
    }
    let circle = {
        fixture.write(
            "site/cgi-bin/circle.pl",
            "#!/usr/bin/perl\nprint \"Location: /cgi-bin/circle.pl\\n\\n\";\n",
        );
        let program = fixture.path("site/cgi-bin/circle.pl");
        make_executable(&program);
        fixture.get("/cgi-bin/circle.pl")
    };
    assert_eq!(circle.status(), 500);
    assert_eq!(circle.header("Howdah-Error"), Some("LocalRedirectLoop"));
    fixture.wait_for_log(&["LocalRedirectLoop", "/cgi-bin/circle.pl"]);
    fixture.still_serves();
}

#[test]
fn fastcgi_program_redirects_locally_too_and_php_never() {
    let fixture = site("local-redirect-fastcgi")
        .script("away.php", "<?php header('Location: /note.txt');")
        .file(
            "app.pl",
            "#!/usr/bin/perl\nuse FCGI;\nmy %env;\nmy $r = FCGI::Request(\\*STDIN, \\*STDOUT, \\*STDERR, \\%env);\nwhile ($r->Accept() >= 0) { print \"Location: /note.txt\\r\\n\\r\\n\"; }\n",
        )
        .pool("mode = \"embed\"\n[pool.perl]\nmode = \"pool\"\ncommand = [\"/usr/bin/perl\", \"ROOT/app.pl\"]\nprocesses = \"independent\"\nmax_children = 1\npm = \"static\"")
        .site("[[site.rule]]\npath = \"/hello.php\"\npool = \"perl\"")
        .start();
    assert_eq!(fixture.get("/hello.php").text(), "a file");
    let away = fixture.get("/away.php");
    assert_eq!(
        (away.status(), away.header("Location")),
        (302, Some("/note.txt"))
    );
}
