use std::collections::BTreeSet;

use regex::bytes::RegexBuilder;

use super::*;

/// Returns the error of parsing a profile with these lines at the end.
fn parse_error(lines: &'static str) -> String {
    let text: &'static str = format!("title = \"x\"\n{lines}").leak();
    toml::from_str::<ApplicationProfile>(text)
        .unwrap_err()
        .to_string()
}

#[track_caller]
fn check_expression(expression: &str, file: &str) {
    let parsed = RegexBuilder::new(expression).unicode(false).build();
    assert!(
        parsed.is_ok(),
        "{file}: {expression}: {:?}",
        parsed.unwrap_err()
    );
}

#[test]
fn application_files_parse_with_unique_names() {
    let mut names = BTreeSet::new();
    let mut titles = BTreeSet::new();
    for (_, name, text) in application::FILES {
        if let Err(error) = toml::from_str::<ApplicationProfile>(text) {
            panic!("apps/{name}.toml: {error}");
        }
        assert!(names.insert(format!("{name}.toml")), "{name}");
    }
    for known in known_applications() {
        assert!(titles.insert(known.profile.title), "{}", known.name);
        assert_eq!(known.application.to_string(), known.profile.title);
        assert!(known.application.has_login());
    }
    // A file that is not in the list would have no effect.
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/apps");
    let entries = std::fs::read_dir(directory).unwrap();
    let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), names);
}

#[test]
fn layouts_name_files_and_paths() {
    for known in layouts() {
        let (file, layout) = (known.application, known.layout);
        assert!(!layout.files.is_empty() && !layout.web.is_empty(), "{file}");
        for path in layout.files.iter().chain(&layout.web) {
            assert!(!path.starts_with('/'), "{file}: {path}");
        }
        let below = layout.rewrites.iter().map(|rewrite| rewrite.below);
        let paths = below
            .chain(layout.rewrites.iter().map(|rewrite| rewrite.to))
            .chain(layout.redirects.iter().flat_map(|to| [to.from, to.to]))
            .chain(layout.headers.iter().map(|header| header.below))
            .chain(layout.controller_prefixes.iter().copied())
            .chain(layout.only_files.iter().copied())
            .chain(layout.front_controller);
        for path in paths {
            assert!(path.starts_with('/'), "{file}: {path}");
        }
        // Both have no effect without a front controller.
        if layout.path_info || !layout.controller_prefixes.is_empty() {
            assert!(layout.front_controller.is_some(), "{file}");
        }
    }
}

#[test]
fn regular_expressions_of_all_files_compile() {
    let mut checked = 0;
    let mut check = |expression: &str, file: &str| {
        check_expression(expression, file);
        checked += 1;
    };
    for known in layouts() {
        let file = known.application.to_string();
        for denied in known.denials().filter(|denied| denied.starts_with('^')) {
            check(denied, &file);
        }
        for remainder in known.layout.rewrites.iter().filter_map(|to| to.remainder) {
            check(&format!("^{remainder}"), &file);
        }
    }
    for request in login_requests() {
        check(request.path, request.path);
        let (kind, rest) = request.value.split_once(' ').unwrap_or_default();
        if ["~", "~*"].contains(&kind) {
            check(rest, request.path);
        }
        let has_parameter = request.parameter.is_some() || request.value.is_empty();
        assert!(has_parameter, "a value without a parameter: {request:?}");
    }
    assert!(checked > 20, "{checked}");
}

#[test]
fn cache_profiles_know_phps_session_and_limit_lifetimes() {
    let session = NamePattern::Exact("PHPSESSID");
    let mut profiles = 0;
    for known in known_applications() {
        let Some(cache) = &known.profile.cache else {
            continue;
        };
        profiles += 1;
        let name = known.name;
        assert!(cache.session_cookies.contains(&session), "{name}");
        assert!(
            !cache
                .session_cookies
                .iter()
                .any(|cookie| cache.harmless_cookies.contains(cookie)),
            "{name}"
        );
        assert!(
            (60..=cache_profile::DEFAULT_MAX_TTL_SECONDS).contains(&cache.max_ttl),
            "{name}"
        );
    }
    assert!(profiles > 0);
}

#[test]
fn jobs_have_unique_presets_and_name_a_file() {
    let mut presets = BTreeSet::new();
    for job in jobs() {
        assert!(presets.insert(job.preset), "{}", job.preset);
        assert_eq!(job.command[0], "php", "{}", job.preset);
        assert!(!job.file().is_empty(), "{}", job.preset);
    }
    assert_eq!(presets.len(), 2);
}

#[test]
fn largest_child_memory_is_that_of_a_file() {
    assert_eq!(largest_child_memory(), 64 << 20);
}

#[test]
fn file_mistakes_are_named() {
    let error = parse_error("layout = []\nlayuot = []\n");
    assert!(error.contains("unknown field `layuot`"), "{error}");
    let error = parse_error("[[layout]]\nfiles = [\"a\"]\n");
    assert!(error.contains("missing field `web`"), "{error}");
    let error = parse_error("layout = []\n[cache]\nsession_cookies = [\"a*b\"]\n");
    assert!(error.contains("`a*b` is not a pattern of names"), "{error}");
}

#[test]
fn name_patterns_are_parsed_by_their_marks() {
    for (text, pattern) in [
        ("name", Some(NamePattern::Exact("name"))),
        ("wp-*", Some(NamePattern::Prefix("wp-"))),
        ("*_session", Some(NamePattern::Suffix("_session"))),
        ("SESS{hex}", Some(NamePattern::HexAfter("SESS"))),
        ("{hex}", Some(NamePattern::HexAfter(""))),
        ("_ga_{account}", Some(NamePattern::AccountAfter("_ga_"))),
        ("", None),
        ("*", None),
        ("*a*", None),
        ("a*b", None),
        ("a{hex}b", None),
        ("a{name}", None),
    ] {
        assert_eq!(NamePattern::parse(text), pattern, "{text}");
    }
}
