//! The syntax tree of Apache's expressions (`ap_expr`): those of `<If>`, `Require expr`, `SetEnvIfExpr` and `expr=`,
//! and texts with `%{…}`. [`parse`] builds it, `crate::evaluate` evaluates it.

mod parse;
mod tokens;

use crate::network::Network;
use crate::pattern::Regex;

pub(crate) use parse::{condition, text};

/// An expression that is true or false.
#[derive(Debug)]
pub(crate) enum Condition {
    Constant(bool),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    /// A comparison of two numbers.
    Numbers(ComparisonOperator, Word, Word),
    Texts(ComparisonOperator, Word, Word),
    In(Word, Vec<Word>),
    Matches {
        word: Word,
        regex: Regex,
        /// Whether the expression has groups, to which `$1` refers from then on.
        keeps: bool,
        negated: bool,
    },
    /// Unary operators such as `-z` and `-f`.
    Unary(u8, Word),
    /// `-R` without a word, `-ipmatch` with one.
    Network(Option<Word>, Network),
    /// `-fnmatch`, `-strmatch` and `-strcmatch`.
    Glob(GlobKind, Word, Word),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparisonOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl ComparisonOperator {
    pub(crate) fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            ComparisonOperator::Equal => order.is_eq(),
            ComparisonOperator::NotEqual => order.is_ne(),
            ComparisonOperator::Less => order.is_lt(),
            ComparisonOperator::LessOrEqual => order.is_le(),
            ComparisonOperator::Greater => order.is_gt(),
            ComparisonOperator::GreaterOrEqual => order.is_ge(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GlobKind {
    /// A star does not match a slash.
    Path,
    Text,
    TextNoCase,
}

/// An expression whose value is a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Text(Vec<u8>),
    /// `%{NAME}`; the name is in upper case.
    Variable(String),
    /// `name(…)` and `%{name:…}`; the name is in lower case.
    Function(String, Box<Word>),
    /// `$1`
    Group(usize),
    Concatenated(Vec<Word>),
}

impl Word {
    pub(crate) fn empty() -> Word {
        Word::Text(Vec::new())
    }

    /// Returns the text if it is the same for every request.
    pub(crate) fn constant(&self) -> Option<&[u8]> {
        match self {
            Word::Text(text) => Some(text),
            _ => None,
        }
    }
}
