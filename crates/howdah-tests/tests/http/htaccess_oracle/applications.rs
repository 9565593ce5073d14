//! The `.htaccess` files of applications and plugins, one application after the other: with `htaccess = "on"`, Howdah's
//! response is the same as Apache's, or the difference is of a kind that docs/differences.md names. With `htaccess =
//! "deny"`, Howdah never sends a file or the output of a script that it refuses with "on", or for which Apache asks for
//! a password.
//!
//! The files belong to other projects: see [`files_of_applications`].

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use howdah_tests::http::Response;
use howdah_tests::rig::{Howdah, ModPhp, Site};
use howdah_tests::scratch::{Scratch, at_root, copy_tree, files_of_applications};

use super::live::{OracleRequest, PROBE, ask, shown};

/// Files that are put into the root and into every directory that has an `.htaccess` file.
const FILES: &[&str] = &[
    "x.txt",
    "x.php",
    "x.css",
    "x.jpg",
    "x.ini",
    "x.log",
    "x.json",
    "x.yml",
    "x.md",
    "x.xml",
    "x.tpl",
    "x.html",
    "config.php",
    "README",
    "LICENSE",
    "x.svg",
    "x.zip",
    "install.php",
    "x.phtml",
    "x.sql",
];
/// Directories that applications close with rules in the root.
const OFTEN_CLOSED: &[&str] = &[
    "app",
    "backup",
    "bin",
    "bl-content/databases",
    "cache",
    "config",
    "content/a",
    "core",
    "data",
    "includes",
    "kirby",
    "lib",
    "logs",
    "plugins",
    "site/accounts/a",
    "src",
    "storage",
    "system",
    "temp",
    "tests",
    "tmp",
    "user/config",
    "var",
    "vendor/a",
    "wp-content/uploads/2024",
    "wp-includes",
];
const TWO_FILES: &[&str] = &["x.txt", "x.php"];
/// Files that applications or their users have in the root.
const OF_ROOT: &[&str] = &[
    "index.php",
    "wp-login.php",
    "xmlrpc.php",
    "wp-config.php",
    "composer.json",
    "robots.txt",
    "favicon.ico",
    "web.config",
    "CHANGELOG.txt",
    "update.php",
    "cron.php",
    "prepend.php",
];
/// Further requests to each application.
const REQUESTS: &[OracleRequest<'_>] = &[
    ("GET", "/", ""),
    ("GET", "/hello-world/", ""),
    ("GET", "/hello/world?a=1&b=%20c", ""),
    ("GET", "/index.php/a/b", ""),
    ("GET", "/x.php/a/b?c", ""),
    ("GET", "/none.css", ""),
    ("GET", "/none.jpg", ""),
    ("GET", "/none.php", ""),
    ("GET", "/app", ""),
    ("GET", "/%C3%A4/%20b", ""),
    ("GET", "/?author=1", ""),
    ("GET", "/?q=%3Cscript%3E", ""),
    ("GET", "/?f=../../etc/passwd", ""),
    ("GET", "/?a=union%20select%201", ""),
    ("GET", "/x.txt?GLOBALS[a]=1", ""),
    ("GET", "/.env", ""),
    ("GET", "/.git/config", ""),
    ("GET", "/.well-known/none", ""),
    ("HEAD", "/x.css", ""),
    ("POST", "/", ""),
    ("POST", "/wp-login.php", ""),
    ("GET", "/", "User-Agent: Mozilla/5.0 Indy Library\r\n"),
    ("GET", "/", "User-Agent: HTTrack\r\n"),
    ("GET", "/x.jpg", "Referer: http://elsewhere.example/\r\n"),
    ("GET", "/x.css", "Accept-Encoding: gzip\r\n"),
    (
        "GET",
        "/hello-world/",
        "Cookie: wordpress_logged_in_1=a\r\n",
    ),
    ("GET", "/a/", "X-Forwarded-Proto: https\r\n"),
    ("GET", "/a/", "Authorization: Bearer abc\r\n"),
];

/// Refusals of files that are never sent because of their names.
const NEVER_SENT: &[&str] = &[
    "DotFile",
    "ProgramSource",
    "EditorBackup",
    "VersionControl",
    "DatabaseFile",
    "ProjectFile",
];
/// Refusals because an `.htaccess` file denies access.
const CLOSED: &[&str] = &[
    "HtaccessDenied",
    "HtaccessNotUnderstood",
    "HtaccessNoScripts",
    "HtaccessPassword",
];

/// Returns the kind of difference in docs/differences.md that two responses are an example of.
fn argued(ours: &Response, theirs: &Response, text: &str) -> Option<&'static str> {
    let error = ours.header("Howdah-Error").unwrap_or_default();
    let is_source = |answer: &Response| answer.text().contains("<?php");
    if ours.status() == 404 && NEVER_SENT.contains(&error) {
        Some("never sent")
    } else if error == "HtaccessNoScripts" || is_source(theirs) && !is_source(ours) {
        Some("PHP is taken")
    } else if text.contains("mod_php") && without_settings(ours) == without_settings(theirs) {
        Some("<IfModule mod_php…>")
    } else {
        None
    }
}

/// Returns the parts of a response that are compared, without the settings at the end of the output of [`PROBE`].
fn without_settings(answer: &Response) -> Vec<String> {
    let mut shown = shown(answer);
    if let Some(text) = shown.last_mut()
        && let Some(end) = text.rfind('}')
    {
        text.truncate(end);
    }
    shown
}

/// Puts an application's files and the requested files into an empty root, and returns their paths.
fn fill(root: &Path, application: &Path) -> Vec<String> {
    for entry in fs::read_dir(root).unwrap().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
    copy_tree(&application.join("."), root);
    let mut directories = vec![root.to_owned()];
    let mut at = 0;
    while at < directories.len() {
        let below = fs::read_dir(&directories[at]).unwrap().flatten();
        directories.extend(below.map(|e| e.path()).filter(|path| path.is_dir()));
        at += 1;
    }
    directories.retain(|directory| directory == root || directory.join(".htaccess").is_file());
    let mut there = Vec::new();
    let mut put = |directory: &Path, names: &[&str]| {
        fs::create_dir_all(directory).unwrap();
        for name in names {
            let file = directory.join(name);
            let path = format!("/{}", file.strip_prefix(root).unwrap().display());
            if there.contains(&path) {
                continue;
            }
            let text = match *name {
                "prepend.php" => String::new(),
                name if name.ends_with(".php") => PROBE.to_owned(),
                _ => format!("STATIC {path}"),
            };
            fs::write(&file, text).unwrap();
            there.push(path);
        }
    };
    put(root, OF_ROOT);
    for directory in &directories {
        put(directory, FILES);
    }
    for directory in OFTEN_CLOSED {
        put(&root.join(directory), TWO_FILES);
    }
    let file = root.join(".htaccess");
    if let Ok(text) = fs::read_to_string(&file) {
        fs::write(&file, at_root(&text, root)).unwrap();
    }
    there
}

/// Returns whether a client has received the content of a file or the output of a script.
fn is_given(answer: &Response) -> bool {
    let text = answer.text();
    ["STATIC ", "QUERY_STRING", "<?php"]
        .iter()
        .any(|what| text.contains(what))
}

#[test]
fn files_of_applications_mean_what_they_mean_to_apache() {
    let Some(trees) = files_of_applications() else {
        return;
    };
    let scratch = Scratch::new("htaccess-applications");
    let root = scratch.writable_dir("site");
    let site = |mode| Site::new(&root).children(2).obeying_htaccess(mode);
    let (on, deny) = (Howdah::start(&site("on")), Howdah::start(&site("deny")));
    let apache = ModPhp::start(&site("on"));
    let mut applications: Vec<_> = fs::read_dir(&trees).unwrap().flatten().collect();
    applications.retain(|entry| entry.path().is_dir());
    applications.sort_by_key(|entry| entry.file_name());
    let (mut wrong, mut kinds, mut count) = (Vec::new(), BTreeMap::new(), 0);
    for application in &applications {
        let there = fill(&root, &application.path());
        let name = application.file_name().display().to_string();
        let text = fs::read_to_string(root.join(".htaccess")).unwrap_or_default();
        let files = there
            .iter()
            .map(|path| ("GET", &**path, "User-Agent: Mozilla/5.0 (X11)\r\n"));
        for request in files.chain(REQUESTS.iter().copied()) {
            count += 1;
            let (ours, theirs, closed) = (
                ask(&on, request),
                ask(&apache, request),
                ask(&deny, request),
            );
            let (our, their) = (shown(&ours), shown(&theirs));
            if our != their {
                match argued(&ours, &theirs, &text) {
                    Some(kind) => *kinds.entry(kind).or_insert(0) += 1,
                    None => wrong.push(format!(
                        "{name}: {request:?}\n  Howdah {our:?}\n  Apache {their:?}"
                    )),
                }
            }
            let is_closed = CLOSED.contains(&ours.header("Howdah-Error").unwrap_or_default());
            if is_given(&closed) && (is_closed || theirs.status() == 401) {
                wrong.push(format!(
                    "{name}: {request:?} with \"deny\"\n  {:?}\n  \"on\": {our:?}",
                    shown(&closed)
                ));
            }
        }
    }
    println!(
        "{count} requests to {} applications; argued: {kinds:?}",
        applications.len()
    );
    assert!(applications.len() >= 30, "{}", applications.len());
    assert!(
        wrong.is_empty(),
        "{} responses differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
