//! The page cache across a reload: the cache starts empty, and a script that was started before the reload and is still
//! running also invalidates pages that were stored since.

use std::path::PathBuf;

use howdah_tests::fixture::Fixture;

/// A page from a database, and writers that wait at a gate in the middle of their run.
const SCRIPT: &str = r#"<?php
require 'GATES';
$db = new PDO('sqlite:SCRATCH/db/site.sqlite', null, null, [PDO::ATTR_TIMEOUT => 20]);
$value = $_GET['value'] ?? $_POST['value'] ?? '';
switch ($_GET['via'] ?? 'read') {
case 'make': $db->exec('CREATE TABLE page (text TEXT)'); $db->exec("INSERT INTO page VALUES ('first')"); break;
case 'read': echo 'text=', $db->query('SELECT text FROM page')->fetchColumn(), file_get_contents('SCRATCH/db/more'); exit;
case 'commit':
    $db->exec('BEGIN IMMEDIATE'); $db->exec("UPDATE page SET text = '$value'");
    stand_at('writer');
    $db->exec('COMMIT');
    break;
case 'purge':
    stand_at('writer');
    file_put_contents('SCRATCH/db/more', $value);
    howdah_cache_purge('/page.php');
    break;
case 'finished':
    echo 'done'; fastcgi_finish_request();
    stand_at('writer');
    $db->exec("UPDATE page SET text = '$value'");
    exit;
}
echo 'done';
"#;

fn serve(name: &str) -> Fixture {
    let builder = Fixture::named(name).children(3);
    builder.scratch().writable_dir("db");
    builder.scratch().write("db/more", "");
    let fixture = builder
        .script("page.php", SCRIPT)
        .site("name = \"one\"\ncache = \"on\"")
        .start();
    assert_eq!(fixture.get("/page.php?via=make").text(), "done");
    fixture
}

fn configuration(fixture: &Fixture) -> PathBuf {
    fixture.howdah.directory().join("howdah.toml")
}

fn change(fixture: &Fixture, from: &str, to: &str) {
    let text = std::fs::read_to_string(configuration(fixture)).unwrap();
    assert!(text.contains(from), "{from:?}: {text}");
    std::fs::write(configuration(fixture), text.replace(from, to)).unwrap();
    fixture.reload();
}

/// Requests the page until it comes from the cache.
fn keep(fixture: &Fixture, expected: &str) {
    let is_hit = |f: &Fixture| {
        let page = f.get("/page.php");
        assert_eq!(page.text(), format!("text={expected}"));
        page.header("X-Cache") == Some("HIT")
    };
    fixture.wait("the page to be stored", is_hit);
}

#[test]
fn writes_and_purges_of_runs_from_before_a_reload_invalidate_later_pages() {
    let fixture = serve("cache-reload");
    keep(&fixture, "first");
    fixture.reload();
    let again = fixture.get("/page.php");
    assert_eq!(
        again.header("X-Cache"),
        Some("MISS"),
        "the cache begins empty"
    );
    for (via, before, after) in [
        ("commit", "first", "by-commit"),
        ("purge", "by-commit", "by-commit purged"),
    ] {
        let gate = fixture.gate("writer");
        let value = after.rsplit(' ').next().unwrap();
        let space = if via == "purge" { "%20" } else { "" };
        let path = format!("/page.php?via={via}&value={space}{value}");
        let writer = fixture.start_get(&path);
        let standing = gate.wait();
        fixture.reload();
        keep(&fixture, before);
        standing.open();
        assert_eq!(writer.answer().text(), "done");
        assert_eq!(fixture.get("/page.php").text(), format!("text={after}"));
    }
}

#[test]
fn site_whose_name_or_cache_changed_gives_no_page_from_before_the_last_run_of_the_former() {
    let fixture = serve("cache-reload-changed");
    for (from, to, value) in [
        ("name = \"one\"", "name = \"another\"", "renamed"),
        ("cache = \"on\"", "cache = \"off\"", "off"),
        ("cache = \"off\"", "cache = \"on\"", "on again"),
    ] {
        let before = fixture.get("/page.php").text();
        let gate = fixture.gate("writer");
        let path = format!("/page.php?via=finished&value={}", value.replace(' ', "%20"));
        let writer = fixture.start_get(&path);
        let standing = gate.wait();
        assert_eq!(writer.answer().text(), "done");
        change(&fixture, from, to);
        if !to.contains("off") {
            keep(&fixture, before.strip_prefix("text=").unwrap());
        }
        standing.open();
        fixture.wait("the late write to be seen", |f| {
            f.get("/page.php").text() == format!("text={value}")
        });
    }
}
