//! The directives that Apache 2.4 permits in an `.htaccess` file but that this crate does not implement, as `httpd -L`
//! lists them for its modules. The directives that the parser implements are not listed here; any other is an error.

/// Directives that need no implementation, because the server does their work anyway (compression, no directory
/// listings) or because a client could not notice their effect.
const WITHOUT_EFFECT: &[&str] = &[
    "addalt",
    "addaltbyencoding",
    "addaltbytype",
    "adddescription",
    "addicon",
    "addiconbyencoding",
    "addiconbytype",
    "addoutputfilterbytype",
    "checkbasenamematch",
    "checkcaseonly",
    "checkspelling",
    "contentdigest",
    "defaulticon",
    "defaulttype",
    "deflateinflatelimitrequestbody",
    "deflateinflateratioburst",
    "deflateinflateratiolimit",
    "enablemmap",
    "enablesendfile",
    "fancyindexing",
    "forcelanguagepriority",
    "headername",
    "indexheadinsert",
    "indexignore",
    "indexignorereset",
    "indexoptions",
    "indexorderdefault",
    "indexstylesheet",
    "languagepriority",
    "limitxmlrequestbody",
    "logiotrackttfb",
    "multiviewsmatch",
    "readmename",
    "serversignature",
    "setoutputfilter",
];

/// Directives that would change responses.
const UNSUPPORTED: &[&str] = &[
    "action",
    "addinputfilter",
    "addoutputfilter",
    "aliaspreservepath",
    "anonymous",
    "anonymous_logemail",
    "anonymous_mustgiveemail",
    "anonymous_nouserid",
    "anonymous_verifyemail",
    "authbasicfake",
    "authbasicusedigestalgorithm",
    "authdbmgroupfile",
    "authdbmtype",
    "authdbmuserfile",
    "authdigestalgorithm",
    "authdigestdomain",
    "authdigestnccheck",
    "authdigestnoncelifetime",
    "authdigestprovider",
    "authdigestqop",
    "cgipassauth",
    "cgivar",
    "charsetdefault",
    "charsetoptions",
    "charsetsourceenc",
    "cookiedomain",
    "cookieexpires",
    "cookiehttponly",
    "cookiename",
    "cookiesamesite",
    "cookiesecure",
    "cookiestyle",
    "cookietracking",
    "filterchain",
    "filterdeclare",
    "filterprotocol",
    "filterprovider",
    "h2copyfiles",
    "h2earlyhint",
    "h2push",
    "h2pushresource",
    "h2upgrade",
    "imapbase",
    "imapdefault",
    "imapmenu",
    "metadir",
    "metafiles",
    "metasuffix",
    "qualifyredirecturl",
    "removeinputfilter",
    "removeoutputfilter",
    "rlimitcpu",
    "rlimitmem",
    "rlimitnproc",
    "session",
    "sessioncookiename",
    "sessioncookiename2",
    "sessioncookieremove",
    "sessioncryptocipher",
    "sessioncryptopassphrase",
    "sessionenv",
    "sessionexclude",
    "sessionexpiryupdateinterval",
    "sessionheader",
    "sessioninclude",
    "sessionmaxage",
    "setinputfilter",
    "ssierrormsg",
    "ssietag",
    "ssilastmodified",
    "ssilegacyexprparser",
    "ssitimeformat",
    "ssiundefinedecho",
    "sslciphersuite",
    "ssloptions",
    "sslrenegbuffersize",
    "sslusername",
    "sslverifydepth",
    "substitute",
    "substituteinheritbefore",
    "substitutemaxlinelength",
    "usertrack",
    "xbithack",
    "xml2encdefault",
    "xml2startparse",
];

/// Directives that are permitted only in a server's configuration.
const SERVER_ONLY: &[&str] = &[
    "accessfilename",
    "alias",
    "aliasmatch",
    "allowoverride",
    "allowoverridelist",
    "browser",
    "customlog",
    "directory",
    "documentroot",
    "errorlog",
    "group",
    "include",
    "includeoptional",
    "keepalive",
    "limitinternalrecursion",
    "limitrequestfields",
    "limitrequestline",
    "listen",
    "loadmodule",
    "location",
    "loglevel",
    "modmimeusepathinfo",
    "mutex",
    "namevirtualhost",
    "php_admin_flag",
    "php_admin_value",
    "phpinidir",
    "proxypass",
    "proxypassmatch",
    "proxypassreverse",
    "proxyrequests",
    "rewritelog",
    "rewriteloglevel",
    "rewritemap",
    "scriptalias",
    "scriptaliasmatch",
    "serveradmin",
    "serveralias",
    "servername",
    "serverroot",
    "servertokens",
    "setenvifplus",
    "sslcertificatefile",
    "sslcertificatekeyfile",
    "sslengine",
    "timeout",
    "traceenable",
    "typesconfig",
    "usecanonicalname",
    "user",
    "virtualhost",
];

/// Prefixes of directives of modules that hosters install and plugins write settings for. They do not change who has
/// access.
const HOSTER_PREFIXES: &[&str] = &[
    "cachelookup",
    "cacheenable",
    "lsapi_",
    "modpagespeed",
    "pagespeed",
    "passenger",
    "sec",
    "suphp_",
];

/// How the parser treats a directive that it does not implement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectiveStatus {
    WithoutEffect,
    Unsupported,
    ServerOnly,
    Unknown,
}

/// Looks up `name`, which is in lower case.
pub(crate) fn directive_status(name: &str) -> DirectiveStatus {
    let is_in = |list: &[&str]| list.binary_search(&name).is_ok();
    if is_in(WITHOUT_EFFECT) {
        DirectiveStatus::WithoutEffect
    } else if is_in(UNSUPPORTED) || HOSTER_PREFIXES.iter().any(|start| name.starts_with(start)) {
        DirectiveStatus::Unsupported
    } else if is_in(SERVER_ONLY) {
        DirectiveStatus::ServerOnly
    } else {
        DirectiveStatus::Unknown
    }
}

/// Returns true if the directive is permitted within `<RequireAll>` and similar sections.
pub(crate) fn is_authorization_directive(name: &str) -> bool {
    name == "require" || name == "satisfy" || name.starts_with("auth")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_for_binary_search() {
        assert!(WITHOUT_EFFECT.is_sorted() && UNSUPPORTED.is_sorted() && SERVER_ONLY.is_sorted());
        assert_eq!(
            directive_status("serversignature"),
            DirectiveStatus::WithoutEffect
        );
        assert_eq!(directive_status("sessionenv"), DirectiveStatus::Unsupported);
        assert_eq!(
            directive_status("modpagespeed"),
            DirectiveStatus::Unsupported
        );
        assert_eq!(
            directive_status("php_admin_value"),
            DirectiveStatus::ServerOnly
        );
        assert_eq!(directive_status("foo"), DirectiveStatus::Unknown);
    }
}
