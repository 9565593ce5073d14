//! The page cache and databases: a write through any of PHP's extensions invalidates pages before the writer's response
//! is sent, whatever the request was. All requests here are GETs, so only the statement itself reveals the write.

use howdah_machine::php;
use howdah_tests::fixture::Fixture;
use howdah_tests::mariadb::Mariadb;
use howdah_tests::rig::howdah_program;

use crate::written::{ask, check_write, is_hit, keep, read};

/// Shows the database's content, and writes to the database as `via` and `how` specify.
const SQLITE: &str = r#"<?php
$file = 'SCRATCH/db/site.sqlite';
function lite() { global $file; $db = new SQLite3($file); $db->busyTimeout(20000); return $db; }
function pdo() { global $file; return new PDO("sqlite:$file", null, null, [PDO::ATTR_TIMEOUT => 20]); }
$value = $_GET['value'] ?? '';
$sql = "UPDATE page SET text = '$value' WHERE id = 1";
switch ($_GET['via'] ?? 'read') {
case 'make':
    $db = lite();
    $db->exec('CREATE TABLE page (id INTEGER, text TEXT); CREATE TABLE counter (n INTEGER); CREATE TABLE log (name TEXT)');
    $db->exec("INSERT INTO page VALUES (1, 'first'); INSERT INTO counter VALUES (0)");
    break;
case 'read':
    $text = pdo()->query('SELECT text FROM page WHERE id = 1')->fetchColumn();
    if (@unlink('SCRATCH/db/stand')) { require 'GATES'; stand_at('slow'); }
    echo "text=$text end";
    exit;
case 'pdo-exec': pdo()->exec($sql); break;
case 'pdo-query': pdo()->query($sql); break;
case 'pdo-prepared':
    pdo()->prepare('UPDATE page SET text = ? WHERE id = 1')->execute([$value]);
    break;
case 'pdo-transaction':
    $db = pdo(); $db->beginTransaction(); $db->exec($sql); $db->commit();
    break;
case 'sqlite3-exec': lite()->exec($sql); break;
case 'sqlite3-query': lite()->query($sql); break;
case 'sqlite3-single': lite()->querySingle($sql); break;
case 'sqlite3-prepared':
    $statement = lite()->prepare('UPDATE page SET text = :v WHERE id = 1');
    $statement->bindValue(':v', $value);
    $statement->execute();
    break;
case 'subclass':
    class Mine extends PDO { function exec(string $s): int|false { return parent::exec($s); } }
    (new Mine("sqlite:$file"))->exec($sql);
    break;
case 'shutdown':
    register_shutdown_function(function () use ($sql) { pdo()->exec($sql); });
    break;
case 'destructor':
    class Late { function __destruct() { pdo()->exec($GLOBALS['sql']); } }
    $late = new Late;
    break;
case 'flushed':
    echo str_repeat('.', 100); flush();
    pdo()->exec($sql);
    break;
case 'died':
    pdo()->exec($sql);
    posix_kill(getmypid(), 9);
    break;
case 'finished':
    require 'GATES';
    echo 'finished';
    fastcgi_finish_request();
    stand_at($_GET['gate']);
    pdo()->exec($sql);
    touch('SCRATCH/db/written');
    exit;
case 'counter': pdo()->exec('UPDATE counter SET n = n + 1'); break;
case 'noise': pdo()->exec("INSERT INTO log (name) VALUES ('x')"); break;
case 'nothing': pdo()->exec('PRAGMA user_version'); pdo()->query('SELECT 1'); break;
}
echo 'done';
"#;

const MYSQL: &str = r#"<?php
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
function my() { return new mysqli('localhost', 'site', 'secret', 'site', 0, 'SOCKET'); }
function pdo($emulate = true) {
    return new PDO('mysql:unix_socket=SOCKET;dbname=site', 'site', 'secret', [PDO::ATTR_EMULATE_PREPARES => $emulate]);
}
$value = $_GET['value'] ?? '';
$sql = "UPDATE page SET text = '$value' WHERE id = 1";
switch ($_GET['via'] ?? 'read') {
case 'read':
    echo 'text=', my()->query('SELECT text FROM page WHERE id = 1')->fetch_row()[0], ' end';
    exit;
case 'mysqli-query': my()->query($sql); break;
case 'mysqli-real': mysqli_real_query(my(), $sql); break;
case 'mysqli-multi':
    $db = my(); $db->multi_query("SELECT 1; $sql");
    do { $db->store_result(); } while ($db->more_results() && $db->next_result());
    break;
case 'mysqli-async':
    $db = my(); $db->query($sql, MYSQLI_ASYNC); $db->reap_async_query();
    break;
case 'mysqli-prepared':
    $db = my();
    $statement = $db->prepare('UPDATE page SET text = ? WHERE id = 1');
    $statement->bind_param('s', $value);
    $statement->execute();
    break;
case 'mysqli-transaction':
    $db = my(); $db->begin_transaction(); $db->query($sql); $db->commit();
    break;
case 'mysqli-procedure': my()->query("CALL put('$value')"); break;
case 'pdo-exec': pdo()->exec($sql); break;
case 'pdo-emulated':
    pdo()->prepare('UPDATE page SET text = ? WHERE id = 1')->execute([$value]);
    break;
case 'pdo-prepared':
    pdo(false)->prepare('UPDATE page SET text = ? WHERE id = 1')->execute([$value]);
    break;
case 'pdo-transaction':
    $db = pdo(); $db->beginTransaction(); $db->exec($sql); $db->commit();
    break;
}
echo 'done';
"#;

/// This is a part of the schema of WordPress, whose preset recognises rows that are noise by their names.
const WORDPRESS_SCHEMA: &str = r#"<?php
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
$db = new PDO('mysql:unix_socket=SOCKET;dbname=site', 'site', 'secret', [PDO::ATTR_EMULATE_PREPARES => true]);
switch ($_GET['via'] ?? 'read') {
case 'read': echo 'text=', $db->query('SELECT COUNT(*) FROM wp_options')->fetchColumn(), ' end'; exit;
case 'transient':
    $db->prepare('INSERT INTO wp_options (option_name, option_value) VALUES (?, ?) ON DUPLICATE KEY UPDATE option_value = VALUES(option_value)')
        ->execute(['_transient_x', 'it\'s']);
    break;
case 'cron': $db->exec("UPDATE `wp_options` SET `option_value` = 'x' WHERE `option_name` = 'cron'"); break;
case 'option': $db->exec("INSERT INTO wp_options (option_name, option_value) VALUES ('blogname', 'x')"); break;
}
echo 'done';
"#;

fn sqlite(name: &str, lines: &str) -> Fixture {
    let builder = Fixture::named(name).children(3);
    builder.scratch().writable_dir("db");
    let fixture = builder
        .script("page.php", SQLITE)
        .site(&format!("cache = \"on\"\n{lines}"))
        .start();
    assert_eq!(ask(fixture.address(), "/page.php?via=make").text(), "done");
    fixture
}

#[test]
fn write_to_sqlite_by_any_way_php_has_makes_pages_old_before_its_answer() {
    let fixture = sqlite("cache-writes-sqlite", "");
    for via in [
        "pdo-exec",
        "pdo-query",
        "pdo-prepared",
        "pdo-transaction",
        "sqlite3-exec",
        "sqlite3-query",
        "sqlite3-single",
        "sqlite3-prepared",
        "subclass",
        "shutdown",
        "destructor",
        "flushed",
    ] {
        check_write(&fixture, "/page.php", via);
    }
    read(&fixture, "/page.php");
    assert_eq!(
        ask(fixture.address(), "/page.php?via=nothing").text(),
        "done"
    );
    assert!(read(&fixture, "/page.php").1, "a read invalidates no page");
}

#[test]
fn run_that_wrote_is_never_stored_and_explain_says_where() {
    let fixture = sqlite("cache-writes-refused", "");
    let path = "/page.php?via=pdo-exec&value=x";
    let told: Vec<String> = (0..4)
        .map(|_| ask(fixture.address(), path))
        .map(|page| page.header("Cache-Status").unwrap_or_default().to_owned())
        .collect();
    let wrote = "Howdah; fwd=miss; detail=DatabaseWrite";
    assert_eq!(told, [wrote; 4]);
    let url = format!("http://example.org{path}");
    let output = fixture.control(&["cache", "explain", &url]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = 1 + SQLITE
        .lines()
        .position(|l| l.starts_with("case 'pdo-exec'"))
        .unwrap();
    let place = format!("page.php:{line}");
    assert!(said.contains("because of DatabaseWrite"), "{said}");
    assert!(
        said.contains("UPDATE page at ") && said.contains(&place),
        "{said}"
    );
    assert!(
        said.contains("pages were invalidated by UPDATE page"),
        "{said}"
    );
}

#[test]
fn render_under_way_when_something_is_written_is_not_kept() {
    let fixture = sqlite("cache-writes-race", "");
    let path = "/page.php";
    fixture.get(path);
    fixture.write("db/stand", "");
    let gate = fixture.gate("slow");
    let reader = fixture.start_get(path);
    let standing = gate.wait();
    let written = ask(fixture.address(), "/page.php?via=pdo-exec&value=later");
    assert_eq!(written.text(), "done");
    standing.open();
    assert_eq!(
        reader.answer().text(),
        "text=later end",
        "the page is rendered again"
    );
    assert_eq!(read(&fixture, path).0, "later");
}

#[test]
fn writes_after_the_response_or_of_a_dying_process_invalidate_pages() {
    let fixture = sqlite("cache-writes-late", "");
    read(&fixture, "/page.php");
    read(&fixture, "/page.php");
    let gate = fixture.gate("late");
    let finished = ask(
        fixture.address(),
        "/page.php?via=finished&gate=late&value=late",
    );
    assert_eq!(finished.text(), "finished");
    let standing = gate.wait();
    read(&fixture, "/page.php");
    assert!(
        read(&fixture, "/page.php").1,
        "nothing has been written yet"
    );
    standing.open();
    fixture.wait("the late write to be seen", |fixture| {
        read(fixture, "/page.php").0 == "late"
    });
    assert!(fixture.path("db/written").exists());
    read(&fixture, "/page.php");
    let died = ask(fixture.address(), "/page.php?via=died&value=dead");
    assert_eq!(died.status(), 502, "{}", died.text());
    assert_eq!(read(&fixture, "/page.php").0, "dead");
}

#[test]
fn noise_makes_nothing_old() {
    let fixture = sqlite("cache-writes-noise", "cache_ignore_writes = [\"count*\"]");
    read(&fixture, "/page.php");
    read(&fixture, "/page.php");
    assert_eq!(
        ask(fixture.address(), "/page.php?via=counter").text(),
        "done"
    );
    assert!(read(&fixture, "/page.php").1, "a counter is noise");
    // A page that writes nothing but its own counter may be stored.
    ask(fixture.address(), "/page.php?via=counter");
    let counted = ask(fixture.address(), "/page.php?via=counter");
    assert!(is_hit(&counted) || counted.header("Cache-Status").unwrap().contains("stored"));
    assert_eq!(ask(fixture.address(), "/page.php?via=noise").text(), "done");
    assert!(!read(&fixture, "/page.php").1, "another table is not noise");
}

/// Runs `howdah php WORDS` with this control socket, whether or not a server listens on it.
fn command_line(control: &std::path::Path, words: &[&str]) -> std::process::Output {
    std::process::Command::new(howdah_program())
        .args(["php", "--control"])
        .arg(control)
        .args(words)
        .output()
        .expect("howdah can be started")
}

#[test]
fn command_line_reports_its_writes_and_exits_with_the_status_of_its_script() {
    let fixture = sqlite("cache-writes-cli", "cache_ignore_writes = [\"log\"]");
    let control = fixture.path("control.sock");
    let file = fixture.path("db/site.sqlite").display().to_string();
    let code = format!(
        "(new PDO('sqlite:{file}'))->exec(\"UPDATE page SET text = 'by-cli'\"); fwrite(STDERR, 'said'); exit(7);"
    );
    read(&fixture, "/page.php");
    read(&fixture, "/page.php");
    assert!(read(&fixture, "/page.php").1);
    let output = command_line(&control, &["-r", &code]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.as_str()), (Some(7), "said"));
    assert_eq!(read(&fixture, "/page.php"), ("by-cli".to_owned(), false));
    // The script dies in the middle, after it has reported the write.
    let script = fixture.write(
        "die.php",
        format!(
            "<?php $db = new SQLite3('{file}'); $db->exec(\"UPDATE page SET text = '\" . $argv[1] . \"'\");
             posix_kill(getmypid(), 9);"
        ),
    );
    assert!(read(&fixture, "/page.php").1);
    let output = command_line(&control, &[script.to_str().unwrap(), "-x"]);
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(read(&fixture, "/page.php"), ("-x".to_owned(), false));
    // Nothing is reported for a statement that only reads.
    assert!(read(&fixture, "/page.php").1);
    let count = format!(
        "echo (new PDO('sqlite:{file}'))->query('SELECT COUNT(*) FROM page')->fetchColumn();"
    );
    let output = command_line(&control, &["-r", &count]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1");
    assert!(read(&fixture, "/page.php").1);
    // The message is longer than a short message may be, and the relevant write is at its end.
    assert!(read(&fixture, "/page.php").1);
    let many = format!(
        "$db = new PDO('sqlite:{file}');
         foreach (range(1, 50) as $n) $db->exec(\"DELETE FROM log WHERE name = '\" . str_repeat('x', 150) . \"$n'\");
         $db->exec(\"UPDATE page SET text = 'the last'\");"
    );
    let output = command_line(&control, &["-r", &many]);
    assert!(output.stderr.is_empty(), "{output:?}");
    assert_eq!(read(&fixture, "/page.php"), ("the last".to_owned(), false));
    // No server responds: the script has run, and its user is told what remains to be done.
    let output = command_line(&fixture.path("nobody.sock"), &["-r", &code]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{said}");
    for word in [
        "NoServer",
        "WritesNotTold",
        "UPDATE page",
        "howdah cache purge --all",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn command_line_is_as_under_php() {
    let fixture = Fixture::named("command-line").start();
    let control = fixture.path("control.sock");
    let script = fixture.write(
        "a.php",
        "#!/usr/bin/env php\n<?php echo PHP_SAPI, ' ', $argc, ' ', implode(',', $argv), ' ', $_SERVER['argc'], ' ',
         ini_get('max_execution_time'), ' ', ini_get('memory_limit'), ' ', trim(fgets(STDIN)), ' ', __FILE__;",
    );
    let script = script.to_str().unwrap();
    let run = |program: &str, first: &[&str]| {
        let input = fixture.write("input", "a line\n");
        std::process::Command::new(program)
            .args(first)
            .args(["-d", "memory_limit=77M", script, "-a", "--", "b"])
            .stdin(std::fs::File::open(input).unwrap())
            .output()
            .expect("the program can be started")
    };
    let control = control.to_str().unwrap();
    let ours = run(
        howdah_program().to_str().unwrap(),
        &["php", "--control", control],
    );
    let theirs = run(&php::expand_placeholders("php{php}"), &[]);
    assert_eq!(
        String::from_utf8_lossy(&ours.stdout),
        String::from_utf8_lossy(&theirs.stdout)
    );
    assert!(ours.stderr.is_empty(), "{ours:?}");
    // A server without a cache needs no reports.
    let write = "(new PDO('sqlite::memory:'))->exec('CREATE TABLE t (a)');";
    let output = command_line(control.as_ref(), &["-r", write]);
    assert!(output.stderr.is_empty(), "{output:?}");
    for (words, code, said) in [
        (&["-r", "exit(3);"][..], 3, ""),
        (&["-r", "no_such();"], 255, "undefined function"),
        (&["-r", "}"], 255, "Parse error"),
        // Without php.ini there is no extension to watch.
        (
            &["-n", "-r", "echo extension_loaded('pdo') ? 'pdo' : 'none';"],
            0,
            "none",
        ),
        (&["/no/such.php"], 1, "ScriptUnreadable"),
        (&["-c", "/no/such.ini", "-r", "1;"], 1, "PhpIniUnreadable"),
    ] {
        let mut all = vec!["php", "--control", control];
        all.extend(words);
        let output = std::process::Command::new(howdah_program())
            .args(all)
            .output()
            .expect("howdah can be started");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
        assert!(text.contains(said), "{words:?}: {text}");
    }
}

/// The connection and the statement are created once and used by all requests.
const WORKER: &str = r#"<?php
function stand_until($file) {
    for ($i = 0; $i < 20000 && !file_exists($file); $i++) { usleep(1000); clearstatcache(); }
}
$db = new PDO('sqlite:SCRATCH/db/site.sqlite', null, null, [PDO::ATTR_TIMEOUT => 20]);
$db->exec('CREATE TABLE IF NOT EXISTS page (id INTEGER PRIMARY KEY, text TEXT)');
$db->exec("INSERT OR IGNORE INTO page VALUES (1, 'first')");
$write = $db->prepare('UPDATE page SET text = ? WHERE id = 1');
while (frankenphp_handle_request(function () use ($db, $write) {
    $value = $_GET['value'] ?? '';
    switch ($_GET['via'] ?? 'read') {
    case 'read':
        echo 'text=', $db->query('SELECT text FROM page WHERE id = 1')->fetchColumn(), ' end';
        return;
    case 'prepared': $write->execute([$value]); break;
    case 'shutdown': register_shutdown_function(fn() => $write->execute([$value])); break;
    case 'session': session_start(['use_cookies' => 0, 'cache_limiter' => '']); break;
    case 'open': $db->beginTransaction(); $write->execute([$value]); break;
    case 'commit':
        if ($db->inTransaction()) {
            touch('SCRATCH/db/held');
            stand_until('SCRATCH/db/go');
            $db->commit();
        } else {
            stand_until('SCRATCH/db/held');
            echo 'not ';
        }
        break;
    }
    echo 'done';
})) {}
"#;

#[test]
fn worker_tells_of_each_request_what_it_did() {
    let builder = Fixture::named("cache-writes-worker")
        .children(2)
        .script("index.php", "<?php echo 'not the worker';")
        .script("worker.php", WORKER)
        .pool("mode = \"worker\"\nworker = \"SCRATCH/site/worker.php\"")
        .site("cache = \"on\"");
    builder.scratch().writable_dir("db");
    let fixture = builder.start();
    for via in ["prepared", "shutdown", "prepared"] {
        check_write(&fixture, "/index.php", via);
    }
    let told: Vec<String> = (0..2)
        .map(|_| ask(fixture.address(), "/index.php?via=session"))
        .map(|page| page.header("Cache-Status").unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        told[1], "Howdah; fwd=miss; detail=SessionOpened",
        "{told:?}"
    );
    // The next request does not get this session.
    keep(&fixture, "/index.php");

    let address = fixture.address();
    // One worker writes and leaves its transaction open, and the other reads the state before it.
    let (before, _) = read(&fixture, "/index.php");
    let open = "/index.php?via=open&value=late";
    assert_eq!(ask(fixture.address(), open).text(), "done");
    std::thread::scope(|scope| {
        // Each worker gets a request to commit. The two URLs differ, and each is requested only once, so neither is
        // rendered for the cache. The worker that can commit waits until the page is stored.
        let both = [1, 2].map(|n| {
            let path = format!("/index.php?via=commit&n={n}");
            scope.spawn(move || ask(address, &path).text())
        });
        fixture.wait("the worker to wait", |f| f.path("db/held").exists());
        keep(&fixture, "/index.php");
        assert_eq!(read(&fixture, "/index.php"), (before, true));
        std::fs::write(fixture.path("db/go"), "").expect("a file");
        let mut said = both.map(|asked| asked.join().expect("a response"));
        said.sort();
        assert_eq!(said, ["done", "not done"]);
    });
    let expected = ("late".to_owned(), false);
    assert_eq!(read(&fixture, "/index.php"), expected);
}

fn mysql(name: &str, mariadb: &Mariadb, script: &str, lines: &str) -> Fixture {
    let script = script.replace("SOCKET", &mariadb.socket().display().to_string());
    Fixture::named(name)
        .children(3)
        .script("page.php", &script)
        .site(&format!("cache = \"on\"\n{lines}"))
        .start()
}

#[test]
fn write_to_mariadb_by_any_way_php_has_makes_pages_old_and_transients_do_not() {
    let mariadb = Mariadb::start();
    mariadb.create("site", "site", "secret");
    mariadb.sql(
        "CREATE TABLE site.page (id INT, text TEXT); INSERT INTO site.page VALUES (1, 'first');
         CREATE PROCEDURE site.put(t TEXT) UPDATE site.page SET text = t;
         CREATE TABLE site.wp_options (option_name VARCHAR(191) PRIMARY KEY, option_value TEXT);
         INSERT INTO site.wp_options VALUES ('cron', '')",
    );
    let fixture = mysql("cache-writes-mysql", &mariadb, MYSQL, "");
    for via in [
        "mysqli-query",
        "mysqli-real",
        "mysqli-multi",
        "mysqli-async",
        "mysqli-prepared",
        "mysqli-transaction",
        "mysqli-procedure",
        "pdo-exec",
        "pdo-emulated",
        "pdo-prepared",
        "pdo-transaction",
    ] {
        check_write(&fixture, "/page.php", via);
    }
    drop(fixture);
    let preset = "cache_preset = \"wordpress\"";
    let fixture = mysql(
        "cache-writes-transients",
        &mariadb,
        WORDPRESS_SCHEMA,
        preset,
    );
    read(&fixture, "/page.php");
    read(&fixture, "/page.php");
    for via in ["transient", "cron"] {
        ask(fixture.address(), &format!("/page.php?via={via}"));
        assert!(read(&fixture, "/page.php").1, "{via} is noise");
    }
    ask(fixture.address(), "/page.php?via=option");
    assert_eq!(read(&fixture, "/page.php"), ("3".to_owned(), false));
}
