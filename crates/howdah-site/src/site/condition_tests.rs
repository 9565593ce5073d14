//! Conditions one by one, and combined.

use super::*;
use crate::client_address::UNKNOWN_CLIENT;
use crate::testing::request;

fn test(text: &str) -> ValueTest {
    ValueTest::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn one(name: &str, text: &str) -> Vec<(String, ValueTest)> {
    vec![(name.to_owned(), test(text))]
}

fn hold(conditions: &RuleConditions, target: &str, fields: &[(&str, &str)]) -> bool {
    let head = request("GET", target, fields);
    conditions.hold(RuleRequest::without_client(&head), b"/", &[])
}

#[test]
fn value_test_is_a_text_with_stars_or_an_expression() {
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
        assert!(ValueTest::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn query_parameter_is_named_as_in_php_and_compared_decoded() {
    let author = RuleConditions {
        query: one("author", "~ ^[0-9]+$"),
        ..RuleConditions::default()
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
    let without = RuleConditions {
        query: one("q", ""),
        ..RuleConditions::default()
    };
    assert!(hold(&without, "/?q=", &[]) && hold(&without, "/", &[]));
    assert!(!hold(&without, "/?q=&q=x", &[]));
}

#[test]
fn conditions_find_cookies_and_headers_at_any_position() {
    let both = RuleConditions {
        cookie: one("beta", "on"),
        header: one("X-Api", "*"),
        ..RuleConditions::default()
    };
    let fields = [("Cookie", "a=b; beta=on"), ("x-api", ""), ("X-API", "1")];
    assert!(hold(&both, "/", &fields));
    assert!(!hold(&both, "/", &fields[..2]));
    assert!(!hold(
        &both,
        "/",
        &[("Cookie", "xbeta=on;beta=off"), ("X-Api", "1")]
    ));
    assert!(both.depend_on_client() && !RuleConditions::default().depend_on_client());
}

#[test]
fn conditions_use_the_resolved_client_address() {
    let from = RuleConditions {
        from: Some(ClientAddresses {
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            ..ClientAddresses::default()
        }),
        ..RuleConditions::default()
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
            ..UNKNOWN_CLIENT.clone()
        };
        let asked = RuleRequest {
            head: &head,
            visitor: Visitor {
                client: &client,
                ..Visitor::default()
            },
        };
        assert_eq!(from.hold(asked, b"/", &[]), expected, "{address:?}");
        assert_eq!(
            from.first_failed(asked, b"/", &[]),
            (!expected).then_some("from")
        );
    }
}

#[test]
fn condition_variables_are_the_connections_then_the_constants() {
    let constants = [("APP_ENV".to_owned(), "staging".to_owned())];
    let env = |name, text| RuleConditions {
        env: one(name, text),
        ..RuleConditions::default()
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
        let holds = env(name, text).hold(RuleRequest::without_client(&head), b"/", &constants);
        assert_eq!(holds, expected, "{name} {text}");
    }
}

#[test]
fn conditions_must_all_hold_and_no_exception() {
    let rule = RuleConditions {
        methods: vec!["GET".to_owned(), "POST".to_owned()],
        header: one("User-Agent", "~* bot"),
        not: vec![
            RuleException {
                pattern: Some(PathPattern::prefix("/open").unwrap()),
                conditions: RuleConditions::default(),
            },
            RuleException {
                pattern: None,
                conditions: RuleConditions {
                    header: one("User-Agent", "*Googlebot*"),
                    cookie: one("pass", "1"),
                    ..RuleConditions::default()
                },
            },
        ],
        ..RuleConditions::default()
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
        let found = rule.first_failed(RuleRequest::without_client(&head), path.as_bytes(), &[]);
        assert_eq!(found, why, "{method} {path} {agent} {cookie}");
    }
    assert!(rule.depend_on_client());
}
