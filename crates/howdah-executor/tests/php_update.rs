//! PHP is updated under a running pool. The pool's PHP is a copy of the real one, with an extension of its own, so that
//! the test can replace both.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use howdah_executor::php_host::PhpHost;
use howdah_executor::{Executor, PhpProgram, PoolConfig, ScriptBody};
use howdah_test_support::php::{php_host, php_library};
use rustix::process::Signal;
use support::php::{PhpSite, kill, parent};
use support::{config, finish, on_front, text, until};

/// Small extensions that distributions build as shared libraries and that need no other.
const EXTENSIONS: [&str; 3] = ["ctype", "tokenizer", "calendar"];

/// A PHP of the test's own, in a directory that is removed when dropped.
struct OwnPhp {
    directory: tempfile::TempDir,
    extension: PathBuf,
}

impl OwnPhp {
    fn new() -> OwnPhp {
        let code = "echo ini_get('extension_dir');";
        let shown = std::process::Command::new("php")
            .args(["-r", code])
            .output();
        let shared = String::from_utf8(shown.unwrap().stdout).unwrap();
        let mut shared = EXTENSIONS.map(|name| Path::new(&shared).join(format!("{name}.so")));
        shared.sort_by_key(|path| !path.is_file());
        let php = OwnPhp {
            directory: tempfile::tempdir().unwrap(),
            extension: shared[0].clone(),
        };
        for directory in ["extensions", "conf.d"] {
            std::fs::create_dir(php.directory.path().join(directory)).unwrap();
        }
        php.place_extension(&std::fs::read(&php.extension).unwrap());
        php.place_program(&std::fs::read(php_host()).unwrap());
        let line = format!("extension={}\n", php.extension_name());
        php.place("conf.d/own.ini", line.as_bytes());
        php
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn extension_name(&self) -> &str {
        self.extension.file_stem().unwrap().to_str().unwrap()
    }

    /// Replaces a file as a package manager does: it is renamed into place.
    fn place(&self, name: &str, bytes: &[u8]) {
        let new = self.path("new");
        std::fs::write(&new, bytes).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&new, mode).unwrap();
        std::fs::rename(new, self.path(name)).unwrap();
    }

    fn place_program(&self, bytes: &[u8]) {
        self.place("php", bytes);
    }

    fn place_extension(&self, bytes: &[u8]) {
        let name = self.extension.file_name().unwrap().to_str().unwrap();
        self.place(&format!("extensions/{name}"), bytes);
    }

    /// Replaces the program by one whose file states another version. Returns both versions.
    fn update_program(&self) -> (String, String) {
        let mut bytes = std::fs::read(self.path("php")).unwrap();
        let version = PhpHost::read(&self.path("php")).unwrap().version;
        let header = format!("X-Powered-By: PHP/{version}\0");
        let at = bytes
            .windows(header.len())
            .position(|w| w == header.as_bytes());
        let last = &mut bytes[at.unwrap() + header.len() - 2];
        *last = if *last == b'9' { b'8' } else { *last + 1 };
        self.place_program(&bytes);
        let updated = PhpHost::read(&self.path("php")).unwrap().version;
        assert_ne!(version, updated);
        (version, updated)
    }

    fn start(&self, children: u32) -> PhpSite {
        let mut config: PoolConfig = config(children);
        config.program = PhpProgram {
            host: self.path("php"),
            library: php_library(),
        };
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let directory = ("extension_dir".to_owned(), path("extensions"));
        config.defines.push(directory);
        config.environment = vec![("PHP_INI_SCAN_DIR".to_owned(), path("conf.d"))];
        let site = PhpSite::new(config);
        let name = self.extension_name();
        site.script(
            "index.php",
            &format!("<?php usleep(2000); echo extension_loaded('{name}') ? 'whole' : 'half', ' ', getmypid();"),
        );
        site
    }
}

/// Runs requests, several at once, until `done` returns true for the processes that have served the last ones. Fails if
/// a request fails, or is served by a PHP without the extension.
async fn under_load(site: &PhpSite, mut done: impl FnMut(&BTreeSet<String>) -> bool) {
    // The pool looks at the files every five seconds, and at first only once they have not changed for that time.
    let deadline = std::time::Instant::now() + 2 * support::TEST_TIMEOUT;
    loop {
        let runs = [(); 6].map(|()| site.start("index.php", ScriptBody::Empty));
        let mut pids = BTreeSet::new();
        for run in runs {
            let answer = finish(run).await;
            let answer = answer.unwrap_or_else(|error| panic!("{error}: {:?}", site.log.all()));
            let said = text(&answer);
            let pid = said.strip_prefix("whole ");
            pids.insert(pid.unwrap_or_else(|| panic!("{said:?}")).to_owned());
        }
        if done(&pids) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{:?}", site.log.all());
    }
}

/// Waits under load until every process has been replaced.
async fn until_replaced(site: &PhpSite) {
    let pids = |site: &PhpSite| -> BTreeSet<i32> {
        let status = site.pool.status();
        status.children.iter().map(|child| child.pid).collect()
    };
    let before = pids(site);
    under_load(site, |_| {
        let now = pids(site);
        now.len() == 2 && now.is_disjoint(&before)
    })
    .await;
}

fn assert_nobody_died(site: &PhpSite) {
    let lines = site.log.all();
    assert!(!lines.iter().any(|l| l.contains("ChildDied")), "{lines:?}");
}

#[test]
fn php_update_replaces_all_processes_without_a_failed_request() {
    let php = OwnPhp::new();
    let site = php.start(2);
    let mut seen = BTreeSet::new();
    on_front(under_load(&site, |pids| {
        seen.extend(pids.iter().cloned());
        seen.len() == 2
    }));
    assert_eq!(site.pool.status().php_update, None);
    let (memory, disk) = php.update_program();
    on_front(async {
        until_replaced(&site).await;
        until("the update is over", || {
            site.pool.status().php_update.is_none()
        })
        .await;
    });
    let line = site.log.wait_for("PhpUpdated");
    let both = format!("PHP {memory} in memory, {disk} on disk");
    assert!(line.contains(&both), "{line}");
    assert_eq!(site.log.count("PhpUpdated"), 1);
    assert_eq!(site.log.count("PoolRestart"), 1);
    assert_nobody_died(&site);
}

#[test]
fn php_update_with_an_extension_that_does_not_load_leaves_the_old_php_serving() {
    let php = OwnPhp::new();
    let site = php.start(2);
    on_front(under_load(&site, |pids| pids.len() == 2));
    let (_, disk) = php.update_program();
    php.place_extension(b"\x7fELF of a version that does not fit");
    on_front(under_load(&site, |_| {
        site.log.count("PhpUpdateRefused") > 0
    }));
    let line = site.log.wait_for("PhpUpdateRefused");
    assert!(line.contains(php.extension_name()), "{line}");
    let update = site.pool.status().php_update.unwrap();
    assert_eq!(update.version, disk);
    assert!(update.state.starts_with("PhpUpdateRefused: "), "{update:?}");
    assert_eq!(site.pool.status().state, "Ready");
    // The package of the extension follows.
    php.place_extension(&std::fs::read(&php.extension).unwrap());
    on_front(async {
        until_replaced(&site).await;
        until("the update is over", || {
            site.pool.status().php_update.is_none()
        })
        .await;
    });
    assert_eq!(site.log.count("PhpUpdateRefused"), 1);
    assert_nobody_died(&site);
}

#[test]
fn zygote_that_dies_during_a_php_update_is_replaced_and_its_lost_extensions_are_named() {
    let php = OwnPhp::new();
    let site = php.start(1);
    on_front(under_load(&site, |_| true));
    php.place_extension(b"half of a file");
    on_front(async {
        kill(parent(site.pid(0).await), Signal::KILL);
        until("the loss is named", || {
            site.log.count("PhpExtensionsMissing") > 0
        })
        .await;
    });
    let line = site.log.wait_for("PhpExtensionsMissing");
    assert!(line.contains(php.extension_name()), "{line}");
    php.place_extension(&std::fs::read(&php.extension).unwrap());
    on_front(async { while text(&site.get("index.php").await.unwrap()).starts_with("half ") {} });
    assert_eq!(site.log.count("PhpExtensionsMissing"), 1);
}
