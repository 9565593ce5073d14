//! Evaluates variables and expressions for a request: mod_rewrite's `%{…}` and ap_expr.

use std::cmp::Ordering;

use crate::engine::RequestEngine;
use crate::expression::{Condition, GlobKind, Word};
use crate::pattern::{Groups, LimitReached, fnmatch};
use crate::request::{EvaluatedRequest, Handler, Stat};
use crate::response::environment;
use crate::table::Table;
use crate::text::{self, lossy, number};

/// The response, if it exists already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseSnapshot<'r> {
    pub fields: &'r Table,
    pub always: &'r Table,
    pub media_type: Option<&'r [u8]>,
    pub status: u16,
    /// Whether the response comes from a script.
    pub is_of_script: bool,
}

/// The state of the evaluation of an expression.
pub(crate) struct Evaluation<'e, 'f> {
    pub engine: &'e RequestEngine<'f>,
    pub request: &'e EvaluatedRequest,
    pub response: Option<ResponseSnapshot<'e>>,
    /// The text and the groups of the last match that keeps its groups.
    pub matched: Option<(Vec<u8>, Groups)>,
    /// The names of the request headers that were read, for `Vary`.
    pub vary: Vec<Vec<u8>>,
}

/// The length limit of the strings in an expression, in bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;

impl<'e, 'f> Evaluation<'e, 'f> {
    pub(crate) fn new(
        engine: &'e RequestEngine<'f>,
        request: &'e EvaluatedRequest,
    ) -> Evaluation<'e, 'f> {
        Evaluation {
            engine,
            request,
            response: None,
            matched: None,
            vary: Vec::new(),
        }
    }

    pub(crate) fn condition(&mut self, condition: &Condition) -> Result<bool, LimitReached> {
        Ok(match condition {
            Condition::Constant(value) => *value,
            Condition::Not(inner) => !self.condition(inner)?,
            Condition::And(left, right) => self.condition(left)? && self.condition(right)?,
            Condition::Or(left, right) => self.condition(left)? || self.condition(right)?,
            Condition::Numbers(comparison, left, right) => {
                let (left, right) = (self.word(left)?, self.word(right)?);
                comparison.holds(number(&left).cmp(&number(&right)))
            }
            Condition::Texts(comparison, left, right) => {
                let (left, right) = (self.word(left)?, self.word(right)?);
                comparison.holds(left.cmp(&right))
            }
            Condition::In(needle, words) => {
                let needle = self.word(needle)?;
                for word in words {
                    if self.word(word)? == needle {
                        return Ok(true);
                    }
                }
                false
            }
            Condition::Matches {
                word,
                regex,
                keeps,
                negated,
            } => {
                let text = self.word(word)?;
                let found = self.engine.groups(regex, &text)?;
                let holds = found.is_some();
                if *keeps {
                    self.matched = found.map(|found| (text, found));
                }
                holds != *negated
            }
            Condition::Unary(letter, word) => {
                let text = self.word(word)?;
                self.unary(*letter, &text)
            }
            Condition::Network(word, network) => {
                let address = match word {
                    Some(word) => lossy(&self.word(word)?).parse().ok(),
                    None => {
                        self.engine.dependencies.client();
                        self.engine.input.address
                    }
                };
                address.is_some_and(|address| network.contains(address))
            }
            Condition::Glob(shell, text, pattern) => {
                let (mut text, mut pattern) = (self.word(text)?, self.word(pattern)?);
                match shell {
                    // A star does not match a slash, so the segments are compared one by one.
                    GlobKind::Path => {
                        let (a, b) = (text.split(|b| *b == b'/'), pattern.split(|b| *b == b'/'));
                        return Ok(a.clone().count() == b.clone().count()
                            && a.zip(b).all(|(text, pattern)| fnmatch(pattern, text)));
                    }
                    GlobKind::TextNoCase => {
                        text.make_ascii_lowercase();
                        pattern.make_ascii_lowercase();
                    }
                    GlobKind::Text => {}
                }
                fnmatch(&pattern, &text)
            }
        })
    }

    fn unary(&self, letter: u8, text: &[u8]) -> bool {
        let stat = || self.engine.server.stat(text);
        match letter {
            b'n' => !text.is_empty(),
            b'z' => text.is_empty(),
            b'T' => !matches!(
                &*text.to_ascii_lowercase(),
                b"" | b"off" | b"no" | b"false" | b"0"
            ),
            b'd' => stat() == Stat::Directory,
            b'e' => !matches!(stat(), Stat::Missing | Stat::Forbidden),
            b'f' => stat() == Stat::File,
            b's' => {
                let length = self.engine.server.length(text);
                length.is_some_and(|length| length > 0)
            }
            b'L' | b'h' => self.engine.server.is_link(text),
            b'x' => self.engine.server.is_executable(text),
            b'F' => self.engine.file_is_accessible(self.request, text),
            b'U' | b'A' => self.engine.url_is_accessible(self.request, text),
            _ => false,
        }
    }

    pub(crate) fn word(&mut self, word: &Word) -> Result<Vec<u8>, LimitReached> {
        let value = match word {
            Word::Text(text) => text.clone(),
            Word::Variable(name) => self.variable(name),
            Word::Group(number) => match &self.matched {
                Some((text, found)) => text::group(text, found, *number).to_vec(),
                None => Vec::new(),
            },
            Word::Concatenated(words) => {
                let mut all = Vec::new();
                for word in words {
                    all.extend(self.word(word)?);
                }
                all
            }
            Word::Function(name, argument) => {
                let argument = self.word(argument)?;
                self.function(name, &argument)
            }
        };
        match value.len() > MAX_TEXT_BYTES {
            true => Err(LimitReached),
            false => Ok(value),
        }
    }

    fn variable(&mut self, name: &str) -> Vec<u8> {
        let header: &[u8] = match name {
            "HTTP_USER_AGENT" => b"User-Agent",
            "HTTP_PROXY_CONNECTION" => b"Proxy-Connection",
            "HTTP_REFERER" => b"Referer",
            "HTTP_COOKIE" => b"Cookie",
            "HTTP_FORWARDED" => b"Forwarded",
            "HTTP_ACCEPT" => b"Accept",
            "CONTENT_TYPE" => {
                let of_response = self.response.and_then(|response| response.media_type);
                return of_response
                    .or(self.request.media_type.as_deref())
                    .unwrap_or_default()
                    .to_vec();
            }
            "REQUEST_STATUS" => {
                let status = self
                    .response
                    .map_or(self.request.status, |response| response.status);
                return status.to_string().into_bytes();
            }
            "SCRIPT_USER" | "SCRIPT_GROUP" => return Vec::new(),
            name => {
                let differs = ["QUERY_STRING", "THE_REQUEST", "SERVER_PROTOCOL", "HTTP2"];
                // A page cache may share one page between several queries (`utm_source`) and all versions of HTTP.
                if self.response.is_some() && differs.contains(&name) {
                    self.engine.dependencies.client();
                }
                return self.engine.variable(self.request, name).unwrap_or_default();
            }
        };
        self.vary.push(header.to_vec());
        self.engine.header(header).unwrap_or_default().to_vec()
    }

    fn environment(&self, name: &[u8]) -> Option<Vec<u8>> {
        let value = environment(self.engine, self.request, name, self.response);
        value.map(<[u8]>::to_vec)
    }

    fn function(&mut self, name: &str, argument: &[u8]) -> Vec<u8> {
        let engine = self.engine;
        let of = |table: &Table| table.get(argument).map(<[u8]>::to_vec);
        let found = match name {
            "req" | "http" => {
                if !argument.eq_ignore_ascii_case(b"host") {
                    self.vary.push(argument.to_vec());
                }
                engine.header(argument).map(<[u8]>::to_vec)
            }
            "req_novary" => engine.header(argument).map(<[u8]>::to_vec),
            "resp" => match self.response {
                Some(response) => of(response.fields).or_else(|| of(response.always)),
                None => of(&self.request.headers_out),
            },
            "reqenv" => self.environment(argument),
            "env" => self
                .environment(argument)
                .or_else(|| engine.server.environment(argument)),
            "osenv" => engine.server.environment(argument),
            "ssl" => Some(engine.ssl_variable(argument)),
            "tolower" => Some(argument.to_ascii_lowercase()),
            "toupper" => Some(argument.to_ascii_uppercase()),
            "escape" => Some(text::escape_uri(argument)),
            "unescape" => text::unescape(argument),
            "base64" => Some(crate::digest::base64(argument)),
            "unbase64" => Some(crate::digest::unbase64(argument)),
            "filesize" => {
                let length = engine.server.length(argument).unwrap_or_default();
                Some(length.to_string().into_bytes())
            }
            // `file`, `md5`, `sha1`, `ldap`: the parser has reported that they have no value here.
            _ => None,
        };
        found.unwrap_or_default()
    }
}

impl RequestEngine<'_> {
    /// Returns a field of the request's header.
    pub(crate) fn header(&self, name: &[u8]) -> Option<&[u8]> {
        self.dependencies.header(name);
        self.headers_in.get(name)
    }

    /// Returns the value of `%{SSL:NAME}`: `on` or `off` for `HTTPS` in any case, and nothing for any other variable of
    /// mod_ssl.
    pub(crate) fn ssl_variable(&self, name: &[u8]) -> Vec<u8> {
        match name.eq_ignore_ascii_case(b"HTTPS") {
            true if self.input.https => b"on".to_vec(),
            true => b"off".to_vec(),
            false => Vec::new(),
        }
    }

    /// Returns a server variable that mod_rewrite and ap_expr have in common; `name` is in upper case.
    pub(crate) fn variable(&self, request: &EvaluatedRequest, name: &str) -> Option<Vec<u8>> {
        let input = &self.input;
        let text = |text: &str| Some(text.as_bytes().to_vec());
        let digits = |value: u32, width: usize| Some(format!("{value:0width$}").into_bytes());
        let time = || {
            self.dependencies.time();
            self.server.local_time()
        };
        let header = |name: &[u8]| self.header(name).map(<[u8]>::to_vec);
        match name {
            "TIME" => {
                let [y, mo, d, h, mi, s, _] = time();
                Some(format!("{y:04}{mo:02}{d:02}{h:02}{mi:02}{s:02}").into_bytes())
            }
            "TIME_YEAR" => digits(time()[0], 4),
            "TIME_MON" => digits(time()[1], 2),
            "TIME_DAY" => digits(time()[2], 2),
            "TIME_HOUR" => digits(time()[3], 2),
            "TIME_MIN" => digits(time()[4], 2),
            "TIME_SEC" => digits(time()[5], 2),
            "TIME_WDAY" => digits(time()[6], 1),
            "HTTP_USER_AGENT" => header(b"User-Agent"),
            "HTTP_REFERER" => header(b"Referer"),
            "HTTP_COOKIE" => header(b"Cookie"),
            "HTTP_FORWARDED" => header(b"Forwarded"),
            "HTTP_ACCEPT" => header(b"Accept"),
            "HTTP_HOST" => header(b"Host"),
            "HTTP_PROXY_CONNECTION" => header(b"Proxy-Connection"),
            "REQUEST_METHOD" => Some(request.method.clone()),
            "REQUEST_SCHEME" => text(if input.https { "https" } else { "http" }),
            "REQUEST_URI" | "DOCUMENT_URI" => Some(request.uri.clone()),
            "REQUEST_FILENAME" | "SCRIPT_FILENAME" => Some(request.filename.clone()),
            "PATH_INFO" => Some(request.path_info.clone()),
            "QUERY_STRING" => request.args.clone(),
            "IS_SUBREQ" => text(if request.is_sub { "true" } else { "false" }),
            "DOCUMENT_ROOT" | "CONTEXT_DOCUMENT_ROOT" => Some(input.document_root.to_vec()),
            "THE_REQUEST" => Some(input.request_line()),
            "SERVER_PROTOCOL" => text(input.protocol),
            "SERVER_NAME" => Some(input.host_name().to_vec()),
            "SERVER_PORT" => digits(u32::from(input.url_port()), 1),
            "SERVER_ADDR" => text(&input.local?.ip().to_canonical().to_string()),
            "SERVER_SOFTWARE" => text("Howdah"),
            "SERVER_ADMIN" => text("[no address given]"),
            "API_VERSION" => text("20120211:124"),
            "HTTPS" => text(if input.https { "on" } else { "off" }),
            "HTTP2" => text(if input.protocol == "HTTP/2.0" {
                "on"
            } else {
                "off"
            }),
            "IPV6" => {
                self.dependencies.client();
                let v6 = input
                    .address
                    .is_some_and(|address| address.to_canonical().is_ipv6());
                text(if v6 { "on" } else { "off" })
            }
            "REMOTE_ADDR" | "REMOTE_HOST" | "CONN_REMOTE_ADDR" => {
                self.dependencies.client();
                text(&input.address?.to_canonical().to_string())
            }
            "REMOTE_PORT" => {
                self.dependencies.client();
                text(&input.port?.to_string())
            }
            "REMOTE_USER" => request.user.clone(),
            "AUTH_TYPE" => request.user.as_ref().and_then(|_| text("Basic")),
            "HANDLER" => match &request.handler {
                Handler::Named(name) => Some(name.clone()),
                Handler::Redirect => text("redirect-handler"),
                Handler::None => None,
            },
            "LAST_MODIFIED" | "SCRIPT_USER" | "SCRIPT_GROUP" | "REMOTE_IDENT"
            | "CONTEXT_PREFIX" => None,
            _ => None,
        }
    }
}

/// Compares two strings as mod_rewrite does: by length first.
pub(crate) fn lexicography(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}
