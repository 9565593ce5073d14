//! FastCGI authorizers (specification §6.3) before files, scripts, programs and the page cache: one built on the
//! FastCGI library itself (Perl's FCGI), and one in PHP under php-fpm.

use howdah_tests::executable::make_executable;
use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{self, Response};
use howdah_tests::rig::Fpm;

/// Allows requests with `X-Key: open`, reports its variables, and fails in the way that the request specifies.
const GUARD: &str = r#"
use FCGI; use strict;
my %env;
my $request = FCGI::Request(\*STDIN, \*STDOUT, \*STDERR, \%env);
while ($request->Accept() >= 0) {
    my $key = $env{HTTP_X_KEY} // '';
    my $told = join ' ', map { "$_=" . ($env{$_} // '-') } qw(FCGI_ROLE REQUEST_METHOD REQUEST_URI CONTENT_LENGTH PATH_INFO SCRIPT_NAME SCRIPT_FILENAME);
    if ($key eq 'open') {
        print "Content-Type: text/plain\r\nVariable-REMOTE_USER: ann\r\nVariable-TENANT: t1\r\nVariable-X_TENANT: t2\r\nVariable-SCRIPT_FILENAME: /etc/passwd\r\nVariable-HTTP_X_KEY: forged\r\n\r\nnobody sees this";
    } elsif ($key eq 'login') {
        print "Location: /login.php\r\n\r\n";
    } elsif ($key eq 'die') {
        kill 9, $$;
    } else {
        print "Status: 403 Closed\r\nContent-Type: text/plain\r\nX-Told: $told\r\n\r\nnot for $key";
    }
}
"#;

fn guarded(name: &str) -> Builder {
    Fixture::named(name)
        .script(
            "secret/who.php",
            "<?php header('Cache-Control: max-age=600'); echo $_SERVER['REMOTE_USER'] ?? '-', ' ', $_SERVER['TENANT'] ?? '-', ' ', getenv('TENANT'), ' ', basename($_SERVER['SCRIPT_FILENAME']), ' ', $_SERVER['HTTP_X_KEY'] ?? '-', ' ', file_get_contents('php://input');",
        )
        .script("login.php", "<?php echo 'log in';")
        .file("secret/plan.txt", "the plan")
        .file("guard.pl", GUARD)
        .pool("[pool.guard]\nmode = \"pool\"\ncommand = [\"/usr/bin/perl\", \"ROOT/guard.pl\"]\nprocesses = \"independent\"\nmax_children = 1\npm = \"static\"")
}

fn ask(fixture: &Fixture, line: &str, key: &str, body: &str) -> Response {
    let request = format!(
        "{line} HTTP/1.1\r\nHost: {}\r\nX-Key: {key}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        fixture.address(),
        body.len()
    );
    http::exchange(fixture.address(), request.as_bytes())
        .unwrap_or_else(|broken| panic!("{line}: {broken}\n{}", fixture.howdah.process.log()))
}

#[test]
fn authorizer_is_asked_before_anything_is_answered_and_names_the_user() {
    let fixture = guarded("authorizer")
        .site("[[site.rule]]\nprefix = \"/secret\"\nauthorizer = \"guard\"")
        .start();
    let no = ask(&fixture, "POST /secret/who.php?q", "me", "hello");
    assert_eq!((no.status(), no.text().as_str()), (403, "not for me"));
    assert_eq!(
        no.header("X-Told"),
        Some(
            "FCGI_ROLE=AUTHORIZER REQUEST_METHOD=POST REQUEST_URI=/secret/who.php?q CONTENT_LENGTH=- PATH_INFO=- SCRIPT_NAME=- SCRIPT_FILENAME=-"
        )
    );
    // The authorizer always sees the same spelling of the path, which is the one that the rules have seen.
    for spelling in [
        "/public/../secret/plan%2Etxt?q",
        "/%73ecret/./plan.txt?q",
        "http://another.test/secret//plan.txt?q",
    ] {
        let no = ask(&fixture, &format!("GET {spelling}"), "me", "");
        let told = no.header("X-Told").unwrap_or_default();
        assert!(
            told.contains("REQUEST_URI=/secret/plan.txt?q "),
            "{spelling}: {told}"
        );
    }
    // The authorizer is first asked about the route that an application takes from its PATH_INFO.
    let no = ask(&fixture, "GET /secret/who.php/info", "me", "");
    let told = no.header("X-Told").unwrap_or_default();
    assert!(told.contains("REQUEST_URI=/secret/info "), "{told}");
    let yes = ask(&fixture, "POST /secret/who.php", "open", "hello");
    assert_eq!(
        (yes.status(), yes.text().as_str()),
        (200, "ann t1 t1 who.php open hello")
    );
    assert_eq!(yes.header("Variable-TENANT"), None);
    fixture.wait_for_log(&["AuthorizerVariable", "SCRIPT_FILENAME"]);
    fixture.wait_for_log(&["AuthorizerVariable", "HTTP_X_KEY"]);
    assert_eq!(
        ask(&fixture, "GET /secret/plan.txt", "open", "").text(),
        "the plan"
    );
    assert_eq!(
        ask(&fixture, "GET /secret/plan.txt", "me", "").status(),
        403
    );
    // A refused client does not even learn whether the path exists.
    assert_eq!(ask(&fixture, "GET /secret/none", "me", "").status(), 403);
    assert_eq!(ask(&fixture, "GET /secret/none", "open", "").status(), 404);
    let login = ask(&fixture, "GET /secret/plan.txt", "login", "");
    assert_eq!(
        (login.status(), login.header("Location")),
        (302, Some("/login.php"))
    );
    // An authorizer that dies has not allowed anything; another one is started.
    let died = ask(&fixture, "POST /secret/who.php", "die", "");
    assert_eq!(
        (died.status(), died.header("Howdah-Error")),
        (502, Some("BackendClosed"))
    );
    assert_eq!(
        ask(&fixture, "GET /secret/plan.txt", "open", "").text(),
        "the plan"
    );
    fixture.still_serves();
}

#[test]
fn authorizer_guards_every_path_to_its_files() {
    let fixture = guarded("authorizer-paths")
        .script("index.php", "<?php echo 'index';")
        .file("cgi-bin/tool", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s' \"$TENANT$X_TENANT\"\n")
        .pool("[pool.programs]\nmode = \"cgi\"")
        .site(
            "cache = \"on\"\n\
             [[site.rule]]\npath = \"/alias\"\nrewrite = \"/secret/plan.txt\"\n\
             [[site.rule]]\nprefix = \"/cgi-bin/\"\ncgi = \"programs\"\n\
             [[site.rule]]\nregex = \"^/(secret/who\\\\.php|secret/plan\\\\.txt|cgi-bin/tool|index\\\\.php)$\"\nauthorizer = \"guard\"",
        )
        .start();
    let tool = fixture.path("site/cgi-bin/tool");
    make_executable(&tool);
    for path in [
        "/secret/who.php",
        "/secret/who.php/beyond",
        "/secret/%77ho.php",
        "/secret/./plan.txt",
        "/alias",
        "/cgi-bin/tool",
        "/cgi-bin/tool/beyond",
        "/",
    ] {
        let line = format!("GET {path}");
        // The request is allowed twice, so a page could have been stored by the second time.
        for _ in 0..2 {
            assert_eq!(ask(&fixture, &line, "open", "").status(), 200, "{path}");
        }
        assert_eq!(ask(&fixture, &line, "me", "").status(), 403, "{path}");
    }
    // Only certain variable names pass into a program's environment.
    assert_eq!(ask(&fixture, "GET /cgi-bin/tool", "open", "").text(), "t2");
    fixture.still_serves();
}

#[test]
fn php_may_be_the_authorizer() {
    let builder = Fixture::named("authorizer-php")
        .file("plan.txt", "the plan")
        .script(
            "guard.php",
            "<?php if (($_SERVER['HTTP_X_KEY'] ?? '') !== 'open') { http_response_code(401); header('WWW-Authenticate: Basic realm=\"x\"'); echo $_SERVER['FCGI_ROLE']; }",
        );
    let socket = builder.scratch().join("fpm.sock").display().to_string();
    let _fpm = Fpm::start_at(builder.as_site(), builder.scratch(), &socket, "");
    let fixture = builder
        .fastcgi(&format!("unix:{socket}"))
        .site("[[site.rule]]\npath = \"/plan.txt\"\nauthorizer = \"www\"\nauthorizer_script = \"ROOT/guard.php\"")
        .start();
    let no = ask(&fixture, "GET /plan.txt", "", "");
    assert_eq!((no.status(), no.text().as_str()), (401, "AUTHORIZER"));
    assert_eq!(no.header("WWW-Authenticate"), Some("Basic realm=\"x\""));
    assert_eq!(
        ask(&fixture, "GET /plan.txt", "open", "").text(),
        "the plan"
    );
}
