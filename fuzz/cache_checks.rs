//! Invariants for arbitrary header fields and URLs that the cache reads. Used by the fuzz target, and by the test that
//! replays its corpus (`crates/howdah-cache/tests/fuzz_corpus.rs`).

use howdah_cache::key::{PageKey, QueryRules, Url};
use howdah_cache::object::ObjectDraft;
use howdah_cache::policy::response::{ResponseFacts, decide_storable};
use howdah_cache::policy::{CacheRules, CacheScheme, RequestGate};
use howdah_cache::preset::PRESETS;
use howdah_cache::serve::{PageReply, RequestConditions, reply};
use howdah_cache::{Object, Pass};

const NOW: u64 = 1_795_200_000_000;

/// Checks the cache's decisions. The first line is a target, the others are fields of both a request and its response.
/// Nothing panics, a response that sets a cookie is never stored, and a range that is served lies within the body.
pub fn cache_fields(data: &[u8]) {
    let mut lines = data.split(|b| *b == b'\n');
    let target = lines.next().unwrap_or_default();
    let fields: Vec<(&[u8], &[u8])> = lines
        .filter_map(|line| {
            let colon = line.iter().position(|b| *b == b':')?;
            Some((line[..colon].trim_ascii(), line[colon + 1..].trim_ascii()))
        })
        .take(64)
        .collect();
    let mut parts = target.splitn(2, |b| *b == b'?');
    let url = Url {
        site: 0,
        https: false,
        host: b"example.org",
        path: parts.next().unwrap_or_default(),
        query: parts.next(),
    };
    for preset in PRESETS.iter() {
        for scheme in [CacheScheme::CleanRoom, CacheScheme::Rfc] {
            let rules = CacheRules {
                scheme,
                preset,
                ..CacheRules::for_tests()
            };
            one(&rules, &url, &fields);
        }
    }
}

fn one(rules: &CacheRules, url: &Url<'_>, fields: &[(&[u8], &[u8])]) {
    let query = QueryRules {
        drop_tracking: rules.scheme == CacheScheme::CleanRoom,
        ignored: &[],
        excluded: rules.preset.never_parameters,
    };
    let mut key = PageKey::default();
    if key.make(url, &query).is_ok() {
        assert!(key.target().starts_with(b"/"));
        assert!(!key.target().contains(&0));
    }
    let mut gate = RequestGate::new(rules, b"GET", url.path, false);
    let mut conditions = RequestConditions::default();
    for (name, value) in fields {
        gate.check_header(name, value);
        conditions.add_header(name, value);
    }
    let facts = ResponseFacts {
        status: 200,
        fields,
        authorized: false,
        requested: NOW,
        received: NOW,
        effect: None,
    };
    let has = |name: &str| {
        fields
            .iter()
            .any(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
    };
    match decide_storable(&facts, rules) {
        Ok(storable) => {
            assert!(!has("set-cookie"));
            assert!(storable.freshness().lifetime <= rules.max_lifetime() * 1000);
            let draft = ObjectDraft {
                status: 200,
                reason: b"",
                fields,
                body: bytes::Bytes::from_static(b"0123456789"),
                url_key: key.as_bytes(),
                born: 1,
            };
            let Ok(page) = Object::new(&storable, draft) else {
                return;
            };
            if let PageReply::Part { start, length } = reply(&page, &conditions) {
                assert!(length > 0 && start + length <= 10);
            }
        }
        Err(why) => assert!(Pass::ALL.contains(&why)),
    }
}
