//! Mistakes in the target of a `redirect`: a client must not be able to choose the host, and a redirect must not lead
//! back to the path that it redirects. Each rule is judged by itself, without a request.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

use super::condition::RuleConditions;
use super::config::SiteRule;
use super::config_error::ConfigError;
use super::pattern::PathPattern;
use super::template::{RuleTemplate, TemplatePiece, TemplateValues};

/// Adds the mistakes in the target of a redirect to `errors`.
pub(super) fn check(rule: &SiteRule, to: &RuleTemplate, errors: &mut Vec<ConfigError>) {
    if let Some(variable) = variable_in_host(to, &rule.pattern) {
        errors.push(ConfigError::OpenRedirect {
            target: to.to_string(),
            variable,
        });
    }
    if leads_to_itself(rule, to) {
        errors.push(ConfigError::RedirectLoop(to.to_string()));
    }
}

/// Returns the variable by which a client could choose the host of the target.
fn variable_in_host(to: &RuleTemplate, pattern: &PathPattern) -> Option<String> {
    let mut pieces = to.pieces().iter().peekable();
    let mut host = match pieces.peek() {
        Some(TemplatePiece::Text(text)) => {
            let text = String::from_utf8_lossy(text);
            let host = authority(&text)?.to_owned();
            pieces.next();
            host
        }
        // The target begins with this variable, so the variable has to be a path.
        Some(piece) if !begins_with_slash(piece, pattern) && **piece != TemplatePiece::Host => {
            return Some(RuleTemplate::variable_text(piece));
        }
        _ => return None,
    };
    while !host.contains(['/', '\\', '?', '#']) {
        let piece = pieces.next()?;
        match piece {
            TemplatePiece::Text(text) => host.push_str(&String::from_utf8_lossy(text)),
            TemplatePiece::Host => host.push('h'),
            // With an empty host, browsers interpret the text after the slashes as the host.
            piece if !host.is_empty() && begins_with_slash(piece, pattern) => return None,
            piece => {
                let begins_label = host.is_empty() || host.ends_with('.');
                let followed = matches!(pieces.peek(), Some(TemplatePiece::Text(text)) if text.starts_with(b"."));
                // `https://$1.example.org/`, where the capture matches only the characters of a label.
                if begins_label && followed && is_host_label(piece, pattern) {
                    host.push('h');
                    continue;
                }
                return Some(RuleTemplate::variable_text(piece));
            }
        }
    }
    None
}

/// Returns what follows the scheme and the slashes of a URL; `None` for a path. According to the URL standard, browsers
/// treat any number of slashes and backslashes after `https:` as two, and `/\` as `//`.
fn authority(text: &str) -> Option<&str> {
    const SLASHES: [char; 2] = ['/', '\\'];
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => Some(rest.trim_start_matches(SLASHES)),
        _ => {
            let host = text.trim_start_matches(SLASHES);
            (text.len() - host.len() >= 2).then_some(host)
        }
    }
}

/// Returns whether the value of a variable always begins with a slash or is empty.
fn begins_with_slash(piece: &TemplatePiece, pattern: &PathPattern) -> bool {
    match piece {
        TemplatePiece::Uri | TemplatePiece::RequestUri => true,
        TemplatePiece::Number(0) => match pattern {
            PathPattern::Exact(_) | PathPattern::Prefix(_) => true,
            PathPattern::Glob(..) | PathPattern::Regex(_) => {
                parsed(pattern).is_some_and(|hir| starts_with_slash(&hir))
            }
        },
        TemplatePiece::Number(1) if matches!(pattern, PathPattern::Prefix(_)) => {
            matches!(pattern, PathPattern::Prefix(prefix) if !prefix.ends_with(b"/"))
        }
        piece => {
            let inside = capture(piece, pattern);
            inside.is_some_and(|hir| starts_with_slash(&hir)) || is_at_the_start(piece, pattern)
        }
    }
}

/// Returns whether the value can only be a part of one label of a host name.
fn is_host_label(piece: &TemplatePiece, pattern: &PathPattern) -> bool {
    capture(piece, pattern).is_some_and(|hir| {
        matches_only(&hir, &|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
        })
    })
}

fn parsed(pattern: &PathPattern) -> Option<Hir> {
    let mut parser = regex_syntax::ParserBuilder::new();
    let parser = parser.unicode(false).utf8(false).dot_matches_new_line(true);
    parser.build().parse(&pattern.to_regex()).ok()
}

/// Returns whether the capture directly follows `^`: it begins at the start of the path, with a slash.
fn is_at_the_start(piece: &TemplatePiece, pattern: &PathPattern) -> bool {
    let Some(whole) = parsed(pattern) else {
        return false;
    };
    let HirKind::Concat(parts) = whole.kind() else {
        return false;
    };
    match (parts.first().map(Hir::kind), parts.get(1).map(Hir::kind)) {
        (Some(HirKind::Look(Look::Start)), Some(HirKind::Capture(group))) => match piece {
            TemplatePiece::Number(number) => usize::try_from(group.index) == Ok(*number),
            TemplatePiece::Name(name) => group.name.as_deref() == Some(name),
            _ => false,
        },
        _ => false,
    }
}

/// Returns the expression inside the capture that a variable names.
fn capture(piece: &TemplatePiece, pattern: &PathPattern) -> Option<Hir> {
    fn find(hir: &Hir, is_it: &dyn Fn(u32, Option<&str>) -> bool) -> Option<Hir> {
        match hir.kind() {
            HirKind::Capture(group) if is_it(group.index, group.name.as_deref()) => {
                Some((*group.sub).clone())
            }
            HirKind::Capture(group) => find(&group.sub, is_it),
            HirKind::Repetition(repeated) => find(&repeated.sub, is_it),
            HirKind::Concat(all) | HirKind::Alternation(all) => {
                all.iter().find_map(|part| find(part, is_it))
            }
            _ => None,
        }
    }
    let whole = parsed(pattern)?;
    match piece {
        TemplatePiece::Number(number) => {
            find(&whole, &|index, _| usize::try_from(index) == Ok(*number))
        }
        TemplatePiece::Name(name) => find(&whole, &|_, named| named == Some(name)),
        _ => None,
    }
}

fn starts_with_slash(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Literal(literal) => literal.0.first() == Some(&b'/'),
        HirKind::Class(_) => matches_only(hir, &|byte| byte == b'/'),
        HirKind::Capture(group) => starts_with_slash(&group.sub),
        // An optional part may be missing, and the value then begins with whatever follows it.
        HirKind::Repetition(repeated) => repeated.min > 0 && starts_with_slash(&repeated.sub),
        HirKind::Alternation(all) => all.iter().all(starts_with_slash),
        HirKind::Concat(all) => all
            .iter()
            .find(|part| !matches!(part.kind(), HirKind::Look(_) | HirKind::Empty))
            .is_some_and(starts_with_slash),
        HirKind::Empty | HirKind::Look(_) => false,
    }
}

/// Returns whether an expression matches only these bytes.
fn matches_only(hir: &Hir, fits: &dyn Fn(u8) -> bool) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => true,
        HirKind::Literal(literal) => literal.0.iter().all(|byte| fits(*byte)),
        HirKind::Class(Class::Bytes(class)) => class
            .iter()
            .all(|range| (range.start()..=range.end()).all(fits)),
        HirKind::Class(Class::Unicode(class)) => class.iter().all(|range| {
            range.end().is_ascii() && (range.start()..=range.end()).all(|letter| fits(letter as u8))
        }),
        HirKind::Capture(group) => matches_only(&group.sub, fits),
        HirKind::Repetition(repeated) => matches_only(&repeated.sub, fits),
        HirKind::Concat(all) | HirKind::Alternation(all) => {
            all.iter().all(|part| matches_only(part, fits))
        }
    }
}

/// Returns whether the redirect leads back to the path that it redirects. Conditions may end such a loop, so only
/// redirects without conditions are judged. The check uses an example path.
fn leads_to_itself(rule: &SiteRule, to: &RuleTemplate) -> bool {
    if !to.literal_start().starts_with(b"/")
        || rule.if_missing
        || !is_unconditional(&rule.conditions)
    {
        return false;
    }
    let path = match &rule.pattern {
        PathPattern::Exact(path) => path.clone(),
        PathPattern::Prefix(prefix) => {
            [prefix.strip_suffix(b"/").unwrap_or(prefix), b"/x/y"].concat()
        }
        PathPattern::Glob(..) | PathPattern::Regex(_) => b"/x/y".to_vec(),
    };
    let Ok(Some(captures)) = rule.pattern.captures(&path) else {
        return false;
    };
    let location = to.expand_location(&TemplateValues {
        captures: &captures,
        uri: &path,
        query: None,
        request_uri: &path,
        host: b"h",
    });
    location == path
}

/// Returns whether there are no conditions at all.
fn is_unconditional(conditions: &RuleConditions) -> bool {
    let RuleConditions {
        methods,
        query,
        cookie,
        header,
        env,
        from,
        not,
    } = conditions;
    let tests = [query, cookie, header, env];
    methods.is_empty()
        && tests.iter().all(|tests| tests.is_empty())
        && from.is_none()
        && not.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::config::RuleAction;

    fn mistakes(pattern: PathPattern, to: &str) -> Vec<String> {
        let to = RuleTemplate::parse(to).unwrap();
        let action = RuleAction::Redirect {
            status: 301,
            to: to.clone(),
        };
        let mut errors = Vec::new();
        check(&SiteRule::new(pattern, action), &to, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    fn prefix(text: &str) -> PathPattern {
        PathPattern::prefix(text).unwrap()
    }

    fn regex(text: &str) -> PathPattern {
        PathPattern::regex(text).unwrap()
    }

    #[test]
    fn redirect_host_is_never_chosen_by_the_client() {
        for (pattern, to) in [
            (prefix("/"), "https://shop.test$1"),
            (prefix("/api/"), "//shop.test$1"),
            (prefix("/"), "https://$host$1"),
            (prefix("/"), "https://shop.test:$1"),
            (prefix("/"), "https://$1/"),
            (prefix("/"), "https:$1"),
            (prefix("/"), "https:/$1"),
            (prefix("/"), "https:\\\\$1"),
            (prefix("/"), "/\\$1"),
            (prefix("/"), "//$1"),
            (prefix("/"), "https://$uri"),
            (prefix("/"), "https:$request_uri"),
            (prefix("/"), "$1"),
            (regex("^/to/(.*)$"), "${1}"),
            (regex("^/(.*)$"), "https://shop.test$1"),
            (regex("^(/|x)(.*)$"), "https://shop.test$2"),
            (regex("^/(x?)(/.*|.)$"), "https://shop.test$2"),
            (regex("^/(.+)$"), "https://$1.shop.test/"),
            (regex("^/([a-z]+)$"), "https://shop.test$1"),
            (regex("^/([a-z]+)$"), "https://$1"),
        ] {
            let said = mistakes(pattern.clone(), to);
            assert!(
                said.len() == 1 && said[0].starts_with("OpenRedirect: "),
                "{pattern} {to}: {said:?}"
            );
        }
    }

    #[test]
    fn redirect_variable_with_slash_or_label_is_allowed_behind_a_host() {
        for (pattern, to) in [
            (prefix("/"), "https://shop.test/$1"),
            (prefix("/old"), "https://shop.test$1"),
            (prefix("/"), "https://shop.test$request_uri"),
            (prefix("/"), "https://$host$uri"),
            (prefix("/"), "https://www.$host/$1"),
            (prefix("/a"), "https://shop.test?from=$1"),
            (regex("^(/.*)$"), "https://shop.test$1"),
            (regex("^(.*)$"), "https://shop.test$1"),
            (regex("^(?P<all>.*)/old$"), "https://shop.test${all}"),
            (regex("^/x(?P<rest>/.*)$"), "https://shop.test${rest}"),
            (regex("^/([a-z0-9-]+)/(.*)$"), "https://$1.shop.test/$2"),
            (prefix("/old"), "/new$1"),
            (prefix("/"), "/login?next=https://shop.test$1"),
            (prefix("/a"), "$uri/b"),
            (prefix("/a"), "https://shop.test:8443/$1"),
        ] {
            assert_eq!(mistakes(pattern.clone(), to), [""; 0], "{pattern} {to}");
        }
    }

    #[test]
    fn redirect_to_its_own_path_is_a_mistake() {
        for (pattern, to) in [
            (prefix("/"), "/$1"),
            (prefix("/a"), "/a$1"),
            (PathPattern::exact("/a").unwrap(), "/a"),
            (regex("^/(.*)$"), "/$1"),
        ] {
            let said = mistakes(pattern.clone(), to);
            assert!(
                said.len() == 1 && said[0].starts_with("RedirectLoop: "),
                "{pattern} {to}: {said:?}"
            );
        }
        assert_eq!(mistakes(prefix("/a"), "/b$1"), [""; 0]);
    }
}
