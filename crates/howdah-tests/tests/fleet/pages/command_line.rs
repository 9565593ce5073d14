//! `howdah php` on a machine without a running server: its script's writes take effect on all servers of the fleet.

use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use howdah_tests::process::wait_until;
use howdah_tests::rig::howdah_program;
use howdah_tests::scratch::Scratch;
use rustix::process::Signal;

use super::{IN_TIME, LEASE, TestFleet};

/// The site as its servers configure it. The table `log` appears on no page.
const SITE: &str =
    "[[site]]\nname = \"one\"\nroot = \".\"\ncache = \"on\"\ncache_ignore_writes = [\"log\"]\n";

struct MachineWithoutServer {
    scratch: Scratch,
    database: String,
}

impl MachineWithoutServer {
    fn of(fleet: &TestFleet, name: &str) -> MachineWithoutServer {
        let elsewhere = MachineWithoutServer {
            scratch: Scratch::new(name),
            database: fleet.members[0]
                .path("db/site.sqlite")
                .display()
                .to_string(),
        };
        elsewhere.configure(&fleet.valkey.url(), SITE);
        elsewhere
    }

    fn configure(&self, valkey: &str, sites: &str) {
        let config = format!(
            "control = \"nobody.sock\"\n[fleet]\nvalkey = \"{valkey}\"\nmember = \"worker\"\nlease = \"{LEASE}\"\n{sites}"
        );
        self.scratch.write("howdah.toml", config);
    }

    /// Returns a command that runs PHP code with the database as `$db`.
    fn command(&self, code: &str) -> Command {
        let code = format!("$db = new PDO('sqlite:{}'); {code}", self.database);
        let mut command = Command::new(howdah_program());
        command.current_dir(self.scratch.path());
        command.args(["php", "--config", "howdah.toml", "-r", &code]);
        command
    }

    /// Starts a script that writes an edition, waits until its standard input ends, and then runs the code `then`.
    /// Returns once all members show the edition.
    fn held(&self, fleet: &mut TestFleet, then: &str) -> (Child, ChildStdin) {
        fleet.edition += 1;
        let code = update(fleet.edition) + "fgets(STDIN);" + then;
        let mut command = self.command(&code);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::piped()).spawn();
        let mut child = child.expect("howdah can be started");
        let held = child.stdin.take().expect("a pipe");
        let new = format!("edition={}", fleet.edition);
        for member in &fleet.members {
            wait_until("the new page", Duration::from_secs(20), || {
                member.get("/page.php").text() == new
            });
        }
        // The members work normally while the script runs.
        fleet.works();
        (child, held)
    }

    fn php(&self, code: &str) -> (Option<i32>, String) {
        let output = self.command(code).output().expect("howdah can be started");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    }
}

fn update(edition: u64) -> String {
    format!("$db->exec('UPDATE page SET edition = {edition}');")
}

/// Returns the names in the registry of members that are not servers.
fn guests(fleet: &TestFleet) -> Vec<String> {
    let rows = fleet.valkey.command(&["HVALS", "howdah:{howdah}:members"]);
    let names = rows.lines().filter_map(|row| row.split(' ').nth(4));
    names
        .filter(|name| name.starts_with("worker"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn command_line_writes_without_a_server_are_seen_on_all_members() {
    let mut fleet = TestFleet::start("fleet-php", 2);
    let elsewhere = MachineWithoutServer::of(&fleet, "fleet-php-elsewhere");
    let fine = |code| (Some(code), String::new());
    for _ in 0..5 {
        fleet.all_hit();
        fleet.edition += 1;
        let code = update(fleet.edition) + "exit(7);";
        assert_eq!(elsewhere.php(&code), fine(7));
        assert!(!fleet.read(0) && !fleet.read(1));
    }
    let log = "$db->exec('CREATE TABLE IF NOT EXISTS log (line TEXT)');";
    assert_eq!(elsewhere.php(log), fine(0));
    fleet.all_hit();
    assert_eq!(elsewhere.php("$db->exec('DELETE FROM log');"), fine(0));
    assert!(fleet.read(0) && fleet.read(1), "no page shows that table");
    assert_eq!(elsewhere.php("howdah_cache_purge('/page.php');"), fine(0));
    assert!(
        !fleet.read(0) && !fleet.read(1),
        "a purge reaches all members"
    );
    // Without the sites in its configuration, the command does not know which writes they ignore.
    elsewhere.configure(&fleet.valkey.url(), "");
    fleet.all_hit();
    assert_eq!(elsewhere.php("$db->exec('DELETE FROM log');"), fine(0));
    assert!(
        !fleet.read(0) && !fleet.read(1),
        "every write invalidates pages"
    );
    assert_eq!(guests(&fleet), [""; 0], "all scripts have left the fleet");
    fleet.works();
}

#[test]
fn script_that_runs_on_is_heard_while_it_runs_and_killed_it_is_a_member_that_is_silent() {
    let mut fleet = TestFleet::start("fleet-php-killed", 2);
    let elsewhere = MachineWithoutServer::of(&fleet, "fleet-php-killed-elsewhere");
    let (mut child, _held) = elsewhere.held(&mut fleet, "");
    let out = child.stdout.take().expect("a pipe");
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || ended.send(std::io::read_to_string(out)));
    let names = guests(&fleet);
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].starts_with(&format!("worker/php/{}", child.id())));
    child.kill().expect("the command runs");
    child.wait().expect("the command has exited");
    let end = end.recv_timeout(Duration::from_secs(20));
    assert!(end.is_ok(), "its script has exited, too");
    is_missed_until_it_is_forgotten(&mut fleet, &names[0]);
}

fn is_missed_until_it_is_forgotten(fleet: &mut TestFleet, name: &str) {
    fleet.members[0].wait_for_log(&["FleetMemberSilent", name]);
    wait_until("m0 to miss it", Duration::from_secs(20), || !fleet.read(0));
    fleet.write(1);
    assert!(
        !fleet.read(0),
        "the script may have written without telling the members"
    );
    let forget = fleet.members[0].control(&["cache", "forget", name]);
    assert!(forget.status.success(), "{forget:?}");
    fleet.works();
}

#[test]
fn script_that_writes_on_while_valkey_hangs_is_named_to_be_forgotten() {
    let mut fleet = TestFleet::start("fleet-php-hung", 2);
    let elsewhere = MachineWithoutServer::of(&fleet, "fleet-php-hung-elsewhere");
    let later = update(1000) + "exit(7);";
    let (child, held) = elsewhere.held(&mut fleet, &later);
    fleet.valkey.signal(Signal::STOP);
    let begun = Instant::now();
    drop(held);
    let output = child.wait_with_output().expect("the command exits");
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("FleetWriteUnheard"), "{said}");
    let (_, name) = said.rsplit_once(" forget ").expect("what to do");
    for member in &fleet.members {
        assert_eq!(member.get("/page.php").text(), "edition=1000");
    }
    fleet.edition = 1000;
    fleet.valkey.signal(Signal::CONT);
    is_missed_until_it_is_forgotten(&mut fleet, name.trim());
}

#[test]
fn script_is_not_affected_by_a_valkey_failure_and_its_user_is_told() {
    let mut fleet = TestFleet::start("fleet-php-failed", 2);
    let elsewhere = MachineWithoutServer::of(&fleet, "fleet-php-failed-elsewhere");
    let fails = |fleet: &mut TestFleet| {
        fleet.edition += 1;
        let begun = Instant::now();
        let (code, said) = elsewhere.php(&(update(fleet.edition) + "exit(7);"));
        let took = begun.elapsed();
        assert!(took < IN_TIME, "{took:?}");
        assert_eq!(code, Some(7), "{said}");
        for word in [
            "FleetUnreachable",
            "FleetWriteUnheard",
            "WritesNotTold",
            "UPDATE page",
            "howdah cache purge --all",
            "howdah cache forget worker/php/",
        ] {
            assert!(said.contains(word), "{word}: {said}");
        }
    };
    fleet.valkey.kill();
    fails(&mut fleet);
    fleet.valkey.start_again();
    fleet.works();
    fleet.valkey.signal(Signal::STOP);
    fails(&mut fleet);
    fleet.valkey.signal(Signal::CONT);
    purge(&fleet);
    fleet.works();
    fleet.valkey.command(&["CONFIG", "SET", "maxmemory", "1"]);
    fails(&mut fleet);
    fleet.valkey.command(&["CONFIG", "SET", "maxmemory", "0"]);
    purge(&fleet);
    fleet.works();
    elsewhere.configure("http://127.0.0.1", SITE);
    let (code, said) = elsewhere.php(&(update(fleet.edition) + "exit(7);"));
    assert_eq!(code, Some(7), "{said}");
    assert!(said.contains("howdah.toml") && said.contains("WritesNotTold"));
}

/// Purges all pages, as the message recommends.
fn purge(fleet: &TestFleet) {
    let purge = fleet.members[0].control(&["cache", "purge", "--all"]);
    assert!(purge.status.success(), "{purge:?}");
}

#[test]
fn script_that_writes_nothing_does_not_reach_valkey() {
    let fleet = TestFleet::start("fleet-php-reads", 1);
    let elsewhere = MachineWithoutServer::of(&fleet, "fleet-php-reads-elsewhere");
    // The listener accepts connections, and never responds.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("an address");
    elsewhere.configure(&format!("redis://{address}"), SITE);
    let read = "$db->query('SELECT edition FROM page')->fetchAll(); exit(3);";
    assert_eq!(elsewhere.php(read), (Some(3), String::new()));
    assert!(listener.accept().is_err(), "no client has connected");
    let (code, said) = elsewhere.php(&update(1));
    assert_eq!(code, Some(0));
    assert!(said.contains("FleetWriteUnheard"), "{said}");
    assert!(listener.accept().is_ok());
}
