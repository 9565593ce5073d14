//! The type of an option's value: a column of the table of options.

/// The values that an option accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// `true`, `false`, `"on"`, `"off"`
    OnOff,
    /// A number in this range.
    Integer(u64, u64),
    /// A number in this range, or `"auto"`.
    IntegerOrAuto(u64, u64),
    /// A time with unit, in this range of milliseconds.
    Time(u64, u64),
    /// A time with unit, or `"off"`.
    TimeOrOff(u64, u64),
    /// Bytes with unit, in this range.
    Size(u64, u64),
    /// Bytes with unit, or `"auto"`.
    SizeOrAuto(u64, u64),
    /// Bytes with unit, or `"off"`.
    SizeOrOff(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A string in quotes.
    Text,
    /// A path. A relative path starts at the configuration file's directory.
    Path,
    /// A path, or one of these words.
    PathOr(&'static [&'static str]),
    /// A string, or a list of strings.
    Texts,
    /// `name = value` pairs.
    Pairs,
    /// One table `[…]`; its options are a section of their own.
    Table,
    /// Any number of tables `[[…]]`; their options are a section of their own.
    Sections,
}
