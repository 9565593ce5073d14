//! What the import says about directives that take no part in a translation: those without a meaning in Howdah, and
//! those that need something else. `howdah_htaccess::directives` says which directives these are.

use howdah_htaccess::directives::{self, ImportRole, IrrelevantTopic, MissingFeature};

use crate::directive::Directive;
use crate::reasons::{
    COMPRESSION, FILES, LOGGING, PROTOCOL, REDIRECTS, SERVICE, SESSIONS, STAPLING, TLS, TUNING,
    VERSION,
};

/// Returns whether a line restricts access.
pub fn restricts_access(line: &Directive) -> bool {
    directives::restricts_access(&line.name)
}

/// Returns why a directive has no meaning in Howdah, or `None` if it may have one.
pub fn irrelevant_reason(directive: &Directive) -> Option<&'static str> {
    let is_disabled = |word: &String| word.eq_ignore_ascii_case("disabled");
    if directive.name == "userdir" && directive.args.iter().all(is_disabled) {
        return Some("Howdah has no per-user directories");
    }
    match directives::find(&directive.name)?.import {
        ImportRole::Irrelevant(topic) => Some(reason(topic)),
        ImportRole::Missing(_) | ImportRole::Unknown => None,
    }
}

fn reason(topic: IrrelevantTopic) -> &'static str {
    match topic {
        IrrelevantTopic::Compression => COMPRESSION,
        IrrelevantTopic::FileSending => FILES,
        IrrelevantTopic::HostsOwn => "each host has its own setting",
        IrrelevantTopic::Http2 => PROTOCOL,
        IrrelevantTopic::Listings => "Howdah does not list directories",
        IrrelevantTopic::Logging => LOGGING,
        IrrelevantTopic::Measures => "`howdah status` shows this",
        IrrelevantTopic::NameBasedHosts => {
            "Howdah chooses the site by the host name at every address"
        }
        IrrelevantTopic::Negotiation => {
            "Howdah has no content negotiation: a URL must contain the full name of its file"
        }
        IrrelevantTopic::Passwords => "the rules that ask for a password replace this directive",
        IrrelevantTopic::PhpProcesses => "Howdah runs PHP's processes itself",
        IrrelevantTopic::Proxying => {
            "proxy rules reuse connections, and pass on the same headers as Apache"
        }
        IrrelevantTopic::Rewriting => "rules run once, from top to bottom",
        IrrelevantTopic::Service => SERVICE,
        IrrelevantTopic::SlashRedirects => REDIRECTS,
        IrrelevantTopic::Stapling => STAPLING,
        IrrelevantTopic::Tls => TLS,
        IrrelevantTopic::TlsSessions => SESSIONS,
        IrrelevantTopic::Trace => "Howdah refuses TRACE",
        IrrelevantTopic::Tuning => TUNING,
        IrrelevantTopic::Version => VERSION,
    }
}

/// Returns what is needed in place of a directive, and whether it denied or limited access; `None` for a directive that
/// needs nothing or is not known.
pub fn missing_remark(directive: &Directive) -> Option<(&'static str, bool)> {
    let ImportRole::Missing(feature) = directives::find(&directive.name)?.import else {
        return None;
    };
    Some(match feature {
        MissingFeature::ApplicationServer => (
            "run the application as a server of its own, and write a rule with `proxy`",
            false,
        ),
        MissingFeature::CertificateOrders => (
            "without [[site.certificate]], Howdah orders certificates by itself (docs/https.md)",
            false,
        ),
        MissingFeature::ChangedAnswers => ("Howdah does not change responses", false),
        MissingFeature::ClientCertificates => {
            ("use `client_ca` in [tls], which applies to all sites", true)
        }
        MissingFeature::Conditions => (
            "write rules with these conditions (docs/access.md), or use an .htaccess file: with htaccess = \"on\", Howdah reads `<If>`",
            directive.inner().iter().any(restricts_access),
        ),
        MissingFeature::Cookies => ("Howdah sets no cookies of its own", false),
        MissingFeature::DirectoryHosts => ("write one [[site]] for each directory", false),
        MissingFeature::FastcgiPool => {
            ("use a [pool.NAME] with the mode `fastcgi` or `pool`", false)
        }
        MissingFeature::Firewall => (
            "put a web application firewall in front of Howdah, or write rules for the most important checks",
            true,
        ),
        MissingFeature::ForwardProxy => ("Howdah has no forward proxy", false),
        MissingFeature::Limits => (
            "use `rate` and `connections` in a rule (docs/limits.md)",
            true,
        ),
        MissingFeature::OtherPasswords => (
            "use `auth_basic` with a file of passwords, or `auth_request`",
            true,
        ),
        MissingFeature::PageCache => ("use `cache` in the site (docs/cache.md)", false),
        MissingFeature::ProgramPool => (
            "use a [pool.NAME] with the mode `pool`, whose `command` is this program",
            false,
        ),
        MissingFeature::RequestSize => (
            "use `header` in [limits], and `max_body_size` in the site",
            true,
        ),
        MissingFeature::RewriteMap => (
            "write rules with `path` and `redirect` instead of the map",
            false,
        ),
        MissingFeature::Scripting => ("write rules, or let the application do this", true),
        MissingFeature::SlowAnswers => ("Howdah does not slow responses down", true),
        MissingFeature::Spelling => ("Howdah does not correct misspelled paths", false),
        MissingFeature::UpstreamCertificates => (
            "Howdah verifies a server's certificate against the certificate authorities of the system (docs/proxy.md)",
            false,
        ),
        MissingFeature::UpstreamErrors => {
            ("`error_pages` apply only to Howdah's own errors", false)
        }
        MissingFeature::UserDirectories => (
            "write a [[site]], or create a link below the root, for each user",
            false,
        ),
        MissingFeature::WebDav => ("Howdah has no WebDAV; use an application for it", false),
    })
}

/// Returns whether the directive is a section for a directory. Such a section belongs to no site if no site has used
/// it.
pub fn is_directory_section(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "directory" | "directorymatch")
}
