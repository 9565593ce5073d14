//! Tests `decide_storable` along RFC 9111 §3 and §4.2, section by section, with cases that read like the text.

use super::*;
use crate::Millis;
use crate::preset::Preset;
use crate::vary::VaryRules;
use proptest::prelude::*;

const NOW: Millis = 1_795_200_000_000;

fn ask(rules: &CacheRules, status: u16, lines: &[(&str, &str)]) -> Result<Storable, Pass> {
    let fields: Vec<(&[u8], &[u8])> = lines
        .iter()
        .map(|(n, v)| (n.as_bytes(), v.as_bytes()))
        .collect();
    let facts = ResponseFacts {
        status,
        fields: &fields,
        authorized: false,
        requested: NOW,
        received: NOW,
        effect: None,
    };
    decide_storable(&facts, rules)
}

fn rfc() -> CacheRules {
    CacheRules {
        scheme: CacheScheme::Rfc,
        ..CacheRules::for_tests()
    }
}

fn wordpress() -> CacheRules {
    CacheRules {
        preset: Preset::find("wordpress").unwrap(),
        ..CacheRules::for_tests()
    }
}

/// Checks that `decide_storable` returns this lifetime in seconds, or this reason.
#[track_caller]
fn check(rules: &CacheRules, status: u16, lines: &[(&str, &str)], expected: Result<u64, Pass>) {
    let got = ask(rules, status, lines).map(|s| s.freshness().lifetime / 1000);
    assert_eq!(got, expected, "{status} {lines:?}");
}

#[test]
fn page_without_a_lifetime_is_kept_for_the_configured_time() {
    check(&wordpress(), 200, &[("Content-Type", "text/html")], Ok(120));
    check(&wordpress(), 301, &[("Location", "/x")], Ok(120));
    for status in [302, 404, 410] {
        check(&wordpress(), status, &[], Err(Pass::Status));
    }
    check(&wordpress(), 503, &[], Err(Pass::ServerError));
    check(&rfc(), 200, &[], Err(Pass::NoLifetime));
}

#[test]
fn forbidding_directives_override_permissive_ones() {
    let public = ("Cache-Control", "public, max-age=600");
    for rules in [wordpress(), rfc()] {
        for (line, why) in [
            (("Set-Cookie", "a=b"), Pass::SetCookie),
            (("Cache-Control", "no-store"), Pass::NoStore),
            (("Cache-Control", "private"), Pass::Private),
            (("Cache-Control", "private=\"x\""), Pass::Private),
            (("Vary", "*"), Pass::VaryStar),
            (("Vary", "a, *"), Pass::VaryStar),
            (("Vary", "User-Agent"), Pass::VaryUnbounded),
            (("X-Accel-Redirect", "/f"), Pass::SentFile),
            (("X-Accel-Expires", "0"), Pass::NoLifetime),
            (
                ("X-LiteSpeed-Cache-Control", "no-cache"),
                Pass::DoNotCachePage,
            ),
            (("Surrogate-Control", "no-store"), Pass::NoStore),
            (("Surrogate-Control", "no-store;howdah"), Pass::NoStore),
            (("Content-Type", "text/event-stream"), Pass::Streaming),
        ] {
            check(&rules, 200, &[public, line], Err(why));
        }
    }
    // In these cases an HTTP cache has to be more lenient.
    for (line, why) in [
        (("WWW-Authenticate", "Basic"), Pass::AuthenticationAsked),
        (("Set-Cookie2", "a=b"), Pass::SetCookie),
    ] {
        check(&wordpress(), 200, &[public, line], Err(why));
        check(&rfc(), 200, &[public, line], Ok(600));
    }
    // PHP's session_start() sends these headers (session_cache_limiter nocache).
    let session = [
        ("Expires", "Thu, 19 Nov 1981 08:52:00 GMT"),
        ("Cache-Control", "no-store, no-cache, must-revalidate"),
        ("Pragma", "no-cache"),
    ];
    check(&wordpress(), 200, &session, Err(Pass::NoStore));
}

#[test]
fn section_3_5_an_authorized_answer_is_stored_only_if_it_says_so() {
    let judge_with = |value: &str| {
        let fields = [(&b"Cache-Control"[..], value.as_bytes())];
        let facts = ResponseFacts {
            status: 200,
            fields: &fields,
            authorized: true,
            requested: NOW,
            received: NOW,
            effect: None,
        };
        decide_storable(&facts, &rfc()).map(|_| ())
    };
    assert_eq!(judge_with("max-age=60"), Err(Pass::Authorization));
    for allowed in [
        "max-age=60, public",
        "s-maxage=60",
        "max-age=60, must-revalidate",
    ] {
        assert_eq!(judge_with(allowed), Ok(()), "{allowed}");
    }
}

#[test]
fn section_4_2_1_the_lifetime_is_s_maxage_then_max_age_then_expires() {
    let (rules, later) = (rfc(), "Fri, 20 Nov 2026 23:20:00 GMT");
    let at = crate::field::date(b"Fri, 20 Nov 2026 23:20:00 GMT").unwrap();
    let expires = ("Expires", later);
    let from_expires = (at - NOW) / 1000;
    check(
        &rules,
        200,
        &[("Cache-Control", "s-maxage=1, max-age=2"), expires],
        Ok(1),
    );
    check(
        &rules,
        200,
        &[("Cache-Control", "max-age=2"), expires],
        Ok(2),
    );
    check(&rules, 200, &[expires], Ok(from_expires));
    check(
        &rules,
        200,
        &[expires, ("Expires", later)],
        Ok(from_expires),
    );
    check(&rules, 200, &[("Expires", "0")], Err(Pass::NoLifetime));
    check(
        &rules,
        200,
        &[("Expires", later), ("Expires", "0")],
        Err(Pass::NoLifetime),
    );
    check(
        &rules,
        200,
        &[("Cache-Control", "max-age=0"), expires],
        Err(Pass::NoLifetime),
    );
    check(
        &rules,
        200,
        &[("Cache-Control", "max-age=x"), expires],
        Err(Pass::NoLifetime),
    );
}

#[test]
fn a_targeted_field_goes_before_cache_control_and_nginx_field_before_both() {
    let (none, cdn) = (
        ("Cache-Control", "no-store"),
        ("CDN-Cache-Control", "max-age=7"),
    );
    check(&rfc(), 200, &[none, cdn], Ok(7));
    check(
        &rfc(),
        200,
        &[
            ("Cache-Control", "max-age=9"),
            ("CDN-Cache-Control", "no-store"),
        ],
        Err(Pass::NoStore),
    );
    check(
        &rfc(),
        200,
        &[
            ("Cache-Control", "max-age=9"),
            ("CDN-Cache-Control", "MAX;"),
        ],
        Ok(9),
    );
    check(
        &rfc(),
        200,
        &[("Cache-Control", "max-age=9"), ("X-Accel-Expires", "8")],
        Ok(8),
    );
    // nginx would let X-Accel-Expires overrule `private`; here it does not.
    check(
        &rfc(),
        200,
        &[("Cache-Control", "private"), ("X-Accel-Expires", "8")],
        Err(Pass::Private),
    );
}

#[test]
fn section_4_2_2_a_heuristic_lifetime_needs_a_date_and_a_status_that_allows_it() {
    let modified = crate::field::http_date(NOW - 1_000_000);
    let line = ("Last-Modified", &*modified);
    check(&rfc(), 200, &[line], Ok(100));
    check(&rfc(), 404, &[line], Ok(100));
    check(&rfc(), 302, &[line], Ok(0));
    check(&rfc(), 599, &[line, ("Cache-Control", "public")], Ok(100));
}

#[test]
fn section_4_2_3_age_counts_from_where_the_response_was_made() {
    let aged = |lines: &[(&str, &str)]| ask(&rfc(), 200, lines).map(|s| s.freshness().initial_age);
    let cc = ("Cache-Control", "max-age=600");
    let earlier = crate::field::http_date(NOW - 100_000);
    assert_eq!(aged(&[cc]).unwrap(), 0);
    assert_eq!(aged(&[cc, ("Age", "30")]).unwrap(), 30_000);
    assert_eq!(aged(&[cc, ("Age", "30, 40")]).unwrap(), 30_000);
    assert_eq!(
        aged(&[cc, ("Date", &earlier), ("Age", "30")]).unwrap(),
        100_000
    );
    assert_eq!(aged(&[cc, ("Age", "600")]).err(), Some(Pass::AlreadyStale));
    assert_eq!(aged(&[cc, ("Age", "x")]).unwrap(), 0);
}

#[test]
fn page_that_the_application_has_kept_is_as_new_as_its_render() {
    let earlier = crate::field::http_date(NOW - 1_000_000);
    let ended = crate::field::http_date(NOW - 400_000);
    let kept = |lines: &[(&str, &str)]| {
        let stored = ask(&wordpress(), 200, lines)?;
        let freshness = *stored.freshness();
        Ok::<_, Pass>((freshness.initial_age, freshness.lifetime))
    };
    let cc = ("Cache-Control", "max-age=600, public");
    assert_eq!(kept(&[cc, ("Date", &earlier)]), Ok((0, 600_000)));
    assert_eq!(
        kept(&[cc, ("Date", &earlier), ("Age", "30")]),
        Ok((30_000, 600_000))
    );
    let expired = kept(&[("Date", &earlier), ("Expires", &ended)]);
    assert_eq!(expired, Err(Pass::NoLifetime));
}

#[test]
fn section_4_2_4_and_rfc_5861_staleness_is_allowed_by_directive_or_configuration_and_forbidden_by_others()
 {
    let spans = |rules: &CacheRules, cc: &str| {
        let stored = ask(rules, 200, &[("Cache-Control", cc)]).unwrap();
        let f = *stored.freshness();
        (f.while_revalidate / 1000, f.if_error / 1000)
    };
    assert_eq!(spans(&rfc(), "max-age=60"), (0, 0));
    assert_eq!(
        spans(
            &rfc(),
            "max-age=60, stale-while-revalidate=5, stale-if-error=9"
        ),
        (5, 9)
    );
    assert_eq!(spans(&wordpress(), "max-age=60"), (10, 3600));
    for strict in ["must-revalidate", "proxy-revalidate", "s-maxage=60"] {
        let cc = format!("max-age=60, stale-while-revalidate=5, {strict}");
        assert_eq!(spans(&wordpress(), &cc), (0, 0), "{strict}");
    }
}

#[test]
fn no_cache_is_stored_to_be_validated_if_there_is_something_to_validate_with() {
    let cc = ("Cache-Control", "no-cache, max-age=60");
    check(&rfc(), 200, &[cc], Err(Pass::NoCache));
    check(&rfc(), 200, &[cc, ("ETag", "\"a\"")], Ok(60));
    check(
        &wordpress(),
        200,
        &[cc, ("ETag", "\"a\"")],
        Err(Pass::NoCache),
    );
    check(
        &wordpress(),
        200,
        &[("Pragma", "no-cache")],
        Err(Pass::NoCache),
    );
}

#[test]
fn section_5_2_2_3_must_understand_needs_a_known_status() {
    let cc = ("Cache-Control", "max-age=60, no-store, must-understand");
    check(&rfc(), 200, &[cc], Ok(60));
    check(&rfc(), 599, &[cc], Err(Pass::Status));
}

#[test]
fn an_error_a_client_can_provoke_is_never_kept_for_others() {
    let cc = ("Cache-Control", "public, max-age=60");
    for status in [400, 405, 413, 414, 431] {
        check(&wordpress(), status, &[cc], Err(Pass::Status));
    }
    check(&wordpress(), 404, &[cc], Ok(60));
    check(&rfc(), 500, &[cc], Ok(60));
    for status in [206, 304, 103] {
        assert!(ask(&rfc(), status, &[cc]).is_err(), "{status}");
    }
}

#[test]
fn no_page_is_kept_longer_than_the_site_or_the_application_allows() {
    let cc = ("Cache-Control", "max-age=31536000");
    check(&wordpress(), 200, &[cc], Ok(36_000));
    check(&rfc(), 200, &[cc], Ok(86_400));
}

#[test]
fn fields_of_one_exchange_are_not_stored() {
    let stored = ask(
        &rfc(),
        200,
        &[
            ("Cache-Control", "max-age=9, no-cache=\"X-Once\""),
            ("Connection", "X-Hop"),
        ],
    )
    .unwrap();
    for name in [
        "x-hop",
        "X-Once",
        "Transfer-Encoding",
        "Age",
        "set-cookie",
        "Date",
    ] {
        assert!(stored.omits(name.as_bytes()), "{name}");
    }
    assert!(!stored.omits(b"ETag"));
}

#[test]
fn section_3_3_a_body_that_is_not_whole_is_not_stored() {
    let cc = ("Cache-Control", "max-age=9");
    let stored = ask(&rfc(), 200, &[cc, ("Content-Length", "10")]).unwrap();
    assert_eq!(stored.check_complete(10), Ok(()));
    assert_eq!(stored.check_complete(9), Err(Pass::Incomplete));
    let small = CacheRules {
        max_object: 5,
        ..rfc()
    };
    assert_eq!(
        ask(&small, 200, &[cc]).unwrap().check_complete(6),
        Err(Pass::TooLarge)
    );
}

#[test]
fn vary_cookie_is_ignored_for_cookieless_renders() {
    let lines = [("Vary", "Accept-Encoding, Cookie, Accept-Language, foo, FOO")];
    let stored = ask(&wordpress(), 200, &lines).unwrap();
    assert_eq!(
        stored.vary_headers(),
        [b"accept-language".to_vec(), b"foo".to_vec()]
    );
    let cc = ("Cache-Control", "max-age=9");
    check(
        &rfc(),
        200,
        &[cc, ("Vary", "Cookie")],
        Err(Pass::VaryUnbounded),
    );
}

#[test]
fn tags_of_every_dialect_are_one_set() {
    let stored = ask(
        &wordpress(),
        200,
        &[
            ("Surrogate-Key", "a b"),
            ("Cache-Tag", "b, c"),
            ("Cache-Groups", "\"d e\", \"f\""),
        ],
    )
    .unwrap();
    let tags: Vec<_> = stored
        .tags()
        .iter()
        .map(|t| String::from_utf8_lossy(t))
        .collect();
    assert_eq!(tags, ["a", "b", "c", "d e", "f"]);
}

proptest! {
    #[test]
    fn no_field_value_makes_the_policy_fall_over_or_a_private_page_storable(
        cc in "[ -~]{0,60}", vary in "[ -~]{0,30}", age in "[ -~]{0,12}", expires in "[ -~]{0,40}",
    ) {
        let lines = [("Cache-Control", &*cc), ("Vary", &vary), ("Age", &age), ("Expires", &expires)];
        for rules in [wordpress(), rfc()] {
            if let Ok(stored) = ask(&rules, 200, &lines) {
                prop_assert!(stored.freshness().lifetime <= rules.max_lifetime() * 1000);
            }
            let mut with = lines.to_vec();
            with.push(("Set-Cookie", "a=b"));
            prop_assert!(ask(&rules, 200, &with).is_err());
            let mut with = lines.to_vec();
            with.insert(0, ("Cache-Control", "private"));
            prop_assert!(ask(&rules, 200, &with).is_err());
        }
    }
}

#[test]
fn litespeed_control_sets_a_lifetime_and_may_forbid() {
    let said = |value: &'static str| ("X-LiteSpeed-Cache-Control", value);
    let rules = wordpress();
    check(&rules, 200, &[said("public,max-age=600")], Ok(600));
    let both = "public, max-age=600, s-maxage=60";
    check(&rules, 200, &[said(both)], Ok(60));
    check(&rules, 404, &[said("public,max-age=600")], Ok(600));
    // The plugin specifies a week, but the lifetime ends before the page's nonces expire.
    check(&rules, 200, &[said("public,max-age=604800")], Ok(36_000));
    for forbidden in ["private,max-age=9", "shared,private", "no-cache", "esi=on"] {
        check(&rules, 200, &[said(forbidden)], Err(Pass::DoNotCachePage));
    }
    let private = [said("public,max-age=600"), ("Cache-Control", "private")];
    check(&rules, 200, &private, Err(Pass::Private));
    for undecided in ["cookie=_ga", "cookie=currency,value=winter"] {
        let lines = [("X-LiteSpeed-Vary", undecided)];
        check(&rules, 200, &lines, Err(Pass::VaryUnbounded));
    }
    let cookie = [("lsc-cookie", "a=b")];
    check(&rules, 200, &cookie, Err(Pass::SetCookie));
    let unknown = [("X-LiteSpeed-Vary", "cookie=currency")];
    check(&rules, 200, &unknown, Ok(120));
}

#[test]
fn every_page_varies_by_what_the_site_names() {
    let rules = CacheRules {
        vary: VaryRules {
            cookies: vec!["currency".to_owned(), "Language".to_owned()],
            mobile: true,
        },
        ..wordpress()
    };
    let storable = ask(&rules, 200, &[("Vary", "Accept-Language")]).unwrap();
    let names: Vec<_> = storable.vary_headers().iter().map(|n| &n[..]).collect();
    let expected: [&[u8]; 4] = [
        b"accept-language",
        b"browser;mobile",
        b"cookie;Language",
        b"cookie;currency",
    ];
    assert_eq!(names, expected);
    assert!(
        ask(&wordpress(), 200, &[])
            .unwrap()
            .vary_headers()
            .is_empty()
    );
}

#[test]
fn fields_for_this_cache_are_not_stored_and_tags_only_if_they_are_to_go_on() {
    let lines = [
        ("Surrogate-Key", "a"),
        ("Cache-Groups", "\"b\""),
        ("X-LiteSpeed-Tag", "c"),
    ];
    for keep_tags in [false, true] {
        let rules = CacheRules {
            keep_tags,
            ..wordpress()
        };
        let storable = ask(&rules, 200, &lines).unwrap();
        assert_eq!(storable.tags().len(), 3);
        assert_eq!(storable.omits(b"surrogate-key"), !keep_tags);
        assert!(!storable.omits(b"Cache-Groups"));
        assert!(storable.omits(b"X-LiteSpeed-Tag"));
    }
}

#[test]
fn under_rfc_a_page_that_varies_by_cookies_or_values_is_not_stored() {
    for varies in ["cookie=theme", "value=winter", "cookie=_ga"] {
        let lines = [
            ("Cache-Control", "public, max-age=600"),
            ("X-LiteSpeed-Vary", varies),
        ];
        check(&rfc(), 200, &lines, Err(Pass::VaryUnbounded));
    }
}
