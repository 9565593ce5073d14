//! Which requests a directive applies to: methods (`<Limit>`), and the arguments of `Allow from`.

use crate::network::Network;

/// The methods that Apache knows. Any other is an error in the file. Apache compares the numbers of methods, and `HEAD`
/// has the number of `GET`.
const METHODS: &[&str] = &[
    "GET",
    "PUT",
    "POST",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "VERSION-CONTROL",
    "CHECKOUT",
    "UNCHECKOUT",
    "CHECKIN",
    "UPDATE",
    "LABEL",
    "REPORT",
    "MKWORKSPACE",
    "MKACTIVITY",
    "BASELINE-CONTROL",
    "MERGE",
];

/// A set of methods: one bit for each method that Apache knows, and one for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Methods(pub u32);

impl Methods {
    pub(crate) const ALL: Methods = Methods(u32::MAX);
    const TRACE: u32 = 1 << 6;

    /// Returns the set of the named methods, or of all other methods if `except` is `Some(true)`. Returns `None` if
    /// Apache does not know one of the names or does not allow it here.
    pub(crate) fn named(names: &[String], except: Option<bool>) -> Option<Methods> {
        let mut named = 0;
        for name in names {
            let number = number(name.as_bytes());
            if number == METHODS.len() || except == Some(false) && 1 << number == Methods::TRACE {
                return None;
            }
            named |= 1 << number;
        }
        Some(match except {
            Some(true) => Methods(!named),
            _ => Methods(named),
        })
    }

    pub(crate) fn cover(self, method: &[u8]) -> bool {
        self.0 & 1 << number(method) != 0
    }
}

/// Returns the method's index in [`METHODS`], or the length of that list for any other method.
fn number(method: &[u8]) -> usize {
    let method = match method {
        b"HEAD" => b"GET",
        method => method,
    };
    let known = METHODS.iter().position(|name| name.as_bytes() == method);
    known.unwrap_or(METHODS.len())
}

/// Returns true if the word looks like a complete or partial IPv4 address.
fn is_numeric(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// An argument of `Allow from` or `Deny from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    All,
    /// `env=NAME`, `env=!NAME`
    Env(Vec<u8>, bool),
    Network(Network),
    /// A host name. Names of clients are not resolved, so it matches no client.
    Host,
}

impl Address {
    /// Returns `None` if Apache reports a syntax error.
    pub(crate) fn parse(word: &str) -> Option<Address> {
        let lower = word.to_ascii_lowercase();
        if let Some(name) = lower.strip_prefix("env=") {
            let original = &word.as_bytes()[4..];
            return Some(match name.starts_with('!') {
                true => Address::Env(original[1..].to_vec(), true),
                false => Address::Env(original.to_vec(), false),
            });
        }
        if lower == "all" {
            return Some(Address::All);
        }
        match Network::parse(word) {
            Some(network) => Some(Address::Network(network)),
            None if word.contains(['/', '#', ':']) || is_numeric(word) => None,
            None => Some(Address::Host),
        }
    }
}
