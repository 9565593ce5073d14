//! The page cache and PostgreSQL: like `writes.rs`, for ext/pgsql and PDO_PGSQL, and for the effects that a
//! `SELECT` may have in PostgreSQL.

use howdah_tests::fixture::Fixture;
use howdah_tests::postgres::Postgres;

use crate::written::{ask, check_write, keep, read};

/// The schema that the script uses. The page shows the newest row.
const SCHEMA: &str = "
    CREATE TABLE page (id serial PRIMARY KEY, text text);
    INSERT INTO page (text) VALUES ('first');
    CREATE TABLE counter (n int);
    CREATE SEQUENCE numbers;
    CREATE FUNCTION put(t text) RETURNS int LANGUAGE sql AS 'UPDATE page SET text = t; SELECT 1';
    CREATE FUNCTION tick() RETURNS int LANGUAGE sql AS 'INSERT INTO counter VALUES (1); SELECT 1';
    CREATE PROCEDURE store(t text) LANGUAGE sql AS 'UPDATE page SET text = t';
";

const SCRIPT: &str = r#"<?php
function pg() { return pg_connect('host=HOST user=site dbname=postgres'); }
function pdo($emulate = false) {
    return new PDO('pgsql:host=HOST;user=site;dbname=postgres', null, null, [PDO::ATTR_EMULATE_PREPARES => $emulate]);
}
function results($db) { while ($result = pg_get_result($db)) { pg_num_rows($result); } }
$value = $_GET['value'] ?? '';
$sql = "UPDATE page SET text = '$value'";
$with = 'UPDATE page SET text = $1';
switch ($_GET['via'] ?? 'read') {
case 'read':
    $row = pg_fetch_row(pg_query(pg(), 'SELECT text FROM page ORDER BY id DESC LIMIT 1'));
    echo "text=$row[0] end";
    exit;
case 'pg-query': pg_query(pg(), $sql); break;
case 'pg-default-connection': $db = pg(); @pg_query($sql); break;
case 'pg-exec': pg_exec(pg(), $sql); break;
case 'pg-several': pg_query(pg(), "SELECT 1; $sql; SELECT 2"); break;
case 'pg-params': pg_query_params(pg(), $with, [$value]); break;
case 'pg-prepared': $db = pg(); pg_prepare($db, 'put', $with); pg_execute($db, 'put', [$value]); break;
case 'pg-unnamed':
    $db = pg();
    pg_prepare($db, '', 'SELECT $1::text');
    pg_query_params($db, $with, ['before']);
    pg_prepare($db, '', $with);
    pg_execute($db, '', [$value]);
    break;
case 'pg-prepared-by-sql':
    $db = pg();
    pg_prepare($db, 'put', 'SELECT $1::text');
    pg_query($db, 'DEALLOCATE put');
    pg_query($db, "PREPARE put(text) AS $with");
    pg_execute($db, 'put', [$value]);
    break;
case 'pg-transaction': $db = pg(); foreach (['BEGIN', $sql, 'COMMIT'] as $one) { pg_query($db, $one); } break;
case 'pg-async': $db = pg(); pg_send_query($db, $sql); results($db); break;
case 'pg-async-unread': $late = pg(); pg_send_query($late, $sql); break;
case 'pg-async-params': $db = pg(); pg_send_query_params($db, $with, [$value]); results($db); break;
case 'pg-async-prepared':
    $db = pg();
    pg_send_prepare($db, 'put', $with); results($db);
    pg_send_execute($db, 'put', [$value]); results($db);
    break;
case 'pg-update': pg_update(pg(), 'page', ['text' => $value], ['id' => 1]); break;
case 'pg-insert': pg_insert(pg(), 'page', ['text' => $value]); break;
case 'pg-copy': pg_copy_from(pg(), 'page', ["100\t$value\n"]); break;
case 'pg-put-line':
    $db = pg();
    pg_query($db, 'COPY page FROM STDIN');
    pg_put_line($db, "101\t$value\n"); pg_put_line($db, "\\.\n"); pg_end_copy($db);
    break;
case 'pg-delete': pg_delete(pg(), 'page', ['id' => 101]); break;
case 'pdo-exec': pdo()->exec($sql); break;
case 'pdo-query': pdo()->query($sql); break;
case 'pdo-prepared': pdo()->prepare('UPDATE page SET text = ?')->execute([$value]); break;
case 'pdo-emulated': pdo(true)->prepare('UPDATE page SET text = :v')->execute(['v' => $value]); break;
case 'pdo-transaction': $db = pdo(); $db->beginTransaction(); $db->exec($sql); $db->commit(); break;
case 'pdo-copy': pdo()->pgsqlCopyFromArray('page', ["102\t$value"]); break;
case 'function': pg_query(pg(), "SELECT put('$value')"); break;
case 'function-prepared': pdo()->prepare('SELECT put(?)')->execute([$value]); break;
case 'do': pg_query(pg(), "DO $$ BEGIN EXECUTE 'UP' || 'DATE page SET text = ''$value'''; END $$"); break;
case 'call': pg_query(pg(), "CALL store('$value')"); break;
case 'with': pg_query(pg(), "WITH d AS (UPDATE page SET text = '$value' RETURNING 1) SELECT * FROM d"); break;
case 'with-insert':
    pg_query(pg(), "WITH d AS (INSERT INTO page (id, text) VALUES (103, '$value') RETURNING 1) SELECT * FROM d");
    break;
case 'nextval': pg_query(pg(), "SELECT nextval('numbers')"); break;
case 'kept':
    $db = pg_pconnect('host=HOST user=site dbname=postgres');
    pg_prepare($db, 'kept', $with); pg_execute($db, 'kept', [$value]);
    break;
case 'kept-again': pg_execute(pg_pconnect('host=HOST user=site dbname=postgres'), 'kept', [$value]); break;
case 'rollback': $db = pg(); foreach (['BEGIN', $sql, 'ROLLBACK'] as $one) { pg_query($db, $one); } break;
case 'later':
    require 'GATES';
    $db = pg();
    pg_query($db, 'BEGIN'); pg_query($db, $sql);
    if (isset($_GET['flush'])) { echo str_repeat('.', 100); flush(); }
    stand_at($_GET['gate']);
    pg_query($db, 'COMMIT');
    break;
case 'counter': pg_insert(pg(), 'counter', ['n' => 1]); break;
case 'tick': pg_query(pg(), 'SELECT tick()'); break;
case 'nothing':
    $db = pg();
    pg_query($db, "SELECT count(*), coalesce(max(text), lower('X')), now(), random() FROM page GROUP BY (id)");
    pg_query_params($db, 'SELECT id::numeric(10,2) FROM page WHERE id = ANY ($1)', ['{1}']);
    pg_prepare($db, 'get', 'SELECT text FROM page WHERE id IN ($1)'); pg_execute($db, 'get', [1]);
    pg_query($db, 'BEGIN'); pg_query($db, 'WITH a(b) AS (SELECT 1) SELECT * FROM a, page FOR UPDATE OF page');
    pg_query($db, 'COMMIT');
    pg_select($db, 'page', ['id' => 1]); pg_meta_data($db, 'page'); pg_copy_to($db, 'page');
    pg_send_query($db, 'SELECT 1'); results($db);
    pdo()->prepare('SELECT * FROM page WHERE id = ?')->execute([1]);
    pdo()->pgsqlCopyToArray('page');
    break;
}
echo 'done';
"#;

fn serve(name: &str, children: usize, postgres: &Postgres, lines: &str) -> Fixture {
    let host = postgres.host().display().to_string();
    Fixture::named(name)
        .children(children)
        .script("page.php", &SCRIPT.replace("HOST", &host))
        .site(&format!("cache = \"on\"\n{lines}"))
        .start()
}

/// Returns whether a page is still in the cache after one request with `via`.
fn is_kept_over(fixture: &Fixture, via: &str) -> bool {
    keep(fixture, "/page.php");
    let done = ask(fixture.address(), &format!("/page.php?via={via}&value=no"));
    assert_eq!(done.text(), "done", "{via}");
    read(fixture, "/page.php").1
}

#[test]
fn write_to_postgresql_by_any_way_php_has_makes_pages_old_before_its_answer() {
    let postgres = Postgres::start();
    postgres.sql(SCHEMA);
    let fixture = serve("cache-postgres", 3, &postgres, "");
    for via in [
        "pg-query",
        "pg-default-connection",
        "pg-exec",
        "pg-several",
        "pg-params",
        "pg-prepared",
        "pg-unnamed",
        "pg-prepared-by-sql",
        "pg-transaction",
        "pg-async",
        "pg-async-unread",
        "pg-async-params",
        "pg-async-prepared",
        "pdo-exec",
        "pdo-query",
        "pdo-prepared",
        "pdo-emulated",
        "pdo-transaction",
        "function",
        "function-prepared",
        "do",
        "call",
        "with",
        // These ways also insert rows or select rows by their id; the page shows the newest row.
        "pg-update",
        "pg-insert",
        "pg-copy",
        "pg-put-line",
    ] {
        check_write(&fixture, "/page.php", via);
    }
    postgres.sql("UPDATE page SET text = 'by-pg-delete' WHERE id < 101");
    for via in ["pg-delete", "pdo-copy", "with-insert"] {
        check_write(&fixture, "/page.php", via);
    }
    assert!(
        !is_kept_over(&fixture, "nextval"),
        "a sequence has advanced"
    );
    assert!(
        is_kept_over(&fixture, "nothing"),
        "a read invalidates no page"
    );
    drop(fixture);
    // These ways use a prepared statement that an earlier request left on the only connection of the only child.
    let fixture = serve("cache-postgres-kept", 1, &postgres, "");
    for via in ["kept", "kept-again"] {
        check_write(&fixture, "/page.php", via);
    }
}

#[test]
fn transaction_invalidates_pages_when_it_is_committed_not_when_it_is_rolled_back() {
    let postgres = Postgres::start();
    postgres.sql(SCHEMA);
    let noise = "cache_ignore_writes = [\"counter\", \"tick()\"]";
    let fixture = serve("cache-postgres-later", 3, &postgres, noise);
    is_kept_over(&fixture, "rollback");
    assert_eq!(read(&fixture, "/page.php").0, "first");
    for flush in ["", "&flush"] {
        let before = read(&fixture, "/page.php").0;
        let gate = fixture.gate("later");
        let value = format!("later{}", flush.len());
        let path = format!("/page.php?via=later&gate=later&value={value}{flush}");
        let writer = fixture.start_get(&path);
        let standing = gate.wait();
        for _ in 0..3 {
            let text = read(&fixture, "/page.php").0;
            assert_eq!(text, before, "nothing has been committed yet");
        }
        standing.open();
        assert!(writer.answer().text().ends_with("done"));
        assert_eq!(read(&fixture, "/page.php").0, value);
    }
    for via in ["counter", "tick"] {
        assert!(is_kept_over(&fixture, via), "{via} is configured as noise");
    }
    assert!(
        !is_kept_over(&fixture, "function"),
        "another function is not configured as noise"
    );
    let explained = fixture.control(&["cache", "explain", "http://example.org/page.php"]);
    let said = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(
        said.contains("pages were invalidated by SELECT put() at "),
        "{said}"
    );
}
