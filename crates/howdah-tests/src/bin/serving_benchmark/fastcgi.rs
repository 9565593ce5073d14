//! Howdah in mode `fastcgi` and nginx, both before one and the same php-fpm on a unix socket, in
//! turns: the processes that run PHP are the same, so what differs is what is before them.
//!
//! Howdah keeps connections, each of which holds a child of the php-fpm they share: between two runs
//! it gets time to close them.

use std::time::Duration;

use howdah_tests::http;
use howdah_tests::rig::{Fpm, Howdah, Kind, NginxFpm, Server, Site};
use howdah_tests::scratch::Scratch;
use howdah_tests::wordpress_home::{HOST, MARK, WordpressHome};
use howdah_tests::wrk::{self, Load};

use super::{BODY, Options, print_table, progress};

const KINDS: [Kind; 2] = [Kind::Howdah, Kind::NginxFpm];
const WORDPRESS_CHILDREN: usize = 8;
/// Above `keep_timeout` of the configuration below.
const BETWEEN: Duration = Duration::from_millis(500);

struct Pair {
    servers: [Box<dyn Server>; 2],
    _fpm: Fpm,
    _scratch: Scratch,
}

/// Both before a php-fpm of `children` with this backlog.
fn pair(site: &Site, children: usize, backlog: u32) -> Pair {
    let scratch = Scratch::new("shared-fpm");
    let socket = scratch.join("fpm.sock");
    let mut site = site.clone().children(children);
    let lines = format!("listen.backlog = {backlog}\n");
    let fpm = Fpm::start_at(&site, &scratch, &socket.display().to_string(), &lines);
    let nginx = NginxFpm::before(&site, &socket);
    site.howdah_arguments = ["--mode", "fastcgi", "--fastcgi"]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("unix:{}", socket.display())])
        .collect();
    site.howdah_config = Some(format!(
        "[pool.www]\nmax_connections = {children}\nkeep_timeout = \"200ms\"\nqueue_size = 2000\nqueue_timeout = \"60s\"\n"
    ));
    Pair {
        servers: [Box::new(Howdah::start(&site)), Box::new(nginx)],
        _fpm: fpm,
        _scratch: scratch,
    }
}

fn compare(title: &str, pair: &Pair, load: &Load, options: &Options, check: fn(&dyn Server)) {
    let warm = Load {
        seconds: 1,
        ..load.clone()
    };
    for server in &pair.servers {
        check(server.as_ref());
        wrk::run(server.address(), &warm);
        std::thread::sleep(BETWEEN);
    }
    let mut reports = vec![Vec::new(); KINDS.len()];
    for round in 0..options.rounds {
        for turn in 0..KINDS.len() {
            let i = (round + turn) % KINDS.len();
            let (round, name) = (round + 1, KINDS[i].name());
            progress(&format!("fastcgi {title} round {round}: {name}"));
            reports[i].push(wrk::run(pair.servers[i].address(), load));
            std::thread::sleep(BETWEEN);
        }
    }
    progress("");
    pair.servers.iter().for_each(|s| check(s.as_ref()));
    println!("\nfastcgi: {title}, one php-fpm for both");
    print_table(&KINDS, &reports);
}

fn check_hello(server: &dyn Server) {
    let answer = http::get(server.address(), "/hello.php");
    assert_eq!((answer.status(), answer.text().as_str()), (200, BODY));
}

fn check_wordpress(server: &dyn Server) {
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let page = http::exchange(server.address(), request.as_bytes())
        .unwrap_or_else(|broken| panic!("{}: {broken}", server.kind().name()));
    let text = page.text();
    assert!(
        page.status() == 200 && text.contains(MARK) && text.contains("</html>"),
        "{}: {} {text}",
        server.kind().name(),
        page.status(),
    );
}

/// The three comparisons.
pub fn measure(options: &Options, scratch: &Scratch) {
    let hello = Site::new(scratch.join("site")).ini("opcache.revalidate_freq", "2");
    let load = |target: &str, connections, host: Option<&str>| Load {
        target: target.to_owned(),
        connections,
        seconds: options.seconds,
        host: host.map(str::to_owned),
    };
    let at_100 = pair(&hello, options.children, 511);
    let asked = load("/hello.php", 100, None);
    compare("hello.php at c=100", &at_100, &asked, options, check_hello);
    drop(at_100);

    let full = pair(&hello, 4, 16);
    let asked = load("/hello.php", 500, None);
    let title = "hello.php at c=500, 4 children, backlog 16";
    compare(title, &full, &asked, options, check_hello);
    drop(full);

    let home = WordpressHome::prepare();
    let wordpress = pair(&home.site(), WORDPRESS_CHILDREN, 511);
    let asked = load("/", 10, Some(HOST));
    let title = "WordPress' home page at c=10";
    compare(title, &wordpress, &asked, options, check_wordpress);
}
