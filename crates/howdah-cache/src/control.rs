//! `Cache-Control` (RFC 9111 §5.2), the targeted headers that take precedence over it (RFC 9213), and nginx's
//! `X-Accel-Expires`, each as one set of directives. This module says what the headers contain, not what follows from
//! it.

use crate::field::{self, members, seconds, unquoted};
use crate::{HeaderFields, Millis};

/// The value of a directive that specifies a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeDirective {
    /// The header does not have the directive.
    #[default]
    Absent,
    /// The directive gives this number of seconds.
    Seconds(u64),
    /// The directive is present, but its value is not a number. RFC 9111 §4.2.1 encourages caches to treat the response
    /// as stale.
    Invalid,
}

impl TimeDirective {
    /// Returns the seconds. An invalid value counts as 0.
    pub fn value(self) -> Option<u64> {
        match self {
            TimeDirective::Absent => None,
            TimeDirective::Seconds(seconds) => Some(seconds),
            TimeDirective::Invalid => Some(0),
        }
    }

    /// Adds a value. If a directive is given twice, the smaller value counts (§4.2.1 allows the first one or staleness;
    /// the smaller one is never fresher than either).
    fn add(&mut self, value: &[u8]) {
        let new = seconds(value).map_or(TimeDirective::Invalid, TimeDirective::Seconds);
        *self = match (*self, new) {
            (TimeDirective::Absent, new) => new,
            (TimeDirective::Seconds(a), TimeDirective::Seconds(b)) => {
                TimeDirective::Seconds(a.min(b))
            }
            _ => TimeDirective::Invalid,
        };
    }
}

/// Directives of a response, or of a request, which uses some of the same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// Whether the header contains any directive at all.
    pub present: bool,
    /// `no-store` is given.
    pub no_store: bool,
    /// `private`, with or without field names: a page with private parts is private.
    pub private: bool,
    /// `no-cache` without field names.
    pub no_cache: bool,
    /// `no-cache="a, b"`: the named headers, in lower case. They may not be sent from the cache without validation, so
    /// they are not stored here.
    pub no_cache_fields: Vec<Vec<u8>>,
    /// `public` is given.
    pub public: bool,
    /// `must-revalidate` is given.
    pub must_revalidate: bool,
    /// `proxy-revalidate` is given.
    pub proxy_revalidate: bool,
    /// `must-understand` (§5.2.2.3).
    pub must_understand: bool,
    /// `only-if-cached`, of a request.
    pub only_if_cached: bool,
    /// `max-age`, in seconds.
    pub max_age: TimeDirective,
    /// `s-maxage`, in seconds: the lifetime in shared caches.
    pub s_maxage: TimeDirective,
    /// `stale-while-revalidate` (RFC 5861 §3).
    pub stale_while_revalidate: TimeDirective,
    /// `stale-if-error` (RFC 5861 §4).
    pub stale_if_error: TimeDirective,
    /// `min-fresh`, of a request.
    pub min_fresh: TimeDirective,
    /// `max-stale`, of a request; without a value, any staleness is accepted.
    pub max_stale: TimeDirective,
}

impl Directives {
    /// Parses all `Cache-Control` lines of a message.
    pub fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Directives {
        let mut all = Directives::default();
        for line in lines {
            for member in members(line) {
                all.add_member(member);
            }
        }
        all
    }

    fn add_member(&mut self, member: &[u8]) {
        self.present = true;
        let (name, value) = match member.iter().position(|b| *b == b'=') {
            Some(at) => (&member[..at], Some(unquoted(&member[at + 1..]))),
            None => (member, None),
        };
        let time = value.as_deref().unwrap_or_default();
        match &name.to_ascii_lowercase()[..] {
            b"no-store" => self.no_store = true,
            b"private" => self.private = true,
            b"no-cache" => match value {
                Some(names) if !names.is_empty() => self
                    .no_cache_fields
                    .extend(members(&names).map(<[u8]>::to_ascii_lowercase)),
                _ => self.no_cache = true,
            },
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => self.max_age.add(time),
            b"s-maxage" => self.s_maxage.add(time),
            b"stale-while-revalidate" => self.stale_while_revalidate.add(time),
            b"stale-if-error" => self.stale_if_error.add(time),
            b"min-fresh" => self.min_fresh.add(time),
            b"max-stale" => match value {
                Some(value) => self.max_stale.add(&value),
                None => self.max_stale = TimeDirective::Seconds(field::MAX_SECONDS),
            },
            _ => {}
        }
    }
}

/// Headers that address this cache in place of `Cache-Control` and `Expires`; the first one present takes effect (RFC
/// 9213 §2.2). `Howdah-Cache-Control` comes first, so a page may instruct this cache and a CDN in front of it
/// differently.
pub const TARGETED_HEADERS: [&[u8]; 2] = [b"howdah-cache-control", b"cdn-cache-control"];

/// Returns the targeted directives of a response, if there are any. A header that is not a structured dictionary (RFC
/// 9213 §2.1, RFC 8941 §3.2), or is an empty one, is ignored.
pub fn targeted(fields: &HeaderFields<'_>) -> Option<Directives> {
    TARGETED_HEADERS.iter().find_map(|target| {
        let mut lines = field::all(fields, target).peekable();
        lines.peek()?;
        let mut all = Directives::default();
        for line in lines {
            for member in members(line) {
                parse_structured_member(&mut all, member)?;
            }
        }
        all.present.then_some(all)
    })
}

/// Parses one member of a structured dictionary: `key` or `key=value`, either with parameters.
fn parse_structured_member(all: &mut Directives, member: &[u8]) -> Option<()> {
    let bare = field::split(member, b';').next()?;
    let end = bare.iter().position(|b| *b == b'=').unwrap_or(bare.len());
    let (key, value) = (&bare[..end], bare.get(end + 1..));
    let starts = key
        .first()
        .is_some_and(|b| b.is_ascii_lowercase() || *b == b'*');
    let goes_on = |b: &u8| {
        b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.' | b'*')
    };
    if !starts || !key.iter().all(goes_on) {
        return None;
    }
    all.present = true;
    let on = match value {
        None | Some(b"?1") => true,
        Some(b"?0") => false,
        Some([]) => return None,
        Some(value) => {
            let number = value.strip_prefix(b"-").unwrap_or(value);
            let is_number = number.first().is_some_and(u8::is_ascii_digit);
            if is_number && !number.iter().all(|b| b.is_ascii_digit() || *b == b'.') {
                return None;
            }
            // RFC 9213 §2.1: the value must be an integer; a value of another type makes the directive unknown.
            let integer = is_number && !number.contains(&b'.');
            let slot = match key {
                b"max-age" => &mut all.max_age,
                b"s-maxage" => &mut all.s_maxage,
                b"stale-while-revalidate" => &mut all.stale_while_revalidate,
                b"stale-if-error" => &mut all.stale_if_error,
                // `private="x"` and `no-cache="x"` are qualified; they are treated as if they applied to the whole
                // response.
                _ => {
                    set_flag(all, key, true);
                    return Some(());
                }
            };
            if integer {
                // A later member of the same key replaces an earlier one (RFC 8941 §3.2).
                *slot = seconds(value).map_or(TimeDirective::Invalid, TimeDirective::Seconds);
            }
            return Some(());
        }
    };
    set_flag(all, key, on);
    Some(())
}

fn set_flag(all: &mut Directives, key: &[u8], on: bool) {
    match key {
        b"no-store" => all.no_store = on,
        b"private" => all.private = on,
        b"no-cache" => all.no_cache = on,
        b"public" => all.public = on,
        b"must-revalidate" => all.must_revalidate = on,
        b"proxy-revalidate" => all.proxy_revalidate = on,
        b"must-understand" => all.must_understand = on,
        _ => {}
    }
}

/// Parses `X-Accel-Expires` as nginx does (ngx_http_upstream_process_accel_expires): seconds, or `@` and a Unix time;
/// `0` forbids caching. Returns the seconds from now. An invalid value is ignored.
pub fn accel_expires(fields: &HeaderFields<'_>, now: Millis) -> Option<u64> {
    let value = field::first(fields, b"x-accel-expires")?;
    match value {
        [b'@', at @ ..] => Some(seconds_exact(at)?.saturating_sub(now / 1000)),
        [b'-', ..] => Some(0),
        value => seconds(value),
    }
}

fn seconds_exact(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Directives {
        Directives::parse(std::iter::once(line.as_bytes()))
    }

    #[test]
    fn rfc_9111_5_2_directives_are_read_in_any_case_and_unknown_ones_ignored() {
        let d = read("Public, MAX-AGE=60, s-maxage=\"10\", foo, bar=\"max-age=9, no-store\"");
        assert!(d.public && !d.no_store);
        assert_eq!(
            (d.max_age, d.s_maxage),
            (TimeDirective::Seconds(60), TimeDirective::Seconds(10))
        );
        assert!(!read("").present);
        assert!(read("x").present);
    }

    #[test]
    fn rfc_9111_4_2_1_a_doubled_or_broken_time_never_makes_fresher() {
        assert_eq!(
            read("max-age=60, max-age=10").max_age,
            TimeDirective::Seconds(10)
        );
        assert_eq!(
            read("max-age=60, max-age=x").max_age,
            TimeDirective::Invalid
        );
        assert_eq!(read("max-age").max_age, TimeDirective::Invalid);
        assert_eq!(read("max-age=-1").max_age, TimeDirective::Invalid);
        assert_eq!(read("max-age=1.5").max_age, TimeDirective::Invalid);
        assert_eq!(read("max-age = 60").max_age, TimeDirective::Absent);
        assert_eq!(read("max-age='60'").max_age, TimeDirective::Invalid);
    }

    #[test]
    fn no_cache_with_names_forbids_the_fields_only() {
        let d = read("no-cache=\"Set-Cookie, X-A\", max-age=5");
        assert!(!d.no_cache);
        assert_eq!(d.no_cache_fields, [b"set-cookie".to_vec(), b"x-a".to_vec()]);
        assert!(read("no-cache").no_cache);
        assert!(read("private=\"x\"").private);
    }

    #[test]
    fn rfc_9213_a_targeted_field_is_a_structured_dictionary_or_not_there() {
        let check = |value: &str, expected: Option<(u64, bool)>| {
            let fields = [(&b"CDN-Cache-Control"[..], value.as_bytes())];
            let got = targeted(&fields).map(|d| (d.max_age.value().unwrap_or(0), d.no_store));
            assert_eq!(got, expected, "{value}");
        };
        check("max-age=600", Some((600, false)));
        check("max-age=600;x=1, no-store", Some((600, true)));
        check("no-store=?0, max-age=1", Some((1, false)));
        check("max-age=10000, max-age=1", Some((1, false)));
        check("max-age=\"600\"", Some((0, false)));
        check("MAX-AGE=600", None);
        check("max-age=60a", None);
        check("max-age=", None);
        check("", None);
        let both = [
            (&b"CDN-Cache-Control"[..], &b"max-age=1"[..]),
            (b"Howdah-Cache-Control", b"max-age=2"),
        ];
        assert_eq!(targeted(&both).unwrap().max_age, TimeDirective::Seconds(2));
    }

    #[test]
    fn x_accel_expires_is_nginx_own() {
        let at = |value: &str| accel_expires(&[(b"X-Accel-Expires", value.as_bytes())], 100_000);
        assert_eq!(at("60"), Some(60));
        assert_eq!(at("0"), Some(0));
        assert_eq!(at("@160"), Some(60));
        assert_eq!(at("@50"), Some(0));
        assert_eq!(at("-1"), Some(0));
        assert_eq!(at("off"), None);
    }
}
