use std::sync::Arc;

use super::*;
use crate::cookie::pairs;
use crate::generation::Force;
use crate::object::tests::page as object;
use crate::policy::{CacheRules, PrivateRules};

const MIB: u64 = 1 << 20;

fn store(capacity: u64) -> Arc<PrivateStore> {
    let store = Arc::new(PrivateStore::default());
    store.begin_configuration(capacity);
    store
}

/// Returns the tokens of the visitor with these cookies.
fn visitor(store: &PrivateStore, line: &str) -> Vec<VisitorToken> {
    let rules = CacheRules {
        private: Some(PrivateRules {
            cookies: vec!["*_sid".to_owned(), "sid*".to_owned()],
        }),
        ..CacheRules::for_tests()
    };
    let headers = [(&b"cookie"[..], line.as_bytes())];
    assert!(pairs(line.as_bytes()).count() > 0);
    let found = store.key.cookies("site", &rules, headers.into_iter());
    found.identity().expect("a visitor").to_vec()
}

fn ann(store: &PrivateStore) -> Vec<VisitorToken> {
    visitor(store, "sid=aaaaaaaaaaaaaaaa")
}

fn bob(store: &PrivateStore) -> Vec<VisitorToken> {
    visitor(store, "sid=bbbbbbbbbbbbbbbb")
}

/// Stores a page as the render of a visitor.
fn put(
    store: &Arc<PrivateStore>,
    who: &[VisitorToken],
    key: &str,
    page: Object,
) -> Result<(), Pass> {
    let render = store.begin_render(who);
    store.store(&render, key.as_bytes(), page, &Generations::default())
}

fn has(store: &PrivateStore, key: &str) -> bool {
    let found = store.find(key.as_bytes(), &Generations::default(), 1);
    found.is_some()
}

#[test]
fn page_is_found_until_its_visitor_is_forgotten() {
    let store = store(64 * MIB);
    let (ann, bob) = (ann(&store), bob(&store));
    put(&store, &ann, "a", object(&[], "A")).unwrap();
    put(&store, &bob, "b", object(&[], "B")).unwrap();
    assert_eq!(
        store.find(b"a", &Generations::default(), 1).unwrap().body,
        "A"
    );
    assert_eq!((store.usage().pages, store.pages_of(&ann).len()), (2, 1));
    store.forget(&ann);
    assert!(!has(&store, "a") && has(&store, "b"));
    assert!(store.pages_of(&ann).is_empty());
    store.forget(&bob);
    assert_eq!((store.usage().pages, store.usage().bytes), (0, 0));
    assert!(store.lock().visitors.is_empty() && store.lock().by_use.is_empty());
}

#[test]
fn write_reaches_the_pages_that_share_any_cookie() {
    let store = store(64 * MIB);
    // A browser sends the second cookie below one path alone.
    let everywhere = ann(&store);
    let below = visitor(&store, "sid=aaaaaaaaaaaaaaaa; area_sid=cccccccccccccccc");
    put(&store, &everywhere, "/", object(&[], "x")).unwrap();
    put(&store, &below, "/area/", object(&[], "x")).unwrap();
    store.forget(&below);
    assert!(!has(&store, "/") && !has(&store, "/area/"));
    put(&store, &below, "/area/", object(&[], "x")).unwrap();
    store.forget(&everywhere);
    assert!(!has(&store, "/area/"));
    assert!(store.lock().visitors.is_empty());
}

#[test]
fn render_that_overlaps_a_write_is_outdated() {
    let store = store(64 * MIB);
    let generations = Generations::default();
    let (ann, bob) = (ann(&store), bob(&store));
    let (of_ann, of_bob) = (store.begin_render(&ann), store.begin_render(&bob));
    store.forget(&ann);
    let page = || object(&[], "x");
    let stored = store.store(&of_ann, b"a", page(), &generations);
    assert_eq!(stored, Err(Pass::OutdatedRender));
    assert_eq!(store.store(&of_bob, b"b", page(), &generations), Ok(()));
    // So is one during which something public was written.
    generations.purge(&Purge::All, Force::Hard);
    let stored = store.store(&of_bob, b"c", page(), &generations);
    assert_eq!(stored, Err(Pass::OutdatedRender));
    assert!(store.find(b"b", &generations, 1).is_none());
    drop((of_ann, of_bob));
    assert!(store.lock().visitors.is_empty());
}

#[test]
fn purge_reaches_the_visitors_own_pages_that_it_names() {
    let store = store(64 * MIB);
    let (ann, bob) = (ann(&store), bob(&store));
    let tagged = || object(&[("X-LiteSpeed-Tag", "cart")], "x");
    put(&store, &ann, "a1", tagged()).unwrap();
    put(&store, &ann, "a2", object(&[], "x")).unwrap();
    put(&store, &bob, "b1", tagged()).unwrap();
    store.purge(&ann, &[Purge::Tag(b"other".to_vec())]);
    assert!(has(&store, "a1"));
    store.purge(&ann, &[Purge::Tag(b"cart".to_vec())]);
    assert!(!has(&store, "a1") && has(&store, "a2") && has(&store, "b1"));
}

#[test]
fn expired_page_is_removed() {
    let store = store(64 * MIB);
    put(&store, &ann(&store), "a", object(&[], "x")).unwrap();
    assert!(store.find(b"a", &Generations::default(), 60_001).is_none());
    assert_eq!(store.usage().pages, 0);
}

#[test]
fn new_configuration_begins_empty() {
    let store = store(64 * MIB);
    let ann = ann(&store);
    put(&store, &ann, "a", object(&[], "x")).unwrap();
    let render = store.begin_render(&ann);
    let before = store.begin_configuration(64 * MIB);
    assert_eq!(store.usage().pages, 0);
    assert_eq!(store.begin_configuration(64 * MIB), before + 1);
    // A script that started under the former configuration can still invalidate the pages of its visitor.
    store.forget(&ann);
    let late = store.store(&render, b"a", object(&[], "x"), &Generations::default());
    assert_eq!(late, Err(Pass::OutdatedRender));
}

#[test]
fn visitor_cannot_use_more_than_a_share() {
    let store = store(64 * MIB);
    let (ann, bob) = (ann(&store), bob(&store));
    put(&store, &bob, "b", object(&[], "x")).unwrap();
    for n in 0..MAX_PAGES_PER_VISITOR {
        put(&store, &ann, &format!("a{n}"), object(&[], "x")).unwrap();
    }
    assert!(has(&store, "a0"));
    put(&store, &ann, "more", object(&[], "x")).unwrap();
    // The page that was not used for the longest time had to go.
    assert!(has(&store, "a0") && !has(&store, "a1") && has(&store, "b"));
    let long: &'static str = Box::leak("x".repeat(1 << 20).into_boxed_str());
    for n in 0..4 {
        put(&store, &ann, &format!("long{n}"), object(&[], long)).unwrap();
    }
    let used = store.lock().visitors[&ann[0]].bytes;
    assert!(used <= 4 * MIB, "{used}");
    assert!(has(&store, "long3") && !has(&store, "long0") && has(&store, "b"));
    let longer: &'static str = Box::leak("x".repeat(4 << 20).into_boxed_str());
    let refused = put(&store, &ann, "longer", object(&[], longer));
    assert_eq!(refused, Err(Pass::TooLarge));
}

#[test]
fn many_visitors_stay_within_the_capacity() {
    let store = store(MIB);
    for n in 0..20_000 {
        let who = visitor(&store, &format!("sid=aaaaaaaaaaa{n:08}"));
        put(&store, &who, &format!("p{n}"), object(&[], "x")).unwrap();
    }
    let usage = store.usage();
    assert!(usage.bytes <= usage.capacity, "{usage:?}");
    assert!(usage.pages > 100 && usage.evictions == 20_000 - usage.pages);
    assert!(has(&store, "p19999") && !has(&store, "p0"));
    let state = store.lock();
    assert_eq!(state.visitors.len() as u64, usage.pages);
    assert_eq!(state.by_use.len() as u64, usage.pages);
    let bytes: u64 = state.pages.values().map(|entry| entry.bytes).sum();
    assert_eq!(bytes, usage.bytes);
}
