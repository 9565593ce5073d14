//! `howdah init` for real applications: `howdah check` accepts the configuration that it writes, and `howdah serve`
//! serves the application with this configuration as it does without one.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use howdah_machine::php;
use howdah_tests::http::{Response, exchange};
use howdah_tests::process::Process;
use howdah_tests::rig::{howdah_program, is_root};
use howdah_tests::scratch::{Scratch, copy_tree, repository, run};
use howdah_tests::wordpress_home::{HOST, MARK, WordpressHome};

/// Runs howdah in a directory.
fn howdah(directory: &Path, words: &[&str]) -> Output {
    let output = Command::new(howdah_program())
        .args(words)
        .current_dir(directory)
        .output();
    output.expect("howdah can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `howdah init` in the application's directory, checks the configuration that it writes, and returns its output.
fn init(directory: &Path) -> String {
    let output = howdah(directory, &["init"]);
    let (said, complaint) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{complaint}");
    assert_eq!(complaint, "");
    let checked = howdah(directory, &["check"]);
    let checked = text(&checked.stdout) + &text(&checked.stderr);
    assert!(checked.contains("howdah.toml: no mistakes"), "{checked}");
    said
}

/// A running `howdah serve` for an application.
struct InitializedServer {
    process: Process,
    address: SocketAddr,
    _control: Scratch,
}

impl InitializedServer {
    fn start(
        directory: &Path,
        words: &[&str],
        environment: &[(&str, String)],
    ) -> InitializedServer {
        const LISTENING: &str = "howdah: listening on http://";
        let control = Scratch::new("control");
        let mut command = Command::new(howdah_program());
        command
            .arg("serve")
            .args(words)
            .args(["--listen", "127.0.0.1:0", "--control"])
            .arg(control.join("control.sock"))
            .current_dir(directory);
        for (name, value) in environment {
            command.arg("--env").arg(format!("{name}={value}"));
        }
        let process = Process::start("howdah", &mut command);
        let address = process.wait_for_line(LISTENING, Duration::from_secs(30), |line| {
            line.split_once(LISTENING)?.1.parse().ok()
        });
        InitializedServer {
            process,
            address,
            _control: control,
        }
    }

    fn get(&self, path: &str) -> Response {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        exchange(self.address, request.as_bytes())
            .unwrap_or_else(|broken| panic!("{path}: {broken}\n{}", self.process.log()))
    }
}

/// Serves the application with the configuration that `init` has written, and without it, and compares the responses.
/// Returns the response for the first path.
fn answers_as_without(
    directory: &Path,
    environment: &[(&str, String)],
    paths: &[&str],
) -> Response {
    // If root runs `howdah init`, the configuration names this user.
    let user = match is_root() {
        true => &["--user", "www-data"][..],
        false => &[],
    };
    let without = InitializedServer::start(directory, &[&["."], user].concat(), environment);
    let with = InitializedServer::start(directory, &["--config", "howdah.toml"], environment);
    for path in paths {
        let facts = |answer: Response| {
            let field = |name| answer.header(name).unwrap_or_default().to_owned();
            (
                answer.status(),
                field("content-type"),
                field("location"),
                field("howdah-error"),
            )
        };
        assert_eq!(facts(with.get(path)), facts(without.get(path)), "{path}");
    }
    let never = ["/howdah.toml", "/howdah.service"];
    for path in never {
        let answer = with.get(path);
        assert!(!answer.text().contains("howdah"), "{path}");
    }
    with.get(paths[0])
}

#[test]
fn wordpress_is_served_by_what_is_written_as_without_it() {
    let home = WordpressHome::prepare();
    let directory = home.site().root;
    let said = init(&directory);
    for part in [
        "found WordPress in ",
        "wrote howdah.toml and howdah.service",
        "  howdah serve --config howdah.toml",
        "sudo systemctl enable --now howdah-site",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let answer = answers_as_without(
        &directory,
        &[],
        &[
            "/",
            "/?p=1",
            "/hello-world/",
            "/no-such-page/",
            "/wp-login.php",
            "/wp-admin",
            "/wp-config.php",
            "/wp-content/uploads/evil.php",
            "/wp-includes/css/dashicons.min.css",
            "/wp-json/wp/v2/posts",
            "/howdah.toml",
            "/howdah.service",
        ],
    );
    assert_eq!(answer.status(), 200);
    assert!(answer.text().contains(MARK));
}

#[test]
fn project_around_its_web_directory_is_served_by_what_is_written_as_without_it() {
    let scratch = Scratch::new("init-guestbook");
    let demo = scratch.join("site");
    copy_tree(&repository().join("demo"), &demo);
    let data = scratch.writable_dir("data");
    run(Command::new(php::expand_placeholders("php{php}"))
        .arg(demo.join("seed.php"))
        .env("DEMO_DATA", &data));
    run(Command::new("chmod").args(["-R", "a+rwX"]).arg(&data));
    init(&demo);
    let checked = text(&howdah(&demo, &["check"]).stdout);
    assert!(
        checked.contains("requests for missing files go to /index.php"),
        "{checked}"
    );
    let environment = [("DEMO_DATA", data.display().to_string())];
    let paths = ["/", "/login", "/seed.php", "/no/such/page", "/style.css"];
    let answer = answers_as_without(&demo, &environment, &paths);
    assert!(answer.text().contains("Caravan guestbook"));

    let symfony = scratch.join("notes");
    copy_tree(&repository().join("tests/apps/symfony"), &symfony);
    scratch.write("notes/bin/console", "");
    scratch.writable_dir("notes/var");
    let said = init(&symfony);
    assert!(said.contains("found Symfony in "), "{said}");
    let paths = ["/", "/note/new", "/login", "/src/Kernel.php", "/none.css"];
    let answer = answers_as_without(&symfony, &[], &paths);
    assert!(answer.text().contains("No notes"));
    // The application can be moved together with its configuration.
    fs::rename(&symfony, scratch.join("moved")).unwrap();
    let moved = InitializedServer::start(scratch.path(), &["--config", "moved/howdah.toml"], &[]);
    assert_eq!(moved.get("/").status(), 200);
}

#[test]
fn init_overwrites_no_file_and_writes_no_partial_file() {
    let scratch = Scratch::new("init-twice");
    scratch.write("site/index.php", "<?php echo 'page';");
    let site = scratch.join("site");
    init(&site);
    let file = site.join("howdah.toml");
    let mode = |name: &str| fs::metadata(site.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("howdah.toml"), mode("howdah.service")),
        (0o640, 0o640)
    );
    fs::write(&file, "# mine\n").unwrap();
    let refused = |words: &[&str], why: &str| {
        let output = howdah(scratch.path(), &[&["init"], words].concat());
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(
            complaint.contains(why) && output.stdout.is_empty(),
            "{complaint}"
        );
    };
    refused(&["site"], "site/howdah.toml already exists");
    fs::remove_file(&file).unwrap();
    refused(&["site"], "site/howdah.service already exists");
    assert!(!file.exists());
    refused(
        &["none"],
        "cannot look for an application in none: No such file",
    );
    refused(
        &["site", "-o", "none/a.toml"],
        "cannot write none/a.toml: No such file",
    );
    refused(
        &["site", "-o", "site/a.toml"],
        "clients could read site/a.toml",
    );
    fs::write(&file, "# mine\n").unwrap();
    let forced = howdah(scratch.path(), &["init", "site", "--force"]);
    assert!(forced.status.success(), "{}", text(&forced.stderr));
    assert!(fs::read_to_string(&file).unwrap().contains("[[site]]"));
    assert_eq!(fs::read_dir(&site).unwrap().count(), 3);
}

#[test]
fn directory_that_cannot_be_written_to_is_named() {
    let scratch = Scratch::new("init-read-only");
    scratch.write("site/index.php", "<?php");
    let site = scratch.join("site");
    fs::set_permissions(&site, fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = Command::new(howdah_program());
    command.arg("init").current_dir(&site);
    if is_root() {
        // Root may write to the directory despite its permissions, so the command runs as another user.
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(
        complaint.contains("cannot write howdah.toml: Permission denied")
            && complaint.contains("use -o FILE to name another file"),
        "{complaint}"
    );
    fs::set_permissions(&site, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(fs::read_dir(&site).unwrap().count(), 1);
}
