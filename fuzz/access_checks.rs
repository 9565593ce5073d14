//! Invariants for arbitrary bytes in password, group and network files, in conditions of rules, and in clients'
//! credentials. Used by the fuzz targets, and by the test that replays their corpora
//! (`crates/howdah-server/tests/fuzz_corpora.rs`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use howdah_http::message::RequestHead;
use howdah_http::network::AddressBlock;
use howdah_http1::head::{HeadLimits, parse};
use howdah_site::authentication::credentials::Credentials;
use howdah_site::authentication::group_file::UserGroups;
use howdah_site::authentication::hash::PasswordHash;
use howdah_site::authentication::password_file::Passwords;
use howdah_site::network_file::Networks;
use howdah_site::site::condition::{RuleConditions, RuleException, RuleRequest, ValueTest};

/// The maximum cost of a password check. A more expensive check would keep a thread busy for too long.
const MOST_COST: u64 = 1 << 24;

/// Checks password files: an invalid line does not affect the lines after it, and no hash is too expensive.
pub fn password_file(bytes: &[u8]) {
    let alone = Passwords::parse(bytes).expect("no file is refused as a whole");
    let more = [bytes, b"\nann:plain text"].concat();
    let more = Passwords::parse(&more).expect("as above");
    assert!(more.unusable.starts_with(&alone.unusable));
    for hash in bytes.split(|b| matches!(b, b'\n' | b':')) {
        if let Ok(hash) = PasswordHash::parse(hash) {
            assert!(hash.cost() <= MOST_COST, "{}", hash.cost());
        }
    }
    // Group files have lines of the same kind.
    let _ = UserGroups::parse(bytes);
}

/// Checks values of `Authorization`.
pub fn credentials(bytes: &[u8]) {
    let Some(found) = Credentials::parse(bytes) else {
        return;
    };
    assert!(!found.user.contains(&b':'));
    assert!(found.user.len() + found.password.len() < bytes.len());
    let parts = [&found.user[..], &found.password].concat();
    assert!(!parts.iter().any(u8::is_ascii_control));
    let upper = [b"BASIC ", &bytes[6..]].concat();
    assert_eq!(Credentials::parse(&upper), Some(found));
}

/// Checks network files: the merged list contains an address if and only if one of its lines contains it.
pub fn network_file(bytes: &[u8]) {
    let Ok(list) = Networks::parse(bytes) else {
        return;
    };
    let lines = bytes.split(|b| *b == b'\n');
    let texts = lines.filter_map(|line| {
        let text = line.split(|b| *b == b'#').next().unwrap_or_default();
        std::str::from_utf8(text.trim_ascii()).ok()
    });
    let networks: Vec<AddressBlock> = texts.filter_map(|text| text.parse().ok()).collect();
    for network in &networks {
        let (first, last) = network.range();
        assert!(list.contains(first) && list.contains(last), "{network:?}");
        for beside in [step(first, false), step(last, true)].into_iter().flatten() {
            let one_by_one = networks.iter().any(|network| network.contains(beside));
            assert_eq!(list.contains(beside), one_by_one, "{beside}");
        }
    }
}

/// Returns the address before or after another.
fn step(address: IpAddr, up: bool) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => {
            let bits = address.to_bits();
            let next = if up {
                bits.checked_add(1)
            } else {
                bits.checked_sub(1)
            };
            next.map(|bits| Ipv4Addr::from_bits(bits).into())
        }
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            let next = if up {
                bits.checked_add(1)
            } else {
                bits.checked_sub(1)
            };
            next.map(|bits| Ipv6Addr::from_bits(bits).into())
        }
    }
}

/// Checks a condition. The first line is its text, the second a query, the others are header fields. A value is either
/// present or absent, and `not` inverts the conditions in it.
pub fn condition(bytes: &[u8]) {
    let mut lines = bytes.splitn(3, |b| *b == b'\n');
    let text = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let (query, fields) = (lines.next().unwrap_or_default(), lines.next());
    let Some(head) = request(query, fields.unwrap_or_default()) else {
        return;
    };
    let asked = RuleRequest::without_client(&head);
    let Ok(test) = ValueTest::parse(&text) else {
        return;
    };
    let of = |test: ValueTest| {
        let one = vec![("a".to_owned(), test)];
        let query = RuleConditions {
            query: one.clone(),
            ..RuleConditions::default()
        };
        let cookie = RuleConditions {
            cookie: one.clone(),
            ..RuleConditions::default()
        };
        let header = RuleConditions {
            header: one.clone(),
            ..RuleConditions::default()
        };
        let env = RuleConditions {
            env: one,
            ..RuleConditions::default()
        };
        [query, cookie, header, env].map(|conditions| {
            let holds = conditions.hold(asked, b"/", &[]);
            let not = vec![RuleException {
                pattern: None,
                conditions,
            }];
            let opposite = RuleConditions {
                not,
                ..RuleConditions::default()
            };
            assert_ne!(opposite.hold(asked, b"/", &[]), holds);
            holds
        })
    };
    let (absent, present) = (of(ValueTest::Absent), of(ValueTest::Present));
    for (absent, present) in absent.into_iter().zip(present) {
        assert_ne!(absent, present);
    }
    of(test);
}

fn request(query: &[u8], fields: &[u8]) -> Option<RequestHead> {
    let text = [
        b"GET /?",
        query,
        b" HTTP/1.1\r\nHost: h\r\n",
        fields,
        b"\r\n\r\n",
    ]
    .concat();
    let limits = HeadLimits {
        request_line: text.len(),
        bytes: text.len(),
        fields: 100,
    };
    let mut fields = Vec::new();
    let parsed = parse(&text, &limits, &mut fields).ok()??;
    Some(parsed.into_head(&text, Vec::new(), fields))
}
