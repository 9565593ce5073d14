//! Says why two servers differ, and what to do, from what is known: Howdah's name for a failure, PHP's message, and the
//! findings of the plan.

use super::comparison::FoundDifference;
use super::response::{ComparedBody, ComparedResponse};
use super::{Difference, DifferenceName};
use crate::plan::{Finding, PlannedSite, Severity};

/// What is known about a request whose responses differ.
#[derive(Clone, Copy, Debug)]
pub struct ExplainedRequest<'a> {
    /// The site.
    pub site: &'a PlannedSite,
    /// The findings of the plan.
    pub findings: &'a [Finding],
    /// The URL.
    pub url: &'a str,
    /// GET or HEAD.
    pub method: &'a str,
    /// What Howdah logged during the request.
    pub log: &'a str,
}

/// A cause and what to do about it.
struct Explanation {
    cause: String,
    remedy: String,
}

/// Explains a difference.
pub fn explain(
    found: FoundDifference,
    new: &ComparedResponse,
    request: ExplainedRequest<'_>,
) -> Difference {
    let Explanation { mut cause, remedy } = explanation(&found, new, request);
    let related = request.findings.iter().find(|finding| {
        finding.severity != Severity::Note && finding.site.as_ref() == Some(&request.site.name)
    });
    let may_be_related = found.name <= DifferenceName::BodyDiffers && !found.is_harmless;
    if let Some(finding) = related.filter(|_| may_be_related) {
        cause += &format!(
            " The plan says about this site: {}: {}.",
            finding.name,
            finding.message.trim_end_matches('.')
        );
    }
    Difference {
        name: found.name,
        request: format!("{} {}", request.method, request.url),
        old: found.old,
        new: found.new,
        cause,
        remedy,
    }
}

fn explanation(
    found: &FoundDifference,
    new: &ComparedResponse,
    request: ExplainedRequest<'_>,
) -> Explanation {
    if found.is_harmless {
        return Explanation {
            cause: harmless_cause(found.name).to_owned(),
            remedy: "Nothing needs to be done.".to_owned(),
        };
    }
    let by_script = || script_failure(new, request.log);
    match found.name {
        DifferenceName::ServerError => by_script().unwrap_or_else(|| by_refusal(new, request)),
        DifferenceName::BodyDiffers => by_script().unwrap_or_else(|| body_explanation(new, request)),
        DifferenceName::StatusDiffers => by_refusal(new, request),
        DifferenceName::OpensDenied => Explanation {
            cause: "The rule that denies this path is missing in Howdah's configuration, or another rule comes before it."
                .to_owned(),
            remedy: format!(
                "Add a `[[site.rule]]` with `deny = 403` for this path to {}, and try again.",
                request.site.file.display()
            ),
        },
        name => of_kind(name, request),
    }
}

fn harmless_cause(name: DifferenceName) -> &'static str {
    match name {
        DifferenceName::StatusDiffers => {
            "Both servers refuse the request, or only Howdah refuses to send a private file, or the path is a directory without an index, which Howdah treats as missing."
        }
        DifferenceName::CompressionDiffers => {
            "Howdah compresses this type, and the old server does not; or the response is so short that Howdah does not compress it."
        }
        DifferenceName::ValidatorsDiffer => {
            "Howdah lets browsers check whether their copy is current, and the old server does not."
        }
        DifferenceName::RangeDiffers => "Howdah sends parts of files, and the old server does not.",
        DifferenceName::ContentTypeDiffers => "Both names stand for the same media type.",
        _ => "Howdah sends a header that the old server does not send.",
    }
}

/// Explains a failed script by PHP's message, which is in the log or, with `display_errors`, in the page.
fn script_failure(new: &ComparedResponse, log: &str) -> Option<Explanation> {
    let body = match &new.body {
        ComparedBody::Text(text) => text.as_str(),
        ComparedBody::Bytes(_) => "",
    };
    let has_error = |line: &&str| {
        [
            "PHP Fatal error",
            "PHP Parse error",
            "Fatal error:",
            "Parse error:",
        ]
        .iter()
        .any(|word| line.contains(word))
    };
    let line = log
        .lines()
        .rev()
        .find(has_error)
        .or_else(|| body.lines().find(has_error))?;
    let message: String = line.trim().chars().take(300).collect();
    let is_missing = [
        "Call to undefined function",
        "\" not found",
        "undefined constant",
    ];
    let remedy = match is_missing.iter().any(|words| line.contains(words)) {
        true => {
            "A PHP extension that the old server loads is probably missing: compare `php -m` with the modules of the \
                 old PHP, and install the extension or name the same PHP with `php` in the pool."
        }
        false => {
            "Compare the version, the extensions and the php.ini of PHP with those of the old server."
        }
    };
    Some(Explanation {
        cause: format!("The script fails under Howdah: {message}"),
        remedy: remedy.to_owned(),
    })
}

/// Explains a status by Howdah's name for the refusal.
fn by_refusal(new: &ComparedResponse, request: ExplainedRequest<'_>) -> Explanation {
    let cause = match new.howdah_error.as_deref() {
        Some("Denied" | "HtaccessDenied") => "A rule denies this path in Howdah, and not on the old server.".to_owned(),
        Some("NoIndex") => {
            "The directory has no index file, and Howdah lists no directories.".to_owned()
        }
        Some("NotFound") => "Howdah finds no file for this path, and no script handles it: a rewrite, an alias or an \
                             index of the old server may not have been carried over."
            .to_owned(),
        Some(name @ ("DotFile" | "ProgramSource" | "EditorBackup" | "VersionControl" | "PasswordFile")) => format!(
            "Howdah does not send such files (`{name}`), unless the site's `expose` names them."
        ),
        Some("PoolDown") => "PHP does not start in this pool; see preview/howdah.log in the directory of the takeover."
            .to_owned(),
        Some(name) => format!("Howdah fails with `{name}`, which docs/failures.md explains."),
        None if new.status >= 500 => "The script fails under Howdah, and logs no reason.".to_owned(),
        None => "Another rule or another script handles this path.".to_owned(),
    };
    Explanation {
        cause,
        remedy: format!(
            "`howdah explain {} --config howdah.toml` shows which rules decide; then change {}.",
            request.url,
            request.site.file.display()
        ),
    }
}

fn body_explanation(new: &ComparedResponse, request: ExplainedRequest<'_>) -> Explanation {
    let cause = match (&new.howdah_error, new.status) {
        (Some(_), _) => {
            "The old server has an error page of its own, and Howdah sends its usual one."
        }
        (None, 400..) => "The pages of the error differ.",
        _ if new.range.is_some() => {
            "The servers send different parts of the file, or different files."
        }
        _ => {
            "The script produces a different page because of a variable, a setting or an extension of PHP, or the \
              servers choose different scripts or files."
        }
    };
    let remedy = format!(
        "Compare the two pages, and `php_value`, `env` and the pool in {} with the settings of the old server. \
         `howdah explain {} --config howdah.toml` shows which file Howdah chooses.",
        request.site.file.display(),
        request.url
    );
    Explanation {
        cause: cause.to_owned(),
        remedy,
    }
}

/// Explains the kinds whose cause does not depend on the request.
fn of_kind(name: DifferenceName, request: ExplainedRequest<'_>) -> Explanation {
    let (cause, remedy) = match name {
        DifferenceName::NoResponse => (
            "Howdah accepts the connection, but sends no valid response: for HTTPS, the site may have no certificate \
             in the configuration.",
            "Read preview/howdah.log in the directory of the takeover, and set `[[site.certificate]]`.",
        ),
        DifferenceName::AddressNotServed => (
            "No `listen` of the configuration includes this address.",
            "Add the address to `listen` in howdah.toml or in the site's file.",
        ),
        DifferenceName::LocationDiffers => (
            "The redirect is made by another rule, or its target contains a variable that Howdah resolves differently.",
            "Correct the `redirect` of the rule.",
        ),
        DifferenceName::ContentTypeDiffers => (
            "The old server assigns another media type or charset.",
            "Set `type` in a rule, or `default_charset` in `php_value` for scripts.",
        ),
        DifferenceName::CertificateDiffers => (
            "The servers present different certificates for this name.",
            "Set `[[site.certificate]]` to the files that the old server uses.",
        ),
        DifferenceName::AuthenticationDiffers => (
            "The realm or the scheme of the password differs.",
            "Set `auth_basic` of the rule to the old realm, so that browsers offer stored passwords.",
        ),
        DifferenceName::SecurityHeaderDiffers => (
            "A header of the old configuration is missing or has another value.",
            "Set it with `set_header` in a rule.",
        ),
        DifferenceName::CookiesDiffer => (
            "The script sets other cookies, because of the settings of sessions or another extension.",
            "Compare `session.*` in `php_value` with the old php.ini.",
        ),
        DifferenceName::CacheControlDiffers => (
            "The old configuration sets another lifetime (`expires`, `ExpiresByType`, `Cache-Control`).",
            "Set `cache_control` in a rule for files, or correct `session.cache_limiter` for scripts.",
        ),
        DifferenceName::RangeDiffers => (
            "The servers send different parts of the file.",
            "If the file did not change during the trial, report this as a bug, with the URL.",
        ),
        DifferenceName::CompressionDiffers => (
            "The old server compresses this type, and Howdah does not.",
            "Add the type to `compression.types`.",
        ),
        _ => (
            "The old server lets browsers check whether their copy is current, and Howdah does not here.",
            "Nothing breaks, but browsers load the file again.",
        ),
    };
    let remedy = match name {
        DifferenceName::AddressNotServed => remedy.to_owned(),
        _ => format!(
            "{remedy} The site's file is {}.",
            request.site.file.display()
        ),
    };
    Explanation {
        cause: cause.to_owned(),
        remedy,
    }
}
