//! A server that is never root and may still change users, as howdah.service starts it.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use support::{HOWDAH_PROGRAM, Scratch, ServerUnderTest};

/// The user id of Debian's `games`, which owns no files.
const MASTER: u32 = 5;
const CAPABILITIES: &str = "+setuid,+setgid,+chown,+kill,+dac_read_search";

/// Returns the values of these lines in a process's status.
fn facts(status: &str, names: &[&str]) -> Vec<String> {
    let lines = names.iter().filter_map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
    });
    lines.collect()
}

const SETS: &[&str] = &["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"];
const NONE: [&str; 4] = ["0000000000000000"; 4];

/// Returns a command of howdah with the user and the capabilities that the packages' unit gives the master.
fn as_the_unit(word: &str, file: &std::path::Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=5", "--regid=5", "--clear-groups", "--no-new-privs"])
        .arg(format!("--inh-caps={CAPABILITIES}"))
        .arg(format!("--ambient-caps={CAPABILITIES}"))
        .arg(format!("--bounding-set=-all,{CAPABILITIES}"))
        .args([HOWDAH_PROGRAM, word, "--config"])
        .arg(file);
    command
}

#[test]
fn capabilities_stay_with_the_master_and_pools_have_their_own_users() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root can give them to the master.
    }
    let scratch = Scratch::new("unprivileged");
    let page = "<?php readfile('/proc/self/status');";
    for site in ["a", "b"] {
        scratch.write(&format!("{site}/index.php"), page);
    }
    let root = |site: &str| scratch.path(site).display().to_string();
    let file = scratch.write(
        "howdah.toml",
        &format!(
            "listen = \"127.0.0.1:0\"\nuser = \"www-data\"\n[pool.a]\n[pool.b]\nuser = \"nobody\"\n\
             [[site]]\nhosts = [\"localhost\"]\nroot = \"{}\"\npool = \"a\"\n\
             [[site]]\nhosts = [\"b.test\"]\nroot = \"{}\"\npool = \"b\"\n",
            root("a"),
            root("b")
        ),
    );
    let directory = file.parent().unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    chown(directory, Some(MASTER), Some(MASTER)).unwrap();
    let mut command = as_the_unit("serve", &file);
    command.env_remove("NOTIFY_SOCKET");
    let server = ServerUnderTest::start_command(&scratch, command);

    let status = |pid: i64| fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let master = status(i64::from(server.pid()));
    assert_eq!(facts(&master, &["Uid:"]), ["5 5 5 5"]);
    assert_ne!(facts(&master, SETS), NONE, "the master may change users");
    let front = status(server.status()["pid"].as_i64().unwrap());
    assert_eq!(facts(&front, &["Uid:"]), ["33 33 33 33"]);
    assert_eq!(facts(&front, SETS), NONE, "the front");
    for (host, user) in [
        ("localhost", "33 33 33 33"),
        ("b.test", "65534 65534 65534 65534"),
    ] {
        let page = server.get_from(host, "/").1;
        assert_eq!(facts(&page, &["Uid:"]), [user], "{host}");
        assert_eq!(facts(&page, SETS), NONE, "PHP of {host}");
    }
    assert_eq!(server.run_command(&["reload"]).0, 0, "{}", server.log());
    assert_eq!(server.get("/").0, 200);
}

#[test]
fn master_that_may_change_users_refuses_scripts_as_its_own_user() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root can give such rights to the master.
    }
    let scratch = Scratch::new("unprivileged-alone");
    scratch.write("site/index.php", "<?php echo 'never';");
    let root = scratch.path("site").display().to_string();
    let directory = scratch.path("site");
    let directory = directory.parent().unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    for (user, pool, job) in [
        ("", "", ""),
        ("user = \"5\"\n", "", ""),
        ("user = \"www-data\"\n", "user = \"5\"\n", ""),
        (
            "user = \"www-data\"\n",
            "",
            "[[job]]\nname = \"j\"\nuser = \"5\"\ncommand = [\"true\"]\n",
        ),
    ] {
        let config = format!(
            "listen = \"127.0.0.1:0\"\n{user}[pool.www]\n{pool}[[site]]\nroot = \"{root}\"\n{job}"
        );
        let file = scratch.write("howdah.toml", &config);
        let mut command = as_the_unit("check", &file);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{config}{said}");
        assert!(said.contains("MasterIdentity: "), "{config}{said}");
    }
}
