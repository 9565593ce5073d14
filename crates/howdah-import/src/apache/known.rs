//! The directives of Apache that have no meaning in Howdah, and why; and other known directives with what is needed in
//! their place.

use crate::directive::Directive;
use crate::reasons::{
    COMPRESSION, FILES, LOGGING, PROTOCOL, REDIRECTS, SERVICE, SESSIONS, STAPLING, TLS, TUNING,
    VERSION,
};

const LISTINGS: &str = "Howdah makes no listings of directories";
const NEGOTIATION: &str = "a path names its file in full: there is no content negotiation";
const AUTH: &str = "rules carry it over that ask for a password";
const FCGI: &str = "Howdah runs PHP's processes itself";
const METHODS: &str = "Howdah answers no TRACE";
const MAIN: &str = "hosts have their own";
const PROXY: &str = "proxy rules keep connections, and pass on what Apache does";
const REWRITING: &str = "rules run once, from top to bottom";
const MEASURES: &str = "howdah status has it";

/// Access directives of Apache 2.4.
pub const REQUIRE_DIRECTIVES: &[&str] = &["require", "requireall", "requireany", "requirenone"];
/// Access directives of Apache 2.2, which 2.4 still supports.
pub const LEGACY_DIRECTIVES: &[&str] = &["order", "allow", "deny"];

/// Returns whether a line restricts access.
pub fn restricts_access(line: &Directive) -> bool {
    let name = line.name.as_str();
    REQUIRE_DIRECTIVES.contains(&name)
        || LEGACY_DIRECTIVES.contains(&name)
        || matches!(
            name,
            "sslrequiressl" | "sslrequire" | "limit" | "limitexcept" | "allowmethods"
        )
}

const IRRELEVANT_DIRECTIVES: &[(&str, &[&str])] = &[
    (
        TUNING,
        &[
            "acceptfilter",
            "acceptmutex",
            "asyncrequestworkerfactor",
            "coredumpdirectory",
            "enableexceptionhook",
            "enablemmap",
            "enablesendfile",
            "flushmaxpipelined",
            "flushmaxthreshold",
            "gracefulshutdowntimeout",
            "limitinternalrecursion",
            "listenbacklog",
            "listencoresbucketsratio",
            "loadfile",
            "lockfile",
            "maxclients",
            "maxmemfree",
            "maxranges",
            "maxrangeoverlaps",
            "maxrangereversals",
            "maxrequestworkers",
            "maxspareservers",
            "maxsparethreads",
            "minspareservers",
            "minsparethreads",
            "mutex",
            "readbuffersize",
            "receivebuffersize",
            "rlimitcpu",
            "rlimitmem",
            "rlimitnproc",
            "scoreboardfile",
            "sendbuffersize",
            "serverlimit",
            "startservers",
            "startthreads",
            "threadlimit",
            "threadsperchild",
            "threadstacksize",
            "mergetrailers",
            "mergeslashes",
            "httpprotocoloptions",
            "registerhttpmethod",
            "regexdefaultoptions",
            "maxconnectionsperchild",
            "maxrequestsperchild",
            "watchdoginterval",
            "stricthostcheck",
        ],
    ),
    (
        SERVICE,
        &[
            "pidfile",
            "defaultruntimedir",
            "chrootdir",
            "error",
            "warning",
        ],
    ),
    (
        LISTINGS,
        &[
            "addalt",
            "addaltbyencoding",
            "addaltbytype",
            "adddescription",
            "addicon",
            "addiconbyencoding",
            "addiconbytype",
            "defaulticon",
            "headername",
            "indexheadinsert",
            "indexignore",
            "indexignorereset",
            "indexoptions",
            "indexorderdefault",
            "indexstylesheet",
            "readmename",
        ],
    ),
    (
        NEGOTIATION,
        &[
            "addlanguage",
            "cachenegotiateddocs",
            "defaultlanguage",
            "forcelanguagepriority",
            "languagepriority",
            "multiviewsmatch",
            "removelanguage",
        ],
    ),
    (
        TLS,
        &[
            "sslciphersuite",
            "sslcompression",
            "sslcryptodevice",
            "sslfips",
            "sslhonorcipherorder",
            "sslinsecurerenegotiation",
            "sslopensslconfcmd",
            "ssloptions",
            "sslpassphrasedialog",
            "sslpolicy",
            "sslprotocol",
            "sslrandomseed",
            "sslrenegbuffersize",
            "sslstrictsnivhostcheck",
            "sslengine",
            "sslusername",
            "sslvhostsnipolicy",
        ],
    ),
    (
        SESSIONS,
        &[
            "sslsessioncache",
            "sslsessioncachetimeout",
            "sslsessiontickets",
            "sslsessionticketkeyfile",
        ],
    ),
    (
        STAPLING,
        &[
            "sslusestapling",
            "sslstaplingcache",
            "sslstaplingresponsetimeout",
            "sslstaplingreturnrespondererrors",
            "sslstaplingstandardcachetimeout",
            "sslstaplingerrorcachetimeout",
            "sslstaplingfaketrylater",
            "sslstaplingforceurl",
            "sslstaplingrespondertimeout",
        ],
    ),
    (
        COMPRESSION,
        &[
            "brotlialteretag",
            "brotlicompressionmaxinputblock",
            "brotlicompressionquality",
            "brotlicompressionwindow",
            "brotlifilternote",
            "deflatealteretag",
            "deflatebuffersize",
            "deflatecompressionlevel",
            "deflatefilternote",
            "deflateinflatelimitrequestbody",
            "deflateinflateratioburst",
            "deflateinflateratiolimit",
            "deflatememlevel",
            "deflatewindowsize",
            "addencoding",
            "removeencoding",
            "removeoutputfilter",
            "filterdeclare",
            "filterprovider",
            "filterchain",
            "filterprotocol",
        ],
    ),
    (VERSION, &["serversignature", "servertokens", "serveradmin"]),
    (
        LOGGING,
        &[
            "errorlogformat",
            "hostnamelookups",
            "logiotrackttfb",
            "bufferedlogs",
            "identitycheck",
            "forensiclog",
            "cookielog",
            "dumpioinput",
            "dumpiooutput",
        ],
    ),
    (
        AUTH,
        &[
            "authtype",
            "authname",
            "authbasicprovider",
            "authuserfile",
            "authgroupfile",
            "authbasicauthoritative",
            "authuserfileauthoritative",
            "authzsendforbiddenonfailure",
            "authnprovideralias",
        ],
    ),
    (
        PROTOCOL,
        &[
            "protocols",
            "protocolshonororder",
            "h2copyfiles",
            "h2direct",
            "h2earlyhint",
            "h2earlyhints",
            "h2maxdataframelen",
            "h2maxsessionstreams",
            "h2maxworkeridleseconds",
            "h2maxworkers",
            "h2minworkers",
            "h2moderntlsonly",
            "h2outputbuffering",
            "h2padding",
            "h2push",
            "h2pushdiarysize",
            "h2pushpriority",
            "h2pushresource",
            "h2serializeheaders",
            "h2streammaxmemsize",
            "h2streamtimeout",
            "h2tlscooldownsecs",
            "h2tlswarmupsize",
            "h2upgrade",
            "h2websockets",
            "h2windowsize",
            "h2maxstreamerrors",
            "h2maxheaderblocklen",
        ],
    ),
    (
        FCGI,
        &[
            "fcgidbusyscaninterval",
            "fcgidbusytimeout",
            "fcgidconnecttimeout",
            "fcgididlescaninterval",
            "fcgididletimeout",
            "fcgidinitialenv",
            "fcgidiotimeout",
            "fcgidipcdir",
            "fcgidmaxprocesses",
            "fcgidmaxprocessesperclass",
            "fcgidmaxrequestlen",
            "fcgidmaxrequestsperprocess",
            "fcgidminprocessesperclass",
            "fcgidoutputbuffersize",
            "fcgidphpfixpathinfo",
            "fcgidprocesslifetime",
            "fcgidprocesstablefile",
            "fcgidspawnscore",
            "fcgidspawnscoreuplimit",
            "fcgidterminationscore",
            "fcgidtimescore",
            "fcgidwin32preventorphans",
            "fcgidzombiescaninterval",
            "fcgidipccommtimeout",
            "fcgidipcconnecttimeout",
            "fastcgiconfig",
            "fastcgiipcdir",
            "fastcgiwrapper",
            "phpinidir",
            "scriptsock",
            "scriptlog",
            "scriptlogbuffer",
            "scriptloglength",
            "cgidscripttimeout",
            "assignuserid",
            "suexecusergroup",
            "rmode",
            "rgroups",
            "suphp_usergroup",
            "suphp_engine",
            "suphp_configpath",
            "ruidgid",
            "rugid",
            "rminuidgid",
            "maxclientsvhost",
            "nicevalue",
        ],
    ),
    (
        REDIRECTS,
        &[
            "usecanonicalname",
            "usecanonicalphysicalport",
            "directoryslash",
            "serverpath",
            "redirectrelative",
        ],
    ),
    (METHODS, &["traceenable"]),
    (
        MAIN,
        &[
            "servername",
            "serveralias",
            "documentroot",
            "directoryindex",
            "options",
            "allowoverride",
            "accessfilename",
            "sslcertificatefile",
            "sslcertificatekeyfile",
            "sslcertificatechainfile",
            "user",
            "group",
        ],
    ),
    (
        PROXY,
        &[
            "sslproxyengine",
            "proxyaddheaders",
            "proxybadheader",
            "proxyfcgibackendtype",
            "proxyfcgisetenvif",
            "proxyiobuffersize",
            "proxymaxforwards",
            "proxyreceivebuffersize",
            "proxystatus",
            "proxytimeout",
            "proxyvia",
            "proxypreservehost",
            "proxywebsocketfallbacktoproxyhttp",
            "proxypassinherit",
            "proxypassinterpolateenv",
            "proxysourceaddress",
            "balancerpersist",
            "balancerinherit",
            "balancergrowth",
            "proxyset",
            "noproxy",
            "proxydomain",
            "proxypassreverse",
        ],
    ),
    (
        FILES,
        &[
            "typesconfig",
            "fileetag",
            "mimemagicfile",
            "addcharset",
            "removecharset",
            "contentdigest",
            "allowencodedslashes",
            "acceptpathinfo",
            "modmimeusepathinfo",
            "cgipassauth",
            "qualifyredirecturl",
            "adddefaultcharset",
            "xbithack",
        ],
    ),
    (
        REWRITING,
        &[
            "rewriteengine",
            "rewritebase",
            "rewriteoptions",
            "rewritelog",
            "rewriteloglevel",
            "expiresactive",
        ],
    ),
    (MEASURES, &["extendedstatus", "seerequesttail", "statusall"]),
];

/// Returns why a directive has no meaning in Howdah, or `None` if it may have one.
pub fn irrelevant_reason(directive: &Directive) -> Option<&'static str> {
    let name = directive.name.as_str();
    match name {
        "userdir"
            if directive
                .args
                .iter()
                .all(|word| word.eq_ignore_ascii_case("disabled")) =>
        {
            Some("there are no directories of users")
        }
        "namevirtualhost" => Some("sites are chosen by name at every address"),
        _ => {
            let mut groups = IRRELEVANT_DIRECTIVES.iter();
            groups
                .find(|(_, names)| names.contains(&name))
                .map(|(why, _)| *why)
        }
    }
}

/// Returns what is needed in place of a directive, and whether it denied or limited access; `None` for an unknown
/// directive.
pub fn missing_remark(directive: &Directive) -> Option<(&'static str, bool)> {
    Some(match directive.name.as_str() {
        "if" | "elseif" | "else" => (
            "rules with these conditions (docs/access.md), or an .htaccess file: htaccess = \"on\" reads <If>",
            directive.inner().iter().any(restricts_access),
        ),
        "userdir" => ("a [[site]], or a link below the root, for each user", false),
        "virtualdocumentroot" | "virtualscriptalias" | "virtualdocumentrootip" => {
            ("one [[site]] for each directory", false)
        }
        "rewritemap" => ("rules in place of the map: path and redirect", false),
        "fcgidwrapper" | "fcgidaccesschecker" | "fcgidauthenticator" | "fcgidauthorizer" => (
            "[pool.NAME] in mode pool, with this program as its command",
            false,
        ),
        "fastcgiexternalserver" | "fastcgiserver" | "action" | "script" => {
            ("[pool.NAME] in mode fastcgi or pool", false)
        }
        "secruleengine"
        | "secrule"
        | "secaction"
        | "secruleremovebyid"
        | "secauditengine"
        | "secrequestbodyaccess"
        | "modsecurity"
        | "secruleremovebytag"
        | "secauditlog" => (
            "a firewall for web applications in front, or rules for what matters",
            true,
        ),
        "dosenabled"
        | "doshashtablesize"
        | "dospagecount"
        | "dospageinterval"
        | "dossitecount"
        | "dossiteinterval"
        | "dosblockingperiod"
        | "qs_srvmaxconnperip"
        | "qs_clientevententrylimit"
        | "qs_loclimit" => ("rate and connections of a rule (docs/limits.md)", true),
        "dav" | "davlockdb" | "davmintimeout" | "davdepthinfinity" => {
            ("an application for WebDAV; Howdah has none", false)
        }
        "mddomain"
        | "managedomain"
        | "mdomain"
        | "mdcertificateagreement"
        | "mdprivatekeys"
        | "mdcontactemail"
        | "mdrequirehttps"
        | "mdrenewwindow"
        | "mdcertificateauthority"
        | "mdmember"
        | "mdomainset" => (
            "leave [[site.certificate]] out, and Howdah orders certificates by itself (docs/https.md)",
            false,
        ),
        "cacheenable" | "cachedisable" | "cacheroot" | "cachequickhandler" | "cachelock"
        | "cachedefaultexpire" | "cachemaxexpire" | "cacheignoreheaders" | "cacheheader"
        | "cachedirlevels" | "cachedirlength" => ("cache of the site (docs/cache.md)", false),
        "substitute"
        | "addoutputfilter"
        | "setoutputfilter"
        | "setinputfilter"
        | "addinputfilter"
        | "addoutputfilterbytype"
        | "extfilterdefine" => ("Howdah does not change answers", false),
        "ratelimit" => ("nothing slows answers down", true),
        "limitrequestfields" | "limitxmlrequestbody" | "limitrequestbody" => {
            ("[limits] header and max_body_size of the site", true)
        }
        "sslverifydepth"
        | "sslcarevocationfile"
        | "sslcarevocationpath"
        | "sslcarevocationcheck"
        | "sslcacertificatepath"
        | "sslcadnrequestfile"
        | "sslocspenable"
        | "sslcacertificatefile" => ("[tls] client_ca, for all sites", true),
        "sslproxyverify"
        | "sslproxycheckpeername"
        | "sslproxycheckpeercn"
        | "sslproxycheckpeerexpire"
        | "sslproxyprotocol"
        | "sslproxycacertificatefile"
        | "sslproxyciphersuite" => (
            "a server's certificate is checked as the system does (docs/proxy.md)",
            false,
        ),
        "authdigestprovider"
        | "authdigestdomain"
        | "authldapurl"
        | "authldapbinddn"
        | "authldapbindpassword"
        | "authformprovider"
        | "authdigestalgorithm"
        | "authdigestqop" => ("auth_basic with a file of passwords, or auth_request", true),
        "proxyerroroverride" => ("error_pages are for Howdah's own errors", false),
        "proxyremote" | "proxyblock" => ("Howdah has no forward proxy", false),
        "passengerenabled"
        | "wsgiscriptalias"
        | "wsgidaemonprocess"
        | "wsgiprocessgroup"
        | "railsenv"
        | "passengerruby"
        | "passengerroot"
        | "passengerdefaultruby" => (
            "a server of its own for the application, and a rule with proxy",
            false,
        ),
        "checkspelling" | "checkcaseonly" => ("a path names its file in full", false),
        "cookietracking" | "cookiename" | "sessioncookiename" | "session" => {
            ("Howdah sets no cookies of its own", false)
        }
        "lualoadfile" | "luahookaccesschecker" | "luamaphandler" => {
            ("rules, or an application", true)
        }
        _ => return None,
    })
}

/// Returns whether the directive is a section for a directory. Such a section belongs to no site if no site has used
/// it.
pub fn is_directory_section(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "directory" | "directorymatch")
}
