//! `htaccess = "on"` compared with Apache: the same tree and the same requests. Responses are compared by status,
//! `Location`, selected headers, the file or script that produced them, and the input of the script.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use howdah_tests::http::{self, Response};
use howdah_tests::rig::{Howdah, ModPhp, Server, Site};
use howdah_tests::scratch::Scratch;

use super::live_cases::LIVE;

/// Prints the path of the running script and its input.
pub const PROBE: &str = r#"<?php
$given = array_filter($_SERVER, fn ($name) => in_array($name, ['REQUEST_METHOD', 'REQUEST_URI',
    'QUERY_STRING', 'SCRIPT_NAME', 'PATH_INFO', 'PHP_SELF', 'REDIRECT_URL', 'REDIRECT_QUERY_STRING',
    'REMOTE_USER', 'HTTPS']) || preg_match('/^(REDIRECT_MY|MY_|BASE|HTTP_X)/', $name), ARRAY_FILTER_USE_KEY);
ksort($given);
if (isset($_GET['hdr'])) { header('X-Frame-Options: OWN'); header('Cache-Control: private'); }
echo __FILE__, json_encode($given), ini_get('memory_limit'), ini_get('upload_max_filesize');
"#;

/// Headers that each server writes in its own way, or that the other server does not send.
const OWN: &[&str] = &[
    "accept-ranges",
    "allow",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "etag",
    "expires",
    "howdah-error",
    "howdah-request",
    "keep-alive",
    "last-modified",
    "server",
    "transfer-encoding",
    "upgrade",
    "vary",
    "x-powered-by",
];

fn fill(scratch: &Scratch) {
    let directories = "defghijklmnopqrstuvwyz".chars().map(|c| format!("{c}/"));
    for directory in directories.chain([String::new()]) {
        let write = |name: &str, text: &str| {
            scratch.write(format!("site/{directory}{name}"), text);
        };
        write("x.php", PROBE);
        for name in [
            "x.txt",
            "x.css",
            "x.js",
            "x.jpg",
            "x.html",
            "x.xml",
            "x.foo",
            "x.tgz2",
            "x.html.de",
            "x.log",
            "x.ini",
        ] {
            write(name, &format!("STATIC {directory}{name}"));
        }
    }
    for name in ["index.php", "h/index.php", "y.phtml", "d/y.html", "x.bar"] {
        scratch.write(format!("site/{name}"), PROBE);
    }
    let cached = "wp-content/cache/supercache/example.test/hello/index.html";
    for name in ["error.html", "images/z", cached, &format!("{cached}.gz")] {
        scratch.write(format!("site/{name}"), format!("STATIC {name}"));
    }
    // The password of both users is `secret`.
    let users = "alice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\nbob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";
    scratch.write("users", users);
    scratch.write("groups", "admins: alice\n");
}

/// A request: method, target, header lines.
pub type OracleRequest<'r> = (&'r str, &'r str, &'r str);

pub fn ask(server: &dyn Server, (method, target, fields): OracleRequest<'_>) -> Response {
    let host = if fields.contains("Host:") {
        ""
    } else {
        "Host: example.test\r\n"
    };
    let request = format!(
        "{method} {target} HTTP/1.1\r\n{host}{fields}Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    http::exchange(server.address(), request.as_bytes())
        .unwrap_or_else(|broken| panic!("{method} {target}: {broken}\n{}", server.log()))
}

/// Returns the parts of a response that must be the same.
pub fn shown(answer: &Response) -> Vec<String> {
    let mut lines: Vec<String> = answer
        .head
        .headers
        .0
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| !OWN.contains(&&**name))
        // Each server has its own error pages.
        .filter(|(name, value)| !(name == "cache-control" && *value == "no-store"))
        .map(|(name, value)| format!("{name}: {}", value.replace(", charset=\"UTF-8\"", "")))
        .map(in_minutes)
        .collect();
    lines.sort();
    lines.insert(0, answer.status().to_string());
    let text = answer.text();
    if text.contains("STATIC") || text.contains("QUERY_STRING") || text.contains("<?php") {
        lines.push(text);
    }
    lines
}

/// Converts the expiry of a cookie into minutes from now, because the two responses are not made in the same second.
fn in_minutes(field: String) -> String {
    const END: &str = "expires=";
    let Some((before, rest)) = field.split_once(END) else {
        return field;
    };
    let (date, after) = rest.split_at(rest.find(';').unwrap_or(rest.len()));
    // Apache separates day, month and year by hyphens, as the original format for cookies does.
    let Ok(end) = httpdate::parse_http_date(&date.replace('-', " ")) else {
        return field;
    };
    let left = end.duration_since(SystemTime::now()).unwrap_or_default();
    let minutes = (left.as_secs() + 30) / 60;
    format!("{before}{END}in {minutes} minutes{after}")
}

fn site(scratch: &Scratch) -> Site {
    fill(scratch);
    let site = Site::new(scratch.join("site"));
    site.children(2).obeying_htaccess("on")
}

fn write(scratch: &Scratch, files: &[(&str, &str)]) {
    let name = |file: &str| scratch.join(file).display().to_string();
    for (place, text) in files {
        let text = text
            .replace("@USERS@", &name("users"))
            .replace("@GROUPS@", &name("groups"));
        scratch.write(format!("site/{place}"), text);
    }
}

#[test]
fn everything_that_files_say_is_done_as_apache_does_it() {
    let scratch = Scratch::new("htaccess-live");
    let site = site(&scratch);
    let root = scratch.join("site");
    let howdah = Howdah::start(&site);
    let apache = ModPhp::start(&site);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (title, files, asked) in LIVE {
        write(&scratch, files);
        for request in *asked {
            count += 1;
            let (ours, theirs) = (ask(&howdah, *request), ask(&apache, *request));
            let (ours, theirs) = (shown(&ours), shown(&theirs));
            if ours != theirs {
                wrong.push(format!(
                    "{title}: {request:?}\n  Howdah {ours:?}\n  Apache {theirs:?}"
                ));
            }
        }
        for (place, _) in *files {
            fs::remove_file(root.join(place)).expect("the file was written");
        }
    }
    assert!(count > 250, "{count} requests");
    assert!(
        wrong.is_empty(),
        "{} responses differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Once the files are old enough, they are no longer checked, and their content is not evaluated again.
#[test]
fn cached_results_equal_the_evaluation_and_expire_with_their_files() {
    const TREES: usize = 4;
    let of_tree = |number: usize| {
        let scratch = Scratch::new(&format!("htaccess-remembered-{number}"));
        let howdah = Howdah::start(&site(&scratch));
        let root = scratch.join("site");
        for (title, files, asked) in LIVE.iter().skip(number).step_by(TREES) {
            let all = || -> Vec<Vec<String>> {
                let answers = asked.iter().map(|request| ask(&howdah, *request));
                answers.map(|answer| shown(&answer)).collect()
            };
            let without = all();
            write(&scratch, files);
            let first = all();
            // Both threads of the front get requests while the files reach that age, and often enough afterwards.
            let of_age = Instant::now() + Duration::from_millis(120);
            let mut rounds = 0;
            while rounds < 6 {
                rounds += usize::from(Instant::now() > of_age);
                assert_eq!(all(), first, "{title}");
            }
            for (place, _) in *files {
                fs::remove_file(root.join(place)).expect("the file was written");
            }
            assert_eq!(all(), without, "{title}: after the files were removed");
        }
    };
    std::thread::scope(|scope| {
        let trees: Vec<_> = (0..TREES)
            .map(|number| scope.spawn(move || of_tree(number)))
            .collect();
        for tree in trees {
            tree.join().expect("a tree");
        }
    });
}
