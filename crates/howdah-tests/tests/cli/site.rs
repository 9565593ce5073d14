//! The documentation site as `make docs` builds it. No link is dead. In a real Chromium, on a wide screen and on a
//! phone, the pages fit, the search finds what people type, and a client that prefers dark colours gets dark pages.
//!
//! `HOWDAH_TESTS_PICTURES=DIR` keeps the screenshots.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use howdah_tests::chromium::Chromium;
use howdah_tests::process::wait_until;
use howdah_tests::rig::{Howdah, Server, Site};
use howdah_tests::scratch::{Scratch, repository, run};
use serde_json::Value;

const REPOSITORY: &str = "https://code.example.org/howdah";

/// What people search for, and the page that should be among the first results.
const SEARCHES: &[(&str, &str)] = &[
    ("client_max_body_size", "docs/coming-from.html"),
    ("white page", "docs/troubleshooting.html"),
    ("QueueTimeout", "docs/failures.html"),
    ("slowlog", "docs/coming-from.html"),
    ("getting started", "docs/getting-started.html"),
];

/// Builds the site, and returns the directory that contains it.
fn build(scratch: &Scratch) -> PathBuf {
    let out = scratch.join("docs");
    run(Command::new(repository().join("scripts/docs.py"))
        .args(["--repository", REPOSITORY, "--out"])
        .arg(&out));
    out.join("site")
}

#[test]
fn documents_are_a_site_without_dead_links() {
    let scratch = Scratch::new("site-links");
    let site = build(&scratch);
    let mut pages = BTreeMap::new();
    collect_pages(&site, &site, &mut pages);
    assert!(pages.len() > 45, "only {} pages", pages.len());
    let ids: BTreeMap<_, BTreeSet<&str>> = pages
        .iter()
        .map(|(path, text)| (path.clone(), attributes(text, "id").collect()))
        .collect();
    let mut dead = Vec::new();
    for (path, text) in &pages {
        // The links of the error page begin at the root of the server that shows it.
        if path == Path::new("404.html") {
            continue;
        }
        for target in attributes(text, "href").chain(attributes(text, "src")) {
            if let Some(path_there) = target.strip_prefix(&format!("{REPOSITORY}/")) {
                if !is_in_repository(path_there) {
                    dead.push(format!("{}: {target}", path.display()));
                }
            } else if !target.contains(':') && !leads_somewhere(&site, path, target, &ids) {
                dead.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
    let started = &pages[Path::new("docs/getting-started.html")];
    // The path has a `/./`, which browsers resolve.
    let edit = format!("{REPOSITORY}/edit/main/./docs/getting-started.md");
    assert!(started.contains(&format!("href=\"{edit}\"")), "{edit}");
}

/// Returns whether a link to the code host names a file of the repository, or the repository itself.
fn is_in_repository(path: &str) -> bool {
    let mut parts = path.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("blob" | "tree" | "edit"), Some("main"), Some(path)) => {
            // `documents::links_and_anchors_lead_somewhere` checks the headings.
            let path = path.split('#').next().unwrap_or_default();
            repository().join(path).exists()
        }
        _ => path.is_empty(),
    }
}

fn collect_pages(site: &Path, directory: &Path, pages: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(directory).expect("a directory of the site") {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() {
            collect_pages(site, &path, pages);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "html")
        {
            let text = std::fs::read_to_string(&path).expect("a page is text");
            let name = path.strip_prefix(site).expect("below the site").to_owned();
            pages.insert(name, text);
        }
    }
}

/// Returns the values of an attribute, as mdBook writes them. Comments are skipped. HTML that a page shows as code has
/// no tags, because its `<` is escaped.
fn attributes<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {name}=\"");
    let commented = text.split("<!--").skip(1);
    let after_comments = commented.filter_map(|part| Some(part.split_once("-->")?.1));
    let parts = text.split("<!--").take(1).chain(after_comments);
    let tags = parts.flat_map(|part| part.split('<').skip(1));
    let tags = tags.map(|from| from.split_once('>').map_or(from, |(tag, _)| tag));
    tags.filter_map(move |tag| {
        let (_, value) = tag.split_once(&begin)?;
        Some(value.split_once('"')?.0)
    })
}

fn leads_somewhere(
    site: &Path,
    page: &Path,
    target: &str,
    ids: &BTreeMap<PathBuf, BTreeSet<&str>>,
) -> bool {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match path {
        "" => page.to_owned(),
        path => normalized(&page.parent().expect("a page is in a directory").join(path)),
    };
    match anchor {
        "" => site.join(&path).is_file(),
        anchor => ids.get(&path).is_some_and(|ids| ids.contains(anchor)),
    }
}

fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(name) => out.push(name),
            _ => {}
        }
    }
    out
}

#[test]
fn site_works_on_a_wide_screen_and_on_a_phone() {
    let scratch = Scratch::new("site-browser");
    let server = Howdah::start(&Site::new(build(&scratch)).children(1));
    let at = |page: &str| format!("http://{}/{page}", server.address());
    let mut browser = Chromium::start(&[]);
    for (name, width, dark) in [("wide", 1280, false), ("phone", 390, true)] {
        browser.show(width, 900, dark);
        for page in [
            "index",
            "docs/getting-started",
            "docs/coming-from",
            "docs/concepts",
            "docs/troubleshooting",
            "docs/configuration",
            "docs/failures",
        ] {
            browser.open(&at(&format!("{page}.html")));
            let too_wide = "document.documentElement.scrollWidth - window.innerWidth";
            let too_wide = browser.evaluate(too_wide).as_f64();
            assert!(
                too_wide.is_some_and(|pixels| pixels <= 0.0),
                "{page}: {too_wide:?}"
            );
            let is_dark = "getComputedStyle(document.documentElement).backgroundColor \
                           .match(/\\d+/g).slice(0, 3).every((part) => part < 100)";
            assert_eq!(browser.evaluate(is_dark), Value::Bool(dark), "{page}");
            let page = page.replace('/', "-");
            keep(&format!("{name}-{page}"), &browser.screenshot());
        }
        for (words, page) in SEARCHES {
            search(&mut browser, &at("index.html"), words, page);
        }
        keep(&format!("{name}-search"), &browser.screenshot());
    }
    browser.open(&at("print.html"));
    let headings = browser.evaluate("document.querySelectorAll('h1').length");
    assert!(
        headings.as_f64().is_some_and(|headings| headings > 45.0),
        "{headings}"
    );
}

/// Searches from the front page as a visitor does, and checks that `page` is among the first five results.
fn search(browser: &mut Chromium, front_page: &str, words: &str, page: &str) {
    browser.open(front_page);
    browser.evaluate("document.getElementById('mdbook-search-toggle').click()");
    wait_until("the search box", Duration::from_secs(30), || {
        browser.evaluate("document.activeElement.id") == "mdbook-searchbar"
    });
    browser.type_text(words);
    // The text is inserted as a whole, without key events, but the page searches only when a key is released.
    let key = "document.getElementById('mdbook-searchbar').dispatchEvent(new Event('keyup'))";
    browser.evaluate(key);
    let first = "[...document.querySelectorAll('#mdbook-searchresults a')].slice(0, 5) \
                 .map((a) => a.pathname).join(' ')";
    wait_until(
        &format!("{words} to find {page}"),
        Duration::from_secs(30),
        || {
            let found = browser.evaluate(first);
            found.as_str().is_some_and(|found| found.contains(page))
        },
    );
}

fn keep(name: &str, picture: &[u8]) {
    assert!(
        picture.starts_with(b"\x89PNG") && picture.len() > 10_000,
        "{name}"
    );
    if let Some(directory) = std::env::var_os("HOWDAH_TESTS_PICTURES") {
        let path = Path::new(&directory).join(format!("site-{name}.png"));
        std::fs::write(path, picture).expect("a picture is written");
    }
}
