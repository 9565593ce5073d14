//! Conditions of rules on the content of a request and on its sender: method, query, cookies, headers, environment,
//! address. All conditions of a rule must hold; `not` negates a group of them. They are decided from values in memory;
//! the only file that may be read is a list of networks.

use std::borrow::Cow;
use std::sync::Arc;

use howdah_cache::cookie::url_decode;
use howdah_http::message::RequestHead;
use howdah_http::network::AddressBlock;
use howdah_proto::variables::Var;
use regex::bytes::{Regex, RegexBuilder};

use super::pattern::{PathPattern, PatternError};
use super::visitor::Visitor;
use crate::client_address::Client;
use crate::network_file::NetworkFile;

/// The maximum size of a compiled expression, in bytes.
const MAX_REGEX_BYTES: usize = 1 << 20;
/// How many parameters or cookies of a request are inspected; PHP's `max_input_vars`.
const MAX_INSPECTED_PAIRS: usize = 1000;

/// A request as the rules see it.
#[derive(Clone, Copy, Debug)]
pub struct RuleRequest<'a> {
    /// Method, target and headers, as the client sent them.
    pub head: &'a RequestHead,
    /// The visitor who sends the request.
    pub visitor: Visitor<'a>,
}

impl<'a> RuleRequest<'a> {
    /// Returns a request of an unknown visitor.
    pub fn without_client(head: &'a RequestHead) -> RuleRequest<'a> {
        RuleRequest {
            head,
            visitor: Visitor::default(),
        }
    }

    /// Returns the same request, without noting its steps.
    pub(super) fn untraced(self) -> RuleRequest<'a> {
        RuleRequest {
            visitor: Visitor {
                trace: None,
                ..self.visitor
            },
            ..self
        }
    }
}

/// The conditions of a rule, in addition to its path.
#[derive(Clone, Debug, Default)]
pub struct RuleConditions {
    /// `methods`: the allowed methods; empty for any.
    pub methods: Vec<String>,
    /// `query`: parameters.
    pub query: Vec<(String, ValueTest)>,
    /// `cookie`: cookies.
    pub cookie: Vec<(String, ValueTest)>,
    /// `header`: request headers.
    pub header: Vec<(String, ValueTest)>,
    /// `env`: variables.
    pub env: Vec<(String, ValueTest)>,
    /// `from`, `from_file`: where the client is; `None` for anywhere.
    pub from: Option<ClientAddresses>,
    /// `not`: exceptions, of which none may apply.
    pub not: Vec<RuleException>,
}

/// An exception: requests that a rule does not apply to.
#[derive(Clone, Debug)]
pub struct RuleException {
    /// `path` | `prefix` | `glob` | `regex`; `None` for any path.
    pub pattern: Option<PathPattern>,
    /// The conditions, all of which must hold for the exception to apply.
    pub conditions: RuleConditions,
}

/// The client addresses that a rule applies to. One match is enough.
#[derive(Clone, Debug, Default)]
pub struct ClientAddresses {
    /// Networks that the address may be in.
    pub networks: Vec<AddressBlock>,
    /// Whether a client on a unix socket, which has no address, matches.
    pub unix: bool,
    /// A list of networks in a file that the address may be in.
    pub file: Option<Arc<NetworkFile>>,
}

impl ClientAddresses {
    fn contains_client(&self, client: &Client<'_>) -> bool {
        let Some(address) = client.address else {
            return self.unix;
        };
        self.networks
            .iter()
            .any(|network| network.contains(address))
            || self
                .file
                .as_ref()
                .is_some_and(|file| file.contains(address))
    }
}

/// A test of a value.
#[derive(Clone, Debug)]
pub enum ValueTest {
    /// `""`: the value is missing or empty.
    Absent,
    /// `"*"`: the value is present and not empty.
    Present,
    /// The expression matches the value.
    Matches(Regex),
}

impl ValueTest {
    /// Parses a test: a string in which `*` matches any text, `~ EXPRESSION`, or `~* EXPRESSION` for any case.
    pub fn parse(text: &str) -> Result<ValueTest, PatternError> {
        let (expression, any_case) = match (text, text.strip_prefix("~*"), text.strip_prefix('~')) {
            ("", ..) => return Ok(ValueTest::Absent),
            ("*", ..) => return Ok(ValueTest::Present),
            (_, Some(expression), _) => (Cow::Borrowed(expression.trim_start()), true),
            (_, _, Some(expression)) => (Cow::Borrowed(expression.trim_start()), false),
            _ => {
                let parts: Vec<String> = text.split('*').map(regex::escape).collect();
                (Cow::Owned(format!("^{}$", parts.join(".*"))), false)
            }
        };
        let regex = RegexBuilder::new(&expression)
            // Values are bytes, like paths.
            .unicode(false)
            .case_insensitive(any_case)
            .dot_matches_new_line(true)
            .size_limit(MAX_REGEX_BYTES)
            .build();
        let regex = regex.map_err(|why| PatternError::BadRegex(why.to_string()))?;
        Ok(ValueTest::Matches(regex))
    }

    /// Returns whether one of the values satisfies the test; for [`ValueTest::Absent`], whether all of them are empty.
    fn holds<'v>(&self, mut values: impl Iterator<Item = Cow<'v, [u8]>>) -> bool {
        match self {
            ValueTest::Absent => values.all(|value| value.is_empty()),
            ValueTest::Present => values.any(|value| !value.is_empty()),
            ValueTest::Matches(regex) => values.any(|value| regex.is_match(&value)),
        }
    }
}

impl RuleConditions {
    /// Returns whether the conditions depend on more than the key of a stored page contains, that is, on the client and
    /// not only on the page. Parameters count, because the key omits those that do not change a page.
    pub fn depend_on_client(&self) -> bool {
        let has = |method: &str| self.methods.iter().any(|known| known == method);
        self.from.is_some()
            || !self.cookie.is_empty()
            || !self.header.is_empty()
            || !self.query.is_empty()
            // One stored page is used for both methods.
            || has("GET") != has("HEAD")
            || self.env.iter().any(|(name, _)| varies_by_client(name))
            || self.not.iter().any(|except| except.conditions.depend_on_client())
    }

    /// Returns the lists of networks that the conditions use.
    pub fn network_files(&self) -> Vec<&Arc<NetworkFile>> {
        let own = self.from.iter().filter_map(|from| from.file.as_ref());
        let others = self.not.iter();
        own.chain(others.flat_map(|except| except.conditions.network_files()))
            .collect()
    }

    /// Returns the names of the variables that the conditions use.
    pub fn variables(&self) -> Vec<&str> {
        let own = self.env.iter().map(|(name, _)| &**name);
        let others = self.not.iter();
        own.chain(others.flat_map(|except| except.conditions.variables()))
            .collect()
    }

    /// Returns whether the conditions allow this method.
    pub(super) fn allow_method(&self, method: &[u8]) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|m| m.as_bytes() == method)
    }

    /// Returns whether all conditions hold for this request, whose path is now `path`. `constants` are variables that
    /// are the same for all requests.
    pub fn hold(
        &self,
        asked: RuleRequest<'_>,
        path: &[u8],
        constants: &[(String, String)],
    ) -> bool {
        self.first_failed(asked, path, constants).is_none()
    }

    /// Returns the name of the first condition that does not hold; `None` if all of them hold.
    pub fn first_failed(
        &self,
        asked: RuleRequest<'_>,
        path: &[u8],
        constants: &[(String, String)],
    ) -> Option<&'static str> {
        let (head, client) = (asked.head, asked.visitor.client);
        if !self.allow_method(head.method()) {
            return Some("methods");
        }
        if let Some(from) = &self.from
            && !from.contains_client(client)
        {
            return Some(match from.file {
                Some(_) => "from_file",
                None => "from",
            });
        }
        let header = |(name, test): &(String, ValueTest)| {
            test.holds(head.header_all(name.as_bytes()).map(Cow::Borrowed))
        };
        let query = |(name, test): &(String, ValueTest)| test.holds(parameters(head, name));
        let cookie =
            |(name, test): &(String, ValueTest)| test.holds(cookies(head, name).map(Cow::Borrowed));
        let env = |(name, test): &(String, ValueTest)| {
            test.holds(variable(asked, name, constants).into_iter())
        };
        if !self.header.iter().all(header) {
            return Some("header");
        }
        if !self.cookie.iter().all(cookie) {
            return Some("cookie");
        }
        if !self.query.iter().all(query) {
            return Some("query");
        }
        if !self.env.iter().all(env) {
            return Some("env");
        }
        let excepted = |except: &RuleException| {
            let pattern = except.pattern.as_ref();
            pattern.is_none_or(|pattern| pattern.is_sure_match(path))
                && except.conditions.hold(asked, path, constants)
        };
        self.not.iter().any(excepted).then_some("not")
    }
}

/// Returns the decoded values of a query parameter. The name is compared as PHP would name the variable: `a[]`, `%61`
/// and ` a` are `a`.
fn parameters<'a>(head: &'a RequestHead, name: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let pairs = head.query().unwrap_or_default().split(|b| *b == b'&');
    pairs.take(MAX_INSPECTED_PAIRS).filter_map(move |pair| {
        let equals = pair.iter().position(|b| *b == b'=');
        let (key, value) = pair.split_at(equals.unwrap_or(pair.len()));
        is_named(&url_decode(key), name).then(|| url_decode(value.get(1..).unwrap_or_default()))
    })
}

fn is_named(key: &[u8], name: &str) -> bool {
    let key = key.trim_ascii_start();
    let end = key.iter().skip(1).position(|b| matches!(b, b'[' | 0));
    let key = &key[..end.map_or(key.len(), |end| end + 1)];
    let plain = |b: &u8| if matches!(b, b' ' | b'.') { b'_' } else { *b };
    key == name.as_bytes() || key.iter().map(plain).eq(name.bytes().map(|b| plain(&b)))
}

/// Returns the values of a cookie, as they were sent.
pub fn cookies<'a>(head: &'a RequestHead, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = head
        .header_all(b"cookie")
        .flat_map(|line| line.split(|b| *b == b';'));
    pairs.take(MAX_INSPECTED_PAIRS).filter_map(move |pair| {
        let pair = pair.trim_ascii();
        let equals = pair.iter().position(|b| *b == b'=')?;
        is_named(&pair[..equals], name).then_some(&pair[equals + 1..])
    })
}

/// Returns whether a variable's value may differ between requests for the same stored page.
fn varies_by_client(name: &str) -> bool {
    match Var::from_name(name.as_bytes()) {
        Some(Var::Https | Var::RequestScheme) => false,
        Some(_) => true,
        None => name.starts_with("SSL_"),
    }
}

/// Returns the value of a variable: from the request's connection, else from the constants.
fn variable<'a>(
    asked: RuleRequest<'a>,
    name: &str,
    constants: &'a [(String, String)],
) -> Option<Cow<'a, [u8]>> {
    let client = asked.visitor.client;
    let text = |text: &'a str| Some(Cow::Borrowed(text.as_bytes()));
    match Var::from_name(name.as_bytes()) {
        Some(Var::Https) => text(if client.https { "on" } else { "" }),
        Some(Var::RequestScheme) => text(if client.https { "https" } else { "http" }),
        Some(Var::ServerProtocol) => text(asked.head.version().as_str()),
        Some(Var::SslProtocol) => text(client.tls?.protocol),
        Some(Var::SslCipher) => text(client.tls?.cipher),
        _ => {
            let mut certificate = client.tls.into_iter().flat_map(|tls| &tls.client);
            if let Some((_, value)) = certificate.find(|(known, _)| *known == name) {
                return text(value);
            }
            let found = constants.iter().find(|(known, _)| known == name);
            found.and_then(|(_, value)| text(value))
        }
    }
}

#[cfg(test)]
#[path = "condition_tests.rs"]
mod tests;
