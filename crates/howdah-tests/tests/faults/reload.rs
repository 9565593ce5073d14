//! Reloads bring new code and a new configuration, and keep the connections. Under load they lose no request, and a
//! configuration with mistakes changes nothing.

use std::os::unix::fs::symlink;
use std::time::Duration;

use howdah_test_support::php::php_host;
use howdah_tests::fixture::{Fixture, HELLO, signal};
use howdah_tests::http::Connection;
use howdah_tests::load::{Load, LoadEnd};
use howdah_tests::rig::howdah_check;
use rustix::process::Signal;

/// The time spent on reloads unless `HOWDAH_TESTS_RELOADS` sets their number.
const BUDGET: Duration = Duration::from_secs(15);

#[test]
fn reload_after_reload_under_load_drops_no_request() {
    let fixture = Fixture::named("reloads")
        .children(2)
        .file("hello.txt", HELLO)
        .start();
    let php = Load::new(fixture.address(), "/hello.php", HELLO)
        .clients(6)
        .start(LoadEnd::OnFinish);
    let files = Load::new(fixture.address(), "/hello.txt", HELLO)
        .clients(2)
        .start(LoadEnd::OnFinish);
    fixture.reload_often(BUDGET);
    php.wait_for(100);
    files.wait_for(100);
    let (php, files) = (php.finish(), files.finish());
    println!("PHP: {php}; files: {files}");
    php.only(&["200"]);
    files.only(&["200"]);
    // The old pools are drained and have exited.
    fixture.wait("one pool only", |f| {
        f.zygotes().len() == 1 && f.children().len() == 2
    });
}

#[test]
fn symlink_deploy_shows_only_new_code_after_the_reload() {
    let builder = Fixture::named("deploy").children(3);
    let scratch = builder.scratch();
    for release in 0..=8 {
        scratch.write(
            format!("releases/{release}/index.php"),
            "<?php echo 'release ', require __DIR__ . '/lib/version.php', require 'lib/version.php';",
        );
        scratch.write(
            format!("releases/{release}/lib/version.php"),
            format!("<?php return {release};"),
        );
    }
    symlink("releases/0", scratch.join("current")).unwrap();
    let fixture = builder.root("current").start();
    let load = Load::new(fixture.address(), "/", "")
        .expecting(|body| {
            // Both halves of a response come from the same release.
            body.strip_prefix(b"release ")
                .is_some_and(|v| v.len() == 2 && v[0] == v[1])
        })
        .clients(6)
        .start(LoadEnd::OnFinish);
    for release in 1..=8 {
        symlink(format!("releases/{release}"), fixture.path("next")).unwrap();
        std::fs::rename(fixture.path("next"), fixture.path("current")).unwrap();
        fixture.reload();
        for _ in 0..20 {
            assert_eq!(
                fixture.get("/").text(),
                format!("release {release}{release}")
            );
        }
    }
    let outcome = load.finish();
    println!("deploys: {outcome}");
    outcome.only(&["200"]);
}

/// `compiled.php` prints which scripts of the site the opcode cache contains.
#[test]
fn reload_compiles_what_the_pool_before_had_compiled_also_of_a_new_release() {
    let builder = Fixture::named("reload-compiled").children(2);
    let scratch = builder.scratch();
    for release in ["one", "two"] {
        let write = |name: &str, php: &str| {
            scratch.write(format!("releases/{release}/{name}"), php);
        };
        write(
            "public/compiled.php",
            "<?php foreach (opcache_get_status()['scripts'] as $path => $script)
                if (preg_match('#/releases/(.*)#', $path, $found)) echo $found[1], \"\\n\";",
        );
        write(
            "public/index.php",
            "<?php echo require __DIR__ . '/../src/lib.php';",
        );
        write(
            "src/lib.php",
            &format!("<?php function f() {{ return '{release}'; }} return f();"),
        );
        // This script declares another f() than `src/lib.php`, although both are compiled in the same process.
        // `broken.php` is broken in the new release only.
        let second = "<?php function f() { return 'second'; } echo f();";
        write("public/second.php", second);
        let broken = if release == "two" {
            "<?php this is broken"
        } else {
            second
        };
        write("public/broken.php", broken);
        write("public/once.php", "<?php echo 'once';");
    }
    symlink("releases/one", scratch.join("current")).unwrap();
    let fixture = builder
        .root("current/public")
        .ini("opcache.file_update_protection", "0")
        .start();
    let compiled = || -> Vec<String> {
        let text = fixture.get("/compiled.php").text();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for _ in 0..3 {
        assert_eq!(fixture.get("/").text(), "one");
        assert_eq!(fixture.get("/second.php").text(), "second");
        assert_eq!(fixture.get("/broken.php").text(), "second");
        assert_eq!(fixture.get("/once.php").text(), "once");
        assert!(compiled().iter().all(|line| line.starts_with("one/")));
    }
    let of = |release: &str, names: &[&str]| -> Vec<String> {
        names
            .iter()
            .map(|name| format!("{release}/{name}"))
            .collect()
    };
    fixture.reload();
    let all = [
        "public/broken.php",
        "public/compiled.php",
        "public/index.php",
        "public/once.php",
        "public/second.php",
        "src/lib.php",
    ];
    assert_eq!(compiled(), of("one", &all));
    for _ in 0..2 {
        assert_eq!(fixture.get("/").text(), "one");
        assert_eq!(fixture.get("/broken.php").text(), "second");
        assert_eq!(fixture.get("/second.php").text(), "second");
    }
    // For the next pool, only those scripts are compiled that have been used since the last reload, in the release that
    // is served now.
    symlink("releases/two", fixture.path("next")).unwrap();
    std::fs::rename(fixture.path("next"), fixture.path("current")).unwrap();
    fixture.reload();
    let used = [all[1], all[2], all[4], all[5]];
    assert_eq!(compiled(), of("two", &used));
    assert_eq!(fixture.get("/").text(), "two");
    assert_eq!(fixture.get("/second.php").text(), "second");
}

#[test]
fn corrupt_configuration_changes_nothing_and_is_explained() {
    let fixture = Fixture::named("corrupt")
        .pool("request_terminate_timeout = \"60s\"")
        .start();
    let load = Load::new(fixture.address(), "/hello.php", HELLO)
        .clients(4)
        .start(LoadEnd::OnFinish);
    fixture.wait("both children", |f| f.children().len() == 2);
    let config = fixture.howdah.directory().join("howdah.toml");
    let good = std::fs::read_to_string(&config).unwrap();
    let children = fixture.children();
    for (bad, words) in [
        ("this is [not TOML", vec!["howdah.toml:1"]),
        ("lisen = \"127.0.0.1:1\"\n", vec!["lisen", "listen"]),
        (
            "[pool.www]\nqueue_timeout = \"many\"\nqueu_size = 3\n",
            vec!["queue_timeout", "queu_size"],
        ),
    ] {
        std::fs::write(&config, bad).unwrap();
        let output = fixture.control(&["reload"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{bad:?} was accepted: {said}");
        for word in words {
            assert!(said.contains(word), "{word:?} is missing in: {said}");
        }
        load.wait_for(50);
    }
    let mut now = fixture.children();
    now.sort_unstable();
    let mut before = children;
    before.sort_unstable();
    assert_eq!(now, before, "the old pool continues to run");
    std::fs::write(&config, good).unwrap();
    fixture.reload();
    load.finish().only(&["200"]);
}

#[test]
fn reload_moves_the_error_log_and_changes_the_limits_of_new_connections() {
    let config = |log: &str, header: &str, connections: u32| {
        format!(
            "[log]\nerror = \"SCRATCH/{log}\"\nlevel = \"info\"\n\
             [limits]\nheader = \"{header}\"\nconnections = {connections}\n"
        )
    };
    let builder = Fixture::named("reload-limits");
    let place = |text: String| {
        let scratch = builder.scratch().path().display().to_string();
        text.replace("SCRATCH", &scratch)
    };
    let (old, new, more) = (
        place(config("old.log", "32K", 50)),
        place(config("new.log", "2K", 3)),
        "threads = 3\n".to_owned() + &place(config("new.log", "2K", 4)),
    );
    let fixture = builder.config(&old).start();
    let file = fixture.howdah.directory().join("howdah.toml");
    let log = |name: &str| std::fs::read_to_string(fixture.path(name)).unwrap_or_default();
    let long = format!("/hello.php?{}", "x".repeat(600));
    let ask = |connection: &mut Connection, target: &str| {
        connection
            .send(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"))
            .unwrap();
        connection.read_response("GET").unwrap().status()
    };
    let mut before = Connection::open(fixture.address()).unwrap();
    assert_eq!(ask(&mut before, &long), 200);
    assert_eq!(fixture.get("/before-the-reload").status(), 404);
    fixture.wait("the refusal in the old log", |_| {
        log("old.log").contains("/before-the-reload")
    });

    std::fs::write(&file, &new).unwrap();
    let said = fixture.control(&["reload"]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.contains("NeedsRestart"), "{said}");
    assert_eq!(
        ask(&mut before, &long),
        200,
        "a connection keeps its limits"
    );
    let mut after = Connection::open(fixture.address()).unwrap();
    assert_eq!(ask(&mut after, &long), 414);
    fixture.wait("the refusal in the new log", |_| {
        log("new.log").contains("UriTooLong")
    });
    assert!(!log("old.log").contains("UriTooLong"));
    assert_eq!(fixture.status()["connections"]["limit"], 3);

    std::fs::write(&file, &more).unwrap();
    let said = fixture.control(&["reload"]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("NeedsRestart: threads"), "{said}");
    assert_eq!(fixture.status()["connections"]["limit"], 4);
    fixture.still_serves();
}

#[test]
fn sighup_reloads_as_with_other_servers() {
    let fixture = Fixture::named("sighup").start();
    let old = fixture.zygotes();
    signal(fixture.master(), Signal::HUP);
    fixture.wait("another zygote instead of the old one", |f| {
        let now = f.zygotes();
        now.len() == 1 && now != old
    });
    fixture.still_serves();
}

#[test]
fn php_update_is_in_the_status_and_a_reload_takes_it_at_once() {
    let builder = Fixture::named("php-update").config(
        "php = \"SCRATCH/own-php\"\ncontrol = \"SCRATCH/control.sock\"\n[[site]]\nroot = \"ROOT\"",
    );
    let (php, next) = (
        builder.scratch().join("own-php"),
        builder.scratch().join("next"),
    );
    std::fs::copy(php_host(), &php).unwrap();
    let fixture = builder.start();
    let load = Load::new(fixture.address(), "/hello.php", HELLO)
        .clients(4)
        .start(LoadEnd::OnFinish);
    load.wait_for(50);
    let (children, update) = (fixture.children(), |f: &Fixture| {
        f.status()["pools"][0]["php_update"].clone()
    });
    assert!(update(&fixture).is_null());
    // A package manager renames the new file into place.
    std::fs::copy(php_host(), &next).unwrap();
    std::fs::rename(&next, &php).unwrap();
    fixture.wait("the update in the status", |f| !update(f).is_null());
    let text = fixture.control(&["status"]).stdout;
    let text = String::from_utf8_lossy(&text);
    assert!(
        text.contains(" on disk: the PHP on disk will be used "),
        "{text}"
    );
    let (code, said) = howdah_check(&fixture.howdah.directory().join("howdah.toml"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("advice: pool.www: PHP "), "{said}");
    assert!(
        said.contains(" on disk: the PHP on disk will be used "),
        "{said}"
    );
    fixture.reload();
    assert!(update(&fixture).is_null());
    fixture.wait("other children only", |f| {
        let now = f.children();
        now.len() == 2 && now.iter().all(|pid| !children.contains(pid))
    });
    load.wait_for(50);
    load.finish().only(&["200"]);
}

#[test]
fn reload_waits_for_running_requests_without_ending_them() {
    let fixture = Fixture::named("reload-held").children(1).start();
    let gate = fixture.gate("held");
    let held = fixture.start_get("/hold.php?gate=held");
    let standing = gate.wait();
    // New requests go to the new pool immediately, although the old one is still busy.
    fixture.reload();
    fixture.still_serves();
    assert!(!held.is_there());
    let child = standing.pid;
    standing.open();
    assert_eq!(held.answer().text(), "released");
    fixture.wait("the old child to exit", |_| {
        !howdah_tests::process_tree::is_alive(child)
    });
}

#[test]
fn ondemand_pool_has_no_process_before_its_first_request_and_a_reload_keeps_it_awake() {
    let fixture = Fixture::named("asleep")
        .pool("pm = \"ondemand\"\nmax_children = 2")
        .start();
    let state = |f: &Fixture| f.status()["pools"][0]["state"].as_str().unwrap().to_owned();
    assert_eq!(
        (fixture.zygotes(), state(&fixture)),
        (vec![], "Asleep".into())
    );
    fixture.reload();
    assert_eq!(
        (fixture.zygotes(), state(&fixture)),
        (vec![], "Asleep".into())
    );
    fixture.still_serves();
    let first = fixture.zygotes();
    assert_eq!((first.len(), state(&fixture)), (1, "Ready".into()));
    fixture.reload();
    // The reload starts PHP, so visitors do not wait for its start after a deployment.
    let second = fixture.zygotes();
    assert!(second.iter().any(|pid| !first.contains(pid)), "{second:?}");
    fixture.still_serves();
}
