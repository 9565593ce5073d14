//! Purge requests as the plugins send them, and the purges that they result in.

use std::path::Path;

use super::*;
use crate::cache::CacheConfig;
use crate::testing::request;
use howdah_site::cache_config::PurgeToken;
use howdah_site::client_address::TrustedProxies;
use howdah_site::site::config::SiteConfig;

const SECRET: &str = "0123456789abcdef";
const ALLOWED_PEER: &str = "192.0.2.7:5000";
const OTHER_PEER: &str = "198.51.100.7:5000";

fn access() -> PurgeAccess {
    PurgeAccess {
        networks: vec!["192.0.2.0/24".parse().unwrap()],
        unix: false,
        token: Some(PurgeToken::new(SECRET).unwrap()),
        path: Some("/purge/".to_owned()),
    }
}

fn ask_as(
    access: PurgeAccess,
    peer: Option<&str>,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
) -> Option<Result<Vec<PurgeCommand>, PurgeRefused>> {
    let part = SiteCache::new(CacheConfig {
        purge: access,
        ..CacheConfig::default()
    });
    let site = Site::new(SiteConfig::for_tests("one", Path::new("/")), 0).unwrap();
    let mut all = vec![("Host", "h")];
    all.extend_from_slice(fields);
    let request = request(method, target, &all);
    let peer = peer.map(|peer| peer.parse().unwrap());
    let client = TrustedProxies::default().client(peer, None, &request);
    purge_request(&part, &site, &request, &client)
}

fn ask(method: &str, target: &str, fields: &[(&str, &str)]) -> String {
    match ask_as(access(), Some(ALLOWED_PEER), method, target, fields) {
        None => "none".to_owned(),
        Some(Err(why)) => why.name().to_owned(),
        Some(Ok(commands)) => {
            let one = |command: &PurgeCommand| match command.force {
                Force::Hard => command.what.to_string(),
                Force::Soft => format!("softly {}", command.what),
            };
            let all: Vec<String> = commands.iter().map(one).collect();
            all.join(", ")
        }
    }
}

#[test]
fn purge_requests_of_every_plugin_are_understood() {
    for (method, target, fields, expected) in [
        ("PURGE", "/a/", &[][..], "/a/"),
        (
            "PURGE",
            "/a/?b=1&utm_source=x",
            &[],
            "/a/?b=1, /a/?b=1&utm_source=x",
        ),
        ("PURGE", "/.*", &[], "everything"),
        ("PURGE", "/a/.*", &[], "/a/*"),
        ("PURGE", "/a*", &[], "/a*"),
        ("PURGE", "/purgeall", &[], "everything"),
        ("PURGE", "/sub/purgeall", &[], "everything"),
        ("PURGE", "/a/.*", &[("X-Purge-Method", "regex")], "/a/*"),
        ("PURGE", "/a/", &[("X-Purge-Method", "exact")], "/a/"),
        ("PURGE", "/a/", &[("Fastly-Soft-Purge", "1")], "softly /a/"),
        ("PURGE", "/", &[("Surrogate-Key", "x y")], "tag x, tag y"),
        ("PURGE", "/", &[("Cache-Tag", "x,y")], "tag x, tag y"),
        ("PURGEKEYS", "/", &[("xkey-softpurge", "x")], "softly tag x"),
        (
            "BAN",
            "/",
            &[("Cache-Tags", "node:1 node:2")],
            "tag node:1, tag node:2",
        ),
        (
            "PURGE",
            "/",
            &[("X-Magento-Tags-Pattern", ".*")],
            "everything",
        ),
        (
            "PURGE",
            "/",
            &[(
                "X-Magento-Tags-Pattern",
                "((^|,)cat_p_1(,|$))|((^|,)cms_b(,|$))",
            )],
            "tag cat_p_1, tag cms_b",
        ),
        // W3 Total Cache 2.10 sends this path with every post: percent-encoded to Varnish at the page's host, and
        // without encoding to Varnish at another host.
        (
            "PURGE",
            "/(%5Ba-z0-9_%5C-%5D*?)sitemap(%5Ba-z0-9_%5C-%5D*)?%5C.(?:xml%7Cxsl)",
            &[],
            "everything",
        ),
        (
            "PURGE",
            r"/([a-z0-9_\-]*?)sitemap([a-z0-9_\-]*)?\.(?:xml|xsl)",
            &[],
            "everything",
        ),
        ("PURGE", "/wiki/Mouse_(animal)", &[], "/wiki/Mouse_(animal)"),
        ("BAN", "/blog/", &[], "/blog/*"),
        ("BAN", "/", &[], "everything"),
        ("GET", "/purge/a/b", &[], "/a/b"),
        ("GET", "/purge/", &[], "/"),
        ("GET", "/purged", &[], "none"),
        ("GET", "/a", &[], "none"),
        ("POST", "/purge/a", &[], "none"),
    ] {
        assert_eq!(
            ask(method, target, fields),
            expected,
            "{method} {target} {fields:?}"
        );
    }
}

#[test]
fn purge_request_that_is_not_understood_is_refused() {
    for (method, target, fields) in [
        ("PURGE", "/(a|b).*", &[][..]),
        ("PURGE", "/a", &[("X-Purge-Method", "regex")]),
        ("PURGE", "/a", &[("X-Purge-Method", "glob")]),
        ("PURGE", "/", &[("X-Magento-Tags-Pattern", "cat_.*")]),
        ("BAN", "/", &[("X-Url", "^/a"), ("X-Host", "h")]),
        ("PURGEKEYS", "/", &[]),
    ] {
        assert_eq!(
            ask(method, target, fields),
            "PurgeUnreadable",
            "{target} {fields:?}"
        );
    }
    let long = "x".repeat(2000);
    assert_eq!(
        ask("PURGE", "/", &[("Surrogate-Key", &long)]),
        "PurgeUnreadable"
    );
}

#[test]
fn purge_is_limited_to_configured_addresses_and_token_holders() {
    let bearer = format!("Bearer {SECRET}");
    let wrong = format!("{}X", &SECRET[..15]);
    let twice = SECRET.repeat(2);
    let proxy = ("X-Forwarded-For", "192.0.2.7");
    for (access, peer, fields, may) in [
        (access(), Some(ALLOWED_PEER), &[][..], true),
        (access(), Some(OTHER_PEER), &[], false),
        (access(), None, &[], false),
        (
            access(),
            Some(OTHER_PEER),
            &[("X-Purge-Token", SECRET)],
            true,
        ),
        (access(), None, &[("Authorization", &bearer[..])], true),
        // A valid address does not make up for a wrong token.
        (
            access(),
            Some(ALLOWED_PEER),
            &[("X-Purge-Token", &wrong[..])],
            false,
        ),
        (
            access(),
            Some(OTHER_PEER),
            &[("X-Purge-Token", &twice[..])],
            false,
        ),
        (access(), Some(OTHER_PEER), &[("X-Purge-Token", "")], false),
        (
            access(),
            Some(OTHER_PEER),
            &[("X-Purge-Token", &SECRET[..15])],
            false,
        ),
        // The address is that of a proxy that is not configured as trusted.
        (access(), Some(ALLOWED_PEER), &[proxy], false),
        (access(), Some(OTHER_PEER), &[proxy], false),
        (PurgeAccess::default(), Some("127.0.0.1:1"), &[], false),
        (PurgeAccess::default(), None, &[], false),
        (
            PurgeAccess::default(),
            Some(OTHER_PEER),
            &[("X-Purge-Token", SECRET)],
            false,
        ),
    ] {
        let told = ask_as(access, peer, "PURGE", "/a", fields).unwrap();
        let denied = matches!(&told, Err(PurgeRefused::Denied(_)));
        assert_eq!(denied, !may, "{peer:?} {fields:?} {told:?}");
    }
    let unix = PurgeAccess {
        unix: true,
        ..PurgeAccess::default()
    };
    assert!(ask_as(unix, None, "PURGE", "/a", &[]).unwrap().is_ok());
}

#[test]
fn purge_token_is_long_enough_and_never_printed() {
    assert!(PurgeToken::new("short").unwrap_err().contains("openssl"));
    assert!(PurgeToken::new("with a space in it").is_err());
    let token = PurgeToken::new(SECRET).unwrap();
    assert!(!format!("{token:?}").contains(SECRET));
}
