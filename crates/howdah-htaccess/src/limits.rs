//! For whom a line holds: methods (`<Limit>`), and the words behind `Allow from`.

use crate::network::Network;

/// The methods that Apache knows: others are a mistake. It goes by their numbers, and `HEAD` has that of
/// `GET`.
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

/// A set of methods: one bit for each that Apache knows, and one for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Methods(pub u32);

impl Methods {
    pub(crate) const ALL: Methods = Methods(u32::MAX);
    const TRACE: u32 = 1 << 6;

    /// The named methods, or all but these. `None`: Apache does not know one, or refuses it here.
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

/// The method's place among those that Apache knows, or the place behind them.
fn number(method: &[u8]) -> usize {
    let method = match method {
        b"HEAD" => b"GET",
        method => method,
    };
    let known = METHODS.iter().position(|name| name.as_bytes() == method);
    known.unwrap_or(METHODS.len())
}

/// It looks like an address of IPv4, whole or not.
fn is_numeric(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// What follows `Allow from` and `Deny from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    All,
    /// `env=NAME`, `env=!NAME`
    Env(Vec<u8>, bool),
    Network(Network),
    /// A host name: nobody's name is looked up here.
    Host,
}

impl Address {
    /// `None`: Apache finds a mistake.
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
