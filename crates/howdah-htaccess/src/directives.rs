//! The directives of Apache 2.4 and of modules that are often installed with it: what each of them is, what this crate
//! does with it in an `.htaccess` file, and how the import of a server's configuration handles it. The parser of
//! `.htaccess` files and the importer (`howdah-import`) read the same table.

mod table;

/// A directive, or a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApacheDirective {
    /// The name in lower case, without the angle brackets of a section.
    pub name: &'static str,
    /// The module of Apache that has the directive; `core` and the processing modules (`event`, `prefork`) have no
    /// `mod_`.
    pub module: &'static str,
    /// Where Apache permits the directive.
    pub contexts: DirectiveContexts,
    /// How the directive is handled in an `.htaccess` file.
    pub htaccess: HtaccessRole,
    /// True if the importer translates the directive. `import` then applies only to its lines that are not part of any
    /// translation.
    pub is_translated: bool,
    /// What the import says about a line that takes no part in a translation.
    pub import: ImportRole,
}

/// The parts of a configuration in which Apache permits a directive, as `httpd -L` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectiveContexts {
    /// A server or a virtual host, outside all sections for directories, files and paths.
    Server,
    /// Only sections for directories, files and paths.
    Sections,
    /// A server and such sections.
    Configuration,
    /// Such sections and `.htaccess` files.
    SectionsAndHtaccess,
    /// A server, such sections and `.htaccess` files.
    Everywhere,
}

/// What this crate does with a directive in an `.htaccess` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HtaccessRole {
    /// The parser implements the directive.
    Implemented,
    /// The directive needs no implementation, because the server does what it asks for anyway (compression, no
    /// directory listings) or because a client could not notice its effect.
    WithoutEffect,
    /// The directive would change responses. The parser notes that it has no effect.
    Unsupported,
    /// The directive is a mistake here. The message says that it belongs in a server's configuration.
    ServerOnly,
    /// The directive is a mistake, as is any name that Apache does not know.
    Unknown,
}

/// What the import says about a line that takes no part in a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportRole {
    /// The directive has no meaning in Howdah.
    Irrelevant(IrrelevantTopic),
    /// The directive is not carried over, and something else is needed in its place.
    Missing(MissingFeature),
    /// The importer does not know the directive.
    Unknown,
}

/// The subject of a directive that has no meaning in Howdah.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrrelevantTopic {
    /// A directive about compression.
    Compression,
    /// A directive about how files are sent.
    FileSending,
    /// A directive for the main server, where each host has a setting of its own.
    HostsOwn,
    /// A directive about HTTP/2.
    Http2,
    /// A directive about listings of directories.
    Listings,
    /// A directive about the contents of logs.
    Logging,
    /// A directive about the measurements of the server.
    Measures,
    /// A directive that enables hosts that share an address.
    NameBasedHosts,
    /// A directive about content negotiation.
    Negotiation,
    /// A directive that accompanies a line that asks for a password.
    Passwords,
    /// A directive about the processes that run PHP.
    PhpProcesses,
    /// A directive about connections to other servers.
    Proxying,
    /// A directive about the order in which rules run.
    Rewriting,
    /// A directive about how the server runs as a service.
    Service,
    /// A directive about redirects that add the slash to the path of a directory.
    SlashRedirects,
    /// A directive about OCSP stapling.
    Stapling,
    /// A directive about versions and ciphers of TLS.
    Tls,
    /// A directive about the resumption of TLS sessions.
    TlsSessions,
    /// A directive about the method TRACE.
    Trace,
    /// A directive that tunes processes, buffers or files.
    Tuning,
    /// A directive about the names and versions that responses contain.
    Version,
}

/// What a directive configures that needs something else in Howdah.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingFeature {
    /// An application in another language.
    ApplicationServer,
    /// Certificates that the server orders.
    CertificateOrders,
    /// Filters that change responses.
    ChangedAnswers,
    /// Certificates of clients that the server demands or checks.
    ClientCertificates,
    /// A section with a condition on requests.
    Conditions,
    /// Cookies that the server sets.
    Cookies,
    /// Hosts that are named by directories.
    DirectoryHosts,
    /// A FastCGI server.
    FastcgiPool,
    /// A firewall for web applications.
    Firewall,
    /// A forward proxy.
    ForwardProxy,
    /// Limits for single clients.
    Limits,
    /// Passwords that are not in a file.
    OtherPasswords,
    /// A cache of responses.
    PageCache,
    /// A program that the server starts.
    ProgramPool,
    /// Limits of the size of requests.
    RequestSize,
    /// Maps of rewrites.
    RewriteMap,
    /// Scripts in the server.
    Scripting,
    /// Responses that are slowed down.
    SlowAnswers,
    /// Corrections of misspelled paths.
    Spelling,
    /// Checks of the certificates of other servers.
    UpstreamCertificates,
    /// The error pages of other servers.
    UpstreamErrors,
    /// Directories of users.
    UserDirectories,
    /// WebDAV.
    WebDav,
}

/// The beginnings of the names of modules that hosters install and that plugins write settings for. These modules do
/// not restrict access.
const OF_HOSTERS: &[&str] = &[
    "cachelookup",
    "cacheenable",
    "lsapi_",
    "modpagespeed",
    "pagespeed",
    "passenger",
    "sec",
    "suphp_",
];

/// Directives that restrict access by requirements, since Apache 2.4.
pub const REQUIRE_DIRECTIVES: &[&str] = &["require", "requireall", "requireany", "requirenone"];
/// Directives that restrict access in Apache 2.2, which 2.4 still supports.
pub const LEGACY_DIRECTIVES: &[&str] = &["order", "allow", "deny"];
/// Other directives that restrict access.
const OTHER_RESTRICTIONS: &[&str] = &[
    "sslrequiressl",
    "sslrequire",
    "limit",
    "limitexcept",
    "allowmethods",
];

/// Returns the directive of that name, which is in lower case.
pub fn find(name: &str) -> Option<&'static ApacheDirective> {
    let at = table::DIRECTIVES.binary_search_by(|row| row.name.cmp(name));
    at.ok().map(|at| &table::DIRECTIVES[at])
}

/// Returns all directives, sorted by name.
pub fn all() -> &'static [ApacheDirective] {
    table::DIRECTIVES
}

/// Returns how a directive is handled in an `.htaccess` file. The name is in lower case.
pub fn htaccess_role(name: &str) -> HtaccessRole {
    match find(name) {
        Some(directive) => directive.htaccess,
        None if OF_HOSTERS.iter().any(|start| name.starts_with(start)) => HtaccessRole::Unsupported,
        None => HtaccessRole::Unknown,
    }
}

/// Returns whether a directive of that name, which is in lower case, restricts access.
pub fn restricts_access(name: &str) -> bool {
    [REQUIRE_DIRECTIVES, LEGACY_DIRECTIVES, OTHER_RESTRICTIONS]
        .iter()
        .any(|names| names.contains(&name))
}

/// Returns true if the directive is permitted within `<RequireAll>` and similar sections.
pub(crate) fn of_authorization(name: &str) -> bool {
    name == "require" || name == "satisfy" || name.starts_with("auth")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Problem, Table};

    #[test]
    fn directives_are_sorted_and_in_lower_case() {
        let names = || all().iter().map(|row| row.name);
        assert!(names().is_sorted_by(|one, next| one < next));
        assert!(names().all(|name| !name.bytes().any(|b| b.is_ascii_uppercase())));
        assert!(all().len() > 500);
    }

    #[test]
    fn directives_have_their_roles() {
        assert_eq!(
            htaccess_role("serversignature"),
            HtaccessRole::WithoutEffect
        );
        assert_eq!(htaccess_role("sessionenv"), HtaccessRole::Unsupported);
        assert_eq!(htaccess_role("modpagespeed"), HtaccessRole::Unsupported);
        assert_eq!(htaccess_role("php_admin_value"), HtaccessRole::ServerOnly);
        assert_eq!(htaccess_role("rewriterule"), HtaccessRole::Implemented);
        assert_eq!(htaccess_role("foo"), HtaccessRole::Unknown);
        let rule = find("rewriterule").unwrap();
        assert_eq!(rule.module, "mod_rewrite");
        assert_eq!(rule.contexts, DirectiveContexts::Everywhere);
    }

    /// The parser does not implement directives that Apache forbids in `.htaccess` files, and Apache permits there all
    /// directives that it implements.
    #[test]
    fn directives_that_are_implemented_may_be_in_a_file() {
        for row in all() {
            let is_permitted = matches!(
                row.contexts,
                DirectiveContexts::Everywhere | DirectiveContexts::SectionsAndHtaccess
            );
            match row.htaccess {
                HtaccessRole::Implemented | HtaccessRole::WithoutEffect => {
                    assert!(is_permitted, "{row:?}")
                }
                HtaccessRole::ServerOnly => assert!(!is_permitted, "{row:?}"),
                HtaccessRole::Unsupported | HtaccessRole::Unknown => {}
            }
        }
    }

    /// The parser reports that Apache does not know a directive exactly if the table says so.
    #[test]
    fn directives_that_the_parser_does_not_know_are_unknown_in_the_table() {
        for row in all().iter().filter(|row| !is_section(row.name)) {
            let file = crate::parse(
                format!("{} x", row.name).as_bytes(),
                b"/",
                &Table::default(),
            );
            let problem = match file.problem {
                Some(Problem::Mistake(note)) => note.why,
                _ => "",
            };
            let is_unknown = row.htaccess == HtaccessRole::Unknown;
            assert_eq!(
                problem.contains("has no such directive"),
                is_unknown,
                "{}: {problem}",
                row.name
            );
            let is_server_only = row.htaccess == HtaccessRole::ServerOnly;
            assert_eq!(
                problem.contains("is not allowed in an .htaccess file"),
                is_server_only,
                "{}: {problem}",
                row.name
            );
        }
    }

    fn is_section(name: &str) -> bool {
        name.starts_with("if")
            || name.starts_with("require") && name != "require"
            || [
                "else",
                "elseif",
                "files",
                "filesmatch",
                "limit",
                "limitexcept",
            ]
            .contains(&name)
    }
}
