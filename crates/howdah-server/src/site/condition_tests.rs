//! Conditions one by one, and combined.

use super::*;
use crate::client_address::UNKNOWN;
use crate::testing::request;

fn test(text: &str) -> Test {
    Test::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn one(name: &str, text: &str) -> Vec<(String, Test)> {
    vec![(name.to_owned(), test(text))]
}

fn hold(conditions: &Conditions, target: &str, fields: &[(&str, &str)]) -> bool {
    let head = request("GET", target, fields);
    conditions.hold(Requested::anybody(&head), b"/", &[])
}

#[test]
fn a_test_is_a_text_with_stars_or_an_expression() {
    for (text, value, expected) in [
        ("bot", "bot", true),
        ("bot", "robot", false),
        ("*bot*", "a robot's", true),
        ("*bot*", "Bot", false),
        ("a*b*c", "a--b--c", true),
        ("a*b*c", "a--c--b", false),
        ("a.c", "abc", false),
        ("~ ^a.c$", "abc", true),
        ("~^a.c$", "ABC", false),
        ("~* ^a.c$", "ABC", true),
        ("*", "x", true),
        ("*", "", false),
        ("", "", true),
        ("", "x", false),
    ] {
        let values = [Cow::Borrowed(value.as_bytes())].into_iter();
        assert_eq!(test(text).holds(values), expected, "{text} {value}");
    }
    for bad in ["~ (", "~*[", "~ (a{1000}){1000}"] {
        assert!(Test::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_parameter_is_named_as_php_names_it_and_compared_decoded() {
    let author = Conditions {
        query: one("author", "~ ^[0-9]+$"),
        ..Conditions::default()
    };
    for (target, expected) in [
        ("/?author=1", true),
        ("/?x=y&author=12", true),
        ("/?%61uthor=%31", true),
        ("/?author[]=1", true),
        ("/?author%5B%5D=1", true),
        ("/?+author=1", true),
        ("/?author=x&author=1", true),
        ("/?author=x", false),
        ("/?author", false),
        ("/?authors=1", false),
        ("/", false),
    ] {
        assert_eq!(hold(&author, target, &[]), expected, "{target}");
    }
    let without = Conditions {
        query: one("q", ""),
        ..Conditions::default()
    };
    assert!(hold(&without, "/?q=", &[]) && hold(&without, "/", &[]));
    assert!(!hold(&without, "/?q=&q=x", &[]));
}

#[test]
fn cookies_and_fields_count_wherever_they_stand() {
    let both = Conditions {
        cookie: one("beta", "on"),
        header: one("X-Api", "*"),
        ..Conditions::default()
    };
    let fields = [("Cookie", "a=b; beta=on"), ("x-api", ""), ("X-API", "1")];
    assert!(hold(&both, "/", &fields));
    assert!(!hold(&both, "/", &fields[..2]));
    assert!(!hold(
        &both,
        "/",
        &[("Cookie", "xbeta=on;beta=off"), ("X-Api", "1")]
    ));
    assert!(both.ask_who() && !Conditions::default().ask_who());
}

#[test]
fn an_address_counts_as_resolved_and_none_is_nowhere() {
    let from = Conditions {
        from: Some(From {
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            ..From::default()
        }),
        ..Conditions::default()
    };
    let head = request("GET", "/", &[]);
    for (address, expected) in [
        (Some("10.1.2.3"), true),
        (Some("::ffff:10.1.2.3"), true),
        (Some("11.1.2.3"), false),
        (None, false),
    ] {
        let client = Client {
            address: address.map(|text| text.parse().unwrap()),
            ..UNKNOWN.clone()
        };
        let asked = Requested {
            head: &head,
            visitor: Visitor {
                client: &client,
                ..Visitor::default()
            },
        };
        assert_eq!(from.hold(asked, b"/", &[]), expected, "{address:?}");
        assert_eq!(
            from.why_not(asked, b"/", &[]),
            (!expected).then_some("from")
        );
    }
}

#[test]
fn variables_are_the_connections_then_the_constants() {
    let constants = [("APP_ENV".to_owned(), "staging".to_owned())];
    let env = |name, text| Conditions {
        env: one(name, text),
        ..Conditions::default()
    };
    let head = request("GET", "/", &[]);
    for (name, text, expected) in [
        ("APP_ENV", "staging", true),
        ("APP_ENV", "live", false),
        ("NONE", "", true),
        ("HTTPS", "", true),
        ("REQUEST_SCHEME", "http", true),
        ("SERVER_PROTOCOL", "HTTP/1.1", true),
    ] {
        let holds = env(name, text).hold(Requested::anybody(&head), b"/", &constants);
        assert_eq!(holds, expected, "{name} {text}");
    }
}

#[test]
fn all_must_hold_and_none_of_the_exceptions() {
    let rule = Conditions {
        methods: vec!["GET".to_owned(), "POST".to_owned()],
        header: one("User-Agent", "~* bot"),
        not: vec![
            Exception {
                pattern: Some(Pattern::prefix("/open").unwrap()),
                conditions: Conditions::default(),
            },
            Exception {
                pattern: None,
                conditions: Conditions {
                    header: one("User-Agent", "*Googlebot*"),
                    cookie: one("pass", "1"),
                    ..Conditions::default()
                },
            },
        ],
        ..Conditions::default()
    };
    for (method, path, agent, cookie, why) in [
        ("GET", "/x", "BadBot", "", None),
        ("POST", "/x", "BadBot", "", None),
        ("PUT", "/x", "BadBot", "", Some("methods")),
        ("GET", "/x", "Firefox", "", Some("header")),
        ("GET", "/open/x", "BadBot", "", Some("not")),
        ("GET", "/opened", "BadBot", "", None),
        ("GET", "/x", "Googlebot", "", None),
        ("GET", "/x", "Googlebot", "pass=1", Some("not")),
        ("GET", "/x", "BadBot", "pass=1", None),
    ] {
        let head = request(method, path, &[("User-Agent", agent), ("Cookie", cookie)]);
        let found = rule.why_not(Requested::anybody(&head), path.as_bytes(), &[]);
        assert_eq!(found, why, "{method} {path} {agent} {cookie}");
    }
    assert!(rule.ask_who());
}
