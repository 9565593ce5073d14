//! The shared cache, as scripts use it in a real server: values of every type, processes that are killed, reloads,
//! changes from a command line, and the object cache of a real WordPress.

use std::os::unix::fs::FileExt;

use howdah_tests::fixture::Fixture;
use howdah_tests::process_tree::is_alive;
use howdah_tests::rig::{Site, howdah_check};
use howdah_tests::scratch::{Scratch, repository};
use howdah_tests::wordpress_home::WordpressHome;

const ON: &str = "shared_cache = \"16M\"\n";

/// Does what `?do=` specifies, and prints the result and the process id as JSON.
const SCRIPT: &str = r"<?php
$key = $_GET['key'] ?? 'key';
$done = match ($_GET['do']) {
    'set' => howdah_cache_set($key, $_GET['value'] ?? 'value'),
    'get' => howdah_cache_get($key),
    'delete' => howdah_cache_delete($key),
    'increment' => howdah_cache_increment($key),
    'zero' => howdah_cache_set($key, 0),
    'info' => howdah_cache_info(),
};
echo json_encode([$done, getmypid()]);
";

/// Stores values that must come back unchanged, and values that cannot be stored. Prints `ok` or the mistakes.
const VALUES: &str = r#"<?php
class Point { public $x = 1; protected $y = [2]; private ?Point $next = null; function link() { $this->next = $this; return $this; } }
class Closed { public function __serialize(): array { throw new LogicException('not to be kept'); } }
class Asks { public function __wakeup() { howdah_cache_get('other', str_repeat('o', 5000)); } public $text; }
enum Suit: string { case Hearts = 'h'; }
$deep = 'end';
for ($i = 0; $i < 200; $i++) { $deep = [$deep]; }
$shared = new stdClass;
$row = (object) ['ID' => 7, 'post_title' => 'Grüße', '12' => 'number', 'none' => null];
$values = [
    null, false, true, 0, -1, PHP_INT_MAX, PHP_INT_MIN, 0.0, -1.5, INF, 1e300, '', '0', 'text', str_repeat('long ', 20000), "\0\xff",
    [], [1, 2, 3], ['a' => 1, 'b' => ['c' => null, 5 => 'five', -3 => 'minus']], [3 => 'gap', 1 => 'order'], [[], [[]], ''],
    $row, [$row, ['row' => clone $row]], new stdClass, [$shared, $shared], new Point, (new Point)->link(), Suit::Hearts, [Suit::Hearts],
    $deep, new ArrayObject(['x' => new DateTimeImmutable('2026-11-27')]), range(1, 5000),
];
if (isset($_GET['damaged'])) {
    foreach ($values as $i => $value) {
        try { serialize(howdah_cache_get("value $i")); } catch (Throwable) {}
        howdah_cache_set("value $i", $value);
    }
    exit('ok');
}
$wrong = [];
foreach ($values as $i => $value) {
    if (!howdah_cache_set("value $i", $value)) $wrong[] = "$i is not stored";
}
foreach ($values as $i => $value) {
    $back = howdah_cache_get("value $i", 'default');
    if (gettype($back) !== gettype($value) || serialize($back) !== serialize($value)) $wrong[] = "$i: " . substr(serialize($back), 0, 200);
}
$pair = howdah_cache_get('value 24');
if ($pair[0] !== $pair[1]) $wrong[] = 'one object in two places became two objects';
$list = [1, 2];
$reference = &$list[0];
howdah_cache_set('reference', $list);
if (howdah_cache_get('reference') !== [1, 2]) $wrong[] = 'a reference is not stored as its value';
howdah_cache_set('by name', 1, 0, ['t']);
$got = howdah_cache_get('by name');
$got++;
if (howdah_cache_get('by name') !== 1) $wrong[] = 'a value that was read is not a copy';
$asks = new Asks;
$asks->text = str_repeat('t', 3000);
howdah_cache_set('other', str_repeat('x', 9000));
howdah_cache_set('asks', $asks);
if (howdah_cache_get('asks')?->text !== $asks->text) $wrong[] = 'an object that reads the cache in __wakeup() came back changed';
foreach ([
    'closure' => fn () => howdah_cache_set('bad', fn () => 1),
    'refuses' => fn () => howdah_cache_set('bad', new Closed),
    'long key' => fn () => howdah_cache_get(str_repeat('k', 1025)),
    'negative' => fn () => howdah_cache_set('bad', 1, -1),
    'tag' => fn () => howdah_cache_set('bad', 1, 0, [7]),
    'tags' => fn () => howdah_cache_set('bad', 1, 0, array_fill(0, 9, 't')),
    'no tag' => fn () => howdah_cache_delete_tag(''),
] as $what => $call) {
    try { $call(); $wrong[] = "$what is not refused"; } catch (Throwable) {}
}
if (howdah_cache_get('bad', 'none') !== 'none') $wrong[] = 'a refused value was stored';
if (howdah_cache_get('absent', ['d' => 1]) !== ['d' => 1]) $wrong[] = 'the default value is not returned';
if (howdah_cache_set('huge', str_repeat('x', 12 << 20)) || howdah_cache_get('huge') !== null) $wrong[] = 'a value that is too large was stored';
echo $wrong ? implode("\n", $wrong) : 'ok';
"#;

fn served(name: &str, pool: &str) -> Fixture {
    Fixture::named(name)
        .script("cache.php", SCRIPT)
        .script("values.php", VALUES)
        .children(2)
        .pool(pool)
        .start()
}

/// Returns the result that the script reports, and the process that produced it.
fn ask(fixture: &Fixture, query: &str) -> (serde_json::Value, i64) {
    let answer = fixture.get(&format!("/cache.php?{query}"));
    let text = answer.text();
    let mut told: serde_json::Value =
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{query}: {why}: {text}"));
    (told[0].take(), told[1].as_i64().unwrap())
}

#[test]
fn values_of_every_type_come_back_as_they_were() {
    let fixture = served("shared-cache-values", ON);
    for _ in 0..3 {
        assert_eq!(fixture.get("/values.php").text(), "ok");
    }
}

#[test]
fn shared_value_is_found_by_another_process_after_its_writer_was_killed() {
    let fixture = served("shared-cache-processes", ON);
    let (kept, writer) = ask(&fixture, "do=set&value=kept");
    assert_eq!(kept, true);
    let pid = rustix::process::Pid::from_raw(writer as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    fixture.wait("another process to find the value", |fixture| {
        let (found, reader) = ask(fixture, "do=get");
        assert_eq!(found, "kept");
        reader != writer
    });
    assert_eq!(ask(&fixture, "do=zero&key=n").0, true);
    for n in 1..=20 {
        assert_eq!(ask(&fixture, "do=increment&key=n").0, n);
    }
    let (info, _) = ask(&fixture, "do=info");
    assert_eq!(info["values"], 2, "{info}");
    let told = fixture.status()["pools"][0]["shared_cache"].take();
    for name in ["size", "used", "values", "hits", "misses", "evicted"] {
        assert_eq!(told[name], info[name], "{name}");
    }
    let page = String::from_utf8(fixture.control(&["status"]).stdout).unwrap();
    assert!(
        page.contains("  shared cache: 0.0 of 15 MB, 2 values, "),
        "{page}"
    );
}

/// Each request of a worker reads the shared cache again, so it sees values that other processes have written since the
/// worker's previous request.
#[test]
fn workers_share_it_and_each_request_begins_anew() {
    let worker = "mode = \"worker\"\nworker = \"SCRATCH/site/worker.php\"\n";
    let fixture = Fixture::named("shared-cache-worker")
        .script("cache.php", SCRIPT)
        .script(
            "worker.php",
            "<?php require 'GATES';
             while (frankenphp_handle_request(function () {
                if (isset($_GET['gate'])) stand_at($_GET['gate']);
                require 'cache.php';
             })) {}",
        )
        .children(2)
        .pool(&format!("{ON}{worker}"))
        .start();
    // Sends two concurrent requests, each to a worker of its own, and lets them continue from their gates one after the
    // other.
    let both = |queries: [&str; 2]| {
        let held = queries.map(|query| {
            let name = query.replace(['=', '&'], "-");
            let gate = fixture.gate(&name);
            let answer = fixture.start_get(&format!("/cache.php?{query}&gate={name}"));
            (gate.wait(), answer)
        });
        held.map(|(standing, answer)| {
            standing.open();
            let told: (serde_json::Value, i64) =
                serde_json::from_str(&answer.answer().text()).unwrap();
            told
        })
    };
    let [(first, one), (second, other)] = both(["do=get", "do=get&value=again"]);
    assert!(first.is_null() && second.is_null() && one != other);
    let [(first, one), (second, other)] = both(["do=set&value=first", "do=set&value=second"]);
    assert!(first == true && second == true && one != other);
    assert_eq!(ask(&fixture, "do=get").0, "second");
}

/// Damages the memory as a broken extension may do. Afterwards, reads may return any value, but no process may crash.
#[test]
fn damaged_memory_harms_no_process() {
    let fixture = served("shared-cache-damaged", ON);
    assert_eq!(fixture.get("/values.php?damaged").text(), "ok");
    let children = fixture.children();
    let child = children.first().expect("a child");
    let maps = std::fs::read_to_string(format!("/proc/{child}/maps")).unwrap();
    let memory = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{child}/mem"))
        .unwrap();
    let mut keys = Vec::new();
    for line in maps.lines().filter(|line| line.contains("/memfd:")) {
        let (from, to) = line
            .split_whitespace()
            .next()
            .unwrap()
            .split_once('-')
            .unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        let mut bytes = vec![0; (address(to) - address(from)) as usize];
        if memory.read_exact_at(&mut bytes, address(from)).is_ok() {
            let found = bytes
                .windows(6)
                .enumerate()
                .filter(|(_, at)| at == b"value ");
            keys.extend(found.map(|(at, _)| address(from) + at as u64));
        }
    }
    assert!(keys.len() > 20, "only {} keys were found", keys.len());
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    for _ in 0..200 {
        for _ in 0..10 {
            // The positions range from the entry's header, before its key, to the first values in it.
            let at = keys[random(keys.len())] - 48 + random(150) as u64;
            memory.write_all_at(&[random(256) as u8], at).unwrap();
        }
        // PHP may print a message about values that it cannot unserialise.
        let answer = fixture.get("/values.php?damaged");
        assert!(answer.text().ends_with("ok"), "{}", answer.text());
    }
    assert_eq!(fixture.children(), children, "{}", fixture.log());
    assert_eq!(fixture.get("/values.php").text(), "ok");
}

#[test]
fn without_memory_for_it_nothing_is_kept_and_nothing_fails() {
    let fixture = served("shared-cache-off", "");
    for (query, answer) in [
        ("do=set", serde_json::json!(false)),
        ("do=get", serde_json::json!(null)),
        ("do=delete", serde_json::json!(false)),
        ("do=increment", serde_json::json!(false)),
        ("do=info", serde_json::json!(null)),
    ] {
        assert_eq!(ask(&fixture, query).0, answer, "{query}");
    }
}

/// The previous pool finishes its requests, and the new pool does not learn of the changes that they make. So the new
/// pool starts with an empty cache, and stores nothing until the previous pool has exited.
#[test]
fn reload_begins_with_nothing_and_waits_for_the_pool_before() {
    let fixture = served("shared-cache-reload", ON);
    assert_eq!(ask(&fixture, "do=set&value=before").0, true);
    fixture.reload();
    assert_eq!(ask(&fixture, "do=get").0, serde_json::Value::Null);
    fixture.wait("the previous pool to exit", |fixture| {
        ask(fixture, "do=set&value=after").0 == true
    });
    assert_eq!(ask(&fixture, "do=get").0, "after");
}

/// The new pool waits for both earlier pools, even if the second one was itself still waiting and exits first.
#[test]
fn after_two_reloads_it_waits_for_both_pools_before() {
    for first in [0, 1] {
        let fixture = served("shared-cache-reloads", ON);
        let is_open = |fixture: &Fixture| {
            let status = fixture.status();
            status["pools"][0]["shared_cache"]["open"]
                .as_bool()
                .unwrap()
        };
        let mut held = Vec::new();
        for name in ["one", "two"] {
            let gate = fixture.gate(name);
            let answer = fixture.start_get(&format!("/hold.php?gate={name}"));
            held.push((gate.wait(), answer));
            fixture.reload();
            assert!(!is_open(&fixture));
        }
        let pids: Vec<i32> = held.iter().map(|(standing, _)| standing.pid).collect();
        let (standing, answer) = held.remove(first);
        standing.open();
        answer.answer();
        fixture.wait("the first process to exit", |_| !is_alive(pids[first]));
        assert_eq!(ask(&fixture, "do=set").0, false);
        let (standing, answer) = held.remove(0);
        standing.open();
        answer.answer();
        fixture.wait(
            "the shared cache to open after both pools have exited",
            is_open,
        );
        assert_eq!(ask(&fixture, "do=set").0, true);
    }
}

#[test]
fn command_line_change_empties_the_shared_cache() {
    let fixture = served("shared-cache-command-line", ON);
    assert_eq!(ask(&fixture, "do=set").0, true);
    let code = "if (howdah_cache_get('key') !== null || howdah_cache_info() !== null) exit(1); howdah_cache_delete('key');";
    let output = fixture.control(&["php", "-r", code]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(ask(&fixture, "do=get").0, serde_json::Value::Null);
    // The cache is used again immediately.
    assert_eq!(ask(&fixture, "do=set").0, true);
    assert_eq!(ask(&fixture, "do=get").0, "value");
}

/// Serves the scripts of `tests/apps/shared-cache` and checks that `script` reports success for all its checks.
fn checked(name: &str, script: &str, pool: &str, environment: &[(&str, &str)]) {
    let site = Site::new(repository().join("tests/apps/shared-cache")).children(2);
    let mut fixture = Fixture::of(name, site).pool(pool);
    for (name, value) in environment {
        fixture = fixture.environment(name, value);
    }
    let fixture = fixture.start();
    for _ in 0..2 {
        let told = fixture.get(script).text();
        assert!(
            told.starts_with("ok ") && told.ends_with(" checks\n"),
            "{told}"
        );
    }
}

#[test]
#[cfg_attr(
    not(feature = "packages"),
    ignore = "needs mariadb-server and wordpress"
)]
fn a_real_wordpress_finds_its_object_cache_as_it_knows_it() {
    let home = WordpressHome::prepare();
    let root = home.site().root.display().to_string();
    let wordpress = [("WORDPRESS", root.as_str())];
    // The checks run first against WordPress's own cache, whose behaviour is the expected one.
    checked("shared-cache-core", "/object-cache.php", "", &wordpress);
    let scratch = Scratch::new("shared-cache-advice");
    let advice = |pool: &str| {
        let config = format!("[pool.www]\n{pool}[[site]]\nroot = \"{root}\"\n");
        howdah_check(&scratch.write("howdah.toml", config)).1
    };
    assert!(
        advice(ON).contains("WordPress has no object cache"),
        "{}",
        advice(ON)
    );
    home.add_object_cache();
    assert!(!advice(ON).contains("object cache"), "{}", advice(ON));
    assert!(
        advice("").contains("Howdah's object cache has no effect"),
        "{}",
        advice("")
    );
    checked(
        "shared-cache-off-wordpress",
        "/object-cache.php",
        "",
        &wordpress,
    );
    checked(
        "shared-cache-wordpress",
        "/object-cache.php",
        ON,
        &wordpress,
    );
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-psr-simple-cache")]
fn class_for_frameworks_keeps_to_psr_16() {
    checked("shared-cache-psr-16", "/simple-cache.php", ON, &[]);
    checked("shared-cache-psr-16-off", "/simple-cache.php", "", &[]);
}
