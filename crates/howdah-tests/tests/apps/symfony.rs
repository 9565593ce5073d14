//! A Symfony application on Debian's packages (the repository's `tests/apps/symfony`), as its author, its readers and
//! API clients use it: a front controller under `public/`, security, forms, uploads, ranges, and work after the
//! response.

use std::time::{Duration, Instant};

use howdah_tests::browser::Browser;
use howdah_tests::forms::{File, attributes};
use howdah_tests::http::{Connection, Headers, framing_of, get};
use howdah_tests::image;
use howdah_tests::process::wait_until;
use howdah_tests::rig::{Server, ServerKind, Site};
use howdah_tests::scratch::{Scratch, copy_tree, repository};

struct NotesApplication {
    server: Box<dyn Server>,
    author: Browser,
    _scratch: Scratch,
}

#[test]
fn symfony_from_logging_in_to_logging_out() {
    from_logging_in_to_logging_out(NotesApplication::prepare(Vec::new()));
}

/// There are two workers, so a request of a session may reach a kernel that has handled other requests since the
/// previous request of the session.
#[test]
fn symfony_in_a_worker_from_logging_in_to_logging_out() {
    let mode = ["--mode", "worker", "--worker"].map(str::to_owned).to_vec();
    from_logging_in_to_logging_out(NotesApplication::prepare(mode));
}

fn from_logging_in_to_logging_out(mut notes: NotesApplication) {
    notes.log_in();
    let note = notes.publish_with_a_picture();
    notes.edit(&note);
    notes.search();
    notes.programs_use_the_interface();
    notes.answers_stream_and_work_goes_on_after_them();
    notes.mistakes_have_their_status();
    notes.delete(&note);
    notes.log_out();
}

impl NotesApplication {
    /// Prepares the site. The path of the worker script is appended to the command-line words in `mode`; if `mode` is
    /// empty, there is no worker.
    fn prepare(mut mode: Vec<String>) -> Self {
        let scratch = Scratch::new("symfony");
        copy_tree(
            &repository().join("tests/apps/symfony"),
            &scratch.join("site"),
        );
        scratch.writable_dir("site/var");
        let mut kind = ServerKind::chosen();
        if !mode.is_empty() {
            let script = scratch.join("site/public/worker.php");
            mode.push(script.display().to_string());
            kind = ServerKind::Howdah;
        }
        let mut site = Site::new(scratch.join("site/public"))
            .project(scratch.join("site"))
            .front_controller("/index.php")
            .ini("display_errors", "Off")
            .children(2);
        site.howdah_arguments = mode;
        let server = kind.start(&site);
        let author = Browser::new(server.address());
        NotesApplication {
            server,
            author,
            _scratch: scratch,
        }
    }

    fn log_in(&mut self) {
        self.author.get("/").shows("No notes");
        let asked = self.author.get("/note/new");
        assert_eq!(
            asked.location, "/login",
            "a page for authors should lead to the login form"
        );
        self.author
            .fill(
                "/login",
                "login",
                &[("_username", "author"), ("_password", "wrong")],
            )
            .shows("Invalid credentials.");
        let page = self.author.fill(
            "/login",
            "login",
            &[("_username", "author"), ("_password", "papyrus")],
        );
        page.shows("Log out author");
        assert_eq!(
            page.location, "/note/new",
            "the login should lead back to the requested page"
        );
    }

    fn publish_with_a_picture(&mut self) -> String {
        let form = self
            .author
            .get("/note/new")
            .form("form")
            .set("form[title]", "Élevage & more")
            .set("form[text]", "<b>two\nlines");
        let picture = File {
            field: "form[picture]".into(),
            name: "elephant.jpg".into(),
            kind: "image/jpeg".into(),
            bytes: image::jpeg(600, 300),
        };
        let page = self.author.upload(&form, &[picture]);
        page.shows("The note is kept.")
            .shows("Élevage &amp; more")
            .shows("&lt;b&gt;two<br />");
        let small = attributes(&page.text(), "img", "src").remove(0);
        let small = get(self.server.address(), &small);
        assert_eq!(image::dimensions(&small.body), (120, 60));

        // A route must reach the front controller although its address ends in .jpg; the framework handles ranges and
        // conditional requests.
        let full = attributes(&page.text(), "a", "href")
            .into_iter()
            .find(|link| link.contains("/picture/full/"))
            .expect("a link to the picture");
        let whole = self.author.get(&full).response;
        assert_eq!(whole.header("Accept-Ranges"), Some("bytes"));
        self.author
            .headers
            .push(("Range".into(), "bytes=0-9".into()));
        let part = self.author.get(&full).response;
        assert_eq!(
            (part.status(), part.body.as_slice()),
            (206, &whole.body[..10])
        );
        assert_eq!(
            part.header("Content-Range"),
            Some(format!("bytes 0-9/{}", whole.body.len()).as_str())
        );
        self.author.headers = vec![(
            "If-None-Match".into(),
            whole.header("ETag").expect("a tag").into(),
        )];
        let again = self.author.get(&full).response;
        assert_eq!((again.status(), again.body.len()), (304, 0));
        self.author.headers.clear();

        // A form with an empty title and a file that is not a picture is rejected and shown again.
        let form = self
            .author
            .get("/note/new")
            .form("form")
            .set("form[title]", "")
            .set("form[text]", "x");
        let script = File {
            field: "form[picture]".into(),
            name: "x.jpg".into(),
            kind: "image/jpeg".into(),
            bytes: b"<?php echo 1;".to_vec(),
        };
        let refused = self.author.upload(&form, &[script]);
        assert_eq!(refused.status(), 422);
        assert!(
            refused.text().contains("should not be blank")
                // Symfony 5 and 6 have different messages.
                && ["not a valid image", "mime type of the file is invalid"]
                    .iter()
                    .any(|message| refused.text().contains(message)),
            "{}",
            refused.excerpt()
        );
        page.location
    }

    fn edit(&mut self, note: &str) {
        let page = self.author.fill(
            &format!("{note}/edit"),
            "form",
            &[("form[title]", "Élevage revisited")],
        );
        page.shows("The note is changed.")
            .shows("Élevage revisited")
            .shows("two<br />");
        let stale = self.author.fill(
            &format!("{note}/edit"),
            "form",
            &[("form[_token]", "stale")],
        );
        assert_eq!(stale.status(), 422, "{}", stale.excerpt());
    }

    fn search(&mut self) {
        self.author
            .fill("/", "search", &[("q", "revisited")])
            .shows("Élevage revisited");
        Browser::new(self.server.address())
            .get("/?q=nothing%20like%20it")
            .shows("No notes");
    }

    fn programs_use_the_interface(&mut self) {
        let mut program = Browser::new(self.server.address());
        let json = |text: &str| Some(("application/json", text.as_bytes().to_vec()));
        let note = r#"{"title": "By a program", "text": "beep"}"#;
        let refused = program.request("POST", "/api/notes", json(note));
        assert_eq!(
            (refused.status(), refused.header("WWW-Authenticate")),
            (401, Some("Basic realm=\"Notes\""))
        );
        // These are the credentials `author:papyrus` in Base64.
        program
            .headers
            .push(("Authorization".into(), "Basic YXV0aG9yOnBhcHlydXM=".into()));
        let made = program.request("POST", "/api/notes", json(note));
        assert_eq!(made.status(), 201, "{}", made.text());
        let place = made
            .header("Location")
            .expect("a new note has an address")
            .to_owned();
        let changed = program.request(
            "PUT",
            &place,
            json(r#"{"title": "By a program", "text": "boop"}"#),
        );
        assert_eq!(
            (changed.status(), &changed.json()["text"]),
            (200, &"boop".into())
        );
        assert_eq!(
            program.request("POST", "/api/notes", json("[]")).status(),
            400
        );
        let found = program.request("GET", "/api/notes?q=boop", None).json();
        assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
        let gone = program.request("DELETE", &place, None);
        assert_eq!((gone.status(), gone.body.len()), (204, 0));
        assert_eq!(program.request("PUT", &place, json(note)).status(), 404);
        let wrong = program.request("PATCH", &place, json(note));
        assert_eq!(wrong.status(), 405);
        assert_eq!(wrong.header("Allow"), Some("PUT, DELETE"));
    }

    fn answers_stream_and_work_goes_on_after_them(&mut self) {
        let address = self.server.address();
        let mut connection = Connection::open(address).expect("the server accepts the connection");
        let begun = Instant::now();
        connection
            .send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("the request can be sent");
        let head = connection.read_head().expect("a status line and headers");
        let mut framing = framing_of("GET", &head).expect("a framing");
        let first = connection
            .read_piece(&mut framing, &mut Headers::default())
            .expect("a piece")
            .expect("the response does not end before its first part");
        let until_first = begun.elapsed();
        let mut text = first;
        while let Some(piece) = connection
            .read_piece(&mut framing, &mut Headers::default())
            .expect("a piece")
        {
            text.extend_from_slice(&piece);
        }
        assert_eq!(String::from_utf8_lossy(&text), "part 1\npart 2\npart 3\n");
        assert!(
            begun.elapsed() - until_first > Duration::from_millis(100),
            "the parts arrived together"
        );
        // kernel.terminate runs after the response, so its effect appears a moment later.
        wait_until(
            "the request to be counted after its response",
            Duration::from_secs(10),
            || get(address, "/seen").json()["/stream"] == 1,
        );
    }

    fn mistakes_have_their_status(&mut self) {
        let address = self.server.address();
        for (path, status) in [
            ("/no/such/page", 404),
            ("/note/99999", 404),
            ("/broken", 500),
            ("/picture/full/absent.jpg", 404),
        ] {
            let answer = get(address, path);
            assert_eq!(answer.status(), status, "{path}");
            assert!(
                !answer.text().contains("LogicException"),
                "{path} reveals the exception"
            );
        }
        wait_until("the exception in the log", Duration::from_secs(10), || {
            self.server.log().contains("broken on purpose")
        });
        // Files outside public/ cannot be requested.
        for path in [
            "/../src/Kernel.php",
            "/..%2fvar/notes.sqlite",
            "/%2e%2e/var/notes.sqlite",
        ] {
            assert!(matches!(get(address, path).status(), 400 | 404), "{path}");
        }
    }

    fn delete(&mut self, note: &str) {
        // The form sends POST and the framework treats it as DELETE.
        self.author
            .fill(note, "delete", &[])
            .shows("The note is gone.")
            .shows("No notes");
        assert_eq!(self.author.get(note).status(), 404);
    }

    fn log_out(&mut self) {
        self.author.get("/logout").shows("Log in");
        assert_eq!(self.author.get("/note/new").location, "/login");
    }
}
