//! Measures what opcache and its settings are worth: the CPU time of the PHP processes per request, page by page. There
//! is one client and one process, so nothing waits; the measure is CPU time instead of rates, so other programs on the
//! machine disturb it little. Rows are measured in turns, and the results are medians over rounds.

use howdah_tests::http;
use howdah_tests::process_tree;
use howdah_tests::rig::{Howdah, Server, Site};
use howdah_tests::scratch::Scratch;
use howdah_tests::wordpress_home::{HOST, MARK, WordpressHome};

use super::{BODY, Options};

/// The number of requests before those that count: they fill the cache and let the JIT find hot code.
const WARM_UP: usize = 30;

/// A configuration with which the same page is run.
struct Row {
    name: &'static str,
    /// Lines of Howdah's configuration.
    config: &'static str,
    ini: &'static [(&'static str, &'static str)],
}

const CGI: &str = "mode = \"cgi\"\n";
const CGI_OPCACHE: &str = "mode = \"cgi\"\n[pool.www]\nphp_value = { \"opcache.enable\" = 1 }\n";
const NO_CHECKS: (&str, &str) = ("opcache.validate_timestamps", "0");

/// Compiles the files that a site's pages may need. PHP warns about declarations that an application contains twice,
/// and skips them.
const PRELOAD: &str = r#"<?php
$flags = FilesystemIterator::SKIP_DOTS | FilesystemIterator::FOLLOW_SYMLINKS;
$all = new RecursiveIteratorIterator(new RecursiveDirectoryIterator('ROOT', $flags));
foreach (new RegexIterator($all, '~^(?!.*/wp-(admin|content)/).*\\.php$~') as $file) {
    @opcache_compile_file($file);
}
"#;

const ROWS: &[Row] = &[
    Row {
        name: "opcache.enable = 0",
        config: "[pool.www]\nphp_value = { \"opcache.enable\" = 0 }\n",
        ini: &[],
    },
    Row {
        name: "on, PHP's defaults (a look at each file every 2 s)",
        config: "",
        ini: &[],
    },
    Row {
        name: "opcache.revalidate_freq = 0 (a look at each file, each time)",
        config: "[pool.www]\nphp_value = { \"opcache.revalidate_freq\" = 0 }\n",
        ini: &[],
    },
    Row {
        name: "opcache.validate_timestamps = 0 (no looks)",
        config: "[pool.www]\nphp_value = { \"opcache.validate_timestamps\" = 0 }\n",
        ini: &[],
    },
    Row {
        name: "… and enable_file_override",
        config: "",
        ini: &[NO_CHECKS, ("opcache.enable_file_override", "1")],
    },
    Row {
        name: "… and the tracing JIT, 64 MB",
        config: "",
        ini: &[
            NO_CHECKS,
            ("opcache.jit", "tracing"),
            ("opcache.jit_buffer_size", "64M"),
        ],
    },
    Row {
        name: "… and preload of all of the application's files",
        config: "",
        ini: &[
            NO_CHECKS,
            ("opcache.preload", "PRELOAD"),
            ("opcache.preload_user", "www-data"),
        ],
    },
    Row {
        name: "production, memory_consumption = 8 (MB): too small",
        config: "",
        // The strings' buffer is taken from this memory; with 8 MB of 8 PHP does not start.
        ini: &[
            NO_CHECKS,
            ("opcache.memory_consumption", "8"),
            ("opcache.interned_strings_buffer", "2"),
        ],
    },
    Row {
        name: "mode cgi",
        config: CGI,
        ini: &[],
    },
    Row {
        name: "mode cgi, opcache with file_cache",
        config: CGI_OPCACHE,
        ini: &[
            NO_CHECKS,
            ("opcache.file_cache_only", "1"),
            ("opcache.file_cache", "FILE_CACHE"),
        ],
    },
];

/// Prints a table for each page.
pub fn measure(options: &Options, scratch: &Scratch) {
    let hello = |site: &mut Site| {
        site.root = scratch.join("site");
        site.project = site.root.clone();
    };
    let plain = |rounds, requests, page: &MeasuredPage<'_>, prepare: &dyn Fn(&mut Site)| {
        table(scratch, rounds, requests, page, prepare);
    };
    let page = MeasuredPage {
        name: "hello.php",
        target: "/hello.php",
        host: "localhost",
        mark: BODY.trim_end(),
    };
    plain(options.rounds, 300, &page, &hello);
    let home = WordpressHome::prepare();
    let wordpress = |site: &mut Site| {
        site.root = home.site().root;
        site.project = home.site().project;
    };
    let page = MeasuredPage {
        name: "WordPress' home page",
        target: "/",
        host: HOST,
        mark: MARK,
    };
    plain(options.rounds, 40, &page, &wordpress);
}

struct MeasuredPage<'p> {
    name: &'p str,
    target: &'p str,
    host: &'p str,
    mark: &'p str,
}

fn table(
    scratch: &Scratch,
    rounds: usize,
    requests: usize,
    page: &MeasuredPage<'_>,
    prepare: &dyn Fn(&mut Site),
) {
    let mut figures = vec![Vec::new(); ROWS.len()];
    for round in 0..rounds {
        for at in 0..ROWS.len() {
            let at = (at + round) % ROWS.len();
            let mut site = Site::new(scratch.join("site")).children(1);
            prepare(&mut site);
            let row = &ROWS[at];
            site.howdah_config = Some(row.config.to_owned()).filter(|text| !text.is_empty());
            let cache = scratch.writable_dir("file-cache").display().to_string();
            let root = site.root.display().to_string();
            let preload = scratch.write("preload.php", PRELOAD.replace("ROOT", &root));
            let preload = preload.display().to_string();
            // opcache must also accept files that have just been copied.
            site = site.ini("opcache.file_update_protection", "0");
            for (name, value) in row.ini {
                let value = value.replace("FILE_CACHE", &cache);
                site = site.ini(name, &value.replace("PRELOAD", &preload));
            }
            figures[at].push(cost(&site, page, requests));
        }
    }
    println!("\nopcache, {}: CPU of PHP for a request, ms", page.name);
    let median = |list: &[f64]| {
        let mut list = list.to_vec();
        list.sort_by(f64::total_cmp);
        (list[list.len() / 2], list[0], list[list.len() - 1])
    };
    let (first, ..) = median(&figures[0]);
    for (row, list) in ROWS.iter().zip(&figures) {
        let (middle, least, most) = median(list);
        println!(
            "  {:<60} {middle:8.3} [{least:.3}, {most:.3}]  {:5.2} of the first",
            row.name,
            middle / first
        );
    }
}

/// Returns the CPU milliseconds of the PHP processes per request.
fn cost(site: &Site, page: &MeasuredPage<'_>, requests: usize) -> f64 {
    let server = Howdah::start(site);
    let mut connection = http::Connection::open(server.address()).expect("the server listens");
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\n\r\n",
        page.target, page.host
    );
    let mut ask = || {
        connection.send(&request).expect("the connection is kept");
        let answer = connection.read_response("GET").expect("an answer");
        assert!(answer.text().contains(page.mark), "{}", answer.text());
    };
    (0..WARM_UP).for_each(|_| ask());
    let root = server.process.pid().cast_signed();
    let before = php_cpu(root);
    (0..requests).for_each(|_| ask());
    (php_cpu(root) - before) / requests as f64
}

/// Returns the CPU milliseconds that the PHP processes of a server have used, including the exited processes of mode
/// `cgi`, for which their parent, the spawner, has waited.
fn php_cpu(root: i32) -> f64 {
    let all = process_tree::below(root);
    let php = all.iter().filter(|e| e.program == "howdah-php");
    let living: f64 = php.map(|e| on_cpu(e.pid)).sum();
    let ended: f64 = all
        .iter()
        .filter(|e| e.program == "howdah")
        .map(|e| of_ended_children(e.pid))
        .sum();
    living + ended
}

/// Reads the time on a processor from `schedstat` (proc(5)), which is in nanoseconds.
fn on_cpu(pid: i32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    nanoseconds.unwrap_or_default() / 1e6
}

/// Reads `cutime` and `cstime` (proc(5)), which are in hundredths of a second.
fn of_ended_children(pid: i32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = text.rsplit_once(')') else {
        return 0.0;
    };
    let fields: Vec<f64> = rest
        .split_whitespace()
        .map(|n| n.parse().unwrap_or(0.0))
        .collect();
    let ticks = |at: usize| fields.get(at).copied().unwrap_or_default();
    10.0 * (ticks(13) + ticks(14))
}
