//! `.htaccess` files that are not ordinary files, are only partially written, or are very many, both where they decide
//! (`htaccess = "on"`) and where they only close directories (`htaccess = "deny"`).

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{Connection, Response};
use howdah_tests::process_tree;
use howdah_tests::rig::{howdah_check, is_root};
use howdah_tests::scratch::run;

/// The content of each file that must not be seen.
const SECRET: &str = "TOP SECRET";
const MODES: [&str; 2] = ["deny", "on"];

fn site(name: &str, mode: &str) -> Builder {
    let builder = Fixture::named(&format!("attack-{name}-{mode}"));
    // With this mode, a user other than root can serve the directory.
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(builder.scratch().path(), open).unwrap();
    builder.site(&format!("htaccess = \"{mode}\""))
}

fn is_closed(answer: &Response) -> bool {
    matches!(answer.status(), 403 | 500) && !answer.text().contains(SECRET)
}

/// The server does not wait for a pipe's writer or for the end of a device, and a file that cannot be read closes its
/// directory.
#[test]
fn htaccess_file_that_cannot_be_read_closes_its_directory() {
    for mode in MODES {
        let mut builder = site("htaccess-kinds", mode);
        for directory in [
            "pipe",
            "device",
            "directory",
            "loop",
            "locked",
            "shut",
            "linked",
            "nowhere",
        ] {
            builder = builder.file(&format!("{directory}/secret.txt"), SECRET);
        }
        builder = builder
            .file("directory/.htaccess/x", "")
            .file("locked/.htaccess", "Require all granted")
            .file("shut/.htaccess", "Require all granted");
        builder.scratch().write("closing", "Require all denied");
        let at = |name: &str| builder.scratch().join(format!("site/{name}"));
        run(std::process::Command::new("mkfifo").arg(at("pipe/.htaccess")));
        for (to, directory) in [
            ("/dev/zero", "device"),
            (".htaccess", "loop"),
            ("../../closing", "linked"),
            ("missing", "nowhere"),
        ] {
            symlink(to, at(&format!("{directory}/.htaccess"))).unwrap();
        }
        let forbid = |name: &str| {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o000)).unwrap();
        };
        forbid("locked/.htaccess");
        forbid("shut");
        if is_root() {
            let user = ["--reuid=www-data", "--regid=www-data", "--clear-groups"];
            builder = builder.through(&[&["setpriv"], &user[..]].concat());
        }
        let fixture = builder.start();
        let ask = |directory: &str| {
            let begun = Instant::now();
            let answer = fixture.get(&format!("/{directory}/secret.txt"));
            assert!(
                begun.elapsed() < Duration::from_secs(5),
                "{mode} {directory}"
            );
            answer
        };
        for directory in [
            "pipe",
            "device",
            "directory",
            "loop",
            "locked",
            "shut",
            "linked",
        ] {
            let answer = ask(directory);
            assert!(
                is_closed(&answer),
                "{mode} {directory}: {}",
                answer.status()
            );
            let name = match directory {
                "linked" => "HtaccessDenied",
                _ => "HtaccessNotUnderstood",
            };
            assert_eq!(
                answer.header("Howdah-Error"),
                Some(name),
                "{mode} {directory}"
            );
        }
        // As under Apache, a dangling link is not a file; a file that appears at its target takes effect immediately.
        assert_eq!(ask("nowhere").text(), SECRET, "{mode}");
        fixture.write("site/nowhere/missing", "Require all denied");
        assert!(is_closed(&ask("nowhere")), "{mode}");
        std::fs::remove_file(fixture.path("site/nowhere/missing")).unwrap();
        assert_eq!(ask("nowhere").text(), SECRET, "{mode}");
        fixture.still_serves();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(fixture.path("site/shut"), open).unwrap();
    }
}

/// A closing file of which any number of bytes has been written opens nothing.
#[test]
fn file_that_is_being_written_closes_from_its_first_byte() {
    let text = "Require all denied\n<Files *.php>\nSetHandler none\n</Files>\n";
    for mode in MODES {
        let fixture = site("htaccess-half", mode)
            .file("up/secret.txt", SECRET)
            .start();
        for length in 1..=text.len() {
            fixture.write("site/up/.htaccess", &text[..length]);
            let answer = fixture.get("/up/secret.txt");
            let written = &text[..length];
            assert!(
                is_closed(&answer),
                "{mode} {written:?}: {}",
                answer.status()
            );
        }
    }
}

/// Requests `targets` one after the other on one connection.
fn ask_all(fixture: &Fixture, targets: impl Iterator<Item = String>) -> Vec<Response> {
    let mut client = Connection::open(fixture.address()).unwrap();
    let mut ask = |target: String| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
        client.send(request).unwrap();
        client.read_response("GET").unwrap()
    };
    targets.map(&mut ask).collect()
}

/// There are more directories than are watched, and more files than are cached: all of them take effect, and the memory
/// for them does not grow with their number, nor with the number of names that a client invents.
#[test]
fn tree_larger_than_what_is_remembered_is_closed_throughout_in_bounded_memory() {
    const CLOSED: usize = 4200;
    const MADE_UP: usize = 2000;
    for mode in MODES {
        let mut builder = site("htaccess-many", mode);
        for number in 0..CLOSED {
            builder = builder
                .file(&format!("{number}/.htaccess"), "Require all denied")
                .file(&format!("{number}/secret.txt"), SECRET);
        }
        let fixture = builder.start();
        let memory = || process_tree::memory(fixture.front(), "Rss").expect("the front is there");
        let every = || (0..CLOSED).map(|number| format!("/{number}/secret.txt"));
        let all_closed = || {
            let answers = ask_all(&fixture, every());
            assert!(answers.iter().all(is_closed), "{mode}");
        };
        all_closed();
        let before = memory();
        all_closed();
        let none = ask_all(
            &fixture,
            (0..MADE_UP).map(|number| format!("/none/{number}/{number}/x.txt")),
        );
        assert!(none.iter().all(|answer| answer.status() == 404), "{mode}");
        // A directory beyond the limits behaves like the first one.
        fixture.write("site/late/secret.txt", SECRET);
        assert_eq!(fixture.get("/late/secret.txt").text(), SECRET);
        fixture.write("site/late/.htaccess", "Require all denied");
        assert!(is_closed(&fixture.get("/late/secret.txt")), "{mode}");
        let grown = memory().saturating_sub(before);
        assert!(grown < 8 << 10, "{mode}: {grown} KiB");
    }
}

/// Lines without effect, and mistakes, are reported once by `howdah check` and at the start, and once when a request
/// first meets their file.
#[test]
fn unsupported_directives_are_logged_once_with_file_and_line() {
    let fixture = site("htaccess-named", "on")
        .file(
            ".htaccess",
            "RewriteEngine On\nOptions +Includes\nRewriteRule ^gone\\.html$ - [G]\nAddOutputFilter DEFLATE css\n",
        )
        .file("broken/.htaccess", "# one\nNo such line\n")
        .file("page.txt", "a page")
        .start();
    let lines = [
        "site/.htaccess:2: `Options +Includes`: ",
        "site/.htaccess:4: `AddOutputFilter DEFLATE css`: is not supported and has no effect",
        "site/broken/.htaccess:2: `No such line`: ",
    ];
    let (_, checked) = howdah_check(&fixture.howdah.directory().join("howdah.toml"));
    let late = "site/late/.htaccess:1: `RewriteRule ^ http://192.0.2.1/ [P]`: ";
    fixture.write(
        "site/late/.htaccess",
        "RewriteRule ^ http://192.0.2.1/ [P]\n",
    );
    for _ in 0..3 {
        assert_eq!(fixture.get("/page.txt").text(), "a page");
        assert_eq!(fixture.get("/gone.html").status(), 410);
        assert_eq!(fixture.get("/broken/x").status(), 500);
        fixture.get("/late/x");
    }
    fixture.wait_for_log(&["HtaccessNotExact", late]);
    let log = fixture.howdah.process.log();
    let times = |text: &str, line: &str| text.matches(line).count();
    for line in lines {
        assert_eq!(
            times(&checked, line),
            1,
            "`howdah check` should report {line} once:\n{checked}"
        );
        let (met, at_start): (Vec<_>, Vec<_>) = log
            .lines()
            .filter(|said| said.contains(line))
            .partition(|said| said.contains("HtaccessNotExact"));
        assert_eq!((at_start.len(), met.len()), (1, 1), "{line}:\n{log}");
    }
    assert_eq!(times(&log, late), 1, "{log}");
}
