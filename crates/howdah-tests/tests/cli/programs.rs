//! The modes that start external programs, over HTTP: WordPress through php-cgi in modes `pool` and `cgi`, programs of
//! a `cgi` rule, and reloads while requests run.

use std::path::Path;
use std::time::Duration;

use howdah_tests::executable::make_executable;
use howdah_tests::fixture::Fixture;
use howdah_tests::http;
use howdah_tests::load::{Load, LoadEnd};
use howdah_tests::rig::{Howdah, Server};
use howdah_tests::wordpress_home::{HOST, MARK, WordpressHome};

#[test]
fn wordpress_home_is_the_same_through_pool_and_cgi() {
    let home = WordpressHome::prepare();
    for mode in ["pool", "cgi"] {
        let mut site = home.site().children(2);
        site.howdah_arguments = vec!["--mode".to_owned(), mode.to_owned()];
        let howdah = Howdah::start(&site);
        let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        let page = http::exchange(howdah.address(), request.as_bytes());
        let page = page.unwrap_or_else(|broken| panic!("{mode}: {broken}\n{}", howdah.log()));
        let text = page.text();
        assert!(
            page.status() == 200 && text.contains(MARK) && text.contains("</html>"),
            "{mode}: {} {text}\n{}",
            page.status(),
            howdah.log()
        );
    }
}

#[test]
fn rule_runs_programs_beside_php_and_shows_no_source() {
    let fixture = Fixture::named("cgi-rule")
        .script("index.php", "<?php echo 'php';")
        .file(
            "cgi-bin/env.pl",
            "#!/usr/bin/perl\nprint \"Status: 203 Fine\\nContent-Type: text/plain\\n\\n\";\nprint \"$ENV{SCRIPT_NAME} $ENV{PATH_INFO} $ENV{QUERY_STRING} \" . scalar(@ARGV);\n",
        )
        .file("cgi-bin/data.txt", "a secret")
        .pool("[pool.programs]\nmode = \"cgi\"\nmax_children = 2")
        .site("[[site.rule]]\nprefix = \"/cgi-bin/\"\ncgi = \"programs\"")
        .start();
    let program = fixture.path("site/cgi-bin/env.pl");
    make_executable(&program);
    let answer = fixture.get("/cgi-bin/env.pl/a/b?-s");
    assert_eq!(
        (answer.status(), answer.text().as_str()),
        (203, "/cgi-bin/env.pl /a/b -s 0")
    );
    let refused = fixture.get("/cgi-bin/data.txt");
    assert_eq!(refused.status(), 500);
    assert_eq!(refused.header("Howdah-Error"), Some("CannotExecute"));
    assert!(!refused.text().contains("secret"));
    assert_eq!(fixture.get("/cgi-bin/none").status(), 404);
    assert_eq!(fixture.get("/index.php").text(), "php");
}

#[test]
fn reload_follows_reload_in_mode_pool_and_no_request_fails() {
    let fixture = Fixture::named("pool-reload")
        .script("pid.php", "<?php usleep(2000); echo getmypid();")
        .children(2)
        .pool("mode = \"pool\"")
        .start();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let pids = std::sync::Mutex::new(std::collections::BTreeSet::new());
    let seen = || pids.lock().unwrap().len();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let answer = fixture.get("/pid.php");
                    assert_eq!(answer.status(), 200, "{}", answer.text());
                    pids.lock().unwrap().insert(answer.text());
                }
            });
        }
        fixture.wait("the first processes", |_| seen() > 0);
        for _ in 0..3 {
            let before = seen();
            fixture.reload();
            fixture.wait("a process of the new configuration", |_| seen() > before);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Writes a script that was last changed this many seconds ago: opcache compares whole seconds, and does not cache a
/// file that was changed less than two seconds ago.
fn script_of_age(fixture: &Fixture, text: &str, seconds: u64) {
    write_aged(&fixture.path("site/changed.php"), text, seconds);
}

fn write_aged(path: &Path, text: &str, seconds: u64) {
    std::fs::write(path, format!("<?php echo '{text}';")).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let then = std::time::SystemTime::now() - Duration::from_secs(seconds);
    file.set_modified(then).unwrap();
}

#[test]
fn in_production_watched_files_and_a_moved_link_take_effect_by_themselves() {
    let builder = Fixture::named("deploy")
        .children(2)
        .pool("php_value = { \"opcache.validate_timestamps\" = 0 }\nwatch = [\"SCRATCH/current/**/*.php\"]")
        .root("current")
        .site("name = \"deploy\"");
    let scratch = builder.scratch().path().to_owned();
    let release = |number: &str, text: &str| {
        let directory = scratch.join("releases").join(number);
        std::fs::create_dir_all(&directory).unwrap();
        write_aged(&directory.join("changed.php"), text, 100);
    };
    release("1", "1");
    release("2", "2");
    std::os::unix::fs::symlink("releases/1", scratch.join("current")).unwrap();
    let fixture = builder.start();
    let load = Load::new(fixture.address(), "/changed.php", "").expecting(|_| true);
    let load = load.clients(2).start(LoadEnd::OnFinish);
    let shows = |text: &str| fixture.wait(text, |f| f.get("/changed.php").text() == text);
    shows("1");
    release("1", "patched");
    shows("patched");
    std::os::unix::fs::symlink("releases/2", scratch.join("next")).unwrap();
    std::fs::rename(scratch.join("next"), scratch.join("current")).unwrap();
    shows("2");
    // The new release is watched in turn.
    fixture.wait_for_log(&["PoolRestart", "watched file"]);
    release("2", "again");
    shows("again");
    load.finish().only(&["200"]);
}

#[test]
fn changed_file_shows_at_once_in_development_and_with_a_reload_in_production() {
    for mode in ["embed", "pool"] {
        for (setting, shown) in [("revalidate_freq", "new"), ("validate_timestamps", "old")] {
            let fixture = Fixture::named("changed")
                .children(1)
                .pool(&format!(
                    "mode = \"{mode}\"\nphp_value = {{ \"opcache.{setting}\" = 0 }}"
                ))
                .start();
            script_of_age(&fixture, "old", 100);
            assert_eq!(fixture.get("/changed.php").text(), "old");
            assert_eq!(fixture.get("/changed.php").text(), "old");
            script_of_age(&fixture, "new", 50);
            let text = fixture.get("/changed.php").text();
            assert_eq!(text, shown, "{mode} {setting}");
            fixture.reload();
            let text = fixture.get("/changed.php").text();
            assert_eq!(text, "new", "{mode} {setting} after the reload");
        }
    }
}
