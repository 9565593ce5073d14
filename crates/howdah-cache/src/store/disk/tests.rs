//! Tests the store as a whole: which pages a restart preserves and a crash may lose, and the effect of damaged files.

use std::fs;
use std::path::Path;
use std::sync::Mutex as StdMutex;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::*;
use crate::generation::{Force, Purge, without_site};
use crate::object::tests::page;
use crate::object::{Object, ResponseForm};
use crate::policy::PageState;
use crate::store::{MemoryStore, PageLookup};

const OWNER: Owner = Owner {
    site: [1; 16],
    policy: [2; 16],
};

fn now() -> Millis {
    1000
}

fn options(path: &Path) -> DiskOptions {
    DiskOptions {
        lock_timeout: Duration::ZERO,
        retry_delay: Duration::ZERO,
        ..DiskOptions::new(path.to_owned(), 1 << 20, now)
    }
}

/// A cache of one site above a disk.
struct TestStore {
    memory: MemoryStore,
    generations: Arc<Generations>,
    disk: Arc<DiskStore>,
}

fn key(path: &str) -> Vec<u8> {
    [&[0, 0, 0, 0, 0], &b"host\0"[..], path.as_bytes()].concat()
}

fn no_variant(_: &[Vec<u8>]) -> Vec<u8> {
    panic!("this page does not vary")
}

impl TestStore {
    fn open(path: &Path) -> TestStore {
        TestStore::with(options(path), OWNER)
    }

    fn with(options: DiskOptions, owner: Owner) -> TestStore {
        TestStore::over(DiskStore::open(options).unwrap(), owner)
    }

    fn over(disk: Arc<DiskStore>, owner: Owner) -> TestStore {
        let sites = Arc::new(DiskSites::new(disk.clone(), &[Some(owner)]));
        let generations = sites.generations(0).unwrap().clone();
        TestStore {
            memory: MemoryStore::with_disk(Some(sites), 1 << 20, 1 << 16),
            generations,
            disk,
        }
    }

    fn keep(&self, path: &str, body: &'static str) -> Arc<Object> {
        let page = self.page(path, body);
        self.memory
            .store(&key(path), &[], no_variant, page)
            .unwrap()
    }

    fn page(&self, path: &str, body: &'static str) -> Object {
        let mut page = page(&[], body);
        page.set_born(self.generations.now());
        page.url_key = key(path);
        page.tags = vec![b"tag".to_vec()];
        page
    }

    fn look(&self, path: &str) -> Option<(String, PageState)> {
        let found = self
            .memory
            .find(&key(path), no_variant, &self.generations, now());
        text(found)
    }

    fn fetch(&self, path: &str) -> Option<(String, PageState)> {
        let key = key(path);
        let fetch = self
            .memory
            .find_on_disk(&key, no_variant, &self.generations, now());
        text(block_on(fetch))
    }

    /// Waits until all orders given so far have been carried out. This marks nothing as closed.
    fn wait_until_settled(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.disk.usage().indexing || self.disk.usage().waiting > 0 {
            assert!(Instant::now() < deadline, "the writer is stuck");
            std::thread::yield_now();
        }
    }

    /// Ends the store as `kill -9` does: what has been written stays.
    fn kill(self) {
        self.wait_until_settled();
        let TestStore { memory, disk, .. } = self;
        drop(memory);
        let disk = Arc::try_unwrap(disk).expect("nobody else has it");
        drop(disk);
    }

    fn files(&self) -> Vec<std::path::PathBuf> {
        self.wait_until_settled();
        let mut files = Vec::new();
        for directory in fs::read_dir(self.disk.shared.directory.objects()).unwrap() {
            let directory = fs::read_dir(directory.unwrap().path()).unwrap();
            files.extend(directory.map(|file| file.unwrap().path()));
        }
        files
    }

    fn faults(&self) -> Vec<(String, u64)> {
        self.disk.usage().faults
    }
}

fn text(found: PageLookup) -> Option<(String, PageState)> {
    match found {
        PageLookup::Page(page, state) => {
            Some((String::from_utf8_lossy(&page.body).into_owned(), state))
        }
        PageLookup::NotFound => None,
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn fresh(text: &str) -> Option<(String, PageState)> {
    Some((text.to_owned(), PageState::Fresh))
}

#[test]
fn restart_keeps_pages_and_a_hit_loads_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::open(directory.path());
    store.keep("/a", "text of a");
    store.keep("/b", "text of b");
    store.kill();
    let store = TestStore::open(directory.path());
    assert_eq!(store.look("/a"), None);
    assert_eq!(store.fetch("/a"), fresh("text of a"));
    assert_eq!(store.look("/a"), fresh("text of a"), "it is in memory now");
    assert_eq!(store.fetch("/c"), None);
    store.wait_until_settled();
    let usage = store.disk.usage();
    assert_eq!((usage.entries, usage.hits, usage.bytes), (2, 1, 8192));
}

#[test]
fn purges_survive_a_kill() {
    let purges = [
        Purge::All,
        Purge::Url(key("/a")),
        Purge::Tag(b"tag".to_vec()),
        Purge::Path {
            text: b"/a".to_vec(),
            exact: true,
        },
        Purge::Path {
            text: b"/".to_vec(),
            exact: false,
        },
    ];
    for purge in &purges {
        for force in [Force::Hard, Force::Soft { at: 0 }] {
            let directory = tempfile::tempdir().unwrap();
            let store = TestStore::open(directory.path());
            store.keep("/a", "old");
            store.wait_until_settled();
            store.generations.purge(purge, force);
            store.kill();
            let store = TestStore::open(directory.path());
            let expected = match force {
                Force::Hard => None,
                Force::Soft { .. } => Some(("old".to_owned(), PageState::Stale)),
            };
            assert_eq!(store.fetch("/a"), expected, "{purge:?} {force:?}");
            store.keep("/a", "new");
            store.kill();
            let store = TestStore::open(directory.path());
            let found = store.fetch("/a");
            assert_eq!(
                found,
                fresh("new"),
                "{purge:?} {force:?} {:?} {:?} {}",
                store.files(),
                store.disk.usage(),
                store.generations.now()
            );
        }
    }
}

#[test]
fn page_rendered_before_a_purge_is_not_served() {
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::open(directory.path());
    let late = store.page("/a", "older than the purge");
    store.generations.purge(&Purge::All, Force::Hard);
    store
        .memory
        .store(&key("/a"), &[], no_variant, late)
        .unwrap();
    store.kill();
    let store = TestStore::open(directory.path());
    assert_eq!(store.fetch("/a"), None);
}

#[test]
fn changed_configuration_and_reload_begin_empty() {
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::open(directory.path());
    store.keep("/a", "text");
    store.wait_until_settled();
    // A reload: the same disk, another configuration value.
    let TestStore {
        memory,
        generations: old,
        disk,
    } = store;
    let store = TestStore::over(disk, OWNER);
    assert_eq!(store.fetch("/a"), None, "a reload may bring new code");
    assert!(
        Arc::ptr_eq(&old, &store.generations),
        "old requests still purge"
    );
    drop(memory);
    store.keep("/a", "text");
    store.kill();
    let other = Owner {
        policy: [9; 16],
        ..OWNER
    };
    let store = TestStore::with(options(directory.path()), other);
    assert_eq!(store.fetch("/a"), None);
    assert_eq!(
        store.files().len(),
        0,
        "pages of a former configuration are removed"
    );
    store.kill();
    let store = TestStore::open(directory.path());
    assert_eq!(store.fetch("/a"), None, "and it does not come back");
}

#[test]
fn corrupt_file_is_a_miss_and_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::open(directory.path());
    store.keep("/a", "the right body");
    let file = store.files().remove(0);
    let good = fs::read(&file).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        fs::write(&file, &bad).unwrap();
        store.memory.remove(&key("/a"));
        assert_eq!(store.fetch("/a"), None, "byte {at}");
        // The writer has removed the file by the time it has carried out the next order.
        store.keep("/b", "b");
        store.wait_until_settled();
        assert!(!file.exists(), "byte {at}");
        store.keep("/a", "the right body");
        store.wait_until_settled();
        store.memory.remove(&key("/a"));
        assert_eq!(store.fetch("/a"), fresh("the right body"));
    }
    let total: u64 = store.faults().iter().map(|(_, n)| n).sum();
    assert_eq!(total, good.len() as u64, "{:?}", store.faults());
}

/// The writer inspects a file later than a reader found it damaged, and a new page may have replaced it meanwhile.
#[test]
fn inspected_file_is_removed_only_if_its_page_is_purged() {
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::open(directory.path());
    store.keep("/kept", "kept");
    store.keep("/purged", "purged");
    let files_after_inspection = || {
        for path in ["/kept", "/purged"] {
            let key = key(path);
            let name = store.disk.shared.file_name(&OWNER, without_site(&key));
            assert!(store.disk.shared.send_order(WriteJob::Inspect(name)));
        }
        store.files().len()
    };
    assert_eq!(files_after_inspection(), 2, "both pages can be served");
    let purge = Purge::Url(key("/purged"));
    store.generations.purge(&purge, Force::Hard);
    assert_eq!(files_after_inspection(), 1);
    store.memory.remove(&key("/kept"));
    assert_eq!(store.fetch("/kept"), fresh("kept"));
}

#[test]
fn file_damage_is_named_when_read_and_when_scanned() {
    let truncated: fn(&mut Vec<u8>) = |bytes| bytes.truncate(bytes.len() - 1);
    let corrupt: fn(&mut Vec<u8>) = |bytes| bytes[30] ^= 1;
    let foreign: fn(&mut Vec<u8>) = |bytes| {
        bytes[8] = 77;
        let checksum = crc32fast::hash(&bytes[..20]);
        bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
    };
    for (damage, name) in [
        (truncated, "FileTruncated"),
        (corrupt, "FileCorrupt"),
        (foreign, "FileForeign"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let store = TestStore::open(directory.path());
        store.keep("/a", "text");
        let file = store.files().remove(0);
        let mut bytes = fs::read(&file).unwrap();
        damage(&mut bytes);
        fs::write(&file, bytes).unwrap();
        store.kill();
        let store = TestStore::open(directory.path());
        assert_eq!(store.files().len(), 0);
        assert_eq!(store.faults(), [(name.to_owned(), 1)]);
        assert_eq!(store.fetch("/a"), None);
    }
}

#[test]
fn misplaced_file_is_never_served() {
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::open(directory.path());
    store.keep("/a", "the page of a");
    store.keep("/b", "the page of b");
    let files = store.files();
    fs::copy(&files[0], &files[1]).unwrap();
    for path in ["/a", "/b"] {
        store.memory.remove(&key(path));
        if let Some((text, _)) = store.fetch(path) {
            assert_eq!(text, format!("the page of {}", &path[1..]));
        }
    }
    assert_eq!(store.faults(), [("FileMisplaced".to_owned(), 1)]);
}

#[test]
fn foreign_files_are_removed_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    TestStore::open(directory.path()).kill();
    let objects = directory.path().join("objects");
    fs::create_dir(objects.join("abc")).unwrap();
    for name in ["abc/page", "stray"] {
        fs::write(objects.join(name), "x").unwrap();
    }
    fs::write(objects.join("abc").join("0".repeat(32)), "x").unwrap();
    let store = TestStore::open(directory.path());
    store.wait_until_settled();
    assert!(!objects.join("stray").exists());
    assert_eq!(fs::read_dir(objects.join("abc")).unwrap().count(), 0);
}

#[test]
fn page_from_the_future_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::open(directory.path());
    let mut page = store.page("/a", "text");
    page.freshness.received = now() + 100_000;
    store
        .memory
        .store(&key("/a"), &[], no_variant, page)
        .unwrap();
    store.kill();
    let store = TestStore::open(directory.path());
    assert_eq!(store.fetch("/a"), None);
    store.wait_until_settled();
    assert_eq!(store.faults()[0].0, "ClockWentBack");
}

#[test]
fn page_ages_while_the_server_is_down() {
    fn later() -> Millis {
        61_000
    }
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::open(directory.path());
    let mut page = store.page("/a", "text");
    page.freshness.received = now();
    page.freshness.if_error = 10_000;
    store
        .memory
        .store(&key("/a"), &[], no_variant, page)
        .unwrap();
    store.kill();
    let mut options = options(directory.path());
    options.now = later;
    let store = TestStore::with(options, OWNER);
    let wanted = key("/a");
    let fetch = store
        .memory
        .find_on_disk(&wanted, no_variant, &store.generations, later());
    let found = text(block_on(fetch));
    assert_eq!(found, Some(("text".to_owned(), PageState::IfError)));
}

#[test]
fn variants_and_encoded_forms_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::open(directory.path());
    let variant = |value: &'static str| {
        move |names: &[Vec<u8>]| [key("/a"), names.concat(), value.into()].concat()
    };
    let wanted = key("/a");
    for value in ["de", "en"] {
        let page = store.page("/a", value);
        page.form(1, || ResponseForm {
            head: Bytes::from_static(b"head"),
            body: Bytes::from(format!("{value}, encoded")),
            encodable: true,
        });
        store
            .memory
            .store(&wanted, &[b"x".to_vec()], variant(value), page)
            .unwrap();
    }
    store.kill();
    let store = TestStore::open(directory.path());
    for value in ["de", "en"] {
        let fetch = store
            .memory
            .find_on_disk(&wanted, variant(value), &store.generations, now());
        let PageLookup::Page(page, _) = block_on(fetch) else {
            panic!("{value} was kept");
        };
        assert_eq!(page.body, value);
        let form = page.form(1, || panic!("it was made before"));
        assert_eq!(form.body, format!("{value}, encoded"));
    }
    let fetch = store
        .memory
        .find_on_disk(&wanted, variant("fr"), &store.generations, now());
    assert_eq!(text(block_on(fetch)), None);
}

#[test]
fn evicted_page_is_written_with_its_encoded_forms() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = TestStore::open(directory.path());
    let sites = Arc::new(DiskSites::new(store.disk.clone(), &[Some(OWNER)]));
    store.memory = MemoryStore::with_disk(Some(sites), 40_000, 5_000);
    let page = store.keep("/a", "text");
    page.form(2, || ResponseForm {
        head: Bytes::from_static(b"head"),
        body: Bytes::from_static(b"encoded"),
        encodable: true,
    });
    let pushed_out = (0..10_000).any(|n| {
        let path = format!("/{n}");
        store.keep(&path, "x");
        // The page is visited, so it counts for more than the unvisited page.
        store.look(&path);
        store.memory.usage().evictions > 100 && store.look("/a").is_none()
    });
    assert!(pushed_out);
    store.wait_until_settled();
    // Memory is not searched again, because it decides by itself whether the page stays there.
    let key = key("/a");
    let fetch = store
        .memory
        .find_on_disk(&key, no_variant, &store.generations, now());
    let PageLookup::Page(page, _) = block_on(fetch) else {
        panic!("it is on the disk");
    };
    assert_eq!(
        text(PageLookup::Page(page.clone(), PageState::Fresh)),
        fresh("text")
    );
    assert_eq!(page.form(2, || panic!("it was kept")).body, "encoded");
}

#[test]
fn disk_bytes_are_bounded_and_evicted_files_removed() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path());
    options.capacity = 40 * 4096;
    let store = TestStore::with(options, OWNER);
    for n in 0..200 {
        store.keep(&format!("/{n}"), "x");
    }
    let files = store.files().len() as u64;
    let usage = store.disk.usage();
    assert_eq!(usage.entries, files);
    assert!(files <= 40 && usage.evictions == 200 - files, "{usage:?}");
}

#[test]
fn concurrent_readers_share_one_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::open(directory.path());
    store.keep("/a", "text");
    store.kill();
    let store = TestStore::open(directory.path());
    let wanted = key("/a");
    let (wanted, memory, generations) = (&wanted, &store.memory, &store.generations);
    let all = async {
        let mut all: Vec<_> = (0..500)
            .map(|_| Box::pin(memory.find_on_disk(wanted, no_variant, generations, now())))
            .collect();
        // All of them have begun before the first one ends.
        let mut found = Vec::new();
        std::future::poll_fn(|cx| {
            all.retain_mut(|one| match one.as_mut().poll(cx) {
                std::task::Poll::Ready(one) => {
                    found.push(text(one));
                    false
                }
                std::task::Poll::Pending => true,
            });
            match all.is_empty() {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
        found
    };
    let found = block_on(all);
    assert!(found.iter().all(|one| *one == fresh("text")));
    assert_eq!((found.len(), store.disk.usage().hits), (500, 1));
}

#[test]
fn unwritable_disk_is_reported_once_and_pages_stay_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let told: Arc<StdMutex<Vec<DiskNotice>>> = Arc::default();
    let heard = told.clone();
    let mut options = options(directory.path());
    options.notify = Box::new(move |notice| heard.lock().unwrap().push(notice));
    let store = TestStore::with(options, OWNER);
    store.wait_until_settled();
    // A file mode does not restrict root, but a file in place of the directory does.
    let objects = directory.path().join("objects");
    fs::remove_dir(&objects).unwrap();
    fs::write(&objects, "in the way").unwrap();
    for n in 0..5 {
        store.keep(&format!("/{n}"), "x");
        store.wait_until_settled();
    }
    assert_eq!(store.look("/3"), fresh("x"), "it is served from memory");
    assert_eq!(store.disk.usage().condition, Some("DiskUnwritable"));
    assert_eq!(store.faults(), [("DiskUnwritable".to_owned(), 5)]);
    fs::remove_file(&objects).unwrap();
    fs::create_dir(&objects).unwrap();
    store.keep("/a", "a");
    store.wait_until_settled();
    assert_eq!(store.disk.usage().condition, None);
    let told = told.lock().unwrap();
    assert!(
        matches!(
            &told[..],
            [
                DiskNotice::Failed(DiskFault::DiskUnwritable, _),
                DiskNotice::Recovered
            ]
        ),
        "{told:?}"
    );
}

#[test]
fn close_writes_waiting_pages_and_marks_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::open(directory.path());
    for n in 0..50 {
        store.keep(&format!("/{n}"), "x");
    }
    assert!(store.disk.close(Duration::from_secs(20)));
    let journal = fs::read(directory.path().join("journal")).unwrap();
    let other_boot = Some([0xaa; 16]);
    drop(store);
    let (_, fresh_because) = PurgeJournal::open(directory.path(), other_boot, now()).unwrap();
    assert_eq!(fresh_because, None, "the machine may be started again");
    assert_eq!(journal[12], 1);
}

#[test]
fn concurrent_use_never_returns_a_wrong_body() {
    const URLS: usize = 8;
    const BODIES: [&str; URLS] = ["b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7"];
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::open(directory.path());
    std::thread::scope(|scope| {
        let store = &store;
        for seed in 0..4usize {
            scope.spawn(move || {
                for n in 0..300 {
                    let url = (n * 7 + seed) % URLS;
                    let path = format!("/{url}");
                    match (n + seed) % 5 {
                        0 => drop(store.keep(&path, BODIES[url])),
                        1 => store.memory.remove(&key(&path)),
                        2 if n % 50 == 2 => {
                            store.generations.purge(&Purge::All, Force::Hard);
                        }
                        2 => {
                            let what = Purge::Url(key(&path));
                            store.generations.purge(&what, Force::Hard);
                        }
                        _ => {
                            if let Some((text, _)) = store.fetch(&path) {
                                assert_eq!(text, BODIES[url]);
                            }
                        }
                    }
                }
            });
        }
    });
    store.wait_until_settled();
    assert_eq!(store.faults(), []);
}
