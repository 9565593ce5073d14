//! Translates variables: `SetEnv` into the site's environment, `SetEnvIf` and `BrowserMatch` into conditions.

use super::condition::{TranslatedCondition, VariableTest, header_condition, translate_test};
use super::host_context::HostContext;
use super::layers::Layer;
use super::requirement::AccessFormula;
use crate::directive::Directive;
use crate::expression::compile;
use crate::ledger::ImportLedger;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::target::SiteTable;

/// Variables that Apache's own modules read.
const APACHE_VARIABLES: &[&str] = &[
    "nokeepalive",
    "downgrade-1.0",
    "force-response-1.0",
    "redirect-carefully",
    "no-gzip",
    "no-brotli",
    "gzip-only-text/html",
    "dont-vary",
    "force-no-vary",
    "suppress-error-charset",
    "ssl-unclean-shutdown",
    "dontlog",
    "proxy-nokeepalive",
    "proxy-initial-not-pooled",
    "proxy-sendchunked",
    "proxy-sendcl",
    "proxy-sendchunks",
    "force-proxy-request-1.0",
    "proxy-interim-response",
    "proxy-fcgi-pathinfo",
];

/// Returns the requests for which a line sets a variable, or `None` if it does not set it.
///
/// # Errors
/// Returns a sentence if rules cannot express the condition.
pub fn condition_for_variable(
    line: &Directive,
    variable: &str,
) -> Result<Option<RuleCondition>, String> {
    let names = |from: usize| {
        line.args
            .iter()
            .skip(from)
            .any(|word| word.split('=').next() == Some(variable))
    };
    let flags = if line.name.ends_with("nocase") {
        "(?i)"
    } else {
        ""
    };
    let (subject, expression) = match line.name.as_str() {
        "setenvif" | "setenvifnocase" if names(2) => (line.arg(0), line.arg(1)),
        "browsermatch" | "browsermatchnocase" if names(1) => ("User-Agent", line.arg(0)),
        "setenvifexpr" if names(1) => {
            return Err(format!(
                "write a rule with the condition under which {variable} is set"
            ));
        }
        _ => return Ok(None),
    };
    let comparison = VariableTest::Matches(format!("{flags}{expression}"));
    compile(expression)?;
    let asked = match subject.to_ascii_lowercase().as_str() {
        "request_uri" => translate_test("REQUEST_URI", &comparison)?,
        "request_method" => translate_test("REQUEST_METHOD", &comparison)?,
        "remote_addr" => translate_test("REMOTE_ADDR", &comparison)?,
        "remote_host" | "server_addr" | "request_protocol" => {
            return Err(format!("rules cannot check {subject}"));
        }
        field
            if field.starts_with('^')
                || !field.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') =>
        {
            return Err(format!("rules cannot check {subject}"));
        }
        _ => TranslatedCondition::Requests(header_condition(subject, &comparison)),
    };
    match asked {
        TranslatedCondition::Requests(when) => Ok(Some(when)),
        _ => Err(format!("rules cannot check {subject}")),
    }
}

/// Returns the requests for which a variable is set.
///
/// # Errors
/// Returns a sentence if rules cannot express it.
pub fn requests_with_variable(
    context: &HostContext<'_, '_>,
    name: &str,
) -> Result<Vec<RuleCondition>, String> {
    let mut found = Vec::new();
    for layer in context
        .layers
        .iter()
        .filter(|layer| layer.paths == PathMatch::All)
    {
        for line in layer.directives {
            if let Some(when) = condition_for_variable(line, name)? {
                context.ledger.mark_carried(line.id);
                found.push(when);
            }
        }
    }
    match found.is_empty() {
        true => Err(format!(
            "write a rule with the condition under which {name} is set"
        )),
        false => Ok(found),
    }
}

/// Returns the requests for which one of these variables is set.
pub fn any_variable_set(
    context: &HostContext<'_, '_>,
    names: &[String],
) -> Result<AccessFormula, String> {
    let mut any = Vec::new();
    for name in names {
        let found = requests_with_variable(context, name)?;
        any.extend(found.into_iter().map(AccessFormula::Condition));
    }
    Ok(AccessFormula::Any(any))
}

/// Translates `SetEnv` and similar directives into variables of the site, or records their outcome.
pub fn translate_variable(
    ledger: &ImportLedger,
    layer: &Layer<'_>,
    line: &Directive,
    site: &mut SiteTable,
) {
    let is_of_apache = |word: &String| {
        APACHE_VARIABLES.contains(
            &word
                .trim_start_matches('!')
                .split('=')
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase()
                .as_str(),
        )
    };
    let names = match line.name.as_str() {
        "setenvif" | "setenvifnocase" => line.args.get(2..),
        "setenv" => line.args.get(..1),
        _ => line.args.get(1..),
    };
    let names = names.unwrap_or_default();
    if !names.is_empty() && names.iter().all(is_of_apache) {
        return ledger.mark_irrelevant(
            line.id,
            "this variable controls modules of Apache that Howdah does not need",
        );
    }
    match line.name.as_str() {
        "setenv" if layer.paths == PathMatch::All || covers_whole_site(layer) => {
            site.pairs
                .entry("env")
                .or_default()
                .retain(|(name, _)| name != line.arg(0));
            site.set_pair_if_absent("env", line.arg(0), line.arg(1));
            ledger.mark_different(line.id, "getenv() returns the variable as well");
        }
        "setenv" => ledger.mark_missing(line.id, "`env` applies to a whole site"),
        "passenv" => ledger.mark_missing(
            line.id,
            "set the variable, with its value, in `env` in the pool",
        ),
        "unsetenv" => ledger.mark_carried(line.id),
        _ if line
            .args
            .iter()
            .any(|word| word.to_ascii_uppercase().starts_with("HTTP_AUTHORIZATION=")) =>
        {
            ledger.mark_irrelevant(
                line.id,
                "PHP gets the Authorization header even without this line",
            );
        }
        _ if line
            .args
            .iter()
            .any(|word| word.to_ascii_lowercase().starts_with("https=on"))
            && line.name.starts_with("setenvif") =>
        {
            let need = "add these proxies to `networks` in [trusted_proxies]: Howdah then trusts the scheme that they report, and sets HTTPS for PHP";
            ledger.mark_missing(line.id, need);
        }
        // The condition is carried over where another directive uses the variable.
        _ => {}
    }
}

/// Returns whether a section applies to all files of the site.
fn covers_whole_site(layer: &Layer<'_>) -> bool {
    layer.matches_path("/") && layer.matches_path("/x7q/y9z.php")
}
