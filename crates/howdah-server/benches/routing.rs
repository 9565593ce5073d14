//! Measures what routing and the response for a file cost, without a socket: `cargo bench -p howdah-server --bench
//! routing`, on a quiet machine. Prints nanoseconds for each call, the best of several rounds; there is no pass or
//! fail.

use std::fs;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use howdah_http::message::RequestHead;
use howdah_http1::head::{HeadLimits, parse};
use howdah_server::front_thread;
use howdah_site::site::config::{FrontController, HtaccessMode};
use howdah_site::site::{RouteAction, Site, SiteConfig, recognise};
use howdah_site::static_file::{StaticBody, StaticResponse};

const CALLS: u32 = 20_000;
const ROUNDS: u32 = 7;

fn cost(mut call: impl FnMut()) -> f64 {
    let round = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..ROUNDS)
        .map(|_| round(&mut call))
        .fold(f64::MAX, f64::min)
}

fn request(target: &str) -> RequestHead {
    let text = format!(
        "GET {target} HTTP/1.1\r\nHost: h\r\nUser-Agent: x\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n"
    );
    let limits = HeadLimits {
        request_line: 8 << 10,
        bytes: 32 << 10,
        fields: 100,
    };
    let mut fields = Vec::new();
    let parsed = parse(text.as_bytes(), &limits, &mut fields)
        .expect("a request")
        .expect("a whole one");
    parsed.into_head(text.as_bytes(), Vec::new(), fields)
}

fn answer(site: &Site, head: &RequestHead) -> StaticResponse {
    match site.route(head).action {
        RouteAction::Static(plan) => plan.respond(head).expect("the file is there"),
        _ => panic!("not a file"),
    }
}

/// Requests a file until it is in memory. The front keeps a file only after its times are older than one step of the
/// clock.
fn warm(site: &Site, head: &RequestHead) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !matches!(answer(site, head).body, StaticBody::Bytes(_)) {
        assert!(Instant::now() < deadline, "the file never settles");
        std::thread::yield_now();
    }
}

fn site(config: SiteConfig) -> Site {
    Site::new(config, 0).expect("a site")
}

/// Measures the cost of `.htaccess` files, both when they are missing and when they are present.
fn htaccess(root: &Path) {
    let deep = "1/2/3/4/5";
    fs::create_dir_all(root.join(deep)).expect("a directory");
    let old = SystemTime::now() - Duration::from_secs(100);
    let file = root.join(deep).join("a.html");
    fs::write(&file, "x".repeat(24)).expect("a file");
    fs::File::open(&file)
        .and_then(|file| file.set_modified(old))
        .expect("the time can be set");
    let compare = |what: &str| {
        let obeyed = site(SiteConfig::for_tests("s", root));
        let mut config = SiteConfig::for_tests("s", root);
        config.htaccess = HtaccessMode::Off;
        let off = site(config);
        for target in ["/a.html", "/1/2/3/4/5/a.html", "/index.php"] {
            let head = request(target);
            let [without, with] = [&off, &obeyed].map(|site| {
                cost(|| {
                    black_box(site.route(&head));
                })
            });
            println!(
                "route to {target}, {what}: {without:.0} ns without .htaccess, {with:.0} ns with"
            );
        }
    };
    compare("no file there");
    let wordpress = "<IfModule mod_rewrite.c>\nRewriteEngine On\nRewriteBase /\nRewriteRule ^index\\.php$ - [L]\n\
        RewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule . /index.php [L]\n</IfModule>\n";
    fs::write(root.join(".htaccess"), wordpress).expect("a file");
    std::thread::sleep(Duration::from_millis(200));
    compare("WordPress' own in the root");
    for line in [
        "# a comment of forty characters and more\n",
        "Deny from 192.0.2.17\n",
        "RewriteRule ^old/page - [F]\n",
    ] {
        fs::write(root.join(".htaccess"), line.repeat((1 << 20) / line.len())).expect("a file");
        let site = site(SiteConfig::for_tests("s", root));
        let start = Instant::now();
        black_box(site.route(&request("/a.html")));
        println!(
            "first route with 1 MiB of `{}`: {:.1} ms",
            line.trim_end(),
            start.elapsed().as_secs_f64() * 1e3
        );
    }
    fs::remove_file(root.join(".htaccess")).expect("it is there");
}

/// Measures directories with and without `.htaccess` files, from a thread that watches them.
fn watched(root: &Path) {
    (front_thread::hooks().start)(0);
    let below = "Options -Indexes\nHeader set X-D 1\n<FilesMatch \"\\.(ini|log)$\">\nRequire all denied\n</FilesMatch>\n";
    let top = "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\n\
        RewriteRule . /index.php [L]\n";
    for tree in ["without", "with"] {
        let mut folder = root.join(tree);
        fs::create_dir(&folder).expect("a directory");
        let write = |folder: &Path, text: &str| {
            if tree == "with" {
                fs::write(folder.join(".htaccess"), text).expect("a file");
            }
        };
        write(&folder, top);
        for name in ["a", "b", "c", "d", "e"] {
            folder.push(name);
            fs::create_dir(&folder).expect("a directory");
            write(&folder, below);
        }
        for page in ["tiny.txt", "hello.php"] {
            fs::write(folder.join(page), "x".repeat(24)).expect("a file");
        }
        fs::write(root.join(tree).join("index.php"), "").expect("a file");
    }
    std::thread::sleep(Duration::from_millis(200));
    for target in [
        "/a/b/c/d/e/tiny.txt",
        "/a/b/c/d/e/hello.php",
        "/a/b/nothing",
    ] {
        let head = request(target);
        for (htaccess, tree) in [
            (HtaccessMode::Off, "with"),
            (HtaccessMode::Deny, "without"),
            (HtaccessMode::Deny, "with"),
            (HtaccessMode::On, "without"),
            (HtaccessMode::On, "with"),
        ] {
            let mut config = SiteConfig::for_tests("s", root.join(tree));
            config.htaccess = htaccess;
            let site = site(config);
            let ns = cost(|| {
                black_box(site.route(&head));
            });
            println!("route to {target}, watched, {htaccess:?}, {tree} files: {ns:.0} ns");
        }
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "watched") {
        let dir = tempfile::tempdir().expect("a directory");
        watched(dir.path());
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let root: &Path = dir.path();
    for file in ["index.php", "a.html", "b.html", "wp-login.php"] {
        fs::write(root.join(file), "x".repeat(24)).expect("a file");
    }
    fs::create_dir(root.join("wp-includes")).expect("a directory");
    let old = SystemTime::now() - Duration::from_secs(100);
    fs::File::open(root.join("a.html"))
        .and_then(|file| file.set_modified(old))
        .expect("the time can be set");

    let plain = site(SiteConfig::for_tests("s", root));
    let wordpress = site(
        recognise::recognise(root, SiteConfig::for_tests("", root))
            .expect("an application")
            .config,
    );
    let mut config = SiteConfig::for_tests("s", root);
    config.front_controller = Some(FrontController {
        script: "/index.php".into(),
        path_info: false,
    });
    let front = site(config);
    for (name, site, target) in [
        ("script /index.php", &plain, "/index.php"),
        ("script /", &plain, "/"),
        ("front controller /2024/hello/", &front, "/2024/hello/"),
        ("WordPress /", &wordpress, "/"),
        ("WordPress /2024/hello/", &wordpress, "/2024/hello/"),
        ("file /a.html", &plain, "/a.html"),
    ] {
        let head = request(target);
        let ns = cost(|| {
            black_box(site.route(&head));
        });
        println!("route to {name}: {ns:.0} ns");
    }
    let head = request("/a.html");
    for (name, site) in [("plain", &plain), ("WordPress' rules", &wordpress)] {
        warm(site, &head);
        let ns = cost(|| {
            black_box(answer(site, &head));
        });
        println!("route to /a.html and answer from memory ({name}): {ns:.0} ns");
    }
    htaccess(root);
    watched(root);
    let path = root.join("a.html");
    let stat = cost(|| {
        black_box(fs::metadata(&path).expect("it is there"));
    });
    let read = cost(|| {
        let mut bytes = Vec::with_capacity(64);
        let mut file = fs::File::open(&path).expect("it is there");
        file.metadata().expect("it is open");
        file.read_to_end(&mut bytes).expect("it can be read");
        black_box(bytes);
    });
    println!("statx alone: {stat:.0} ns; open, fstat, read, close alone: {read:.0} ns");
}
