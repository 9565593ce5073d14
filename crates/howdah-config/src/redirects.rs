//! Finds redirects that lead a client in a circle, in several steps or by way of the site's own hosts. A redirect onto
//! its own path is a mistake that `howdah-site` finds. Here, other rules might end the circle, so there is only advice.

use howdah_site::site::SiteConfig;
use howdah_site::site::config::{HostPattern, RuleAction, SiteRule};
use howdah_site::site::pattern::PathPattern;
use howdah_site::site::template::TemplateValues;

use super::listen::ConfiguredListeners;
use super::reader::ConfigSection;

/// The keys of a redirect that depends on nothing but the path.
const KEYS: [&str; 6] = ["redirect", "status", "path", "prefix", "glob", "regex"];

/// How many redirects are followed. A circle of one rule is detected at the second redirect.
const STEPS: usize = 3;

/// Adds advice about each rule of a site that redirects its own target.
pub fn advise_of_circles(
    section: &ConfigSection<'_>,
    site: &SiteConfig,
    listeners: &ConfiguredListeners<'_>,
) {
    if section.file().has_mistakes() {
        // Rules with mistakes are missing in the site, so its rules do not correspond to the sections.
        return;
    }
    let sections = section.sections("rule", "site.rule");
    let sections = sections.iter().filter(|rule| rule.has("redirect"));
    let is_redirect = |rule: &SiteRule| matches!(rule.action, RuleAction::Redirect { .. });
    let rules = site.rules.iter().enumerate();
    // The rules of the configuration are in the order of their sections.
    let rules = rules.filter(|(_, rule)| is_redirect(rule));
    for (own, (number, rule)) in sections.zip(rules) {
        if own.given_options().any(|spec| !KEYS.contains(&spec.key)) {
            continue;
        }
        if let Some(path) = circle(rule, &site.rules[..number], site, listeners) {
            let message = format!(
                "RedirectLoop: the target leads to {path} of this site, which the rule redirects again; add a matcher, or an exception (`not`)"
            );
            section.file().advise(own.place_of("redirect"), message);
        }
    }
}

/// Returns the path of the site that is redirected without end.
fn circle(
    rule: &SiteRule,
    before: &[SiteRule],
    site: &SiteConfig,
    listeners: &ConfiguredListeners<'_>,
) -> Option<String> {
    let RuleAction::Redirect { to, .. } = &rule.action else {
        return None;
    };
    let begin = match &rule.pattern {
        PathPattern::Exact(path) => path.clone(),
        PathPattern::Prefix(prefix) => {
            [prefix.strip_suffix(b"/").unwrap_or(prefix), b"/x/y"].concat()
        }
        PathPattern::Glob(..) | PathPattern::Regex(_) => b"/x/y".to_vec(),
    };
    let mut path = begin.clone();
    for step in 0..STEPS {
        let captures = rule.pattern.captures(&path).ok()??;
        let location = to.expand_location(&TemplateValues {
            captures: &captures,
            uri: &path,
            query: None,
            request_uri: &path,
            host: b"",
        });
        let location = String::from_utf8(location).ok()?;
        let next = path_at_site(&location, site, listeners)?;
        // The site's own check reports a redirect onto its own path.
        if step == 0 && location.as_bytes() == begin {
            return None;
        }
        path = next.into_bytes();
        // An earlier rule may handle the target.
        let is_other = path != begin;
        if is_other && before.iter().any(|other| other.pattern.is_match(&path)) {
            return None;
        }
    }
    rule.pattern
        .is_match(&path)
        .then(|| String::from_utf8_lossy(&path).into_owned())
}

/// Returns the path of a location, if a client that follows it comes back to this site.
fn path_at_site(
    location: &str,
    site: &SiteConfig,
    listeners: &ConfiguredListeners<'_>,
) -> Option<String> {
    let (scheme, rest) = match location.split_once("://") {
        Some(parts) => parts,
        None if location.starts_with('/') && !location.starts_with("//") => ("", location),
        None => return None,
    };
    let path = match scheme {
        "" => rest,
        "http" | "https" => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let is_own = site.hosts.iter().any(
                |own| matches!(own, HostPattern::Exact(name) if name.eq_ignore_ascii_case(host)),
            );
            if !is_own || !listeners.serves_with_tls(site, scheme == "https") {
                return None;
            }
            if path.is_empty() { "/" } else { path }
        }
        _ => return None,
    };
    let end = path.find(['?', '#']).unwrap_or(path.len());
    Some(path[..end].to_owned())
}
