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

/// How the parser treats a directive that it does not implement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    WithoutEffect,
    Unsupported,
    ServerOnly,
    No,
}

/// Looks up `name`, which is in lower case.
pub(crate) fn known(name: &str) -> Known {
    let is_in = |list: &[&str]| list.binary_search(&name).is_ok();
    if is_in(WITHOUT_EFFECT) {
        Known::WithoutEffect
    } else if is_in(UNSUPPORTED) || OF_HOSTERS.iter().any(|start| name.starts_with(start)) {
        Known::Unsupported
    } else if is_in(SERVER_ONLY) {
        Known::ServerOnly
    } else {
        Known::No
    }
}

/// Returns true if the directive is permitted within `<RequireAll>` and similar sections.
pub(crate) fn of_authorization(name: &str) -> bool {
    name == "require" || name == "satisfy" || name.starts_with("auth")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted_as_their_search_needs() {
        assert!(WITHOUT_EFFECT.is_sorted() && UNSUPPORTED.is_sorted() && SERVER_ONLY.is_sorted());
        assert_eq!(known("serversignature"), Known::WithoutEffect);
        assert_eq!(known("sessionenv"), Known::Unsupported);
        assert_eq!(known("modpagespeed"), Known::Unsupported);
        assert_eq!(known("php_admin_value"), Known::ServerOnly);
        assert_eq!(known("foo"), Known::No);
    }
}
