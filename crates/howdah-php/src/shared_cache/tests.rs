//! Tests of the cache on memory of their own. A process is represented by its id, since all it leaves behind is words
//! in memory.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use howdah_os::mapping::shared_counters;

use super::*;

const NO_TAGS: std::iter::Empty<&[u8]> = std::iter::empty();

/// The position of the first shard's lock, in words.
const FIRST_LOCK: usize = 3 + CHANGE_COUNTERS + TAG_COUNTERS;

fn words(bytes: usize) -> &'static [AtomicU64] {
    shared_counters(bytes / 8).unwrap()
}

fn cache(bytes: usize) -> SharedCache {
    SharedCache::open(words(bytes), None).unwrap()
}

fn get(cache: &SharedCache, key: &str) -> Option<Vec<u8>> {
    let mut found = None;
    cache.get(key.as_bytes(), |value| found = Some(value.to_vec()));
    found
}

fn set(cache: &SharedCache, key: &str, value: &[u8]) -> StoreResult {
    cache.set(key.as_bytes(), value, None, NO_TAGS, false)
}

#[test]
fn value_is_stored_replaced_and_deleted() {
    let cache = cache(1 << 20);
    assert_eq!(get(&cache, "a"), None);
    assert_eq!(set(&cache, "a", b"one"), StoreResult::Stored);
    assert_eq!(get(&cache, "a").unwrap(), b"one");
    assert_eq!(
        set(&cache, "a", b"another, longer one"),
        StoreResult::Stored
    );
    assert_eq!(get(&cache, "a").unwrap(), b"another, longer one");
    assert_eq!(cache.info().values, 1);
    assert!(cache.delete(b"a"));
    assert!(!cache.delete(b"a"));
    assert_eq!(get(&cache, "a"), None);
    let info = cache.info();
    assert_eq!(
        (info.values, info.used, info.hits, info.misses),
        (0, 0, 2, 2)
    );
}

#[test]
fn keys_and_values_of_every_length_round_trip() {
    let cache = cache(4 << 20);
    let bytes = |len: usize| (0..len).map(|n| (n * 7 + len) as u8).collect::<Vec<_>>();
    for len in (0..40).chain([255, 4096, 65_537]) {
        let key = String::from_utf8(vec![b'k'; len]).unwrap();
        assert_eq!(set(&cache, &key, &bytes(len)), StoreResult::Stored);
    }
    for len in (0..40).chain([255, 4096, 65_537]) {
        let key = String::from_utf8(vec![b'k'; len]).unwrap();
        assert_eq!(get(&cache, &key).unwrap(), bytes(len), "{len}");
    }
}

#[test]
fn add_stores_only_the_first_value() {
    let cache = cache(1 << 20);
    let add = |value: &[u8]| cache.set(b"a", value, None, NO_TAGS, true);
    assert_eq!(add(b"first"), StoreResult::Stored);
    assert_eq!(add(b"second"), StoreResult::AlreadyPresent);
    assert_eq!(get(&cache, "a").unwrap(), b"first");
    cache.delete(b"a");
    assert_eq!(add(b"third"), StoreResult::Stored);
}

#[test]
fn value_expires_with_its_ttl() {
    let cache = cache(1 << 20);
    let keep = |ttl| cache.set(b"a", b"x", Some(Duration::from_millis(ttl)), NO_TAGS, false);
    assert_eq!(keep(0), StoreResult::Stored);
    assert_eq!(get(&cache, "a"), None);
    assert_eq!(keep(3_600_000), StoreResult::Stored);
    assert_eq!(get(&cache, "a").unwrap(), b"x");
}

#[test]
fn tag_invalidates_only_its_values() {
    let cache = cache(1 << 20);
    let tagged = |key: &str, tags: &[&str]| {
        let tags = tags.iter().map(|tag| tag.as_bytes());
        assert_eq!(
            cache.set(key.as_bytes(), b"x", None, tags, false),
            StoreResult::Stored
        );
    };
    tagged("post 1", &["posts", "site"]);
    tagged("user 1", &["users", "site"]);
    tagged("plain", &[]);
    cache.delete_tag(b"posts");
    assert_eq!(get(&cache, "post 1"), None);
    assert!(get(&cache, "user 1").is_some() && get(&cache, "plain").is_some());
    tagged("post 1", &["posts", "site"]);
    assert!(get(&cache, "post 1").is_some());
    cache.delete_tag(b"site");
    assert!(get(&cache, "post 1").is_none() && get(&cache, "user 1").is_none());
    assert!(get(&cache, "plain").is_some());
}

#[test]
fn increment_changes_only_integers() {
    let cache = cache(1 << 20);
    let integer = |n: i64| [&b"i"[..], &n.to_ne_bytes()].concat();
    set(&cache, "n", &integer(40));
    assert_eq!(cache.increment(b"n", 2), Some(42));
    assert_eq!(get(&cache, "n").unwrap(), integer(42));
    assert_eq!(cache.increment(b"n", -100), Some(-58));
    set(&cache, "n", &integer(i64::MAX));
    assert_eq!(cache.increment(b"n", 1), None);
    assert_eq!(get(&cache, "n").unwrap(), integer(i64::MAX));
    set(&cache, "text", b"s12345678");
    assert_eq!(cache.increment(b"text", 1), None);
    assert_eq!(cache.increment(b"absent", 1), None);
}

#[test]
fn eviction_removes_the_oldest_and_spares_what_is_read() {
    let cache = cache(1 << 20);
    for n in 0..20_000 {
        assert_eq!(
            set(&cache, &format!("value {n}"), &[b'v'; 200]),
            StoreResult::Stored
        );
        assert!(get(&cache, "value 0").is_some(), "{n}");
    }
    assert!(get(&cache, "value 19999").is_some());
    assert_eq!(get(&cache, "value 1"), None);
    let info = cache.info();
    assert!(info.used <= info.size && info.evicted > 10_000, "{info:?}");
    assert!(info.used * 10 > info.size * 9, "{info:?}");
}

#[test]
fn too_large_value_is_refused_and_removes_the_former_one() {
    let cache = cache(1 << 20);
    set(&cache, "a", b"former");
    assert_eq!(set(&cache, "a", &vec![0; 900_000]), StoreResult::NotStored);
    assert_eq!(get(&cache, "a"), None);
    assert_eq!(set(&cache, "a", &vec![7; 300_000]), StoreResult::Stored);
    assert_eq!(get(&cache, "a").unwrap(), vec![7; 300_000]);
}

#[test]
fn cache_agrees_with_a_map() {
    let cache = cache(1 << 20);
    let mut map = HashMap::new();
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..50_000 {
        let key = format!("key {}", random(300));
        match random(10) {
            0..4 => {
                let value = vec![random(256) as u8; random(400) as usize];
                assert_eq!(set(&cache, &key, &value), StoreResult::Stored);
                map.insert(key, value);
            }
            4 => assert_eq!(cache.delete(key.as_bytes()), map.remove(&key).is_some()),
            _ => {
                // The value may have been evicted; if it is there, it is the last one.
                if let Some(value) = get(&cache, &key) {
                    assert_eq!(Some(&value), map.get(&key));
                }
            }
        }
    }
    assert!(map.keys().filter(|key| get(&cache, key).is_some()).count() > 200);
}

#[test]
fn hanging_lock_holder_blocks_no_process_and_leaves_no_stale_value() {
    let memory = words(1 << 20);
    let cache = SharedCache::open(memory, None).unwrap();
    set(&cache, "a", b"old");
    // The test's own process exists and does not release the lock.
    let lock = &memory[FIRST_LOCK];
    lock.store(u64::from(std::process::id()), Relaxed);
    assert_eq!(get(&cache, "a"), None);
    assert_eq!(set(&cache, "a", b"new"), StoreResult::NotStored);
    lock.store(0, Relaxed);
    assert_eq!(get(&cache, "a"), None);
    assert_eq!(set(&cache, "a", b"new"), StoreResult::Stored);
    lock.store(u64::from(std::process::id()), Relaxed);
    assert!(cache.delete(b"a"));
    lock.store(0, Relaxed);
    assert_eq!(get(&cache, "a"), None);
}

#[test]
fn killed_lock_holder_leaves_an_empty_shard() {
    let memory = words(1 << 20);
    let cache = SharedCache::open(memory, None).unwrap();
    let lock = &memory[FIRST_LOCK];
    for by_the_zygote in [true, false] {
        set(&cache, "a", b"value");
        let gone = {
            let mut child = std::process::Command::new("true").spawn().unwrap();
            child.wait().unwrap();
            child.id()
        };
        lock.store(u64::from(gone), Relaxed);
        if by_the_zygote {
            cache.child_ended(gone);
        } else {
            assert_eq!(get(&cache, "a"), None);
        }
        assert_eq!(lock.load(Relaxed), 0);
        assert_eq!((get(&cache, "a"), cache.info().values), (None, 0));
    }
}

#[test]
fn corrupt_memory_is_not_trusted() {
    let mut state = 7u64;
    for round in 0..300 {
        let memory = words(1 << 18);
        let cache = SharedCache::open(memory, None).unwrap();
        for n in 0..100 {
            set(&cache, &format!("{n}"), &[b'x'; 100]);
        }
        for _ in 0..20 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(round);
            let at = FIRST_LOCK + 1 + (state >> 33) as usize % (memory.len() - FIRST_LOCK - 1);
            memory[at].store(if state & 1 == 0 { state } else { state >> 48 }, Relaxed);
        }
        for n in 0..200 {
            let key = format!("{n}");
            let _ = get(&cache, &key);
            set(&cache, &key, &[b'y'; 150]);
            cache.increment(key.as_bytes(), 1);
            cache.delete(key.as_bytes());
        }
    }
}

#[test]
fn concurrent_processes_see_no_torn_value() {
    let memory = words(1 << 20);
    let threads: Vec<_> = (0..4u8)
        .map(|thread| {
            std::thread::spawn(move || {
                let cache = SharedCache::open(memory, None).unwrap();
                for n in 0..5_000usize {
                    let key = format!("{}", n % 17);
                    cache.set(
                        key.as_bytes(),
                        &vec![thread; 1 + n % 3000],
                        None,
                        NO_TAGS,
                        false,
                    );
                    if let Some(value) = get(&cache, &key) {
                        assert!(value.iter().all(|byte| *byte == value[0]));
                    }
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// Runs `what` on its own thread, as if in another process.
fn in_other_process(
    memory: &'static [AtomicU64],
    what: impl FnOnce(&SharedCache) + Send + 'static,
) {
    let other = move || what(&SharedCache::open(memory, None).unwrap());
    std::thread::spawn(other).join().unwrap();
}

#[test]
fn stale_computation_does_not_replace_a_newer_value() {
    let memory = words(1 << 20);
    let cache = SharedCache::open(memory, None).unwrap();
    let add = |value: &[u8]| cache.set(b"a", value, None, NO_TAGS, true);
    type ChangeElsewhere = fn(&SharedCache);
    let changes: [ChangeElsewhere; 4] = [
        |other| assert_eq!(set(other, "a", b"new"), StoreResult::Stored),
        |other| assert!(!other.delete(b"a")),
        |other| other.delete_tag(b"any"),
        |other| other.invalidate_all(),
    ];
    for change in changes {
        // The request finds nothing and asks the database, and meanwhile another process changes the value.
        clear_reads();
        cache.delete(b"a");
        assert_eq!(get(&cache, "a"), None);
        in_other_process(memory, change);
        let now = {
            let read = READ.take();
            let now = get(&cache, "a");
            READ.set(read);
            now
        };
        assert_eq!(add(b"old"), StoreResult::AlreadyPresent);
        assert_eq!(get(&cache, "a"), now);
    }
    for change in changes {
        clear_reads();
        cache.delete(b"a");
        assert_eq!(get(&cache, "a"), None);
        in_other_process(memory, change);
        assert_eq!(set(&cache, "a", b"old"), StoreResult::NotStored);
        assert_eq!(get(&cache, "a"), None);
    }
}

#[test]
fn concurrent_read_modify_write_loses_no_update() {
    let memory = words(1 << 20);
    let cache = SharedCache::open(memory, None).unwrap();
    set(&cache, "options", b"a=1 b=1");
    clear_reads();
    assert_eq!(get(&cache, "options").unwrap(), b"a=1 b=1");
    in_other_process(memory, |other| {
        assert!(get(other, "options").is_some());
        assert_eq!(set(other, "options", b"a=1 b=2"), StoreResult::Stored);
    });
    // The write also fails when it is repeated, or after the request has deleted the value itself.
    assert_eq!(set(&cache, "options", b"a=2 b=1"), StoreResult::NotStored);
    assert_eq!(set(&cache, "options", b"a=2 b=1"), StoreResult::NotStored);
    assert!(!cache.delete(b"options"));
    assert_eq!(set(&cache, "options", b"a=2 b=1"), StoreResult::NotStored);
    assert_eq!(get(&cache, "options"), None);
    // The request's own changes do not count as changes by others, and a new request has read nothing.
    assert_eq!(set(&cache, "options", b"a=2 b=2"), StoreResult::Stored);
    assert_eq!(set(&cache, "options", b"a=3 b=2"), StoreResult::Stored);
    in_other_process(memory, |other| {
        assert_eq!(set(other, "options", b"a=3 b=3"), StoreResult::Stored)
    });
    assert_eq!(set(&cache, "options", b"a=3 b=3"), StoreResult::Stored);
    clear_reads();
    assert_eq!(set(&cache, "options", b"a=4 b=3"), StoreResult::Stored);
}
