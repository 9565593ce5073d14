//! The demo guestbook, which `make demo` serves, used by a visitor and by its owner.

use std::process::Command;
use std::time::{Duration, Instant};

use howdah_machine::php;
use howdah_tests::browser::Browser;
use howdah_tests::forms::File;
use howdah_tests::http::{Connection, Framing, Headers, framing_of, get};
use howdah_tests::image;
use howdah_tests::rig::{Server, ServerKind, Site};
use howdah_tests::scratch::{Scratch, copy_tree, repository, run};

struct Guestbook {
    server: Box<dyn Server>,
    _scratch: Scratch,
}

/// Returns a guestbook with its seed entries, served without any configuration.
fn guestbook() -> Guestbook {
    let scratch = Scratch::new("guestbook");
    copy_tree(&repository().join("demo"), &scratch.join("site"));
    let data = scratch.writable_dir("data");
    run(Command::new(php::expand_placeholders("php{php}"))
        .arg(scratch.join("site/seed.php"))
        .env("DEMO_DATA", &data));
    run(Command::new("chmod").args(["-R", "a+rwX"]).arg(&data));
    let site = Site::new(scratch.join("site/public"))
        .project(scratch.join("site"))
        .front_controller("/index.php")
        .environment("DEMO_DATA", data.display().to_string());
    Guestbook {
        server: ServerKind::chosen().start(&site),
        _scratch: scratch,
    }
}

#[test]
fn visitor_signs_with_a_picture_and_finds_the_entry_again() {
    let book = guestbook();
    let mut visitor = Browser::new(book.server.address());
    let home = visitor.get("/");
    home.shows("Caravan guestbook")
        .shows("25 entries")
        .shows("Page 1 of 3");

    let picture = image::jpeg(1000, 500);
    let form = visitor
        .get("/sign")
        .form("/sign")
        .set("author", "Aïda <b>")
        .set("place", "Memphis")
        .set("message", "Ritorna vincitor & friends");
    let file = File {
        field: "picture".into(),
        name: "desert.jpg".into(),
        kind: "image/jpeg".into(),
        bytes: picture,
    };
    let entry = visitor.upload(&form, &[file]);
    entry
        .shows("Thank you")
        .shows("Aïda &lt;b&gt;")
        .shows("vincitor &amp; friends");
    assert!(entry.location.starts_with("/entry/"), "{}", entry.location);

    let source = entry.between("<img src=\"/picture/", "\"");
    let large = visitor.get(&format!("/picture/{source}"));
    assert_eq!(large.response.header("Content-Type"), Some("image/jpeg"));
    assert_eq!(image::dimensions(&large.response.body), (1000, 500));
    let thumb = visitor.get(&format!("/thumb/{source}"));
    assert_eq!(image::dimensions(&thumb.response.body), (320, 160));

    // A repeated request that states the thumbnail's tag gets a 304 without a body.
    let tag = thumb
        .response
        .header("ETag")
        .expect("thumbnails have a tag")
        .to_owned();
    visitor.headers.push(("If-None-Match".into(), tag));
    let again = visitor.request("GET", &format!("/thumb/{source}"), None);
    assert_eq!((again.status(), again.body.len()), (304, 0));
    visitor.headers.clear();

    visitor
        .get("/?q=vincitor")
        .shows("1 entry")
        .shows("Memphis");
    let found = visitor.get("/api/entries?q=vincitor").response.json();
    assert_eq!(found["entries"][0]["author"], "Aïda <b>");
    visitor
        .get("/?page=3")
        .shows("Page 3 of 3")
        .shows("rel=\"prev\"");
}

#[test]
fn keeper_logs_in_edits_deletes_and_logs_out() {
    let book = guestbook();
    let mut keeper = Browser::new(book.server.address());
    let wrong = [("name", "keeper"), ("password", "wrong")];
    assert_eq!(keeper.fill("/login", "/login", &wrong).status(), 401);

    let before = keeper.cookie("guestbook").map(str::to_owned);
    let right = [("name", "keeper"), ("password", "elephant")];
    keeper
        .fill("/login", "/login", &right)
        .shows("Welcome, keeper.");
    assert_ne!(
        before.as_deref(),
        keeper.cookie("guestbook"),
        "logging in must change the session's id"
    );

    keeper
        .fill(
            "/entry/3/edit",
            "/edit",
            &[("message", "Set right by the keeper")],
        )
        .shows("Set right by the keeper")
        .shows("edited");
    keeper
        .fill("/entry/3", "/entry/3/delete", &[])
        .shows("The entry has been deleted.")
        .shows("24 entries");
    assert_eq!(keeper.get("/entry/3").status(), 404);

    keeper
        .fill("/", "/logout", &[])
        .shows("You are logged out.");
    assert_eq!(keeper.get("/entry/4/edit").status(), 403);
}

#[test]
fn visitor_without_a_session_gets_pages_that_every_such_visitor_may_get() {
    let book = guestbook();
    for path in ["/", "/?page=2", "/entry/3", "/about"] {
        let page = get(book.server.address(), path);
        assert_eq!(page.status(), 200, "{path}");
        assert_eq!(page.header("Set-Cookie"), None, "{path}");
        assert_eq!(page.header("Cache-Control"), None, "{path}");
    }
    let mut visitor = Browser::new(book.server.address());
    visitor
        .headers
        .push(("Authorization".into(), "Basic c2VjcmV0".into()));
    let page = visitor.get("/request");
    page.shows("REQUEST_METHOD")
        .shows("howdah cache explain http://");
    assert!(!page.text().contains("c2VjcmV0"), "{}", page.excerpt());
}

#[test]
fn refusals_are_pages_with_the_right_status() {
    let book = guestbook();
    let address = book.server.address();
    let mut visitor = Browser::new(address);
    for (path, status) in [
        ("/nowhere", 404),
        ("/entry/999999", 404),
        ("/entry/1/delete", 405),
        ("/entry/1/edit", 403),
    ] {
        let page = visitor.get(path);
        assert_eq!(page.status(), status, "{path}");
        assert!(
            page.text().contains("Back to the book"),
            "{path}: {}",
            page.excerpt()
        );
    }
    let forged = visitor
        .get("/sign")
        .form("/sign")
        .set("author", "x")
        .set("message", "y")
        .set("token", "forged");
    assert_eq!(visitor.submit(&forged).status(), 403);
    let empty = visitor
        .get("/sign")
        .form("/sign")
        .set("author", "only a name");
    let answer = visitor.submit(&empty);
    assert_eq!(answer.status(), 422);
    assert!(answer.text().contains("Leave a few words.") && answer.text().contains("only a name"));
    let not_a_picture = File {
        field: "picture".into(),
        name: "x.php".into(),
        kind: "image/png".into(),
        bytes: b"<?php echo 1;".to_vec(),
    };
    let form = visitor
        .get("/sign")
        .form("/sign")
        .set("author", "x")
        .set("message", "y");
    assert_eq!(visitor.upload(&form, &[not_a_picture]).status(), 422);
    // The sources and the data lie outside the document root.
    for path in [
        "/../src/Store.php",
        "/%2e%2e/src/Store.php",
        "/..%2fdata/guestbook.sqlite",
    ] {
        let answer = get(address, path);
        assert!(
            matches!(answer.status(), 400 | 403 | 404),
            "{path}: {}",
            answer.status()
        );
    }
}

#[test]
fn static_files_have_their_types() {
    let book = guestbook();
    for (path, kind) in [
        ("/style.css", "text/css"),
        ("/live.js", "javascript"),
        ("/elephant.svg", "image/svg+xml"),
    ] {
        let answer = get(book.server.address(), path);
        assert_eq!(answer.status(), 200, "{path}");
        assert!(
            answer
                .header("Content-Type")
                .is_some_and(|have| have.contains(kind)),
            "{path}: {:?}",
            answer.head.headers
        );
    }
}

#[test]
fn events_arrive_one_by_one_while_the_script_runs() {
    let book = guestbook();
    let mut connection =
        Connection::open(book.server.address()).expect("the server accepts the connection");
    let begun = Instant::now();
    connection
        .send("GET /live/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("the request can be sent");
    let head = connection.read_head().expect("a status line and headers");
    assert_eq!(
        head.headers.get("Content-Type"),
        Some("text/event-stream;charset=UTF-8")
    );
    let mut framing = framing_of("GET", &head).expect("a framing");
    assert!(matches!(framing, Framing::Chunked(_) | Framing::Close));
    let (mut text, mut arrivals) = (String::new(), Vec::new());
    while let Some(piece) = connection
        .read_piece(&mut framing, &mut Headers::default())
        .expect("a piece")
    {
        text.push_str(&String::from_utf8_lossy(&piece));
        arrivals.resize(text.matches("\n\n").count(), begun.elapsed());
    }
    assert_eq!(arrivals.len(), 10, "{text}");
    assert!(
        arrivals[0] < Duration::from_secs(4),
        "the first event came after {:?}",
        arrivals[0]
    );
    assert!(
        arrivals[9] - arrivals[0] > Duration::from_secs(2),
        "the events arrived together: {arrivals:?}"
    );
}
