//! What routing and answering cost. Ignored by default, since it wants an optimised build and a
//! quiet machine: `cargo test --release -p howdah-server cost -- --ignored --nocapture`.

use std::fs;
use std::hint::black_box;
use std::io::Read;
use std::time::Instant;

use super::*;
use crate::site::config::FrontController;
use crate::testing::request;

/// Nanoseconds of one call: the best of several rounds.
fn cost(mut call: impl FnMut()) -> f64 {
    let round = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        for _ in 0..20_000 {
            call();
        }
        start.elapsed().as_nanos() as f64 / 20_000.0
    };
    (0..7).map(|_| round(&mut call)).fold(f64::MAX, f64::min)
}

#[test]
#[ignore = "wants an optimised build and a quiet machine"]
fn a_file_in_memory_is_cheaper_than_reading_it() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["index.php", "a.html", "b.html", "wp-login.php"] {
        fs::write(dir.path().join(file), "x".repeat(24)).unwrap();
    }
    fs::create_dir(dir.path().join("wp-includes")).unwrap();
    // Let the files settle, by their own clock.
    let old = std::time::SystemTime::now() - Duration::from_secs(100);
    fs::File::open(dir.path().join("a.html"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    std::thread::sleep(Duration::from_millis(50));

    let fields = &[
        ("Host", "h"),
        ("User-Agent", "x"),
        ("Accept", "*/*"),
        ("Connection", "keep-alive"),
    ];
    let plain = Site::new(SiteConfig::new("s", dir.path()), 0).unwrap();
    let wordpress = Site::new(recognise::recognise(dir.path()).unwrap().config, 0).unwrap();
    let mut config = SiteConfig::new("s", dir.path());
    config.front_controller = Some(FrontController {
        script: "/index.php".into(),
        path_info: false,
    });
    let front = Site::new(config, 0).unwrap();

    for (name, site, target) in [
        ("script /index.php", &plain, "/index.php"),
        ("script /", &plain, "/"),
        ("front controller /2024/hello/", &front, "/2024/hello/"),
        ("WordPress /", &wordpress, "/"),
        ("WordPress /2024/hello/", &wordpress, "/2024/hello/"),
    ] {
        let head = request("GET", target, fields);
        println!(
            "{name}: {:.0} ns",
            cost(|| {
                black_box(site.route(&head));
            })
        );
    }
    let head = request("GET", "/a.html", fields);
    let route = cost(|| {
        black_box(plain.route(&head));
    });
    let stat = cost(|| {
        black_box(plain.root().stat_relative(b"a.html").unwrap());
    });
    let answer = |site: &Site| {
        let Action::Static(plan) = site.route(&head).action else {
            panic!()
        };
        plan.answer(&head).unwrap()
    };
    let memory = cost(|| {
        black_box(answer(&plain));
    });
    let memory_wordpress = cost(|| {
        black_box(answer(&wordpress));
    });
    let read = cost(|| {
        let mut bytes = Vec::with_capacity(64);
        let mut file = fs::File::open(dir.path().join("a.html")).unwrap();
        file.metadata().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        black_box(bytes);
    });
    println!(
        "statx alone: {stat:.0} ns; route to a file: {route:.0} ns; route and answer: {memory:.0} ns (WordPress' rules: {memory_wordpress:.0} ns)"
    );
    println!("open, fstat, read, close alone: {read:.0} ns");
    assert!(
        memory < read,
        "{memory} ns from memory, {read} ns from disk"
    );
}
