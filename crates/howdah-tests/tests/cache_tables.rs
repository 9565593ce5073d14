//! Table versions (`cache_tables`): a page is old after a write to a table it may be made of, at once,
//! and stays through writes to others; whatever a run does beside its statements makes it depend on all
//! writes.

use std::net::SocketAddr;

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{Response, exchange};
use howdah_tests::mariadb::Mariadb;

/// Of both databases: `$db` is a connection by PDO.
const LITE: &str = r#"<?php
$file = 'SCRATCH/db/site.sqlite';
$db = new PDO("sqlite:$file", null, null, [PDO::ATTR_TIMEOUT => 20]);
function lite() { global $file; $lite = new SQLite3($file); $lite->busyTimeout(20000); return $lite; }
"#;
const MARIA: &str = r#"<?php
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
function pdo($more = []) {
    return new PDO('mysql:unix_socket=SOCKET;dbname=site;charset=utf8mb4', 'site', 'secret', $more);
}
$db = pdo();
function my($host = 'localhost') { return new mysqli($host, 'site', 'secret', 'site', 0, 'SOCKET'); }
"#;

/// A page made of `a`, and one made of `a` and `b`.
const PAGE: &str = r#"<?php require 'db.php';
if (@file_get_contents('SCRATCH/db/stand') === 'on') { require 'GATES'; stand_at('slow'); }
echo 'text=', $db->query('SELECT x.text FROM a AS x')->fetchColumn(), ' end';
"#;
const JOINED: &str = r#"<?php require 'db.php';
$read = $db->prepare('SELECT CONCAT_OR FROM a WHERE EXISTS (SELECT 1 FROM "b" WHERE b.text <> ?)');
$read->execute(['']);
echo 'text=', $read->fetchColumn(), ' end';
"#;

/// Writes to the table `t`, in the way `via`.
const WRITE: &str = r#"<?php require 'db.php';
$t = $_GET['t'];
$value = $_GET['value'] ?? '';
$sql = "UPDATE $t SET text = '$value'";
switch ($_GET['via']) {
case 'pdo': $db->exec($sql); break;
case 'prepared': $db->prepare("UPDATE `$t` SET text = ?")->execute([$value]); break;
case 'transaction': $db->beginTransaction(); $db->exec($sql); $db->commit(); break;
case 'late': register_shutdown_function(function () { global $db, $sql; $db->exec($sql); }); break;
case 'sqlite3': lite()->exec($sql); break;
case 'sqlite3-prepared':
    $write = lite()->prepare("UPDATE $t SET text = :v");
    $write->bindValue(':v', $value);
    $write->execute();
    break;
case 'real': pdo([PDO::ATTR_EMULATE_PREPARES => false])->prepare("UPDATE $t SET text = ?")->execute([$value]); break;
case 'mysqli': my()->query($sql); break;
case 'mysqli-prepared':
    $my = my();
    $write = $my->prepare("UPDATE $t SET text = ?");
    $write->bind_param('s', $value);
    $write->execute();
    break;
case 'select': $db->exec("INSERT INTO $t SELECT text FROM b LIMIT 0"); $db->exec($sql); break;
case 'file': $db->exec($sql); file_put_contents('SCRATCH/db/some', 'x'); break;
case 'only-file': file_put_contents('SCRATCH/db/some', 'x'); break;
case 'nothing': break;
case 'alter': $db->exec("ALTER TABLE $t ADD n" . random_int(1, 1 << 30) . ' INT'); break;
case 'two': $db->exec("UPDATE a SET text = text; UPDATE $t SET text = text"); break;
case 'multi': $db->exec("UPDATE $t, d SET $t.text = '$value'"); break;
}
echo 'done';
"#;

/// Reads `a` and does something else, by name.
const BEYOND: &str = r#"<?php require 'db.php';
$read = fn() => $db->query('SELECT text FROM a')->fetchColumn();
$text = $read();
switch (basename($_SERVER['SCRIPT_NAME'], '.php')) {
case 'none': break;
case 'function': curl_version(); break;
case 'closure': Closure::fromCallable('curl_version')(); break;
case 'callback': array_map('curl_strerror', [1]); break;
case 'method': new CURLFile('/dev/null'); break;
case 'process': shell_exec('true'); break;
case 'socket': @stream_socket_client('tcp://127.0.0.1:9', $no, $why, 1); break;
case 'stream': @file_get_contents('http://127.0.0.1:9/'); break;
case 'file': file_put_contents('SCRATCH/db/own', 'x'); break;
case 'touch': touch('SCRATCH/db/own'); break;
case 'schema': $db->query("SELECT name FROM sqlite_master")->fetchAll(); break;
case 'blob': @lite()->openBlob('a', 'text', 1); break;
case 'several': lite()->querySingle('SELECT 1; SELECT 2'); break;
case 'kept': new PDO("sqlite:$file", null, null, [PDO::ATTR_PERSISTENT => true]); break;
case 'user': $db->query('SELECT own_function(1)'); break;
case 'variable': $db->query('SELECT @a'); break;
case 'system': $db->query('SELECT COUNT(*) FROM information_schema.tables'); break;
case 'show': $db->query('SHOW INDEX FROM a'); break;
case 'set': my()->query("SET SESSION sql_mode = 'ANSI_QUOTES'"); break;
case 'charset': my()->set_charset('gbk'); break;
case 'escapes': my()->query("SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'"); break;
case 'p-pdo': pdo([PDO::ATTR_PERSISTENT => true]); break;
case 'temporary': $db->exec('CREATE TEMPORARY TABLE z AS SELECT text FROM b'); break;
case 'lock': $db->exec('LOCK TABLES a READ'); break;
}
echo "text=$text end";
"#;

fn ask(address: SocketAddr, method: &str, path: &str) -> Response {
    let length = if method == "GET" {
        ""
    } else {
        "Content-Length: 0\r\n"
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: example.org\r\n{length}Connection: close\r\n\r\n"
    );
    exchange(address, request.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// The page as the next reader gets it: its text, and whether it was in the cache.
fn read(fixture: &Fixture, path: &str) -> (String, bool) {
    let page = ask(fixture.address(), "GET", path);
    let text = page.text();
    let text = text
        .strip_prefix("text=")
        .and_then(|t| t.strip_suffix(" end"));
    let text = text.unwrap_or_else(|| panic!("{path}: {}", page.text()));
    (text.to_owned(), page.header("X-Cache") == Some("HIT"))
}

fn is_kept(fixture: &Fixture, path: &str) -> bool {
    read(fixture, path).1
}

fn write(fixture: &Fixture, method: &str, via: &str, table: &str, value: &str) {
    let path = format!("/write.php?via={via}&t={table}&value={value}");
    let done = ask(fixture.address(), method, &path);
    assert_eq!(done.text(), "done", "{via} {table}");
}

fn explain(fixture: &Fixture, path: &str) -> String {
    let output = fixture.control(&["cache", "explain", &format!("http://example.org{path}")]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn site(builder: Builder, db: &str, joined: &str) -> Builder {
    builder.scratch().writable_dir("db");
    builder
        .children(3)
        .script("db.php", db)
        .script("a.php", PAGE)
        .script("ab.php", &JOINED.replace("CONCAT_OR", joined))
        .script("write.php", WRITE)
}

fn lite(name: &str, beyond: &[&str]) -> Fixture {
    let mut builder = site(Fixture::named(name), LITE, "a.text || b.text");
    builder = builder.script("ab.php", &JOINED.replace("CONCAT_OR", "a.text"));
    for way in beyond {
        builder = builder.script(&format!("{way}.php"), BEYOND);
    }
    builder = builder.script(
        "make.php",
        "<?php require 'db.php';
         foreach (['a', 'b', 'c'] as $t) { $db->exec(\"CREATE TABLE $t (text TEXT)\"); $db->exec(\"INSERT INTO $t VALUES ('first')\"); }
         echo 'done';",
    );
    let fixture = builder
        .site("cache = \"on\"\ncache_tables = \"on\"")
        .start();
    assert_eq!(
        ask(fixture.address(), "GET", "/make.php?once").text(),
        "done"
    );
    fixture
}

fn maria(name: &str, mariadb: &Mariadb, beyond: &[&str]) -> Fixture {
    let socket = mariadb.socket().display().to_string();
    let joined = "a.text";
    let mut builder = site(
        Fixture::named(name),
        &MARIA.replace("SOCKET", &socket),
        joined,
    )
    .script(
        "ab.php",
        &JOINED.replace("CONCAT_OR", joined).replace('"', "`"),
    );
    for way in beyond {
        builder = builder.script(&format!("{way}.php"), &BEYOND.replace("lite()", "$db"));
    }
    builder
        .site("cache = \"on\"\ncache_tables = \"on\"")
        .start()
}

/// Both pages are in the cache, and both are right after each write in these ways.
fn check_ways(fixture: &Fixture, ways: &[&str]) {
    let mut value = 0;
    for method in ["GET", "POST"] {
        for via in ways {
            let context = format!("{method} {via}");
            for path in ["/a.php", "/ab.php"] {
                // Its own, then for all.
                read(fixture, path);
                read(fixture, path);
                assert!(
                    is_kept(fixture, path),
                    "{context} {path}: {}",
                    explain(fixture, path)
                );
            }
            write(fixture, method, via, "c", "x");
            assert!(
                is_kept(fixture, "/a.php"),
                "{context}: {}",
                explain(fixture, "/a.php")
            );
            assert!(is_kept(fixture, "/ab.php"), "{context}");
            write(fixture, method, via, "b", "x");
            assert!(is_kept(fixture, "/a.php"), "{context}");
            assert!(!is_kept(fixture, "/ab.php"), "{context}");
            value += 1;
            write(fixture, method, via, "a", &format!("new{value}"));
            assert_eq!(
                read(fixture, "/a.php"),
                (format!("new{value}"), false),
                "{context}"
            );
            assert_eq!(
                read(fixture, "/ab.php"),
                (format!("new{value}"), false),
                "{context}"
            );
        }
    }
}

#[test]
fn a_write_to_sqlite_makes_only_pages_of_its_table_old() {
    let fixture = lite("cache-tables-sqlite", &[]);
    check_ways(
        &fixture,
        &[
            "pdo",
            "prepared",
            "transaction",
            "late",
            "sqlite3",
            "sqlite3-prepared",
        ],
    );
    let said = explain(&fixture, "/ab.php");
    assert!(said.contains("made of the tables a, b"), "{said}");
    write(&fixture, "GET", "pdo", "b", "x");
    let said = explain(&fixture, "/ab.php");
    assert!(said.contains("old since a write to b"), "{said}");
    let status = fixture.status();
    let tables = &status["cache"]["sites"][0]["tables"];
    assert!(tables["known"].as_u64().unwrap() > 20, "{status}");
    assert!(tables["narrow"].as_u64().unwrap() > 20, "{status}");
    // What cannot be said of one table is said of all.
    for (method, via) in [
        ("GET", "alter"),
        ("GET", "two"),
        ("POST", "file"),
        ("POST", "only-file"),
    ] {
        read(&fixture, "/a.php");
        assert!(is_kept(&fixture, "/a.php"), "{method} {via}");
        write(&fixture, method, via, "c", "x");
        assert!(!is_kept(&fixture, "/a.php"), "{method} {via}");
    }
    read(&fixture, "/a.php");
    write(&fixture, "POST", "nothing", "c", "x");
    assert!(is_kept(&fixture, "/a.php"), "a POST that does nothing");
}

#[test]
fn a_write_to_mariadb_makes_only_pages_of_its_table_old() {
    let mariadb = Mariadb::start();
    mariadb.create("site", "site", "secret");
    for table in ["a", "b", "c", "d"] {
        mariadb.sql(&format!(
            "CREATE TABLE site.{table} (text TEXT); INSERT INTO site.{table} VALUES ('first');"
        ));
    }
    mariadb.sql("CREATE FUNCTION site.own_function(n INT) RETURNS INT RETURN n");
    let beyond = [
        "user",
        "variable",
        "system",
        "show",
        "set",
        "charset",
        "escapes",
        "p-pdo",
        "temporary",
        "lock",
    ];
    let fixture = maria("cache-tables-mariadb", &mariadb, &beyond);
    check_ways(
        &fixture,
        &[
            "pdo",
            "prepared",
            "transaction",
            "real",
            "mysqli",
            "mysqli-prepared",
            "select",
        ],
    );
    check_beyond(&fixture, &beyond);
    read(&fixture, "/a.php");
    read(&fixture, "/a.php");
    write(&fixture, "GET", "multi", "c", "x");
    assert!(!is_kept(&fixture, "/a.php"), "a write to two tables");
}

/// Pages by these scripts are kept, and old after a write to a table they do not read.
fn check_beyond(fixture: &Fixture, ways: &[&str]) {
    for way in ways {
        let path = format!("/{way}.php");
        read(fixture, &path);
        read(fixture, &path);
        let said = explain(fixture, &path);
        assert!(
            said.contains("made of more than known tables: "),
            "{way}: {said}"
        );
        assert!(said.contains(&format!("{way}.php:")), "{way}: {said}");
        assert!(is_kept(fixture, &path), "{way}: {said}");
        read(fixture, "/a.php");
        read(fixture, "/a.php");
        write(fixture, "GET", "pdo", "c", "x");
        assert!(!is_kept(fixture, &path), "{way}");
        assert!(is_kept(fixture, "/a.php"), "{way}");
    }
}

#[test]
fn a_page_made_of_more_than_known_tables_is_old_after_every_write() {
    let ways = [
        "function", "closure", "callback", "process", "socket", "stream", "file", "touch",
        "schema", "blob", "several", "kept",
    ];
    let fixture = lite("cache-tables-beyond", &[&ways[..], &["none"]].concat());
    check_beyond(&fixture, &ways);
    read(&fixture, "/none.php");
    read(&fixture, "/none.php");
    write(&fixture, "GET", "pdo", "c", "x");
    assert!(is_kept(&fixture, "/none.php"));
}

#[test]
fn a_render_under_way_is_discarded_if_its_table_is_written_to_and_kept_otherwise() {
    let fixture = lite("cache-tables-race", &[]);
    fixture.get("/a.php");
    for (table, expected) in [("c", "first"), ("a", "later")] {
        fixture.write("db/stand", "on");
        let gate = fixture.gate("slow");
        let reader = fixture.get_meanwhile("/a.php");
        let standing = gate.wait();
        fixture.write("db/stand", "off");
        write(&fixture, "GET", "pdo", table, "later");
        standing.open();
        assert_eq!(reader.answer().text(), format!("text={expected} end"));
        let next = fixture.get("/a.php");
        assert_eq!(next.text(), format!("text={expected} end"));
        assert_eq!(next.header("X-Cache"), Some("HIT"), "{table}");
        write(&fixture, "GET", "alter", "b", "");
    }
}
