//! Turns `[[site.rule]]` into the server's rules, and into the settings for sending files of a site.

use std::time::Duration;

use howdah_executor::PoolMode;
use howdah_proto::response::is_token;
use howdah_server::script::granted_variables::may_be_granted;
use howdah_site::authentication::{AdmittedUsers, Authentication};
use howdah_site::proxy_config::{ServerGroupConfig, address};
use howdah_site::site::config::{
    AuthRequest, Authorizer, HeaderEdit, RuleAction, SiteRule, StaticRule,
};
use howdah_site::site::pattern::{PathPattern, PatternError};
use howdah_site::site::template::RuleTemplate;

use super::conditions::{CONDITION_KEYS, conditions};
use super::limits::{self, LIMIT_KEYS};
use super::reader::{ConfigSection, Validation};
use super::site_options::pool;

/// Checks that every `cgi` rule names a pool that executes programs.
pub(super) fn check_cgi_rules(section: &ConfigSection<'_>, rules: &[SiteRule], pools: &[PoolMode]) {
    for rule in rules {
        let RuleAction::Cgi(name) = &rule.action else {
            continue;
        };
        let why = match pools.iter().find(|pool| *pool.name() == **name) {
            Some(PoolMode::Cgi(_)) => continue,
            Some(other) => format!("is of mode `{}`", other.word()),
            None => "is not configured".to_owned(),
        };
        let message = format!(
            "cgi: the pool `{}` {why}; a rule with `cgi` needs a pool of mode `cgi`, such as [pool.programs] mode = \"cgi\"",
            name.escape_debug()
        );
        section.file().mistake(section.place_of("rule"), message);
    }
}

/// Refuses `if_missing` for access checks, because the access must not depend on which files exist.
fn refuse_if_missing_for_access_check(section: &ConfigSection<'_>, key: &str) {
    if section.is_on("if_missing") {
        let message = format!(
            "{key}: cannot be combined with if_missing, because creating or deleting a file would then change who has access"
        );
        section.file().mistake(section.place_of(key), message);
    }
}

/// Checks that every `authorizer` rule names a pool that uses FastCGI.
pub(super) fn check_authorizers(
    section: &ConfigSection<'_>,
    rules: &[SiteRule],
    pools: &[PoolMode],
) {
    for rule in rules {
        let RuleAction::Authorize(authorizer) = &rule.action else {
            continue;
        };
        let place = section.place_of("rule");
        let name = &*authorizer.pool;
        let why = match pools.iter().find(|pool| pool.name() == name) {
            Some(PoolMode::FastCgi(_) | PoolMode::Pool(_)) => continue,
            Some(other) => format!("is of mode `{}`", other.word()),
            None => "is not configured".to_owned(),
        };
        let message = format!(
            "authorizer: the pool `{}` {why}; FastCGI authorizers need a pool of mode `fastcgi` (they run elsewhere) or `pool` (Howdah starts them)",
            name.escape_debug()
        );
        section.file().mistake(place, message);
    }
}

const PATTERN_KEYS: [&str; 4] = ["path", "prefix", "glob", "regex"];

/// Returns the section's pattern; without one, every path matches.
fn pattern(section: &ConfigSection<'_>) -> Option<PathPattern> {
    match given_pattern(section)? {
        Some(pattern) => Some(pattern),
        None => PathPattern::prefix("/").ok(),
    }
}

/// Returns the section's pattern. A section may have at most one. The outer `None` means that there was a mistake.
pub(super) fn given_pattern(section: &ConfigSection<'_>) -> Option<Option<PathPattern>> {
    let file = section.file();
    let given: Vec<&str> = PATTERN_KEYS
        .into_iter()
        .filter(|k| section.has(k))
        .collect();
    let key = match given[..] {
        [] => return Some(None),
        [key] => key,
        [first, ..] => {
            let message = format!("only one of {} is allowed here", given.join(", "));
            file.mistake(section.place_of(first), message);
            return None;
        }
    };
    let text = section.text(key)?;
    let pattern = match key {
        "path" => PathPattern::exact(&text),
        "prefix" => PathPattern::prefix(&text),
        "glob" => PathPattern::glob(&text),
        _ => PathPattern::regex(&text),
    };
    let note = |why: PatternError| {
        file.mistake(
            section.place_of(key),
            format!("{key}: {}", pattern_error_text(&why)),
        );
    };
    pattern.map_err(note).ok().map(Some)
}

/// Returns what is wrong with a pattern, on one line. The regex crate spreads its error over several lines, and the
/// last one states the reason.
pub(super) fn pattern_error_text(why: &PatternError) -> String {
    let why = why.to_string();
    let why = why.lines().last().unwrap_or_default();
    why.strip_prefix("error: ").unwrap_or(why).to_owned()
}

/// The actions that replace the usual response. A rule has at most one of these.
const ACTION_KEYS: [&str; 10] = [
    "redirect",
    "rewrite",
    "deny",
    "return",
    "pool",
    "cgi",
    "proxy",
    "authorizer",
    "auth_request",
    "auth_basic",
];

/// The edits of the usual response. A rule may have any number of these.
const EDIT_KEYS: [&str; 3] = ["set_header", "add_header", "cache_control"];

/// Returns the rules of one section, which share a pattern, and adds the settings for sending its files to `files`.
pub(super) fn rules_of_section(
    section: &ConfigSection<'_>,
    pools: &[PoolMode],
    files: &mut Vec<StaticRule>,
) -> Vec<SiteRule> {
    let Some(pattern) = pattern(section) else {
        return Vec::new();
    };
    let Some(action_key) = check_actions(section) else {
        return Vec::new();
    };
    let types_files = section.has("type") && !section.has("return");
    if section.has("cache_control") || types_files {
        files.push(StaticRule {
            pattern: pattern.clone(),
            cache_control: section.text("cache_control"),
            content_type: section.text("type").filter(|_| types_files),
        });
    }
    let mut actions = Vec::new();
    match action_key {
        Some("pool") => actions.push(RuleAction::Pool(pool(section, pools).into())),
        Some(key) if LIMIT_KEYS.contains(&key) => {
            actions.extend(limits::limit(section).map(|limit| RuleAction::Limit(limit.into())));
        }
        Some(key) => actions.extend(action(section, key)),
        None => actions.extend(header_edits(section)),
    }
    let conditions = conditions(section);
    let if_missing = section.is_on("if_missing");
    let place = section.line();
    let rule = |action| SiteRule {
        pattern: pattern.clone(),
        conditions: conditions.clone(),
        if_missing,
        action,
        file: place.map(|(file, _)| file.into()),
        line: place.map(|(_, line)| line),
    };
    let rules = actions.into_iter().map(rule);
    match action_key {
        Some(key) if LIMIT_KEYS.contains(&key) => rules
            .flat_map(|rule| limits::rules_of_limit(section, rule))
            .collect(),
        _ => rules.collect(),
    }
}

/// Returns the key of the section's one action; the inner `None` means that there are only edits. The outer `None`
/// means that a mistake leaves no rule.
fn check_actions(section: &ConfigSection<'_>) -> Option<Option<&'static str>> {
    let mistake = |key: &str, message: String| {
        section.file().mistake(section.place_of(key), message);
    };
    let given = |keys: &[&'static str]| -> Vec<&'static str> {
        keys.iter().copied().filter(|k| section.has(k)).collect()
    };
    let mut actions = given(&ACTION_KEYS);
    // Several of the limits count as one action.
    actions.extend(given(&LIMIT_KEYS).first());
    let edits = given(&EDIT_KEYS);
    let types_files = section.has("type") && !section.has("return");
    if actions.is_empty() && edits.is_empty() && !types_files {
        let known = [&ACTION_KEYS[..], &LIMIT_KEYS, &EDIT_KEYS]
            .concat()
            .join(", ");
        let message = format!("a rule needs one of {known}");
        section.file().mistake(section.place.clone(), message);
        return None;
    }
    let all = [&actions[..], &edits[..]].concat();
    if !actions.is_empty() && all.len() > 1 {
        let message = format!("a rule can have only one action (found {})", all.join(", "));
        mistake(all[0], message);
        return None;
    }
    for (key, of) in [
        ("status", "redirect"),
        ("body", "return"),
        ("authorizer_script", "authorizer"),
        ("auth_request_set", "auth_request"),
        ("proxy_timeout", "proxy"),
        ("proxy_health", "proxy"),
        ("auth_basic_user_file", "auth_basic"),
        ("auth_basic_group_file", "auth_basic"),
        ("auth_basic_require", "auth_basic"),
    ] {
        if section.has(key) && !section.has(of) {
            mistake(key, format!("{key}: is allowed only in a rule with `{of}`"));
        }
    }
    if section.has("burst") && !section.has("rate") && !section.has("limit") {
        mistake(
            "burst",
            "burst: is allowed only in a rule with `rate` or `limit`".to_owned(),
        );
    }
    if section.has("limit_by") && given(&LIMIT_KEYS).is_empty() {
        let of = LIMIT_KEYS.map(|key| format!("`{key}`")).join(", ");
        mistake(
            "limit_by",
            format!("limit_by: is allowed only in a rule with {of}"),
        );
    }
    if types_files && !actions.is_empty() {
        mistake(
            "type",
            "type: is allowed only in a rule about files, or together with `return`".to_owned(),
        );
    }
    let is_about_files = section.has("cache_control") || types_files;
    for key in CONDITION_KEYS.into_iter().chain(["if_missing"]) {
        if is_about_files && section.has(key) {
            let message =
                format!("{key}: has no effect on how files are sent; use a separate rule");
            mistake(key, message);
        }
    }
    Some(actions.first().copied())
}

/// Returns the edits of `set_header` and `add_header`. A header that is set to an empty value is removed.
fn header_edits(section: &ConfigSection<'_>) -> Vec<RuleAction> {
    let pairs = |key| section.pairs(key).into_iter().map(|pair| pair.value);
    let set = pairs("set_header").map(|(name, value)| match value.is_empty() {
        true => HeaderEdit::Unset(name),
        false => HeaderEdit::Set(name, value),
    });
    let add = pairs("add_header").map(|(name, value)| HeaderEdit::Add(name, value));
    set.chain(add).map(RuleAction::Header).collect()
}

/// Reads `auth_basic` and the options that begin with it.
fn authentication(section: &ConfigSection<'_>) -> Option<Authentication> {
    let file = section.file();
    let realm = section.text("auth_basic")?;
    let Some(users) = section.path("auth_basic_user_file") else {
        let message = "auth_basic: needs `auth_basic_user_file`, a file that `htpasswd -cB FILE USER` creates";
        file.mistake(section.place_of("auth_basic"), message);
        return None;
    };
    let groups = section.path("auth_basic_group_file");
    let mut admitted = Vec::new();
    for text in section.texts("auth_basic_require") {
        let bytes = |name: &str| vec![Box::from(name.trim().as_bytes())];
        match text.value.trim().split_once(char::is_whitespace) {
            Some(("user", name)) => admitted.push(AdmittedUsers::Users(bytes(name))),
            Some(("group", name)) => admitted.push(AdmittedUsers::Groups(bytes(name))),
            _ => {
                let message = format!(
                    "auth_basic_require: expected `user NAME` or `group NAME`, found `{}`",
                    text.value.escape_debug()
                );
                file.mistake(text.place, message);
            }
        }
    }
    let admission = match admitted.is_empty() {
        true => AdmittedUsers::ValidUser,
        false => AdmittedUsers::Any(admitted),
    };
    if admission.needs_groups() && groups.is_none() {
        let message = "auth_basic_require: a group needs `auth_basic_group_file`";
        file.mistake(section.place_of("auth_basic_require"), message);
    }
    let demand = Authentication::new(&realm, users, groups, admission);
    if file.validation == Validation::Full {
        let place = || section.place_of("auth_basic_user_file");
        match demand.read() {
            Ok(lines) => {
                for line in lines {
                    file.advise(place(), format!("no user can log in with {line}"));
                }
            }
            Err(why) => file.mistake(place(), format!("auth_basic: cannot read {why}")),
        }
    }
    Some(demand)
}

/// How long a server that authorizes requests may be silent.
const AUTH_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads `auth_request` and `auth_request_set`.
fn auth_request(section: &ConfigSection<'_>) -> Option<AuthRequest> {
    let file = section.file();
    let text = section.text("auth_request")?;
    let mut variables = Vec::new();
    for pair in section.pairs("auth_request_set") {
        let (variable, field) = &pair.value;
        if !may_be_granted(variable.as_bytes()) {
            let message = format!(
                "auth_request_set: `{}` cannot be set: the server sets it itself, or it is not the name of a variable, such as REMOTE_USER",
                variable.escape_debug()
            );
            file.mistake(pair.place.clone(), message);
        }
        if !is_token(field.as_bytes()) {
            let message = format!(
                "auth_request_set: `{}` is not the name of a header, such as `Remote-User`",
                field.escape_debug()
            );
            file.mistake(pair.place.clone(), message);
        }
        variables.push(pair.value);
    }
    match address::parse_url(&text) {
        Ok((servers, path)) => Some(AuthRequest {
            servers: ServerGroupConfig {
                servers,
                timeout: AUTH_REQUEST_TIMEOUT,
                health_path: None,
            },
            path,
            variables,
        }),
        Err(why) => {
            let message = format!("auth_request: `{}`: {why}", text.escape_debug());
            file.mistake(section.place_of("auth_request"), message);
            None
        }
    }
}

/// Reads `proxy` and the options that begin with it.
fn proxy(section: &ConfigSection<'_>) -> Option<ServerGroupConfig> {
    let file = section.file();
    let mut servers = Vec::new();
    for text in section.texts("proxy") {
        match address::parse(&text.value) {
            Ok(parsed) => servers.extend(parsed),
            Err(why) => {
                let message = format!("proxy: `{}`: {why}", text.value.escape_debug());
                file.mistake(text.place, message);
            }
        }
    }
    let health = section.text("proxy_health");
    if let Some(path) = &health
        && (!path.starts_with('/') || path.bytes().any(|b| !b.is_ascii_graphic()))
    {
        let message = "proxy_health: expected a path such as `/up`, encoded as in a URL".to_owned();
        file.mistake(section.place_of("proxy_health"), message);
    }
    let timeout = section.time("proxy_timeout");
    if section.texts("proxy").is_empty() {
        let message =
            "proxy: the list is empty; name a server, such as `http://127.0.0.1:3000`".to_owned();
        file.mistake(section.place_of("proxy"), message);
    }
    if servers.is_empty() {
        return None;
    }
    Some(ServerGroupConfig {
        servers,
        timeout: timeout?,
        health_path: health.map(String::into_boxed_str),
    })
}

fn action(section: &ConfigSection<'_>, key: &str) -> Option<RuleAction> {
    let template = || {
        let text = section.text(key)?;
        let note = |why| {
            let message = format!("{key}: {why}");
            section.file().mistake(section.place_of(key), message);
        };
        RuleTemplate::parse(&text).map_err(note).ok()
    };
    let number = |key| section.number(key).map(|n| n as u16);
    if matches!(key, "authorizer" | "auth_request" | "auth_basic") {
        refuse_if_missing_for_access_check(section, key);
    }
    match key {
        "redirect" => Some(RuleAction::Redirect {
            status: number("status")?,
            to: template()?,
        }),
        "rewrite" => template().map(RuleAction::Rewrite),
        "deny" => number("deny").map(RuleAction::Deny),
        "auth_request" => auth_request(section).map(|it| RuleAction::AuthRequest(it.into())),
        "proxy" => proxy(section).map(|servers| RuleAction::Proxy(servers.into())),
        "cgi" => section.text("cgi").map(|pool| RuleAction::Cgi(pool.into())),
        "auth_basic" => {
            authentication(section).map(|demand| RuleAction::Authenticate(demand.into()))
        }
        "authorizer" => Some(RuleAction::Authorize(Authorizer {
            pool: section.text("authorizer")?.into(),
            script: section
                .path("authorizer_script")
                .map(|path| path.display().to_string())
                .unwrap_or_default(),
        })),
        _ => Some(RuleAction::Return {
            status: number("return")?,
            content_type: section
                .text("type")
                .unwrap_or_else(|| "text/plain; charset=utf-8".to_owned()),
            body: section.text("body").unwrap_or_default(),
        }),
    }
}
