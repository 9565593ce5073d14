//! Apache's expressions (`ap_expr`): the tree that `<If>`, `Require expr`, `SetEnvIfExpr`, `expr=` and
//! texts with `%{…}` are read into. [`parse`] reads, `crate::evaluate` evaluates. Pure.

mod parse;
mod tokens;

use crate::network::Network;
use crate::pattern::Regex;

pub(crate) use parse::{condition, text};

/// Something that is true or not.
#[derive(Debug)]
pub(crate) enum Condition {
    Constant(bool),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    /// As numbers.
    Numbers(Comparison, Word, Word),
    Texts(Comparison, Word, Word),
    In(Word, Vec<Word>),
    Matches {
        word: Word,
        regex: Regex,
        /// It has groups, which `$1` is to mean from then on.
        keeps: bool,
        negated: bool,
    },
    /// `-z`, `-f` and their like.
    Unary(u8, Word),
    /// `-R` with no word, `-ipmatch` with one.
    Network(Option<Word>, Network),
    /// `-fnmatch`, `-strmatch`, `-strcmatch`
    Shell(Shell, Word, Word),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(crate) fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shell {
    /// A star stops at a slash.
    Path,
    Text,
    TextNoCase,
}

/// Something that has a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Text(Vec<u8>),
    /// `%{NAME}`, in upper case.
    Variable(String),
    /// `name(…)` and `%{name:…}`, in lower case.
    Function(String, Box<Word>),
    /// `$1`
    Group(usize),
    Concatenated(Vec<Word>),
}

impl Word {
    pub(crate) fn empty() -> Word {
        Word::Text(Vec::new())
    }

    /// The text, if it is the same for every request.
    pub(crate) fn constant(&self) -> Option<&[u8]> {
        match self {
            Word::Text(text) => Some(text),
            _ => None,
        }
    }
}
