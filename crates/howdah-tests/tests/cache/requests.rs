//! Requests that write by their method: they invalidate pages before their response is sent, and again when nothing
//! runs for them any more, whether or not the client waits for that.

use howdah_tests::executable::make_executable;
use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::gate::{Gate, WaitingScript};
use howdah_tests::http::{Connection, Response, exchange};

/// Shows what the test's scripts have written to a file, which the cache does not see.
const PAGE: &str = "<?php header('Cache-Control: public, max-age=600'); echo file_get_contents('SCRATCH/data/text');";

/// Writes the file when the test lets it.
const WRITER: &str = r#"<?php require 'GATES';
ignore_user_abort(true);
if (isset($_GET['refuse'])) { http_response_code(403); exit('refused'); }
if (isset($_GET['to'])) header("Location: $_GET[to]", true, 201);
if (isset($_GET['flush'])) { echo str_repeat('.', 100000); flush(); }
if (isset($_GET['finish'])) { echo 'finished'; fastcgi_finish_request(); }
if (isset($_GET['gate'])) stand_at($_GET['gate']);
file_put_contents('SCRATCH/data/new', $_GET['text']);
rename('SCRATCH/data/new', 'SCRATCH/data/text');
if (isset($_GET['die'])) posix_kill(getmypid(), 9);
echo 'written';
"#;

/// Does the same in a program of a `cgi` rule.
const PROGRAM: &str = r#"#!/usr/bin/perl
my %asked = map { split /=/, $_, 2 } split /&/, $ENV{QUERY_STRING};
sub put { my ($path, $text) = @_; open my $file, '>', "$path.new"; print $file $text; close $file; rename "$path.new", $path; }
if ($asked{gate}) { put("SCRATCH/gates/$asked{gate}.pid", $$); open my $gate, '<', "SCRATCH/gates/$asked{gate}"; <$gate>; }
put('SCRATCH/data/text', $asked{text});
print "Status: 200\nContent-Type: text/plain\n";
print "X-LiteSpeed-Purge: *\n" if $asked{purge};
print "\nwritten";
"#;

fn builder(name: &str) -> Builder {
    let builder = Fixture::named(name).children(3);
    builder.scratch().writable_dir("data");
    builder
        .script("page.php", PAGE)
        .script("writer.php", WRITER)
}

fn start(builder: Builder) -> Fixture {
    let fixture = builder.start();
    fixture.write("data/text", "first");
    fixture
}

fn ask(fixture: &Fixture, method: &str, path: &str) -> Response {
    exchange(fixture.address(), request(method, path).as_bytes())
        .unwrap_or_else(|why| panic!("{path}: {why}"))
}

fn request(method: &str, path: &str) -> String {
    let length = match method {
        "POST" => "Content-Length: 0\r\n",
        _ => "",
    };
    format!("{method} {path} HTTP/1.1\r\nHost: example.org\r\n{length}Connection: close\r\n\r\n")
}

/// Waits until the page is stored, and returns it.
fn keep(fixture: &Fixture) -> String {
    let mut text = String::new();
    fixture.wait("the page to be stored", |f| {
        let page = ask(f, "GET", "/page.php");
        text = page.text();
        page.header("X-Cache") == Some("HIT")
    });
    text
}

fn wait_for_text(fixture: &Fixture, text: &str) {
    fixture.wait(&format!("the page to show `{text}`"), |f| {
        ask(f, "GET", "/page.php").text() == text
    });
}

/// Sends a request, and disconnects as soon as its script waits at the gate.
fn leave_at_gate(fixture: &Fixture, path: &str, gate: Gate) -> WaitingScript {
    let active = |f: &Fixture| f.status()["requests_active"].as_u64().unwrap_or_default();
    let before = active(fixture);
    let mut client = Connection::open(fixture.address()).expect("a connection");
    client.send(request("POST", path)).expect("sent");
    let waiting = gate.wait();
    drop(client);
    fixture.wait("the request to end", |f| active(f) == before);
    waiting
}

#[test]
fn write_of_a_script_whose_client_has_left_invalidates_pages() {
    let fixture = start(builder("requests-left").site("cache = \"on\""));
    for (at, how) in ["", "&flush", "&die"].into_iter().enumerate() {
        let gate = fixture.gate("left");
        let path = format!("/writer.php?gate=left&text=left-{at}{how}");
        let waiting = leave_at_gate(&fixture, &path, gate);
        let old = keep(&fixture);
        assert_ne!(old, format!("left-{at}"));
        waiting.open();
        wait_for_text(&fixture, &format!("left-{at}"));
    }
}

/// Has a page stored between the end of a response and what its script writes afterwards, and waits for the new page.
fn write_after_the_end(fixture: &Fixture, query: &str) {
    let gate = fixture.gate("late");
    let told = ask(
        fixture,
        "POST",
        &format!("/writer.php?finish{query}&gate=late&text=late"),
    );
    assert_eq!(told.text(), "finished");
    let waiting = gate.wait();
    assert_eq!(keep(fixture), "first");
    waiting.open();
    wait_for_text(fixture, "late");
}

#[test]
fn write_after_the_end_of_the_response_invalidates_pages() {
    let fixture = start(builder("requests-finished").site("cache = \"on\""));
    write_after_the_end(&fixture, "");
}

#[test]
fn only_the_urls_of_a_late_write_are_invalidated_without_flush_on_write() {
    let fixture =
        start(builder("requests-own-url").site("cache = \"on\"\ncache_flush_on_write = \"off\""));
    write_after_the_end(&fixture, "&to=/page.php");
}

#[test]
fn refused_write_invalidates_no_page() {
    let fixture = start(builder("requests-refused").site("cache = \"on\""));
    assert_eq!(keep(&fixture), "first");
    for _ in 0..2 {
        assert_eq!(ask(&fixture, "POST", "/writer.php?refuse").status(), 403);
        let page = ask(&fixture, "GET", "/page.php");
        assert_eq!(page.header("X-Cache"), Some("HIT"));
    }
}

#[test]
fn program_of_a_cgi_rule_invalidates_pages() {
    let fixture = start(
        builder("requests-cgi")
            .script("cgi-bin/writer.pl", PROGRAM)
            .script("own.php", "<?php header('X-LiteSpeed-Cache-Control: private,max-age=600'); echo 'own';")
            .pool("[pool.programs]\nmode = \"cgi\"\nmax_children = 2")
            .site("cache = \"on\"\n[site.private]\ncookies = [\"visitor\"]\n[[site.rule]]\nprefix = \"/cgi-bin/\"\ncgi = \"programs\""),
    );
    make_executable(&fixture.path("site/cgi-bin/writer.pl"));
    assert_eq!(keep(&fixture), "first");
    let own = |fixture: &Fixture, method: &str, path: &str| {
        let line = "Cookie: visitor=0123456789abcdef\r\nConnection: close\r\n";
        let request = request(method, path).replace("Connection: close\r\n", line);
        exchange(fixture.address(), request.as_bytes()).expect("a response")
    };
    let is_own_hit = |page: &Response| page.header("X-Cache") == Some("HIT");
    own(&fixture, "GET", "/own.php");
    assert!(is_own_hit(&own(&fixture, "GET", "/own.php")));
    let told = own(&fixture, "POST", "/cgi-bin/writer.pl?text=program");
    assert_eq!((told.status(), &*told.text()), (200, "written"));
    assert_eq!(
        told.header("Cache-Status"),
        Some("Howdah; fwd=bypass; detail=Rule")
    );
    assert_eq!(ask(&fixture, "GET", "/page.php").text(), "program");
    assert!(!is_own_hit(&own(&fixture, "GET", "/own.php")));
    // A program may ask for purges in response to any request.
    assert_eq!(keep(&fixture), "program");
    let told = ask(&fixture, "GET", "/cgi-bin/writer.pl?text=purged&purge=1");
    assert_eq!(told.header("X-LiteSpeed-Purge"), None, "{told:?}");
    assert_eq!(ask(&fixture, "GET", "/page.php").text(), "purged");
    // It continues without its client.
    let gate = fixture.gate("program");
    let waiting = leave_at_gate(&fixture, "/cgi-bin/writer.pl?gate=program&text=late", gate);
    assert_eq!(keep(&fixture), "purged");
    waiting.open();
    wait_for_text(&fixture, "late");
}
