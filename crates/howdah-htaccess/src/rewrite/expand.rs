//! Expands `$1`, `%1` and `%{NAME}` in mod_rewrite's strings, and sets the variables and cookies of rules.

use super::RuleContext;
use crate::engine::RequestEngine;
use crate::request::EvaluatedRequest;
use crate::rules::Rule;
use crate::text::{self, hex, number};

/// The length limit of an expanded text in bytes, which is more than any request has. Further pieces are dropped.
const MAX_EXPANDED_BYTES: usize = 64 << 10;

/// A string that is being expanded, and the origin of its question mark.
#[derive(Default)]
struct ExpandedText {
    text: Vec<u8>,
    /// Whether the question mark that begins the query came from the request.
    mark: Option<bool>,
    /// Whether the last question mark begins the query, and not the first.
    last: bool,
}

impl ExpandedText {
    fn push(&mut self, piece: &[u8], from_request: bool) {
        if self.text.len() + piece.len() > MAX_EXPANDED_BYTES {
            return;
        }
        if piece.contains(&b'?') && (self.last || self.mark.is_none()) {
            self.mark = Some(from_request);
        }
        self.text.extend_from_slice(piece);
    }
}

impl RequestEngine<'_> {
    /// Returns the expanded text, and whether its question mark came from the request.
    pub(super) fn expand(
        &self,
        request: &EvaluatedRequest,
        context: &mut RuleContext,
        input: &[u8],
        rule: Option<&Rule>,
    ) -> (Vec<u8>, bool) {
        let mut out = ExpandedText {
            last: rule.is_some_and(|rule| rule.flags.last_query),
            ..ExpandedText::default()
        };
        let mut rest = input;
        while let Some(first) = rest.first() {
            let plain = rest.iter().position(|b| matches!(b, b'\\' | b'$' | b'%'));
            let plain = plain.unwrap_or(rest.len());
            if plain > 0 {
                out.push(&rest[..plain], false);
                rest = &rest[plain..];
                continue;
            }
            rest = match rest {
                [b'\\'] => {
                    out.push(b"\\", false);
                    b""
                }
                [b'\\', escaped, after @ ..] => {
                    // The origin of an escaped question mark is not recorded.
                    out.text.push(*escaped);
                    after
                }
                [_, b'{', inner @ ..] => match closing(inner) {
                    None => {
                        out.push(&rest[..2], false);
                        inner
                    }
                    Some(end) if *first == b'%' => {
                        let value = self.lookup(request, context, &inner[..end]);
                        out.push(&value, true);
                        &inner[end + 1..]
                    }
                    Some(end) => {
                        if let Some(value) = self.map(request, context, &inner[..end], rule) {
                            out.push(&value, true);
                            &inner[end + 1..]
                        } else {
                            out.push(&rest[..2], false);
                            inner
                        }
                    }
                },
                [_, digit @ b'0'..=b'9', after @ ..] => {
                    let matched = match first {
                        b'$' => &context.rule_match,
                        _ => &context.cond_match,
                    };
                    if let Some((source, found)) = matched {
                        let group = text::group(source, found, usize::from(digit - b'0'));
                        match rule.filter(|rule| rule.flags.escape_groups) {
                            Some(rule) => out.push(&escape_group(group, rule), true),
                            None => out.push(group, true),
                        }
                    }
                    after
                }
                [_, after @ ..] => {
                    out.push(&rest[..1], false);
                    after
                }
                [] => break,
            };
        }
        (out.text, out.mark == Some(true))
    }

    /// Expands a map lookup to its default, because no map can be configured.
    fn map(
        &self,
        request: &EvaluatedRequest,
        context: &mut RuleContext,
        inner: &[u8],
        rule: Option<&Rule>,
    ) -> Option<Vec<u8>> {
        let colon = top_level(inner, b':')?;
        let default = top_level(&inner[colon + 1..], b'|');
        let default = default.map(|at| &inner[colon + 1 + at + 1..]);
        Some(default.map_or_else(Vec::new, |text| self.expand(request, context, text, rule).0))
    }

    fn lookup(
        &self,
        request: &EvaluatedRequest,
        context: &mut RuleContext,
        name: &[u8],
    ) -> Vec<u8> {
        const HEADERS: &[(&[u8], &[u8])] = &[
            (b"HTTP_USER_AGENT", b"User-Agent"),
            (b"HTTP_REFERER", b"Referer"),
            (b"HTTP_COOKIE", b"Cookie"),
            (b"HTTP_FORWARDED", b"Forwarded"),
            (b"HTTP_ACCEPT", b"Accept"),
            (b"HTTP_PROXY_CONNECTION", b"Proxy-Connection"),
        ];
        let starts = |start: &[u8]| {
            name.len() > start.len() && name[..start.len()].eq_ignore_ascii_case(start)
        };
        let is_ahead = starts(b"LA-U:") || starts(b"LA-F:");
        if is_ahead && !context.uri.is_empty() {
            let to = match context.uri.starts_with(b"/") {
                true => context.uri.clone(),
                false => {
                    // As in Apache: without a `RewriteBase`, this is the directory's file name, although that is not a
                    // URL.
                    let base = context
                        .base
                        .as_ref()
                        .map_or(&*context.directory, String::as_bytes);
                    [base, &context.uri].concat()
                }
            };
            let to = text::escape_uri(&to);
            return self
                .lookahead_variable(request, &to, &name[5..])
                .unwrap_or_default();
        }
        let upper = name.to_ascii_uppercase();
        let header = match starts(b"HTTP:") {
            true => Some(&name[5..]),
            false => HEADERS
                .iter()
                .find(|(name, _)| *name == &upper[..])
                .map(|(_, header)| *header),
        };
        if let Some(header) = header
            && !header.eq_ignore_ascii_case(b"host")
            && self.header(header).is_some()
        {
            context.vary_this.push(header.to_vec());
        }
        self.rewrite_variable(request, name)
    }

    /// Returns the value of a variable by its mod_rewrite name.
    pub(crate) fn rewrite_variable(&self, request: &EvaluatedRequest, name: &[u8]) -> Vec<u8> {
        if name.len() < 4 {
            return Vec::new();
        }
        let starts = |start: &[u8]| {
            name.len() > start.len() && name[..start.len()].eq_ignore_ascii_case(start)
        };
        let found = if starts(b"ENV:") {
            let own = request.env.get(&name[4..]).map(<[u8]>::to_vec);
            own.or_else(|| self.server.environment(&name[4..]))
        } else if starts(b"SSL:") {
            Some(self.ssl_variable(&name[4..]))
        } else if starts(b"HTTP:") {
            self.header(&name[5..]).map(<[u8]>::to_vec)
        } else {
            self.variable(request, &text::lossy(name).to_ascii_uppercase())
        };
        found.unwrap_or_default()
    }

    /// Sets the variables of `[E=NAME:VALUE]`.
    pub(super) fn expand_env(
        &self,
        request: &mut EvaluatedRequest,
        context: &mut RuleContext,
        rule: &Rule,
    ) {
        for item in &rule.flags.env {
            let text = self.expand(request, context, item, None).0;
            if let Some(name) = text.strip_prefix(b"!") {
                request.env.unset(name);
                continue;
            }
            let (name, value) = match text.iter().position(|b| *b == b':') {
                Some(at) => (&text[..at], &text[at + 1..]),
                None => (&text[..], &b""[..]),
            };
            // This keeps a rule that runs repeatedly from using up memory.
            if request.env.bytes() < MAX_EXPANDED_BYTES {
                request.env.set(name, value);
            }
        }
    }

    /// Sets the cookies of `[CO=NAME:VALUE:DOMAIN:…]`.
    pub(super) fn expand_cookies(
        &self,
        request: &EvaluatedRequest,
        context: &mut RuleContext,
        rule: &Rule,
    ) {
        for item in &rule.flags.cookies {
            let text = self.expand(request, context, item, None).0;
            let (separator, text) = match text.strip_prefix(b";") {
                Some(rest) => (b';', rest),
                None => (b':', &text[..]),
            };
            let mut parts = text
                .split(|b| *b == separator)
                .filter(|part| !part.is_empty());
            let (Some(name), Some(value), Some(domain)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            if self.cookies.borrow().iter().any(|known| known == name) {
                continue;
            }
            self.cookies.borrow_mut().push(name.to_vec());
            let (expires, path) = (parts.next(), parts.next());
            let is = |part: Option<&[u8]>, word: &[u8]| {
                part.is_some_and(|part| {
                    part == b"1"
                        || part.eq_ignore_ascii_case(b"true")
                        || part.eq_ignore_ascii_case(word)
                })
            };
            let (secure, http_only, same_site) = (parts.next(), parts.next(), parts.next());
            let mut cookie = [
                name,
                b"=",
                value,
                b"; path=",
                path.unwrap_or(b"/"),
                b"; domain=",
                domain,
            ]
            .concat();
            let minutes = expires.map_or(0, number);
            if minutes != 0 {
                self.dependencies.time();
                let at = self.server.now() / 1_000_000 + 60 * minutes;
                cookie.extend_from_slice(b"; expires=");
                cookie.extend_from_slice(cookie_date(at).as_bytes());
            }
            if is(secure, b"secure") {
                cookie.extend_from_slice(b"; secure");
            }
            if is(http_only, b"HttpOnly") {
                cookie.extend_from_slice(b"; HttpOnly");
            }
            if let Some(same_site) =
                same_site.filter(|part| *part != b"0" && !part.eq_ignore_ascii_case(b"false"))
            {
                cookie.extend_from_slice(b"; SameSite=");
                cookie.extend_from_slice(same_site);
            }
            self.always.borrow_mut().add(b"Set-Cookie", &cookie);
        }
    }

    /// Records the values of `[T=…]` and `[H=…]`.
    pub(super) fn remember_types(
        &self,
        request: &mut EvaluatedRequest,
        context: &mut RuleContext,
        rule: &Rule,
    ) {
        for (item, is_handler) in [(&rule.flags.media_type, false), (&rule.flags.handler, true)] {
            let Some(item) = item else { continue };
            let mut text = self.expand(request, context, item, Some(rule)).0;
            text.make_ascii_lowercase();
            if !text.is_empty() {
                match is_handler {
                    true => request.forced_handler = Some(text),
                    false => request.forced_type = Some(text),
                }
            }
        }
    }
}

/// Formats a date such as `Sun, 06-Nov-1994 08:49:37 GMT`.
fn cookie_date(seconds: i64) -> String {
    let at = u64::try_from(seconds).unwrap_or_default();
    let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(at));
    // `Sun, 06 Nov 1994 …`
    match date.split_at_checked(16) {
        Some((day, time)) => format!(
            "{}{time}",
            day.replacen(' ', "-", 3).replacen(",-", ", ", 1)
        ),
        None => date,
    }
}

/// Returns the position of the bracket that closes the one before `text`.
fn closing(text: &[u8]) -> Option<usize> {
    let mut depth = 1;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            b'{' => depth += 1,
            _ => {}
        }
    }
    None
}

/// Returns the position of `byte` outside of brackets.
fn top_level(text: &[u8], byte: u8) -> Option<usize> {
    let mut depth = 1;
    for (at, found) in text.iter().enumerate() {
        match found {
            found if *found == byte && depth == 1 => return Some(at),
            b'}' => depth -= 1,
            b'{' => depth += 1,
            _ => {}
        }
    }
    None
}

/// Escapes a group for the `[B]` flag.
fn escape_group(group: &[u8], rule: &Rule) -> Vec<u8> {
    let flags = &rule.flags;
    let mut out = Vec::with_capacity(group.len());
    for byte in group {
        let visible = !byte.is_ascii_control() && *byte != b' ';
        let asked = match (&flags.escapes, flags.escape_controls) {
            (Some(list), controls) => list.contains(byte) || controls && !visible,
            (None, true) => !visible,
            (None, false) => true,
        };
        let spared = flags
            .no_escapes
            .as_ref()
            .is_some_and(|list| list.contains(byte));
        if !asked || spared || byte.is_ascii_alphanumeric() || *byte == b'_' {
            out.push(*byte);
        } else if *byte == b' ' && !flags.escape_no_plus {
            out.push(b'+');
        } else {
            hex(*byte, &mut out);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_date_has_hyphens() {
        assert_eq!(cookie_date(784_111_777), "Sun, 06-Nov-1994 08:49:37 GMT");
    }
}
