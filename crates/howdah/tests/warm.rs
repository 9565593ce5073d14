//! `howdah warm` with the real PHP, and a server that starts with the compiled files.

mod support;

use std::fs::File;

use support::{Scratch, ServerUnderTest, howdah, run};

#[test]
fn warm_compiles_files_for_a_fresh_server_and_names_failures() {
    let scratch = Scratch::new("warm");
    let page = scratch.write(
        "app/index.php",
        "<?php require 'one.inc'; echo one(), 'old';",
    );
    scratch.write("app/one.inc", "<?php function one() { return 1; }");
    scratch.write("app/sub/two.php", "<?php function one() { return 2; }");
    scratch.write("app/readme.txt", "no PHP");
    scratch.write("app/broken.php", "<?php\nfunction (");
    scratch.write("app/tests/broken.php", "<?php function (");
    let app = scratch.path("app").display().to_string();
    let cache = scratch.path("cache");
    let setting = format!("opcache.file_cache={}", cache.display());
    let warm = |more: &[&str]| {
        let arguments = [
            &["warm", &app, "-d", &setting, "--exclude", "tests/**"],
            more,
        ]
        .concat();
        run(&mut howdah(arguments))
    };
    let (code, out, errors) = warm(&[]);
    assert_eq!(code, 1, "{out}{errors}");
    assert!(out.starts_with("3 files are compiled in "), "{out}");
    let (why, rest) = errors.split_once('\n').unwrap();
    assert_eq!(rest, "");
    let named = format!("howdah warm: NotCompiled: {app}/broken.php: ");
    assert!(
        why.starts_with(&named) && why.ends_with(" on line 2"),
        "{why}"
    );
    let (code, out, errors) = warm(&["--exclude", "broken.php"]);
    assert_eq!(code, 0, "{out}{errors}");

    // The changed file keeps its former modification time, so opcache takes it for unchanged.
    let then = page.metadata().unwrap().modified().unwrap();
    scratch.write(
        "app/index.php",
        "<?php require 'one.inc'; echo one(), 'new';",
    );
    File::options()
        .append(true)
        .open(&page)
        .unwrap()
        .set_modified(then)
        .unwrap();
    let server = ServerUnderTest::start(&scratch, &[&app, "-d", &setting]);
    assert_eq!(server.get("/index.php").1, "1old");
}

#[test]
fn warm_without_a_file_cache_says_what_to_do() {
    let scratch = Scratch::new("warm-nowhere");
    scratch.write("index.php", "<?php");
    let directory = scratch.path("").display().to_string();
    let (code, _, errors) = run(&mut howdah(["warm", &directory]));
    assert_eq!(code, 1);
    let why = "howdah warm: NoFileCache: opcache.file_cache is not set, or PHP cannot use it";
    assert!(errors.starts_with(why), "{errors}");
}

#[test]
fn warm_uses_the_settings_of_a_configured_pool() {
    let scratch = Scratch::new("warm-pool");
    scratch.write("app/index.php", "<?php echo 1;");
    let (app, cache) = (scratch.path("app"), scratch.path("cache"));
    let config = scratch.write(
        "howdah.toml",
        &format!(
            "[pool.other]\nmode = \"fastcgi\"\nfastcgi = [\"127.0.0.1:9\"]\n[pool.own]\nmode = \"embed\"\n\
             [pool.own.php_value]\n\"opcache.file_cache\" = {cache:?}\n[[site]]\nroot = {app:?}\npool = \"own\"\n"
        ),
    );
    let (config, app) = (config.display().to_string(), app.display().to_string());
    let warm = |more: &[&str]| {
        let arguments = [&["warm", &app, "--config", &config], more].concat();
        run(&mut howdah(arguments))
    };
    for more in [&[][..], &["--pool", "own"]] {
        let (code, out, errors) = warm(more);
        assert_eq!(code, 0, "{errors}");
        assert!(out.starts_with("1 file is compiled in "), "{out}");
    }
    let (code, _, errors) = warm(&["--pool", "other"]);
    assert_eq!(code, 3, "{errors}");
    let why = format!("{config} has no pool `other` of mode embed or worker");
    assert!(errors.contains(&why), "{errors}");
}
