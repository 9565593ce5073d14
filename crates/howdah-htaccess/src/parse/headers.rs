//! Directives of mod_headers and mod_expires.

use std::sync::Arc;

use super::{FileParser, Parsed, on_or_off, one_argument, two_arguments};
use crate::config::{
    ExpiresSettings, HeaderAction, HeaderCondition, HeaderLine, HeaderValue, HeaderValuePart,
    Lifetime,
};
use crate::expression;
use crate::lines::{Line, word, words};
use crate::pattern::Regex;
use crate::text::number;

impl FileParser<'_> {
    pub(super) fn header_directive(
        &mut self,
        _line: &Line<'_>,
        name: &str,
        rest: &str,
        all: &[String],
    ) -> Option<Parsed> {
        let done = match name {
            "header" | "requestheader" => self.header(name == "requestheader", rest),
            "expiresactive" => on_or_off(all).map(|on| self.expires().active = Some(on)),
            "expiresdefault" => one_argument(all).and_then(|code| {
                self.expires().default = Some(lifetime(code)?);
                Ok(())
            }),
            "expiresbytype" => two_arguments(all).and_then(|(kind, code)| {
                let Some((_, minor)) = kind.rsplit_once('/') else {
                    return Err("the media type has no slash");
                };
                let lifetime = lifetime(code)?;
                let expires = self.expires();
                expires.wildcards |= minor == "*";
                expires.by_type.insert(kind.to_ascii_lowercase(), lifetime);
                Ok(())
            }),
            _ => return None,
        };
        Some(done)
    }

    fn expires(&mut self) -> &mut ExpiresSettings {
        Arc::make_mut(self.settings().expires.get_or_insert_default())
    }

    fn header(&mut self, request: bool, rest: &str) -> Parsed {
        let (mut action, mut rest) = word(rest);
        let mut always = false;
        if !request {
            match &*action.to_ascii_lowercase() {
                "always" => {
                    always = true;
                    (action, rest) = word(rest);
                }
                "onsuccess" => (action, rest) = word(rest),
                _ => {}
            }
        }
        let arguments = words(rest);
        let (name, arguments) = match arguments.split_first() {
            Some((name, arguments)) => (name.clone(), arguments),
            None => (String::new(), &arguments[..]),
        };
        if arguments.len() > 3 {
            return Err("the directive has too many arguments");
        }
        let line = header_line(&action.to_ascii_lowercase(), name, arguments, request)?;
        let headers = Arc::make_mut(self.settings().headers.get_or_insert_default());
        let list = match (request, always) {
            (true, _) => &mut headers.request,
            (false, true) => &mut headers.always,
            (false, false) => &mut headers.on_success,
        };
        list.push(Arc::new(line));
        Ok(())
    }
}

fn header_line(
    action: &str,
    name: String,
    arguments: &[String],
    request: bool,
) -> Result<HeaderLine, &'static str> {
    let more = "the directive has too few arguments";
    let compile = |text: &str| Regex::new(text, false).ok_or("the expression has a mistake");
    let plain = |action| match arguments {
        [] => Err(more),
        [value] => Ok((action, value.as_str(), None)),
        [value, clause] => Ok((action, value.as_str(), Some(clause))),
        _ => Err("the directive has too many arguments"),
    };
    let without = |action| match arguments {
        [] => Ok((action, "", None)),
        [clause] => Ok((action, "", Some(clause))),
        _ => Err("the directive has too many arguments"),
    };
    let (action, value, clause) = match action {
        "set" => plain(HeaderAction::Set)?,
        "setifempty" => plain(HeaderAction::SetIfEmpty)?,
        "add" => plain(HeaderAction::Add)?,
        "append" => plain(HeaderAction::Append)?,
        "merge" => plain(HeaderAction::Merge)?,
        "note" => plain(HeaderAction::Note)?,
        "unset" => without(HeaderAction::Unset)?,
        "echo" if request => return Err("RequestHeader does not support echo"),
        "echo" => without(HeaderAction::Echo(compile(&name)?))?,
        "edit" | "edit*" => {
            let [expression, value, rest @ ..] = arguments else {
                return Err(more);
            };
            let action = HeaderAction::Edit(compile(expression)?, action == "edit*");
            (action, value.as_str(), rest.first())
        }
        _ => return Err("the action for the header is unknown"),
    };
    let when = clause.map_or(Ok(HeaderCondition::Always), |clause| when(clause))?;
    let value = match &action {
        HeaderAction::Unset | HeaderAction::Echo(_) => HeaderValue::Parts(Vec::new()),
        _ => format(value)?,
    };
    let name = name.split(':').next().unwrap_or_default();
    Ok(HeaderLine {
        action,
        name: name.as_bytes().to_vec(),
        value,
        when,
    })
}

fn when(clause: &str) -> Result<HeaderCondition, &'static str> {
    let lower = clause.to_ascii_lowercase();
    if lower == "early" {
        return Ok(HeaderCondition::Never);
    }
    if lower.starts_with("env=") {
        let name = &clause[4..];
        let (name, wanted) = match name.strip_prefix('!') {
            Some(name) => (name, false),
            None => (name, true),
        };
        return match name.is_empty() {
            true => Err("the variable's name is missing"),
            false => Ok(HeaderCondition::Env(name.as_bytes().to_vec(), wanted)),
        };
    }
    if lower.starts_with("expr=") {
        let condition = expression::condition(&clause.as_bytes()[5..]);
        return condition
            .map(HeaderCondition::Expression)
            .ok_or("the expression has a mistake");
    }
    Err("the last argument is unknown")
}

/// Parses a value: text with `%{NAME}e`, or an expression.
fn format(text: &str) -> Result<HeaderValue, &'static str> {
    if let Some(expression) = text.strip_prefix("expr=") {
        let word = expression::text(expression.as_bytes());
        return word
            .map(HeaderValue::Expression)
            .ok_or("the expression has a mistake");
    }
    let mut parts = Vec::new();
    let mut plain = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'\\', [escaped @ (b'\\' | b'r' | b'n' | b't'), after @ ..]) => {
                plain.push(match escaped {
                    b'r' => b'\r',
                    b'n' => b'\n',
                    b't' => b'\t',
                    _ => b'\\',
                });
                after
            }
            (b'%', []) => {
                plain.push(b'%');
                after
            }
            (b'%', [b'%', after @ ..]) => {
                plain.push(b'%');
                after
            }
            (b'%', after) => {
                let (name, after) = match after.strip_prefix(b"{") {
                    Some(inner) => {
                        let end = inner.iter().position(|b| *b == b'}').unwrap_or(inner.len());
                        (
                            inner[..end].to_vec(),
                            inner.get(end + 1..).unwrap_or_default(),
                        )
                    }
                    None => (Vec::new(), after),
                };
                let Some((letter, after)) = after.split_first() else {
                    return Err("the header's format is unknown");
                };
                let part = match letter {
                    b'e' => HeaderValuePart::Env(name),
                    b's' => HeaderValuePart::Ssl(name),
                    b't' => HeaderValuePart::Time,
                    b'D' => HeaderValuePart::Duration,
                    b'l' | b'i' | b'b' => HeaderValuePart::Load(*letter),
                    _ => return Err("the header's format is unknown"),
                };
                if !plain.is_empty() {
                    parts.push(HeaderValuePart::Text(std::mem::take(&mut plain)));
                }
                parts.push(part);
                after
            }
            (byte, after) => {
                plain.push(*byte);
                after
            }
        };
    }
    if !plain.is_empty() {
        parts.push(HeaderValuePart::Text(plain));
    }
    Ok(HeaderValue::Parts(parts))
}

/// Parses `A3600`, or `access plus 1 month 2 days`.
fn lifetime(code: &str) -> Result<Lifetime, &'static str> {
    let mistake = "the time is not valid";
    // As in Apache, only a number may follow these letters.
    if let Some(first @ ('A' | 'M')) = code.chars().next() {
        return Ok(Lifetime {
            from_modification: first == 'M',
            seconds: number(&code.as_bytes()[1..]),
        });
    }
    let all = words(code);
    let (base, mut rest) = all.split_first().ok_or(mistake)?;
    let starts = |word: &str, with: &str| {
        let start = word.as_bytes().get(..with.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
    };
    let from_modification = match base {
        base if starts(base, "n") || starts(base, "a") => false,
        base if starts(base, "m") => true,
        _ => return Err(mistake),
    };
    if let [plus, after @ ..] = rest
        && starts(plus, "p")
    {
        rest = after;
    }
    let mut seconds = 0_i64;
    let mut pairs = rest.chunks_exact(2);
    for pair in &mut pairs {
        if !pair[0].starts_with(|c: char| c.is_ascii_digit()) {
            return Err(mistake);
        }
        let unit = match &pair[1] {
            unit if starts(unit, "y") => 31_536_000,
            unit if starts(unit, "mo") => 2_592_000,
            unit if starts(unit, "w") => 604_800,
            unit if starts(unit, "d") => 86_400,
            unit if starts(unit, "h") => 3600,
            unit if starts(unit, "mi") => 60,
            unit if starts(unit, "s") => 1,
            _ => return Err(mistake),
        };
        seconds = seconds.saturating_add(number(pair[0].as_bytes()).saturating_mul(unit));
    }
    match pairs.remainder() {
        [] => Ok(Lifetime {
            from_modification,
            seconds: i64::from(seconds as i32),
        }),
        _ => Err(mistake),
    }
}
