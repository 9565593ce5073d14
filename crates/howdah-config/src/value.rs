//! Values: converts what is written in the file (or on the command line, or as a default in the table) to its meaning.
//! Only this module parses numbers with units.

use std::path::PathBuf;
use std::time::Duration;

use super::kind::OptionKind;
use super::suggest;

/// A single value as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrittenValue {
    /// `"…"`
    Text(String),
    /// A whole number, in decimal.
    Number(String),
    /// `true`, `false`
    Bool(bool),
    /// Any other type, with its name.
    Other(&'static str),
}

impl WrittenValue {
    /// Creates a value from a default of the table or from the command line. Digits make a number, anything else is a
    /// string.
    pub fn written(text: &str) -> WrittenValue {
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            WrittenValue::Number(text.to_owned())
        } else {
            WrittenValue::Text(text.to_owned())
        }
    }
}

/// The meaning of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// On or off.
    OnOff(bool),
    /// A number.
    Integer(u64),
    /// `auto`
    Auto,
    /// `off`
    Off,
    /// A time.
    Time(Duration),
    /// Bytes.
    Size(u64),
    /// A string, a word, or a path as it is written.
    Text(String),
    /// A path that was resolved against the file's directory.
    Path(PathBuf),
    /// A list of strings, words or paths as they are written.
    Texts(Vec<String>),
    /// Names and values.
    Pairs(Vec<(String, String)>),
}

impl OptionValue {
    /// Stores the value in a field of a configuration.
    pub fn store_in<T: FromValue>(self, field: &mut T) {
        *field = T::from_value(self);
    }
}

/// A type that a field of a configuration may have. The table of options gives a field its value, and a test stores
/// every default. A value of the wrong kind is a mistake in the table.
pub trait FromValue: Sized {
    /// Converts the value to this type.
    fn from_value(value: OptionValue) -> Self;
}

macro_rules! from_value {
    ($($type:ty: $($pattern:pat => $made:expr),+;)*) => {
        $(impl FromValue for $type {
            fn from_value(value: OptionValue) -> $type {
                match value {
                    $($pattern => $made,)+
                    other => unreachable!("the table of options gives a field {other:?}"),
                }
            }
        })*
    };
}

from_value! {
    bool: OptionValue::OnOff(on) => on;
    // A field of this type counts a time in whole seconds.
    u64: OptionValue::Integer(n) | OptionValue::Size(n) => n, OptionValue::Time(time) => time.as_secs();
    u32: OptionValue::Integer(n) => u32::try_from(n).unwrap_or(u32::MAX);
    usize: OptionValue::Integer(n) | OptionValue::Size(n) => usize::try_from(n).unwrap_or(usize::MAX);
    Duration: OptionValue::Time(time) => time;
    PathBuf: OptionValue::Path(path) => path;
    Vec<String>: OptionValue::Texts(texts) => texts;
    Vec<(String, String)>: OptionValue::Pairs(pairs) => pairs;
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: OptionValue) -> Option<T> {
        match value {
            OptionValue::Auto | OptionValue::Off => None,
            value => Some(T::from_value(value)),
        }
    }
}

/// Parses a value of that kind. The error is a sentence that says what is expected.
pub fn parse(kind: OptionKind, scalar: &WrittenValue) -> Result<OptionValue, String> {
    let text = match scalar {
        WrittenValue::Text(text) => Some(text.as_str()),
        _ => None,
    };
    match kind {
        OptionKind::OnOff => match (scalar, text) {
            (WrittenValue::Bool(on), _) => Ok(OptionValue::OnOff(*on)),
            (_, Some("on")) => Ok(OptionValue::OnOff(true)),
            (_, Some("off")) => Ok(OptionValue::OnOff(false)),
            _ => Err(format!("expected `on` or `off`, found {}", shown(scalar))),
        },
        OptionKind::IntegerOrAuto(..) if text == Some("auto") => Ok(OptionValue::Auto),
        OptionKind::Integer(min, max) => integer(scalar, min, max, ""),
        OptionKind::IntegerOrAuto(min, max) => integer(scalar, min, max, " or `auto`"),
        OptionKind::TimeOrOff(..) | OptionKind::SizeOrOff(..)
            if text == Some("off") || *scalar == WrittenValue::Bool(false) =>
        {
            Ok(OptionValue::Off)
        }
        OptionKind::SizeOrAuto(..) if text == Some("auto") => Ok(OptionValue::Auto),
        OptionKind::SizeOrAuto(min, max) => size(scalar, min, max, " or `auto`"),
        OptionKind::Time(min, max) => time(scalar, min, max, ""),
        OptionKind::TimeOrOff(min, max) => time(scalar, min, max, " or `off`"),
        OptionKind::Size(min, max) => size(scalar, min, max, ""),
        OptionKind::SizeOrOff(min, max) => size(scalar, min, max, " or `off`"),
        OptionKind::Word(words) => match text {
            Some(text) if words.contains(&text) => Ok(OptionValue::Text(text.to_owned())),
            Some(text) => Err(format!(
                "expected {}, found `{}`{}",
                one_of(words),
                text.escape_debug(),
                suggest::did_you_mean(text, words)
            )),
            None => Err(format!(
                "expected {}, found {}",
                one_of(words),
                shown(scalar)
            )),
        },
        OptionKind::Text | OptionKind::Path | OptionKind::PathOr(_) => match text {
            Some(text) if text.contains('\0') => {
                Err("a string cannot contain a NUL character".into())
            }
            Some("") if kind != OptionKind::Text => {
                Err("expected a path, found an empty string".into())
            }
            Some(text) => Ok(OptionValue::Text(text.to_owned())),
            None => Err(format!(
                "expected a string in quotes, found {}",
                shown(scalar)
            )),
        },
        OptionKind::Texts => match scalar {
            WrittenValue::Text(text) => Ok(OptionValue::Texts(vec![text.clone()])),
            _ => Err(format!(
                "expected a string in quotes or a list of strings, found {}",
                shown(scalar)
            )),
        },
        OptionKind::Pairs => Err(format!(
            "expected a table of names and values, found {}",
            shown(scalar)
        )),
        OptionKind::Table => Err(format!("expected a table, `[…]`, found {}", shown(scalar))),
        OptionKind::Sections => Err(format!("expected tables, `[[…]]`, found {}", shown(scalar))),
    }
}

fn integer(scalar: &WrittenValue, min: u64, max: u64, or: &str) -> Result<OptionValue, String> {
    let WrittenValue::Number(text) = scalar else {
        let found = shown(scalar);
        return Err(format!(
            "expected a number from {min} to {max}{or}, found {found}"
        ));
    };
    match text.parse() {
        Ok(n) if (min..=max).contains(&n) => Ok(OptionValue::Integer(n)),
        _ => Err(format!("`{text}` is not in the range {min} to {max}")),
    }
}

/// The units of a time, in milliseconds.
pub const TIME_UNITS: &[(&str, u64)] = &[
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];
/// The units of a size, in bytes.
pub const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
];

/// Other spellings of units, in lower case, each with ours.
const OTHER_SIZE_UNITS: &[(&str, &str)] = &[
    ("b", ""),
    ("k", "K"),
    ("kb", "K"),
    ("kib", "K"),
    ("m", "M"),
    ("mb", "M"),
    ("mib", "M"),
    ("g", "G"),
    ("gb", "G"),
    ("gib", "G"),
    ("t", "T"),
    ("tb", "T"),
    ("tib", "T"),
];
const OTHER_TIME_UNITS: &[(&str, &str)] = &[
    ("", "s"),
    ("sec", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("min", "m"),
    ("minute", "m"),
    ("minutes", "m"),
    ("hour", "h"),
    ("hours", "h"),
    ("day", "d"),
    ("days", "d"),
];

/// Returns "; write `64M`" for a string such as `64MB`, whose unit has another spelling here.
fn meant(scalar: &WrittenValue, spellings: &[(&str, &str)]) -> String {
    let WrittenValue::Text(text) = scalar else {
        return String::new();
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    match spellings.iter().find(|(other, _)| *other == unit) {
        Some((_, ours)) if digits > 0 && *text != format!("{number}{ours}") => {
            format!("; write `\"{number}{ours}\"`")
        }
        _ => String::new(),
    }
}

/// Parses `10s`, `1m` or `250ms` to milliseconds.
pub fn milliseconds(text: &str) -> Option<u64> {
    with_unit(text, TIME_UNITS)
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.checked_mul(*factor)
}

fn time(scalar: &WrittenValue, min: u64, max: u64, or: &str) -> Result<OptionValue, String> {
    let ms = match scalar {
        WrittenValue::Text(text) => milliseconds(text),
        WrittenValue::Number(zero) if zero == "0" => Some(0),
        WrittenValue::Number(number) => {
            return Err(format!(
                "a time needs a unit: `\"{number}s\"` for seconds (ms, s, m, h, d)"
            ));
        }
        _ => None,
    };
    let found = shown(scalar);
    match ms {
        None => Err(format!(
            "expected a time such as `\"10s\"` (ms, s, m, h, d){or}, found {found}{}",
            meant(scalar, OTHER_TIME_UNITS)
        )),
        Some(ms) if (min..=max).contains(&ms) => Ok(OptionValue::Time(Duration::from_millis(ms))),
        Some(_) => {
            let (min, max) = (show(min, TIME_UNITS), show(max, TIME_UNITS));
            Err(format!("{found} is not in the range {min} to {max}"))
        }
    }
}

fn size(scalar: &WrittenValue, min: u64, max: u64, or: &str) -> Result<OptionValue, String> {
    let bytes = match scalar {
        WrittenValue::Text(text) => with_unit(text, SIZE_UNITS),
        WrittenValue::Number(number) => number.parse().ok(),
        _ => None,
    };
    let found = shown(scalar);
    match bytes {
        None => Err(format!(
            "expected a size such as `\"32K\"` (bytes, K, M, G, T){or}, found {found}{}",
            meant(scalar, OTHER_SIZE_UNITS)
        )),
        Some(bytes) if (min..=max).contains(&bytes) => Ok(OptionValue::Size(bytes)),
        Some(_) => {
            let (min, max) = (show(min, SIZE_UNITS), show(max, SIZE_UNITS));
            Err(format!("{found} is not in the range {min} to {max}"))
        }
    }
}

/// Describes the values that a kind accepts, for the reference.
pub fn describe(kind: OptionKind) -> String {
    let times = |min, max| format!("{} to {}", show(min, TIME_UNITS), show(max, TIME_UNITS));
    let sizes = |min, max| format!("{} to {}", show(min, SIZE_UNITS), show(max, SIZE_UNITS));
    match kind {
        OptionKind::OnOff => "`on` or `off`".to_owned(),
        OptionKind::Integer(min, max) => format!("{min} to {max}"),
        OptionKind::IntegerOrAuto(min, max) => format!("{min} to {max}, or `auto`"),
        OptionKind::Time(min, max) => times(min, max),
        OptionKind::TimeOrOff(min, max) => format!("{}, or `off`", times(min, max)),
        OptionKind::Size(min, max) => sizes(min, max),
        OptionKind::SizeOrAuto(min, max) => format!("{}, or `auto`", sizes(min, max)),
        OptionKind::SizeOrOff(min, max) => format!("{}, or `off`", sizes(min, max)),
        OptionKind::Word(words) => one_of(words),
        OptionKind::Text => "string".to_owned(),
        OptionKind::Path => "path".to_owned(),
        OptionKind::PathOr(words) => format!("path, or {}", one_of(words)),
        OptionKind::Texts => "list of strings".to_owned(),
        OptionKind::Pairs => "table".to_owned(),
        OptionKind::Table => "table".to_owned(),
        OptionKind::Sections => "tables".to_owned(),
    }
}

/// Formats a number with the largest unit that divides it.
fn show(n: u64, units: &[(&str, u64)]) -> String {
    let (unit, factor) = units
        .iter()
        .rev()
        .find(|(_, factor)| n > 0 && n.is_multiple_of(*factor))
        .unwrap_or(&units[0]);
    format!("{}{unit}", n / factor)
}

fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

fn shown(scalar: &WrittenValue) -> String {
    match scalar {
        WrittenValue::Text(text) => format!("`{}`", text.escape_debug()),
        WrittenValue::Number(number) => format!("`{number}`"),
        WrittenValue::Bool(on) => format!("`{on}`"),
        WrittenValue::Other(what) => (*what).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_values_as_they_are_written() {
        let text = |t: &str| WrittenValue::Text(t.into());
        let number = |t: &str| WrittenValue::Number(t.into());
        let ten = OptionValue::Time(Duration::from_secs(10));
        let minute = OptionKind::Time(0, 60_000);
        let mega = OptionKind::Size(0, 1 << 20);
        for (kind, scalar, expect) in [
            (minute, text("10s"), Ok(ten.clone())),
            (minute, text("10 s"), Ok(ten)),
            (
                minute,
                number("10"),
                Err("a time needs a unit: `\"10s\"` for seconds (ms, s, m, h, d)"),
            ),
            (
                minute,
                text("2m"),
                Err("`2m` is not in the range 0ms to 1m"),
            ),
            (
                OptionKind::TimeOrOff(0, 60_000),
                text("soon"),
                Err("expected a time such as `\"10s\"` (ms, s, m, h, d) or `off`, found `soon`"),
            ),
            (
                OptionKind::TimeOrOff(0, 1),
                text("off"),
                Ok(OptionValue::Off),
            ),
            (mega, text("32K"), Ok(OptionValue::Size(32768))),
            (mega, number("860"), Ok(OptionValue::Size(860))),
            (mega, text("2M"), Err("`2M` is not in the range 0 to 1M")),
            (
                mega,
                text("64MB"),
                Err(
                    "expected a size such as `\"32K\"` (bytes, K, M, G, T), found `64MB`; write `\"64M\"`",
                ),
            ),
            (
                minute,
                text("5 min"),
                Err(
                    "expected a time such as `\"10s\"` (ms, s, m, h, d), found `5 min`; write `\"5m\"`",
                ),
            ),
            (
                mega,
                text("99999999999999999999G"),
                Err(
                    "expected a size such as `\"32K\"` (bytes, K, M, G, T), found `99999999999999999999G`",
                ),
            ),
            (
                OptionKind::OnOff,
                WrittenValue::Bool(true),
                Ok(OptionValue::OnOff(true)),
            ),
            (
                OptionKind::OnOff,
                text("yes"),
                Err("expected `on` or `off`, found `yes`"),
            ),
            (
                OptionKind::IntegerOrAuto(1, 9),
                text("auto"),
                Ok(OptionValue::Auto),
            ),
            (
                OptionKind::IntegerOrAuto(1, 9),
                text("9"),
                Err("expected a number from 1 to 9 or `auto`, found `9`"),
            ),
            (
                OptionKind::Word(&["static", "dynamic", "ondemand"]),
                text("dynamc"),
                Err(
                    "expected `static`, `dynamic` or `ondemand`, found `dynamc`; did you mean `dynamic`?",
                ),
            ),
        ] {
            let expect = expect.map_err(str::to_owned);
            assert_eq!(parse(kind, &scalar), expect, "{scalar:?}");
        }
    }
}
