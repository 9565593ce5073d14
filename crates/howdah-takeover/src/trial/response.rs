//! The parts of a response that are compared, in a form in which the responses of two servers can be equal.

use howdah_import::verify::client::FullResponse;

use super::endpoint::Endpoint;

/// Headers that protect visitors.
pub const SECURITY_HEADERS: &[&str] = &[
    "content-security-policy",
    "content-security-policy-report-only",
    "cross-origin-embedder-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "permissions-policy",
    "referrer-policy",
    "strict-transport-security",
    "x-content-type-options",
    "x-frame-options",
    "x-xss-protection",
];

/// A response as it is compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComparedResponse {
    /// The status.
    pub status: u16,
    /// The absolute target of a redirect.
    pub location: Option<String>,
    /// The media type without parameters.
    pub media_type: Option<String>,
    /// The `charset` of the media type.
    pub charset: Option<String>,
    /// `Cache-Control`.
    pub cache_control: Option<String>,
    /// `WWW-Authenticate`.
    pub authentication: Option<String>,
    /// The values of [`SECURITY_HEADERS`].
    pub security: Vec<(&'static str, Option<String>)>,
    /// The names of the cookies that are set, sorted.
    pub cookies: Vec<String>,
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
    /// `Content-Encoding`.
    pub encoding: Option<String>,
    /// `Content-Range`.
    pub range: Option<String>,
    /// Howdah's name for a failure.
    pub howdah_error: Option<String>,
    /// Whether the server itself wrote the page of an error.
    pub is_own_error_page: bool,
    /// The certificate.
    pub certificate: Option<Vec<u8>>,
    /// The body.
    pub body: ComparedBody,
}

/// A body as it is compared.
#[derive(Clone, Debug, PartialEq)]
pub enum ComparedBody {
    /// Text.
    Text(String),
    /// Anything else, or text in an encoding other than UTF-8.
    Bytes(Vec<u8>),
}

impl Default for ComparedBody {
    fn default() -> ComparedBody {
        ComparedBody::Text(String::new())
    }
}

impl ComparedResponse {
    /// Takes what is compared from a response of the old server.
    pub fn of_old(response: FullResponse, endpoint: &Endpoint) -> ComparedResponse {
        Self::from(response, endpoint, str::to_owned)
    }

    /// Takes what is compared from a response of the preview, with the ports that it will have after the switch.
    pub fn of_new(response: FullResponse, endpoint: &Endpoint) -> ComparedResponse {
        Self::from(response, endpoint, |text| {
            endpoint.without_preview_ports(text)
        })
    }

    fn from(
        response: FullResponse,
        endpoint: &Endpoint,
        adapt: impl Fn(&str) -> String,
    ) -> ComparedResponse {
        let header = |name: &str| response.head.header(name);
        let location = header("location").map(|value| endpoint.absolute_location(&adapt(&value)));
        let kind = header("content-type").map(|value| value.to_ascii_lowercase());
        let parameter = |kind: &String| Some(kind.split_once("charset=")?.1.replace('"', ""));
        let security = SECURITY_HEADERS.iter();
        let security = security.map(|name| (*name, header(name).map(|value| adapt(&value))));
        let howdah_error = header("howdah-error");
        let body = match String::from_utf8(response.body.clone()) {
            Ok(text) => ComparedBody::Text(adapt(&text)),
            // A text that the limit has cut within a character.
            Err(error) if !response.is_complete && error.utf8_error().error_len().is_none() => {
                let valid = error.utf8_error().valid_up_to();
                ComparedBody::Text(adapt(&String::from_utf8_lossy(&response.body[..valid])))
            }
            Err(error) => ComparedBody::Bytes(error.into_bytes()),
        };
        ComparedResponse {
            status: response.head.status,
            location,
            media_type: kind.as_ref().map(|kind| {
                let essence = kind.split(';').next().unwrap_or_default();
                essence.trim().to_owned()
            }),
            charset: kind.as_ref().and_then(parameter),
            cache_control: header("cache-control"),
            authentication: header("www-authenticate"),
            security: security.collect(),
            cookies: cookie_names(&response),
            etag: header("etag"),
            last_modified: header("last-modified"),
            encoding: header("content-encoding"),
            range: header("content-range"),
            is_own_error_page: howdah_error.is_some()
                || response.head.status >= 400 && is_page_of_old_server(&response.body),
            howdah_error,
            certificate: response.certificate,
            body,
        }
    }

    /// Returns whether the response refuses access.
    pub fn refuses(&self) -> bool {
        matches!(self.status, 401 | 403 | 404 | 410)
    }

    /// Returns whether the response has what was requested.
    pub fn serves(&self) -> bool {
        matches!(self.status, 200..=299 | 304)
    }
}

fn cookie_names(response: &FullResponse) -> Vec<String> {
    let cookies = response
        .head
        .headers
        .iter()
        .filter(|(name, _)| name == "set-cookie");
    let names = cookies.filter_map(|(_, value)| Some(value.split_once('=')?.0.trim().to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    names
}

/// Returns whether nginx, Apache or php-fpm wrote the page of an error, rather than the site.
fn is_page_of_old_server(body: &[u8]) -> bool {
    let begin = String::from_utf8_lossy(&body[..body.len().min(2048)]).into_owned();
    let nginx = begin.contains("<hr><center>nginx") || begin.contains("<hr><center>openresty");
    // The document type depends on the version of Apache; sites have not written in capitals like this since 2000.
    let apache = begin.starts_with("<!DOCTYPE HTML PUBLIC \"-//")
        && begin.contains("</title>\n</head><body>\n<h1>");
    let fpm = [
        "File not found.",
        "Access denied.",
        "No input file specified.",
    ]
    .contains(&begin.trim());
    nginx || apache || fpm || body.is_empty()
}
