//! Who may have a file: `Require` with its containers (mod_authz_core), `Order`, `Allow`, `Deny` and
//! `Satisfy` (mod_access_compat). Evaluates lines that the parser has understood; decides nothing
//! about sections and directories (`decide.rs`). Pure.

use std::net::IpAddr;

use super::access_query::AccessQuery;
use super::truth::Truth;

/// The methods that Apache knows: others are a mistake in an `.htaccess` file. It goes by their numbers,
/// and `HEAD` has that of `GET`.
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

/// The methods a directive holds for: `<Limit>`, `<LimitExcept>` and `Require method`. One bit for each
/// of [`METHODS`], and one for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Methods(u32);

impl Default for Methods {
    fn default() -> Methods {
        Methods::ALL
    }
}

impl Methods {
    pub(super) const ALL: Methods = Methods(u32::MAX);

    /// The named methods, or all but these; and whether Apache knows each name.
    pub(super) fn named(names: &[String], except: bool) -> (Methods, bool) {
        let numbers = names.iter().map(|name| number(name.as_bytes()));
        let known = numbers.clone().all(|number| number < METHODS.len());
        let named = numbers.fold(0, |all, number| all | 1 << number);
        let methods = match except {
            true => Methods(!named),
            false => Methods(named),
        };
        (methods, known)
    }

    pub(super) fn cover(self, method: &[u8]) -> bool {
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

/// A `Require` line or a container of some.
#[derive(Debug)]
pub(super) struct Require {
    pub methods: Methods,
    pub negated: bool,
    pub what: Required,
}

#[derive(Debug)]
pub(super) enum Required {
    /// `all granted`, `all denied`
    All(bool),
    /// `method GET …`
    Method(Methods),
    /// `env NAME …`, in lower case: one of them is set.
    Env(Vec<String>),
    /// Address, host, user, group, expression, or what no module known here provides.
    Visitor,
    /// `<RequireAll>`
    Each(Vec<Require>),
    /// `<RequireAny>`, and lines without container.
    Any(Vec<Require>),
}

/// What a `Require` gives. A negated one that does not hold is neutral: it can refuse, not grant.
#[derive(Clone, Copy)]
enum Granted {
    Answer(Truth),
    /// Neutral if this is yes, a refusal if no.
    Unless(Truth),
}

impl Require {
    /// The whole of a section's lines: `None` stands for "not configured".
    pub(super) fn evaluate(&self, asked: &AccessQuery<'_>) -> Truth {
        match self.granted(asked, true) {
            Granted::Answer(truth) => truth,
            // Nothing grants.
            Granted::Unless(_) => Truth::NO,
        }
    }

    fn granted(&self, asked: &AccessQuery<'_>, in_all: bool) -> Granted {
        if !self.methods.cover(asked.method) {
            return Granted::Answer(Truth::known(in_all));
        }
        let inner = match &self.what {
            Required::All(granted) => Granted::Answer(Truth::known(*granted)),
            Required::Method(methods) => Granted::Answer(Truth::known(methods.cover(asked.method))),
            Required::Env(names) => {
                let set = names.iter().map(|name| asked.env(name));
                Granted::Answer(set.fold(Truth::NO, Truth::or))
            }
            Required::Visitor => Granted::Answer(Truth::depends(false)),
            Required::Each(list) => each(list, asked),
            Required::Any(list) => any(list, asked),
        };
        match (self.negated, inner) {
            (false, inner) => inner,
            (true, Granted::Answer(truth)) => Granted::Unless(truth.not()),
            // A neutral stays one.
            (true, Granted::Unless(_)) => Granted::Unless(Truth::YES),
        }
    }
}

fn each(list: &[Require], asked: &AccessQuery<'_>) -> Granted {
    let mut all = Truth::YES;
    let mut granted = false;
    for require in list {
        match require.granted(asked, true) {
            Granted::Answer(truth) => {
                granted = true;
                all = all.and(truth);
            }
            Granted::Unless(truth) => all = all.and(truth),
        }
    }
    match granted {
        true => Granted::Answer(all),
        false => Granted::Unless(all),
    }
}

fn any(list: &[Require], asked: &AccessQuery<'_>) -> Granted {
    let mut any: Option<Truth> = None;
    for require in list {
        if let Granted::Answer(truth) = require.granted(asked, false) {
            any = Some(any.unwrap_or(Truth::NO).or(truth));
        }
    }
    match any {
        Some(truth) => Granted::Answer(truth),
        None => Granted::Unless(Truth::YES),
    }
}

/// `Order`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    AllowDeny,
    DenyAllow,
    MutualFailure,
}

/// What follows `Allow from` and `Deny from`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum From {
    All,
    /// A word that names no host anybody comes from: `none`.
    Nobody,
    /// `env=NAME`, `env=!NAME`, in lower case.
    Env(String, bool),
    /// An address, a network or a host name.
    Address,
}

impl From {
    pub(super) fn parse(word: &str) -> From {
        let lower = word.to_ascii_lowercase();
        if lower == "all" {
            return From::All;
        }
        if let Some(name) = lower.strip_prefix("env=") {
            return match name.strip_prefix('!') {
                Some(name) => From::Env(name.to_owned(), true),
                None => From::Env(name.to_owned(), false),
            };
        }
        // A host name is compared with the end of the visitor's; only a full name can be one.
        let is_address = lower.parse::<IpAddr>().is_ok()
            || lower.starts_with(|c: char| c.is_ascii_digit())
            || lower.contains(['.', ':', '/']);
        match is_address {
            true => From::Address,
            false if lower == "none" => From::Nobody,
            false => From::Address,
        }
    }

    fn holds(&self, asked: &AccessQuery<'_>) -> Truth {
        match self {
            From::All => Truth::YES,
            From::Nobody => Truth::NO,
            From::Env(name, negated) => match asked.env(name) {
                truth if *negated => truth.not(),
                truth => truth,
            },
            From::Address => Truth::depends(false),
        }
    }
}

/// A section's lines of the older kind.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub order: Vec<(Methods, Order)>,
    pub allow: Vec<(Methods, From)>,
    pub deny: Vec<(Methods, From)>,
    /// `Satisfy`: is it `Any`?
    pub satisfy_any: Vec<(Methods, bool)>,
}

impl Lists {
    pub(super) fn evaluate(&self, asked: &AccessQuery<'_>) -> Truth {
        let holds = |list: &[(Methods, From)]| {
            list.iter()
                .filter(|(methods, _)| methods.cover(asked.method))
                .fold(Truth::NO, |so_far, (_, from)| so_far.or(from.holds(asked)))
        };
        let (allowed, denied) = (holds(&self.allow), holds(&self.deny));
        match last(&self.order, asked.method) {
            Some(Order::AllowDeny | Order::MutualFailure) => allowed.and(denied.not()),
            Some(Order::DenyAllow) | None => denied.not().or(allowed),
        }
    }

    pub(super) fn satisfies_any(&self, method: &[u8]) -> bool {
        last(&self.satisfy_any, method) == Some(true)
    }
}

fn last<T: Copy>(list: &[(Methods, T)], method: &[u8]) -> Option<T> {
    let mut covering = list.iter().rev().filter(|(m, _)| m.cover(method));
    covering.next().map(|(_, value)| *value)
}
