//! The CGI meta-variables that the front and the PHP process know by number.
//!
//! For a variable that is sent by number, the PHP process builds no string: the shim holds one interned `zend_string`
//! for each name in [`NAMES`], created once at start, and puts it straight into `$_SERVER`. Other names travel as text.
//! The order is part of the wire format between one build of `howdah` and one build of `howdah-php`, which
//! [`crate::shm::VERSION`] guards.

// A table instead of derives, because the names are PHP's and the shim gets them in this order.
macro_rules! variables {
    ($($id:ident = $name:literal),* $(,)?) => {
        /// A meta-variable known by number. `Var::X as u16` is its index in [`NAMES`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[allow(missing_docs)]
        pub enum Var { $($id),* }

        /// The variables' names in wire order: the number of a variable is its index here.
        pub const NAMES: &[&str] = &[$($name),*];

        impl Var {
            /// Every variable, in wire order.
            pub const ALL: &'static [Var] = &[$(Var::$id),*];
        }
    };
}

variables! {
    RequestMethod = "REQUEST_METHOD",
    RequestUri = "REQUEST_URI",
    QueryString = "QUERY_STRING",
    ScriptFilename = "SCRIPT_FILENAME",
    ScriptName = "SCRIPT_NAME",
    PathInfo = "PATH_INFO",
    PathTranslated = "PATH_TRANSLATED",
    PhpSelf = "PHP_SELF",
    DocumentRoot = "DOCUMENT_ROOT",
    DocumentUri = "DOCUMENT_URI",
    ContentType = "CONTENT_TYPE",
    ContentLength = "CONTENT_LENGTH",
    GatewayInterface = "GATEWAY_INTERFACE",
    ServerProtocol = "SERVER_PROTOCOL",
    ServerSoftware = "SERVER_SOFTWARE",
    ServerName = "SERVER_NAME",
    ServerAddr = "SERVER_ADDR",
    ServerPort = "SERVER_PORT",
    RemoteAddr = "REMOTE_ADDR",
    RemotePort = "REMOTE_PORT",
    RemoteHost = "REMOTE_HOST",
    RemoteUser = "REMOTE_USER",
    AuthType = "AUTH_TYPE",
    RequestScheme = "REQUEST_SCHEME",
    Https = "HTTPS",
    SslProtocol = "SSL_PROTOCOL",
    SslCipher = "SSL_CIPHER",
    RedirectStatus = "REDIRECT_STATUS",
    RedirectUrl = "REDIRECT_URL",
    UniqueId = "UNIQUE_ID",
    HttpHost = "HTTP_HOST",
    HttpUserAgent = "HTTP_USER_AGENT",
    HttpAccept = "HTTP_ACCEPT",
    HttpAcceptEncoding = "HTTP_ACCEPT_ENCODING",
    HttpAcceptLanguage = "HTTP_ACCEPT_LANGUAGE",
    HttpConnection = "HTTP_CONNECTION",
    HttpCookie = "HTTP_COOKIE",
    HttpReferer = "HTTP_REFERER",
    HttpOrigin = "HTTP_ORIGIN",
    HttpAuthorization = "HTTP_AUTHORIZATION",
    HttpCacheControl = "HTTP_CACHE_CONTROL",
    HttpPragma = "HTTP_PRAGMA",
    HttpIfModifiedSince = "HTTP_IF_MODIFIED_SINCE",
    HttpIfNoneMatch = "HTTP_IF_NONE_MATCH",
    HttpRange = "HTTP_RANGE",
    HttpUpgradeInsecureRequests = "HTTP_UPGRADE_INSECURE_REQUESTS",
    HttpXRequestedWith = "HTTP_X_REQUESTED_WITH",
    HttpXForwardedFor = "HTTP_X_FORWARDED_FOR",
    HttpXForwardedProto = "HTTP_X_FORWARDED_PROTO",
    HttpXForwardedHost = "HTTP_X_FORWARDED_HOST",
    HttpXForwardedPort = "HTTP_X_FORWARDED_PORT",
    HttpXRealIp = "HTTP_X_REAL_IP",
    HttpSecFetchSite = "HTTP_SEC_FETCH_SITE",
    HttpSecFetchMode = "HTTP_SEC_FETCH_MODE",
    HttpSecFetchDest = "HTTP_SEC_FETCH_DEST",
    HttpSecFetchUser = "HTTP_SEC_FETCH_USER",
    HttpSecChUa = "HTTP_SEC_CH_UA",
    HttpSecChUaMobile = "HTTP_SEC_CH_UA_MOBILE",
    HttpSecChUaPlatform = "HTTP_SEC_CH_UA_PLATFORM",
    HttpDnt = "HTTP_DNT",
    HttpTe = "HTTP_TE",
    HttpVia = "HTTP_VIA",
    HttpXWpNonce = "HTTP_X_WP_NONCE",
    HttpXCsrfToken = "HTTP_X_CSRF_TOKEN",
    HttpPriority = "HTTP_PRIORITY",
    HttpExpect = "HTTP_EXPECT",
}

impl Var {
    /// Returns the name as PHP sees it in `$_SERVER`.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Returns the known variable with this name, if there is one. `name` is already in CGI form (`HTTP_HOST`).
    pub fn from_name(name: &[u8]) -> Option<Var> {
        Var::ALL
            .iter()
            .copied()
            .find(|v| v.name().as_bytes() == name)
    }
}

/// How a request header reaches PHP (RFC 3875 §4.1.18). Some headers are dropped, because folding `-` into `_` would
/// let an attacker set another variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderMapping {
    /// The header becomes the variable `HTTP_<NAME>`.
    Pass,
    /// `Content-Type` and `Content-Length` become variables of their own, never `HTTP_*`.
    OwnVariable,
    /// `Proxy:` would become `HTTP_PROXY` (httpoxy, CVE-2016-5385).
    DropProxy,
    /// A name with `_`, `.` or anything but letters, digits and `-`: it would alias another
    /// header's variable (nginx `underscores_in_headers off`, Caddy GHSA-f59h-q822-g45g).
    DropAlias,
}

/// Decides how a header reaches PHP by its name, which may be in any case.
pub fn header_mapping(name: &[u8]) -> HeaderMapping {
    if !name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-') {
        return HeaderMapping::DropAlias;
    }
    if name.eq_ignore_ascii_case(b"proxy") {
        return HeaderMapping::DropProxy;
    }
    if name.eq_ignore_ascii_case(b"content-type") || name.eq_ignore_ascii_case(b"content-length") {
        return HeaderMapping::OwnVariable;
    }
    HeaderMapping::Pass
}

/// Writes the CGI name of a header (`Accept-Language` becomes `HTTP_ACCEPT_LANGUAGE`) into `out`,
/// which is cleared first.
pub fn header_variable_name(name: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(b"HTTP_");
    out.extend(name.iter().map(|b| {
        if *b == b'-' {
            b'_'
        } else {
            b.to_ascii_uppercase()
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_found_and_unique() {
        for v in Var::ALL {
            assert_eq!(
                Var::from_name(v.name().as_bytes()),
                Some(*v),
                "{}",
                v.name()
            );
        }
    }

    #[test]
    fn header_names_that_alias_a_variable_are_dropped() {
        assert_eq!(header_mapping(b"X_Forwarded_For"), HeaderMapping::DropAlias);
        assert_eq!(header_mapping(b"X.Forwarded"), HeaderMapping::DropAlias);
        assert_eq!(header_mapping(b"pRoXy"), HeaderMapping::DropProxy);
        assert_eq!(
            header_mapping(b"Content-Length"),
            HeaderMapping::OwnVariable
        );
        assert_eq!(header_mapping(b"X-Forwarded-For"), HeaderMapping::Pass);
    }

    #[test]
    fn header_variable_name_follows_rfc_3875() {
        let mut out = Vec::new();
        header_variable_name(b"Accept-Language", &mut out);
        assert_eq!(out, b"HTTP_ACCEPT_LANGUAGE");
    }
}
